"""How an EAGLE head's drafts grow: what rows are run next, and what their logits become."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from draft_service.drafters.eagle_state import EagleState
from draft_service.drafters.growth import Growth
from draft_service.drafters.spine import Spine
from outrider.core.round import Budget, Proposal
from outrider.models.heads.rows import Rows

Logits = npt.NDArray[np.float32]


class Draft(Protocol):
    """A proposal in the making."""

    @property
    def state(self) -> EagleState:
        """Of its session."""
        ...

    def grow(self, logits: Logits, g: Tensor) -> bool:
        """Takes logits [rows, draft vocabulary] and outputs [rows, hidden] of the last rows.

        Returns:
            Whether there are rows to run next.
        """
        ...

    def rows(self) -> Rows:
        """The rows to run next."""
        ...

    def build(self, method: str) -> Proposal:
        """The proposal as it stands."""
        ...


class Trunk:
    """A chain or comb: one row a level."""

    def __init__(self, state: EagleState, spine: Spine) -> None:
        self.state = state
        self._spine = spine
        self._g: Tensor | None = None

    def grow(self, logits: Logits, g: Tensor) -> bool:
        """See `Draft`."""
        self._g = g
        return self._spine.grow(logits[0])

    def rows(self) -> Rows:
        """See `Draft`."""
        assert self._g is not None
        return Rows(self.state.cache, [self._spine.token], self._g)

    def build(self, method: str) -> Proposal:
        """See `Draft`."""
        return self._spine.build(method)


class Branches:
    """The dynamic tree: a level's frontier is run together, each row behind its own path."""

    def __init__(self, state: EagleState, growth: Growth, position: int, budget: Budget) -> None:
        self.state = state
        self._growth = growth
        self._position = position
        self._budget = budget
        self._base = state.cache.length
        self._level = 0
        self._g: Tensor | None = None
        self._rows: dict[int, int] = {}
        self._slots: dict[int, int] = {}

    def grow(self, logits: Logits, g: Tensor) -> bool:
        """See `Draft`."""
        growth, position = self._growth, self._position + self._level
        self._g, self._rows = g, {node: row for row, node in enumerate(growth.frontier)}
        self._level += 1
        return bool(growth.grow(self.state.rank(logits, growth.branch, position, self._budget)))

    def rows(self) -> Rows:
        """See `Draft`."""
        assert self._g is not None
        growth, cache = self._growth, self.state.cache
        frontier = growth.frontier
        paths = [[self._slots[n] for n in growth.path(node)[:-1]] for node in frontier]
        self._slots.update({node: cache.length + row for row, node in enumerate(frontier)})
        g = torch.stack([self._g[self._rows[growth.parents[node]]] for node in frontier])
        tokens = [growth.tokens[node] for node in frontier]
        return Rows(cache, tokens, g, self._base, paths)

    def build(self, method: str) -> Proposal:
        """See `Draft`."""
        return self._growth.build(method)
