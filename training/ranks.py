"""Plays chains and trees of fixed ranks on the ranks of true tokens."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Ranks = npt.NDArray[np.int64]
Path = tuple[int, ...]

WIDEST = 10
"""Ranks that a tree may use."""


def chain_length(ranks: Sequence[Ranks], drafted: int) -> float:
    """Tokens a round, bonus included, of chains of `drafted` tokens; 1 where nothing was measured.

    ranks: of each text, the true token's rank [columns, depth] at each column and depth.
    """

    def accepted(row: Ranks) -> int:
        wrong = np.flatnonzero(row[:drafted] != 0)
        return int(wrong[0]) if wrong.size else min(drafted, len(row))

    return played(ranks, accepted)


def tree_length(ranks: Sequence[Ranks], tree: frozenset[Path]) -> float:
    """The same for a tree: paths of ranks, each with all its beginnings."""

    def accepted(row: Ranks) -> int:
        path: Path = ()
        for rank in row.tolist():
            if (*path, rank) not in tree:
                break
            path = (*path, rank)
        return len(path)

    return played(ranks, accepted)


def played(ranks: Sequence[Ranks], accepted: Callable[[Ranks], int]) -> float:
    """Walks each text round by round; tokens behind its end are not counted."""
    rounds = tokens = 0
    for text in ranks:
        column = 0
        while column < len(text):
            column += accepted(text[column]) + 1
            rounds += 1
        tokens += len(text)
    return tokens / rounds if rounds else 1.0


def best_tree(accuracies: npt.NDArray[np.float64], nodes: int) -> frozenset[Path]:
    """The `nodes` paths of greatest value; value = product of accuracies [depth, rank] on the way.

    A path never has a greater value than its beginning, so these come with it.
    """
    depth, width = accuracies.shape
    heap: list[tuple[float, Path]] = [(-float(accuracies[0, 0]), (0,))]
    chosen: set[Path] = set()
    order = np.argsort(-accuracies, axis=1, kind="stable")
    value: dict[Path, float] = {(): 1.0}
    while heap and len(chosen) < nodes:
        negative, places = heapq.heappop(heap)
        path = tuple(int(order[d, place]) for d, place in enumerate(places))
        chosen.add(path)
        value[places] = -negative
        level, place = len(places) - 1, places[-1]
        if place + 1 < width:
            sibling = (*places[:-1], place + 1)
            worth = value[places[:-1]] * float(accuracies[level, order[level, place + 1]])
            heapq.heappush(heap, (-worth, sibling))
        if level + 1 < depth:
            worth = -negative * float(accuracies[level + 1, order[level + 1, 0]])
            heapq.heappush(heap, (-worth, (*places, 0)))
    return frozenset(chosen)


def accuracies(ranks: Sequence[Ranks], width: int = WIDEST) -> npt.NDArray[np.float64]:
    """How often each rank [depth, width] was the true token's."""
    together = np.concatenate(ranks)
    return np.stack([(together == rank).mean(0) for rank in range(width)], axis=1)


def cross_fit_tree_length(ranks: Sequence[Ranks], nodes: int) -> float:
    """`tree_length` of the best tree, each half of the texts played with the other half's tree."""
    halves = list(ranks[::2]), list(ranks[1::2])
    if not halves[1]:
        return 1.0
    rounds = tokens = 0.0
    for own, other in (halves, halves[::-1]):
        size = sum(len(text) for text in own)
        length = tree_length(own, best_tree(accuracies(other), nodes))
        tokens += size
        rounds += size / length
    return tokens / rounds if rounds else 1.0
