"""How well a drafter does: how often drafts are kept at each depth, and what they cost.

Rates are conditional: of the drafts that reached a depth, the share that was kept there. A draft
that ended because all of it was kept says nothing of the depth behind it, so it counts there
neither way; the plain mean of accepted over drafted would be too low. Everything decays, towards
what is known of the drafter in general, so a drafter that fell behind is tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.core.tree import TokenTree

DEPTHS = 16
"""Deeper positions share the last one's rate."""


@dataclass
class Rates:
    """Conditional acceptance by depth.

    Args:
        prior: what to draw to where little is known: other rates, or one number for all depths.
        weight: how many observations the prior counts as.
        decay: what an observation is worth one round later.
    """

    prior: Rates | float
    weight: float
    decay: float
    kept: list[float] = field(default_factory=lambda: [0.0] * DEPTHS)
    tried: list[float] = field(default_factory=lambda: [0.0] * DEPTHS)

    def at(self, depth: int) -> float:
        """The rate at a depth, from 1 on."""
        place = min(depth, DEPTHS) - 1
        prior = self.prior.at(depth) if isinstance(self.prior, Rates) else self.prior
        return (self.kept[place] + self.weight * prior) / (self.tried[place] + self.weight)

    def accepted(self, depth: int) -> list[float]:
        """Expected accepted tokens of drafts of depth 1 to `depth`."""
        totals, path, total = [], 1.0, 0.0
        for level in range(1, depth + 1):
            path *= self.at(level)
            total += path
            totals.append(total)
        return totals

    def fade(self) -> None:
        """A round has passed."""
        self.kept = [value * self.decay for value in self.kept]
        self.tried = [value * self.decay for value in self.tried]

    def book(self, tried: int, kept: int) -> None:
        """A draft was kept to depth `kept`, and `tried` depths had something to keep."""
        for depth in range(min(tried, DEPTHS)):
            self.tried[depth] += 1.0
            self.kept[depth] += depth < kept


def walked(tree: TokenTree, tokens: Sequence[int]) -> tuple[int, int]:
    """Depths at which committed tokens met drafted nodes, and depths at which they went on there.

    Args:
        tokens: what was committed behind the tree's root.
    """
    node: int | None = 0
    tried = kept = 0
    for token in tokens:
        if node is None or not tree.children[node]:
            break
        tried += 1
        node = tree.child_with(node, token)
        kept += node is not None
    return tried, kept


@dataclass
class Mean:
    """A decayed mean.

    Args:
        decay: what a value is worth one value later.
    """

    decay: float
    total: float = 0.0
    weight: float = 0.0

    def add(self, value: float) -> None:
        """Takes in a value."""
        self.total = self.total * self.decay + value
        self.weight = self.weight * self.decay + 1.0

    @property
    def value(self) -> float | None:
        """The mean; None before the first value."""
        return self.total / self.weight if self.weight else None
