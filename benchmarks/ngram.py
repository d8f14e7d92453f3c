"""Prompt lookup replayed on stored greedy texts, without a model.

    python -m benchmarks.ngram TEXTS.jsonl [--collect HOST:PORT --tokens 128]

A line of TEXTS is {"prompt": [ids], "text": [ids]}. Greedy decoding accepts what the text says, so
a replay gives exactly the acceptance that the target would. --collect first writes TEXTS: the
answers of a running server to the fixed part of Spec-Bench. Compared are this project's drafter and
plain prompt lookup, which takes the most recent of the longest matches of two to four tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks import report
from benchmarks.spec_bench import SUBSET
from outrider.client import Client
from outrider.core.round import Budget, Proposal, SamplingParams
from outrider.core.tree import TokenTree, TreeBuilder
from outrider.drafting.base import Drafter, DraftSession
from outrider.drafting.ngram import NgramDrafter
from outrider.models.hub import DEFAULT
from outrider.models.tokenizer import load_tokenizer

GREEDY = SamplingParams(temperature=0.0)
BUDGETS = (Budget(4, 4), Budget(5, 5), Budget(8, 8), Budget(4, 12), Budget(8, 12))


@dataclass
class Counts:
    """What replays came to; `passes` counts every target pass, rounds those with a draft."""

    tokens: int = 0
    passes: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0

    @property
    def tokens_per_pass(self) -> float:
        """1 for plain decoding."""
        return self.tokens / max(1, self.passes)

    @property
    def acceptance_length(self) -> float:
        """Tokens emitted per round."""
        return 1.0 + self.accepted / max(1, self.rounds)

    @property
    def nodes_per_accepted(self) -> float:
        """Drafted nodes for each that was kept: what the gain costs."""
        return self.drafted / max(1, self.accepted)


class MostRecentMatch(Drafter):
    """Prompt lookup as it is usual: what followed the last four to two tokens before."""

    method = "plain lookup"

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        """A chain of the first match, or all matches merged where there are nodes for a tree."""
        return [Proposal(self._tree(session.tokens, b), self.method) for session, b in batch]

    def _tree(self, tokens: list[int], budget: Budget) -> TokenTree:
        tree = TreeBuilder(tokens[-1])
        for end in self._matches(tokens):
            node = 0
            for token in tokens[end : end + budget.depth]:
                if len(tree) > budget.nodes:
                    return tree.build()
                node = tree.add(node, token)
            if budget.nodes <= budget.depth:
                break
        return tree.build()

    def _matches(self, tokens: list[int]) -> Iterator[int]:
        seen: set[int] = set()
        for n in (4, 3, 2):
            for end in range(len(tokens) - 1, n - 1, -1):
                if end not in seen and tokens[end - n : end] == tokens[-n:]:
                    seen.add(end)
                    yield end


def replay(
    drafter: Drafter, prompt: Sequence[int], text: Sequence[int], budget: Budget, counts: Counts
) -> None:
    """Adds one text; its first token is the prefill's."""
    session = drafter.open([*prompt, *text[:1]], GREEDY)
    drafter.prefill(session)
    done = 1
    while done < len(text):
        depth = min(budget.depth, len(text) - done - 1)
        tree = TokenTree.root_only(session.tokens[-1])
        if depth:
            nodes = depth if budget.nodes <= budget.depth else budget.nodes
            tree = drafter.propose([(session, Budget(depth, nodes))])[0].tree
        node, kept = 0, 0
        while (child := tree.child_with(node, text[done + kept])) is not None:
            node, kept = child, kept + 1
        new = text[done : done + kept + 1]
        drafter.observe(session, new)
        done += len(new)
        counts.passes += 1
        counts.tokens += len(new)
        counts.rounds += tree.drafted > 0
        counts.drafted += tree.drafted
        counts.accepted += kept
    drafter.close(session)


def measure(
    make: Callable[[], Drafter], texts: Sequence[dict[str, list[int]]], budget: Budget
) -> Counts:
    """All texts, one drafter for each."""
    counts = Counts()
    for row in texts:
        replay(make(), row["prompt"], row["text"], budget, counts)
    return counts


def collect(address: str, tokens: int) -> list[dict[str, list[int]]]:
    """A server's own greedy texts for the fixed part of Spec-Bench."""
    tokenizer = load_tokenizer(DEFAULT)
    texts = []
    with Client(address) as client:
        for line in SUBSET.read_text(encoding="utf-8").splitlines():
            messages = [{"role": "user", "content": json.loads(line)["turns"][0]}]
            ids: Any = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_dict=False
            )
            result = client.generate(prompt_token_ids=list(ids), max_tokens=tokens, temperature=0.0)
            texts.append({"prompt": list(ids), "text": result.token_ids})
    return texts


def main() -> int:
    """Replays and prints; the figures go to the result file."""
    parser = report.parser(__doc__, "ngram")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--collect", metavar="HOST:PORT", help="server to take the texts from")
    parser.add_argument("--tokens", type=int, default=128, help="of each text")
    given = parser.parse_args()
    if given.collect:
        rows = collect(given.collect, given.tokens)
        given.texts.parent.mkdir(parents=True, exist_ok=True)
        given.texts.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    texts = [json.loads(line) for line in given.texts.read_text(encoding="utf-8").splitlines()]
    return _compare(given, texts)


def _compare(given: argparse.Namespace, texts: Sequence[dict[str, list[int]]]) -> int:
    table = Table("drafter", "depth", "nodes", "tokens a pass", "length", "drafted per accepted")
    figures: dict[str, Any] = {}
    limits = []
    for budget in BUDGETS:
        name = f"depth {budget.depth}, {budget.nodes} nodes"
        found = {
            drafter.method: measure(drafter, texts, budget)
            for drafter in (MostRecentMatch, NgramDrafter)
        }
        for method, counts in found.items():
            shape = (str(budget.depth), str(budget.nodes))
            values = (counts.tokens_per_pass, counts.acceptance_length, counts.nodes_per_accepted)
            table.add_row(method, *shape, *(f"{value:.3f}" for value in values))
        figures[name] = {method: asdict(counts) for method, counts in found.items()}
        plain, own = found[MostRecentMatch.method], found[NgramDrafter.method]
        limits.append(
            report.Limit(
                f"accepted, {name}, to plain lookup",
                own.accepted / max(1, plain.accepted),
                1.0,
                True,
            )
        )
    report.console().print(table)
    run = {"texts": len(texts), "tokens": sum(len(row["text"]) for row in texts)}
    return report.finish(given.out, run, figures, limits)


if __name__ == "__main__":
    sys.exit(main())
