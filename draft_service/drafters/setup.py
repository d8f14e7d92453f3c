"""What a drafter is built from, and the check that it speaks the target's language."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.drafting.specs import DrafterRefused


@dataclass(frozen=True)
class Vocabulary:
    """The target's: what every token id of this service means.

    name: the target's, as it was asked for. context_length: prompt and output together.
    """

    name: str
    tokenizer_fingerprint: str
    size: int
    context_length: int


@dataclass(frozen=True)
class Setup:
    """Shared by all drafters of a service.

    target: directory, hub id or GGUF file of the target; "default" is the default target.
    dtype, device, threads: as `load_model` takes them; auto is what was stored for the target.
    ngram_past_tokens: of past outputs that prompt lookup remembers over all sessions; 0 is none.
    """

    target: str
    vocabulary: Vocabulary
    dtype: str = "auto"
    device: str = "cpu"
    threads: int | None = None
    ngram_past_tokens: int = 0


def check_vocabulary(target: Vocabulary, name: str, tokenizer_fingerprint: str, size: int) -> None:
    """Refuses a draft model whose token ids mean something else than the target's.

    Raises:
        DrafterRefused: fingerprints or sizes differ.
    """
    if tokenizer_fingerprint != target.tokenizer_fingerprint:
        raise DrafterRefused(
            f"tokenizer fingerprint of draft model {name} is {tokenizer_fingerprint}, "
            f"of target {target.name} {target.tokenizer_fingerprint}; they must be equal"
        )
    if size != target.size:
        raise DrafterRefused(
            f"vocabulary size of draft model {name} is {size}, "
            f"of target {target.name} {target.size}; they must be equal"
        )
