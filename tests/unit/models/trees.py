"""Random trees and what they mean, for the tests of the forward."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from outrider.models.cache import BLOCK

CONTEXTS = (0, 1, 5, 17, BLOCK - 2, BLOCK, BLOCK + 3)


@dataclass(frozen=True)
class Case:
    """One session of a forward: its cached tokens and the tree behind them."""

    context: list[int]
    tokens: list[int]
    parents: list[int]
    tree_exact: bool

    def path(self, row: int) -> list[int]:
        """Rows from the tree's top down to `row`."""
        rows = []
        while row >= 0:
            rows.append(row)
            row = self.parents[row]
        return rows[::-1]

    def sequence(self, row: int) -> list[int]:
        """All tokens up to `row`, as the row alone would see them."""
        return self.context + [self.tokens[r] for r in self.path(row)]


@st.composite
def cases(draw: st.DrawFn, vocab: int, contexts: Sequence[int] = CONTEXTS, most: int = 9) -> Case:
    """Sessions whose tree is a chain, a bush or anything between."""
    token = st.integers(0, vocab - 1)
    length = draw(st.sampled_from(contexts))
    context = random.Random(draw(st.integers(0, 1000))).choices(range(vocab), k=length)
    tokens = draw(st.lists(token, min_size=1, max_size=most))
    chain = draw(st.booleans())
    parents = [row - 1 if chain else draw(st.integers(-1, row - 1)) for row in range(len(tokens))]
    return Case(context, tokens, parents, draw(st.booleans()))
