"""From prompts to a corpus: what is not answered yet, in an order that a seed decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from training.draws import uniform
from training.files import alone
from training.generate import Recipe, generate
from training.opening import common_opening
from training.prompts import EncodedPrompt, Prompt, Source, encode
from training.records import Record
from training.shards import Corpus, read_corpus
from training.target import TrainingTarget
from training.tasks import OwnText


@dataclass
class Counts:
    """What a corpus has: sequences and response tokens, and how responses ended."""

    sequences: int = 0
    tokens: int = 0
    ends: dict[str, int] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Counts one."""
        self.sequences += 1
        self.tokens += len(record.response)
        self.ends[record.end] = self.ends.get(record.end, 0) + 1


def count(records: Iterable[Record]) -> Counts:
    """Of all records."""
    counts = Counts()
    for record in records:
        counts.add(record)
    return counts


def make_data(
    target: TrainingTarget,
    sources: Sequence[Source],
    folder: Path,
    recipe: Recipe,
    *,
    most_tokens: int | None = None,
    longest_prompt: int = 700,
    commit: str | None = None,
    tell: Callable[[Counts, int], None] = lambda counts, prompts: None,
) -> Counts:
    """Answers prompts until none is left or the corpus has `most_tokens` response tokens.

    A prompt that the corpus has is not answered again, so a second call goes on.

    Args:
        longest_prompt: tokens of a prompt that is used, template included.
        commit: of the code, for the provenance.
        tell: what the corpus has, and how many prompts there are in all.
    """
    with alone(folder):
        provenance = {
            **target.provenance(),
            "commit": commit,
            "recipe": asdict(recipe),
            "sources": {source.name: source.digest for source in sources},
        }
        corpus = Corpus(folder, provenance)
        done = corpus.resume()
        counts = count(read_corpus(folder))
        prompts = list(encode(_all(sources), target.tokenizer, longest_prompt))
        left = [prompt for prompt in prompts if prompt.digest not in done]
        left.sort(key=lambda prompt: uniform(recipe.seed, prompt.digest, -2))
        lm = target.engine(recipe.slots * (longest_prompt + recipe.max_tokens + 64))
        corpus.provenance["numerics"] = asdict(lm.numerics)
        stop = frozenset(lm.eos_ids)
        shared = common_opening([prompt.ids for prompt in left])
        tell(counts, len(prompts))
        limit = float("inf") if most_tokens is None else most_tokens
        if counts.tokens < limit:
            for record in generate(lm, _while(left, counts, limit), recipe, stop, shared):
                if len(record.response):  # a loop may begin with the first token
                    corpus.add(record)
                    counts.add(record)
                tell(counts, len(prompts))
        corpus.seal()
        return counts


def own_texts(
    records: Iterable[Record], prompts: Iterable[Prompt], tokenizer: PreTrainedTokenizerBase
) -> Iterator[OwnText]:
    """What the target wrote, as texts; with the conversation before it where `prompts` has it."""
    conversations = {}
    for prompt in prompts:
        for encoded in encode([prompt], tokenizer, 1 << 20):
            conversations[encoded.digest] = prompt.messages
    for record in records:
        text = tokenizer.decode(record.response, skip_special_tokens=True)
        messages = conversations.get(record.digest, ())
        yield OwnText(messages, str(text), record.source, record.group)


def _all(sources: Sequence[Source]) -> Iterator[Prompt]:
    for source in sources:
        yield from source.prompts


def _while(
    prompts: Sequence[EncodedPrompt], counts: Counts, limit: float
) -> Iterator[EncodedPrompt]:
    """Prompts as long as tokens are wanted; those begun are finished."""
    for prompt in prompts:
        if counts.tokens >= limit:
            return
        yield prompt
