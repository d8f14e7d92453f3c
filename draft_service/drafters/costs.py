"""What drafting takes, and what a tree has to promise in return."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from draft_service.drafters.track import Mean
from outrider.core.promises import GOES_ON, LEVEL_NODES
from outrider.core.round import Budget, Proposal

_DECAY = 0.9

_FIRST_LEVELS = 2
"""Levels of a tree, and with half of its nodes, before one was made: few, or none would ever be."""


class Costs:
    """Decayed means of each drafter's seconds a level, and of its trees' nodes and seconds.

    Trees end where they promise too little, so they are seldom as large as they might be.
    """

    def __init__(self) -> None:
        self._level_s: dict[str, Mean] = defaultdict(lambda: Mean(_DECAY))
        self._tree_s: dict[str, Mean] = defaultdict(lambda: Mean(_DECAY))
        self._tree_nodes: dict[str, Mean] = defaultdict(lambda: Mean(_DECAY))

    def add(
        self, method: str, budgets: Sequence[Budget], proposals: Sequence[Proposal], seconds: float
    ) -> None:
        """Proposals of a batch took `seconds`; they go by levels, of which the first is dearest."""
        depth = max((proposal.tree.depth for proposal in proposals), default=0)
        self._level_s[method].add(seconds / max(1, depth))
        trees = [
            proposal.tree.drafted
            for budget, proposal in zip(budgets, proposals, strict=True)
            if budget.nodes > budget.depth
        ]
        if trees:
            self._tree_s[method].add(seconds)
            self._tree_nodes[method].add(sum(trees) / len(trees))

    def level_s(self, method: str) -> float:
        """Seconds of a level; 0 before the first."""
        return self._level_s[method].value or 0.0

    def tree(self, method: str, budget: Budget) -> tuple[float, float]:
        """Nodes and seconds that a tree within a budget is expected to take."""
        nodes, seconds = self._tree_nodes[method].value, self._tree_s[method].value
        if nodes is None or seconds is None:
            return budget.nodes / 2, min(budget.depth, _FIRST_LEVELS) * self.level_s(method)
        return min(nodes, budget.nodes), seconds


def demanding(budget: Budget, rate: float, row: float, level: float) -> Budget:
    """The budget, with what a node and a level must promise at least to be worth their cost.

    Args:
        rate: tokens in the time of a pass without drafts that drafting comes to.
        row, level: cost of a node and of a level, in passes without drafts.
    """
    least_level = rate * (level + LEVEL_NODES * row) / GOES_ON
    return replace(
        budget,
        least_node=max(budget.least_node, rate * row),
        least_level=max(budget.least_level, least_level),
    )
