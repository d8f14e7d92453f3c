"""The state of lookahead decoding: a window of guessed trajectories, and a pool of n-grams.

After Fu et al. (arXiv 2402.02057). The window has N-1 levels of W columns. Level 0 is the text's
last token and W-1 guesses behind it; the token of level l, column j stands l + j positions behind
the text's end. Its row sees the text, level 0 up to column j, and levels 1 to l of its own column:
exactly the ancestors that it has in a token tree where the parent of (0, j) is (0, j-1) and that of
(l, j) is (l-1, j). What the target says at the last level is the next step of each trajectory; the
tokens down a column with it are an n-gram that the target would write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

Cell = tuple[int, int]


@dataclass(frozen=True)
class Shape:
    """W columns, n-grams of N tokens; 0 columns: no window, guesses are all there is."""

    columns: int
    n: int

    @property
    def depth(self) -> int:
        """Greatest depth of a window; a filling one is as deep."""
        return self.columns + self.n - 3 if self.columns else 0

    @property
    def nodes(self) -> int:
        """Most drafted nodes of a window: the root is one of its W (N-1) cells."""
        return self.columns * (self.n - 1) - 1 if self.columns else 0

    @classmethod
    def within(cls, depth: int, nodes: int) -> Shape:
        """The shape for a budget: up to half of the nodes for the window, the rest for guesses.

        Longer n-grams want more nodes: N = 3 from 6 on, 4 from 16, 5 from 30, less where depth is
        short. A window has at least N-1 columns, so that a filling one is never larger than a full
        one.
        """
        for n in (5, 4, 3):
            columns = min((nodes // 2 + 1) // (n - 1), depth + 3 - n)
            if columns >= n - 1:
                return cls(columns, n)
        return cls(0, min(depth, nodes, 4) + 1)


class Window:
    """The levels below the text's last token; they fill one a step, then move one a step.

    Args:
        source: tokens that the first guesses are taken from.
    """

    def __init__(self, shape: Shape, source: Sequence[int], rng: np.random.Generator) -> None:
        self.shape = shape
        first = shape.columns + shape.n - 3
        picked = rng.integers(len(source), size=first)
        self.levels: list[list[int]] = [[source[place] for place in picked]]

    @property
    def full(self) -> bool:
        """Whether every level is there, so that columns are n-grams."""
        return len(self.levels) == self.shape.n - 1

    def cells(self) -> Iterator[tuple[Cell, Cell, int]]:
        """Cell, the cell above it, and its token, parents first; (0, 0) is the root."""
        for column, token in enumerate(self.levels[0], start=1):
            yield (0, column), (0, column - 1), token
        for level, tokens in enumerate(self.levels[1:], start=1):
            for column, token in enumerate(tokens):
                yield (level, column), (level - 1, column), token

    @property
    def frontier(self) -> list[Cell]:
        """Cells whose next token the window asks the target for."""
        level = len(self.levels) - 1
        width = len(self.levels[level]) + (level == 0)
        return [(level, column) for column in range(width)]

    def step(self, root: int, answers: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
        """Takes the target's tokens at the frontier.

        Args:
            root: the token of cell (0, 0) when they were asked for.

        Returns:
            The n-grams of the columns, as a key and what follows it; none while the window fills.
        """
        levels = self.levels
        if not self.full:
            self.levels = [level[1:] for level in levels] + [list(answers[1:])]
            return []
        keys = [root, *levels[0]]
        below = [*levels[1:], list(answers)]
        grams = [(keys[j], tuple(level[j] for level in below)) for j in range(len(keys))]
        self.levels = [below[0][1:], *below[1:]]
        return grams


class Pool:
    """For each token the n-grams that began with it, the most recent ones.

    Args:
        most: n-grams kept for a token.
    """

    def __init__(self, most: int = 16) -> None:
        self._most = most
        self._grams: dict[int, dict[tuple[int, ...], None]] = {}

    def add(self, key: int, gram: tuple[int, ...]) -> None:
        """Puts an n-gram in front of the others of its token."""
        grams = self._grams.setdefault(key, {})
        grams.pop(gram, None)
        grams[gram] = None
        if len(grams) > self._most:
            del grams[next(iter(grams))]

    def behind(self, key: int) -> list[tuple[int, ...]]:
        """What followed a token, the most recent first."""
        return list(reversed(self._grams.get(key, {})))
