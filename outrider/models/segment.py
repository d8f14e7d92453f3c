"""What a forward computes, and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from outrider.models.cache import KVCache


@dataclass(frozen=True)
class Segment:
    """Rows of one session in a forward.

    Args:
        cache: the session's cache; it grows by the rows.
        tokens: token id of each row.
        parents: parent of each row within the segment; -1 follows the last cached row. Parents come
            first.
        tree_exact: whether a tree is computed path by path, with the bits that each path alone
            would have.
    """

    cache: KVCache
    tokens: Sequence[int]
    parents: Sequence[int]
    tree_exact: bool = True

    @classmethod
    def chain(cls, cache: KVCache, tokens: Sequence[int]) -> Segment:
        """Rows that follow one another."""
        return cls(cache, tokens, range(-1, len(tokens) - 1))


@dataclass(frozen=True)
class Hidden:
    """What a forward returns, in the order of the packed rows.

    Shapes: states [rows, hidden] after the final norm; taps [rows, taps * hidden], or None where
        none was asked.
    """

    states: Tensor
    taps: Tensor | None
