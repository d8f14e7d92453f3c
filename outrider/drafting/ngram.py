"""Prompt lookup: what followed the last tokens earlier in the text is likely to follow them again.

After apoorvumang/prompt-lookup-decoding, with the most recent match instead of the first,
continuations of any length, and several matches merged into one tree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

from outrider.core.round import Budget, Features, Proposal, SamplingParams
from outrider.core.tree import TokenTree, TreeBuilder
from outrider.drafting.base import Drafter, DraftSession


class NgramIndex:
    """Where each n-gram of a growing text ends, for n from `min_n` to `max_n`.

    `update` costs time in the new tokens only, so a long context is indexed once.
    """

    def __init__(self, min_n: int, max_n: int) -> None:
        self._orders = range(max_n, min_n - 1, -1)
        self._ends: dict[int, defaultdict[tuple[int, ...], list[int]]] = {
            n: defaultdict(list) for n in self._orders
        }
        self._length = 0

    def update(self, tokens: Sequence[int]) -> None:
        """Indexes what `tokens` has beyond the last call.

        It must begin with what was indexed before.
        """
        for n, ends in self._ends.items():
            for end in range(max(self._length + 1, n), len(tokens) + 1):
                ends[tuple(tokens[end - n : end])].append(end)
        self._length = len(tokens)

    def matches(self, tokens: Sequence[int]) -> Iterator[int]:
        """Positions behind earlier occurrences of the text's end: longest match first, then most
        recent.

        `tokens` is the text as last indexed. Each position comes once, under its longest n-gram.
        """
        seen = {len(tokens)}
        for n in self._orders:
            if n > len(tokens):
                continue
            for end in reversed(self._ends[n].get(tuple(tokens[-n:]), ())):
                if end not in seen:
                    seen.add(end)
                    yield end


class NgramDrafter(Drafter):
    """Proposes continuations of earlier occurrences of the last `min_n` to `max_n` tokens.

    A single matching token (n = 1) is mostly chance, and each drafted node costs the target a row,
    so matches begin at two; beyond four, longer matches seldom continue differently.
    """

    method = "ngram"
    recommended_depth = 4

    def __init__(self, min_n: int = 2, max_n: int = 4, max_matches: int = 64) -> None:
        """max_matches bounds the matches read for one proposal.

        Raises:
            ValueError: min_n is not within 1 to max_n.
        """
        if not 1 <= min_n <= max_n:
            raise ValueError(f"min_n: {min_n}, limit 1 to max_n = {max_n}")
        self._min_n = min_n
        self._max_n = max_n
        self._max_matches = max_matches

    def open(self, prompt: Sequence[int], sampling: SamplingParams) -> DraftSession:
        """A session with an empty index."""
        return DraftSession(list(prompt), sampling, NgramIndex(self._min_n, self._max_n))

    def prefill(self, session: DraftSession, rows: int | None = None) -> bool:
        """Indexes the whole text.

        A few milliseconds for 8,000 tokens, so `rows` does not matter.
        """
        session.state.update(session.tokens)
        return True

    def observe(
        self,
        session: DraftSession,
        new_tokens: Sequence[int],
        features: Sequence[Features] = (),
        samples: Sequence[int] = (),
    ) -> None:
        """Appends and indexes the new tokens."""
        session.tokens.extend(new_tokens)
        session.state.update(session.tokens)

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        """Each session on its own; all children are unsampled, so the Match rule decides."""
        return [Proposal(self._tree(session, budget), self.method) for session, budget in batch]

    def _tree(self, session: DraftSession, budget: Budget) -> TokenTree:
        index: NgramIndex = session.state
        tokens = session.tokens
        index.update(tokens)
        merge = _merge_branches if budget.nodes > budget.depth else _merge_chain
        depth = min(budget.depth, budget.nodes)
        continuations = (
            tokens[end : end + depth] for end in islice(index.matches(tokens), self._max_matches)
        )
        return merge(tokens[-1], continuations, depth, budget.nodes)


def _merge_chain(
    root: int, continuations: Iterator[list[int]], depth: int, nodes: int
) -> TokenTree:
    """The first continuation; later ones count only where they begin with it and go on."""
    chain: list[int] = []
    for continuation in continuations:
        if len(chain) == depth:
            break
        if continuation[: len(chain)] == chain:
            chain = continuation
    return TokenTree.chain(root, chain)


def _merge_branches(
    root: int, continuations: Iterator[list[int]], depth: int, nodes: int
) -> TokenTree:
    """All continuations in order, equal beginnings shared, until the tree has `nodes` nodes."""
    tree = TreeBuilder(root)
    for continuation in continuations:
        node = 0
        for token in continuation:
            if len(tree) == nodes + 1:
                return tree.build()
            node = tree.add(node, token)
    return tree.build()
