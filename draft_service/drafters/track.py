"""How well a drafter does: how often drafts are kept at each depth, and what they cost.

Rates are conditional: of the drafts that were kept up to a depth, the share kept there too. Where
the budget ended a draft that was kept whole, nothing is known of the depth behind it, and it counts
there neither way: the plain mean of accepted over drafted would be too low. A draft that its
drafter ended early counts as one that failed there, for no more of it was kept. Everything decays,
towards what is known of the drafter in general, so one that fell behind is tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.core.tree import TokenTree

DEPTHS = 16
"""Deeper positions share the last one's rate."""

_LEAST_UNIT = 1e-6


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
    # Observations in units that a new one is worth 1 / _unit of, so that to fade is one product.
    _unit: float = 1.0
    _kept: list[float] = field(default_factory=lambda: [0.0] * DEPTHS)
    _tried: list[float] = field(default_factory=lambda: [0.0] * DEPTHS)

    def at(self, depth: int) -> float:
        """The rate at a depth, from 1 on."""
        place = min(depth, DEPTHS) - 1
        prior = self.prior.at(depth) if isinstance(self.prior, Rates) else self.prior
        kept, tried = self._kept[place] * self._unit, self._tried[place] * self._unit
        return (kept + self.weight * prior) / (tried + self.weight)

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
        self._unit *= self.decay
        if self._unit < _LEAST_UNIT:
            self._kept = [value * self._unit for value in self._kept]
            self._tried = [value * self._unit for value in self._tried]
            self._unit = 1.0

    def book(self, asked: int, kept: int) -> None:
        """A draft of depth `asked` was asked for, and it was kept to depth `kept`."""
        for depth in range(min(asked, kept + 1, DEPTHS)):
            self._tried[depth] += 1.0 / self._unit
            self._kept[depth] += (depth < kept) / self._unit


def kept_depth(tree: TokenTree, tokens: Sequence[int]) -> int:
    """How deep the walk went in a tree, from what was committed behind its root."""
    node, depth = 0, 0
    for token in tokens:
        child = tree.child_with(node, token)
        if child is None:
            break
        node, depth = child, depth + 1
    return depth


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


@dataclass
class Passes:
    """Time of a target pass as a line in its drafted nodes, with what is around a pass.

    Least squares over decayed observations, the slope drawn to `first` where they tell little.

    Args:
        first: cost of a node in passes without one, before anything was measured.
        weight: how much spread of nodes (squared, summed) the first slope counts as.
        decay: what an observation is worth one later.
    """

    first: float
    weight: float = 10.0
    decay: float = 0.99
    _sums: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0)

    def add(self, nodes: int, seconds: float) -> None:
        """A pass; one that took far longer than others stood in a queue, and counts as that far."""
        if self.base:
            seconds = min(seconds, 4.0 * self.base * (1.0 + self.row * nodes))
        new = (1.0, nodes, seconds, nodes * nodes, nodes * seconds)
        self._sums = tuple(
            self.decay * total + value for total, value in zip(self._sums, new, strict=True)
        )

    @property
    def base(self) -> float:
        """Seconds without a node; 0 before the first pass."""
        return self._line()[0]

    @property
    def row(self) -> float:
        """Cost of a node in passes without one."""
        base, slope = self._line()
        return slope / base if base else self.first

    def _line(self) -> tuple[float, float]:
        """Intercept and slope, neither below 0."""
        count, nodes, seconds, squares, products = self._sums
        if not count or not seconds:
            return 0.0, 0.0
        first = self.first * seconds / (count + self.first * nodes)
        spread, together = squares - nodes * nodes / count, products - nodes * seconds / count
        slope = max(0.0, (together + self.weight * first) / (spread + self.weight))
        slope = min(slope, seconds / (2.0 * nodes)) if nodes else slope
        return (seconds - slope * nodes) / count, slope
