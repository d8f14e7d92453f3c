"""Which ranks of which heads make a Medusa tree: the greedy optimiser of the paper's code.

Node (r_1, .., r_d) takes rank r_j of head j; its chance is the product of the heads' accuracies at
these ranks, and the sum of all chances is the expected number of accepted tokens. The best node
that is not there yet is added until the tree is full; a parent or an earlier sibling comes first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

RANKS = 10
"""Ranks of a head that a tree may use."""

Accuracies = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Place:
    """A node: its parent (0 is the root), its level from 0, and the rank that it takes there."""

    parent: int
    level: int
    rank: int


def usual(heads: int) -> Accuracies:
    """Accuracies where none were measured, of the form that small heads have: each head half as
    often right as the one before, each rank a third as often."""
    return tuple(
        tuple(0.4 * 0.5**head * (1 / 3) ** rank for rank in range(RANKS)) for head in range(heads)
    )


@lru_cache(maxsize=64)
def places(accuracies: Accuracies, depth: int, nodes: int) -> tuple[Place, ...]:
    """The nodes of the best tree, parents first; the chain of best ranks where nodes <= depth.

    Args:
        accuracies: entry [k][r] is how often rank r of head k is right.
        depth: greatest depth.
        nodes: most nodes, root excluded.
    """
    depth = min(depth, len(accuracies))
    if nodes <= depth:
        return tuple(Place(level, level, 0) for level in range(nodes))
    made: list[Place] = []
    waiting: list[tuple[float, int, int, int, float]] = []

    def offer(parent: int, level: int, rank: int, above: float) -> None:
        if level < depth and rank < min(RANKS, len(accuracies[level])):
            chance = above * accuracies[level][rank]
            if chance > 0.0:
                heapq.heappush(waiting, (-chance, level, parent, rank, above))

    offer(0, 0, 0, 1.0)
    while waiting and len(made) < nodes:
        chance, level, parent, rank, above = heapq.heappop(waiting)
        made.append(Place(parent, level, rank))
        offer(parent, level, rank + 1, above)
        offer(len(made), level + 1, 0, -chance)
    return tuple(made)


def expected(accuracies: Accuracies, tree: Sequence[Place]) -> float:
    """Tokens that a round with this tree is expected to emit."""
    chances = [1.0]
    for place in tree:
        chances.append(chances[place.parent] * accuracies[place.level][place.rank])
    return sum(chances)
