"""How a draft model's drafts grow: what it is run on next, and what its logits become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from draft_service.drafters.choose import Choose
from draft_service.drafters.growth import Growth
from draft_service.drafters.rank import Rank
from draft_service.drafters.spine import Spine
from outrider.core.round import Budget, Proposal
from outrider.models.cache import KVCache
from outrider.models.causal_lm import Segment

Logits = npt.NDArray[np.float32]


@dataclass
class State:
    """The model's cache of a session.

    rows: token of each cached row that may stay: a prefix of the committed tokens, then a drafted
        chain behind it. `sync` drops what was not accepted.
    """

    cache: KVCache
    choose: Choose
    rank: Rank
    rows: list[int] = field(default_factory=list)

    def sync(self, tokens: Sequence[int]) -> None:
        """Keeps the rows that `tokens` begin with, the last token apart.

        The next pass needs its logits.
        """
        limit = min(len(self.rows), len(tokens) - 1)
        common = next((i for i in range(limit) if self.rows[i] != tokens[i]), limit)
        if common < self.cache.length:
            self.cache.keep(common, ())
        del self.rows[common:]


class Draft(Protocol):
    """A proposal in the making."""

    @property
    def due(self) -> int:
        """How many of the segment's last rows have logits that are wanted."""
        ...

    def segment(self) -> Segment:
        """What the model is run on next."""
        ...

    def grow(self, logits: Logits) -> bool:
        """Takes the logits [due, V]; whether there is more to run."""
        ...

    def build(self, method: str) -> Proposal:
        """The proposal as it stands."""
        ...


class Row:
    """A chain or comb: one row a level, behind the committed tokens that have none yet."""

    due = 1

    def __init__(self, state: State, spine: Spine, tokens: Sequence[int]) -> None:
        self._state = state
        self._spine = spine
        self._pending = list(tokens[len(state.rows) :])

    def segment(self) -> Segment:
        """See `Draft`."""
        return Segment.chain(self._state.cache, self._pending)

    def grow(self, logits: Logits) -> bool:
        """See `Draft`."""
        self._state.rows.extend(self._pending)
        goes_on = self._spine.grow(logits[0])
        self._pending = [self._spine.token]
        return goes_on

    def build(self, method: str) -> Proposal:
        """See `Draft`."""
        return self._spine.build(method)


class Paths:
    """The likeliest paths: a level runs all expanded nodes again, as the tree that they are.

    The rows of earlier levels cost less than a cache of rows in any order would: a tree has a dozen
    of them, and the weights are read once in any case.
    """

    def __init__(self, state: State, growth: Growth, tokens: Sequence[int], budget: Budget) -> None:
        self._state = state
        self._growth = growth
        self._budget = budget
        self._missing = list(tokens[len(state.rows) :])
        self._committed = len(tokens)
        self._level = 0
        self._expanded: list[int] = []

    @property
    def due(self) -> int:
        """See `Draft`."""
        return len(self._growth.frontier)

    def segment(self) -> Segment:
        """See `Draft`."""
        if self._level == 0:
            return Segment.chain(self._state.cache, self._missing)
        growth = self._growth
        self._state.cache.keep(self._committed, ())
        self._expanded += growth.frontier
        row = {node: index for index, node in enumerate(self._expanded)}
        return Segment(
            self._state.cache,
            [growth.tokens[node] for node in self._expanded],
            [row.get(growth.parents[node], -1) for node in self._expanded],
        )

    def grow(self, logits: Logits) -> bool:
        """See `Draft`."""
        if self._level == 0:
            self._state.rows.extend(self._missing)
        growth, position = self._growth, self._committed + self._level
        self._level += 1
        return bool(growth.grow(self._state.rank(logits, growth.branch, position, self._budget)))

    def build(self, method: str) -> Proposal:
        """See `Draft`; the drafted rows go, since they lie in no text's order."""
        if self._state.cache.length > self._committed:
            self._state.cache.keep(self._committed, ())
        return self._growth.build(method)
