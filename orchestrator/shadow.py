"""Drafts beside a free run, to learn whether rounds would pay, at no cost to the target.

The drafter drafts behind a token of the run; the tokens that the target then commits by itself say
how much of the draft a round would have kept. One shadow draft is under way at a time, and no round
begins while it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from orchestrator.peers import Drafter
from outrider.core.round import Budget, Proposal
from outrider.core.tree import TokenTree


class Planner(Protocol):
    """Says when to draft, and hears what came of it."""

    def shadow(self, remaining: int) -> Budget | None:
        """What to draft now, with `remaining` tokens still allowed; None: nothing."""

    def drafted(self, budget: Budget, proposal: Proposal | None, waited_s: float) -> None:
        """A proposal arrived; None: too late."""

    def shadowed(self, budget: Budget, proposal: Proposal | None, compared: int, kept: int) -> None:
        """A proposal (None: too late) was compared with `compared` tokens and agreed to `kept`."""


class Shadow:
    """The shadow drafts of one session."""

    def __init__(self, drafter: Drafter, planner: Planner) -> None:
        self._drafter = drafter
        self._planner = planner
        self._task: asyncio.Task[None] | None = None
        self._budget = Budget(0, 0)
        self._proposal: Proposal | None = None
        self._behind: list[int] = []  # tokens committed behind the draft's root

    @property
    def idle(self) -> bool:
        """Whether the drafter is free for a round."""
        return self._task is None or self._task.done()

    def ran(self, tokens: Sequence[int], remaining: int) -> None:
        """The run committed tokens, and the drafter has observed them."""
        if self._task is not None:
            self._behind += tokens
            if self._task.done():
                self._compare(final=False)
        elif self._drafter.ready:
            budget = self._planner.shadow(remaining)
            if budget is not None:
                self._budget, self._proposal, self._behind = budget, None, []
                self._task = asyncio.create_task(self._draft(), name="shadow draft")

    def ended(self) -> None:
        """The run is over: what was compared so far counts."""
        if self._task is not None and self._task.done():
            self._compare(final=True)

    def close(self) -> None:
        """Forgets what is under way."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _draft(self) -> None:
        started = time.perf_counter()
        self._behind.clear()  # the drafter is asked behind what it has observed until now
        self._proposal = await self._drafter.propose(self._budget)
        self._planner.drafted(self._budget, self._proposal, time.perf_counter() - started)

    def _compare(self, *, final: bool) -> None:
        proposal, compared, kept = self._proposal, 0, 0
        if proposal is not None:
            compared, kept = agreement(proposal.tree, self._behind, self._budget.depth)
            if not final and compared == len(self._behind) == kept < self._budget.depth:
                return  # agreed so far, and not at an end
        assert self._task is not None
        if not self._task.cancelled():
            self._task.result()
        self._task = None
        self._planner.shadowed(self._budget, proposal, compared, kept)


def agreement(tree: TokenTree, tokens: Sequence[int], asked: int) -> tuple[int, int]:
    """(depths compared, depths that agree) of a draft and the text that came behind its root.

    A draft that ends before the `asked` depth fails there, as it does in a round.
    """
    node, kept = 0, 0
    for token in tokens[:asked]:
        child = tree.child_with(node, token)
        if child is None:
            return kept + 1, kept
        node, kept = child, kept + 1
    return kept, kept
