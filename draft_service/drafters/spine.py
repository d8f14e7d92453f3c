"""A chain, or a comb: one child a level carries on, its siblings are leaves."""

from __future__ import annotations

from draft_service.drafters.choose import Choose
from outrider.core.round import Budget, Proposal, TruncatedDistribution
from outrider.core.sampling import Logits
from outrider.core.tree import TreeBuilder


class Spine:
    """A proposal in the making, of a shape that is fixed before anything is drawn.

    Args:
        root: token of node 0.
        position: tokens before the first drafted one, the root included.
        shape: children of each level, see `comb`.
        choose: takes children from logits.
        budget: of the proposal.
    """

    def __init__(
        self, root: int, position: int, shape: list[int], choose: Choose, budget: Budget
    ) -> None:
        self.token = root
        self._tree = TreeBuilder(root)
        self._position = position
        self._shape = shape
        self._choose = choose
        self._budget = budget
        self._drawn_from: dict[int, TruncatedDistribution] = {}
        self._node = 0
        self._level = 0

    def grow(self, logits: Logits) -> bool:
        """Adds the children of the spine's last node from its logits [V]; `token` is then the one
        that carries on.

        Returns:
            Whether the spine goes on.
        """
        position = self._position + self._level
        children = self._choose(logits, self._shape[self._level], position, self._budget)
        if not children.tokens:
            return False
        if children.drawn_from is not None:
            self._drawn_from[self._node] = children.drawn_from
        nodes = [self._tree.add(self._node, token) for token in children.tokens]
        self._node, self.token = nodes[0], children.tokens[0]
        self._level += 1
        return self._level < len(self._shape)

    def build(self, method: str) -> Proposal:
        """The proposal as it stands."""
        return Proposal(self._tree.build(), method, self._drawn_from)
