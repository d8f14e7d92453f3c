"""Shadow drafts: what is compared, what is censored, and that no round begins beside one."""

import asyncio
from collections.abc import Sequence

import pytest

from orchestrator.shadow import Shadow, agreement
from outrider.core.round import Budget, Features, Proposal
from outrider.core.tree import TokenTree

CHAIN = TokenTree.chain(1, [2, 3, 4])
WIDE = TokenTree((1, 2, 9, 3), (-1, 0, 0, 1))


@pytest.mark.parametrize(
    ("tree", "text", "asked", "found"),
    [
        (CHAIN, [2, 3, 4, 5], 3, (3, 3)),
        (CHAIN, [2, 9, 4], 3, (2, 1)),
        (CHAIN, [2, 3], 3, (2, 2)),  # the run ended: depth 3 is not known
        (CHAIN, [], 3, (0, 0)),
        (CHAIN, [2, 3, 4, 5], 5, (4, 3)),  # the draft ended early, and so failed
        (TokenTree.root_only(1), [2], 3, (1, 0)),
        (WIDE, [9, 3], 2, (2, 1)),
        (WIDE, [2, 3], 2, (2, 2)),
    ],
)
def test_a_draft_agrees_as_far_as_a_round_would_have_kept_it(
    tree: TokenTree, text: list[int], asked: int, found: tuple[int, int]
) -> None:
    assert agreement(tree, text, asked) == found


class Slow:
    """A drafter that answers when the test says so."""

    method, ready, wants_samples, late, round_bytes = "m", True, False, 0, 0

    def __init__(self) -> None:
        self.answer: asyncio.Future[Proposal | None] = asyncio.get_running_loop().create_future()

    def observe(
        self, tokens: Sequence[int], features: Sequence[Features], samples: Sequence[int]
    ) -> None:
        pass

    async def propose(self, budget: Budget) -> Proposal | None:
        return await self.answer


class Planner:
    """Wants one shadow draft."""

    def __init__(self) -> None:
        self.plans = [Budget(3, 3)]
        self.heard: list[tuple[Proposal | None, int, int]] = []
        self.came: list[Proposal | None] = []

    def shadow(self, remaining: int) -> Budget | None:
        return self.plans.pop() if self.plans else None

    def drafted(self, budget: Budget, proposal: Proposal | None, waited_s: float) -> None:
        self.came.append(proposal)

    def shadowed(self, budget: Budget, proposal: Proposal | None, compared: int, kept: int) -> None:
        self.heard.append((proposal, compared, kept))


async def test_tokens_behind_the_root_are_compared_when_the_draft_has_come() -> None:
    drafter, planner = Slow(), Planner()
    shadow = Shadow(drafter, planner)
    shadow.ran([1], 50)
    await asyncio.sleep(0)
    assert not shadow.idle
    shadow.ran([2, 3], 48)
    drafter.answer.set_result(Proposal(CHAIN, "m"))
    await asyncio.sleep(0.01)
    assert shadow.idle
    assert len(planner.came) == 1  # as it arrives, and not when it is compared
    shadow.ran([8], 47)
    assert [heard[1:] for heard in planner.heard] == [(3, 2)]


async def test_a_run_that_ends_first_censors_the_comparison() -> None:
    drafter, planner = Slow(), Planner()
    shadow = Shadow(drafter, planner)
    shadow.ran([1], 50)
    drafter.answer.set_result(Proposal(CHAIN, "m"))
    await asyncio.sleep(0.01)
    shadow.ran([2], 49)
    assert planner.heard == []
    shadow.ended()
    assert [heard[1:] for heard in planner.heard] == [(1, 1)]


async def test_a_draft_that_never_comes_is_told_as_none() -> None:
    drafter, planner = Slow(), Planner()
    shadow = Shadow(drafter, planner)
    shadow.ran([1], 50)
    await asyncio.sleep(0)
    drafter.answer.set_result(None)
    await asyncio.sleep(0.01)
    shadow.ran([2], 49)
    assert planner.heard == [(None, 0, 0)]


async def test_close_forgets_a_draft_under_way() -> None:
    drafter, planner = Slow(), Planner()
    shadow = Shadow(drafter, planner)
    shadow.ran([1], 50)
    await asyncio.sleep(0)
    shadow.close()
    await asyncio.sleep(0.01)
    assert shadow.idle
    assert planner.heard == []
