"""The next draft is under way before a round's tokens are given out, and ends with its request."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from same_text import GREEDY, PROMPT, TARGET, TOKENS, drafter

from orchestrator.loop import Limits, Loop
from orchestrator.report import Report
from outrider.core.round import Budget, Proposal
from tests.local.drafters import LocalDrafter
from tests.local.generation import fixed
from tests.local.verifiers import LocalTarget


def loop_of(draft: LocalDrafter) -> Loop:
    verifier = LocalTarget(TARGET).open(PROMPT, GREEDY, TOKENS)
    controller = fixed(2)
    return Loop(
        list(PROMPT), Limits(TOKENS), verifier, draft, controller, lambda: 0.5, Report(), ()
    )


async def test_the_next_draft_is_asked_for_before_tokens_are_given_out() -> None:
    draft = drafter("own weights", PROMPT, GREEDY)
    asked = [draft.asked async for committed in loop_of(draft).run() if not committed.finished]
    # The prefill's token, then rounds; the last drafts may be left out for want of room.
    assert asked[:4] == [0, 2, 3, 4]


async def test_a_request_that_is_closed_leaves_no_draft_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draft, cancelled = drafter("own weights", PROMPT, GREEDY), asyncio.Event()
    answer = draft.propose

    async def slow(budget: Budget) -> Proposal | None:
        if draft.asked == 0:
            return await answer(budget)
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return None

    monkeypatch.setattr(draft, "propose", slow)
    async with aclosing(loop_of(draft).run()) as commits:
        await anext(commits)
        await anext(commits)
    async with asyncio.timeout(5):
        await cancelled.wait()
