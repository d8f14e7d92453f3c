"""The dynamic tree of EAGLE-2: expanded level by level where paths score best, then cut to size.

A path's score is the sum of its tokens' log q. Of a level's new nodes the best `WIDTH` are
expanded, while they promise enough; at the end the best nodes of all levels stay. A child never
scores above its parent, and of equals the one nearer to the root comes first, so a node that stays
has its parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, log

from draft_service.drafters.rank import Ranked
from outrider.core.round import Budget, Proposal
from outrider.core.tree import TokenTree

WIDTH = 4
"""Nodes of a level that are expanded."""
BRANCH = 8
"""Children that each of them may have."""


class Growth:
    """A tree in the making.

    Args:
        root: token of node 0.
        budget: greatest depth, most nodes, and what nodes and levels have to promise.
        width, branch: see `WIDTH` and `BRANCH`.
    """

    def __init__(self, root: int, budget: Budget, width: int = WIDTH, branch: int = BRANCH) -> None:
        self.tokens = [root]
        self.parents = [-1]
        self.frontier = [0]
        self.branch = min(branch, budget.nodes)
        self._scores = [0.0]
        self._depths = [0]
        self._budget, self._width = budget, width
        self._least = log(budget.least_node) if budget.least_node > 0.0 else -inf

    def grow(self, ranked: Sequence[Ranked]) -> list[int]:
        """Adds the children of the frontier, in its order; returns the next one."""
        first, bar = len(self.tokens), self._bar()
        for node, children in zip(self.frontier, ranked, strict=True):
            for token, score in zip(children.tokens, children.scores, strict=True):
                if self._scores[node] + score <= bar:  # as are those behind it
                    break
                self.tokens.append(token)
                self.parents.append(node)
                self._scores.append(self._scores[node] + score)
                self._depths.append(self._depths[node] + 1)
        fresh = range(first, len(self.tokens))
        self.frontier = []
        if fresh and self._depths[first] < self._budget.depth:
            # What would be cut now is cut at the end too, and so is all below it.
            staying = set(self._best())
            best = sorted(fresh, key=lambda node: (-self._scores[node], node))[: self._width]
            self.frontier = [node for node in best if node in staying]
        if sum(exp(self._scores[node]) for node in self.frontier) < self._budget.least_level:
            self.frontier = []
        return self.frontier

    def path(self, node: int) -> list[int]:
        """Nodes from the root's child down to `node`; empty for the root."""
        nodes = []
        while node > 0:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]

    def build(self, method: str) -> Proposal:
        """The best nodes, parents first; a path's chance is its probability."""
        kept = sorted(self._best())
        place = {node: index for index, node in enumerate([0, *kept])}
        parents = [place[self.parents[node]] for node in kept]
        tokens = [self.tokens[node] for node in kept]
        tree = TokenTree.from_drafted(self.tokens[0], tokens, parents)
        return Proposal(tree, method, chances=tuple(exp(self._scores[n]) for n in (0, *kept)))

    def _bar(self) -> float:
        """A deeper node that scores no more than this does not stay."""
        count = self._budget.nodes
        return sorted(self._scores[1:])[-count] if len(self.tokens) > count else -inf

    def _best(self) -> list[int]:
        drafted = (n for n in range(1, len(self.tokens)) if self._scores[n] >= self._least)
        key = [(-s, d) for s, d in zip(self._scores, self._depths, strict=True)]
        return sorted(drafted, key=lambda node: (*key[node], node))[: self._budget.nodes]
