"""Drafters that die, stall or lie: the text stays right, and they cost little."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from stack import Stack, SteeredDrafter, deployment, draft_model, fixed
from stack_models import VOCAB, greedy, model
from target_server import SteeredModel

from outrider.core.round import Budget, Proposal, TruncatedDistribution
from outrider.core.tree import TokenTree
from outrider.drafting.base import Drafter

GREEDY: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True, "speculative": fixed(4)}
SEEDED: dict[str, Any] = {
    "temperature": 0.9,
    "seed": 5,
    "ignore_eos": True,
    "speculative": fixed(4),
}


def slow_target(delay_s: float = 0.004) -> SteeredModel:
    return SteeredModel(model(), delay_s=delay_s)


async def plain(stack: Stack, tokens: int, options: dict[str, Any]) -> list[int]:
    result = await stack.generate("Once", tokens, **{**options, "speculative": {"n_max": 0}})
    assert result.speculation.rounds == 0
    return result.token_ids


@pytest.mark.parametrize("options", [GREEDY, SEEDED], ids=["greedy", "seeded"])
async def test_drafter_killed_in_mid_generation_changes_nothing_but_speed(
    options: dict[str, Any],
) -> None:
    async with deployment(slow_target()) as stack:
        expected = await plain(stack, 200, options)
        tokens, kinds = [], []
        async for chunk in stack.client.stream("Once", max_tokens=200, **options):
            tokens += chunk.token_ids
            kinds += chunk.kinds
            if "accepted" in kinds and stack.drafts[0].running:
                killed_at = len(kinds)
                await stack.drafts[0].kill()
        assert tokens == expected
        assert killed_at < 100
        assert "accepted" not in kinds[killed_at + 60 :]
        assert await stack.freed()


async def test_drafter_that_returns_is_drafted_with_again_by_the_same_request() -> None:
    async with deployment(slow_target(0.01)) as stack:
        tokens, kinds, killed = [], [], 0
        async for chunk in stack.client.stream("Once", max_tokens=450, **GREEDY):
            tokens += chunk.token_ids
            kinds += chunk.kinds
            if "accepted" in kinds and not killed:
                killed = len(kinds)
                await stack.drafts[0].kill()
            if killed and not stack.drafts[0].running and kinds[killed:].count("plain") > 8:
                await stack.drafts[0].start()
        assert killed
        assert tuple(tokens) == greedy("Once", 450)
        assert "accepted" in kinds[-16:]
        assert (await stack.drafts[0].info()).sessions_total == 1


async def test_request_behind_a_drafters_death_is_served_at_once_without_it() -> None:
    async with deployment() as stack:
        await stack.drafts[0].kill()
        started = time.perf_counter()
        result = await stack.generate(ignore_eos=True)
        assert time.perf_counter() - started < 2.0
        assert tuple(result.token_ids) == greedy("Once", 48)
        assert result.speculation.rounds == 0


async def test_slow_drafter_costs_one_deadline_and_its_late_proposal_is_counted() -> None:
    def drafters() -> list[Drafter]:
        return [SteeredDrafter(draft_model("inner"), "slow")]

    async with deployment(slow_target(), drafters, draft_deadline_s=1.0) as stack:
        slow = stack.drafts[0].drafters[0]
        assert isinstance(slow, SteeredDrafter)
        slow.delay_s = 1.6
        request = asyncio.create_task(stack.generate(tokens=300, ignore_eos=True))
        await asyncio.sleep(0.8)  # the first proposal is on its way by now; the others are quick
        slow.delay_s = 0.0
        result = await request
        assert tuple(result.token_ids) == greedy("Once", 300)
        assert result.speculation.late_proposals == 1
        assert 1.0e6 < result.timings.draft_wait_us - result.timings.draft_us < 1.9e6
        assert result.speculation.accepted > 50
        assert result.kinds.count("plain") > 20


async def test_loop_does_not_wait_for_a_drafter_that_still_prefills() -> None:
    class SlowPrefill(SteeredDrafter):
        def __getattribute__(self, name: str) -> Any:
            if name == "prefill":
                time.sleep(0.3)
            return super().__getattribute__(name)

    async with deployment(slow_target(), lambda: [SlowPrefill(draft_model("inner"), "x")]) as stack:
        result = await stack.generate(tokens=300, ignore_eos=True)
        assert tuple(result.token_ids) == greedy("Once", 300)
        assert result.timings.first_token_us < 0.2e6
        assert result.kinds[:8] == ["plain"] * 8
        assert "accepted" in result.kinds


def deeper(proposal: Proposal, budget: Budget) -> Proposal:
    return replace(proposal, tree=TokenTree.chain(proposal.tree.tokens[0], range(budget.depth + 1)))


def wider(proposal: Proposal, budget: Budget) -> Proposal:
    count = budget.nodes + 1
    return replace(
        proposal, tree=TokenTree((proposal.tree.tokens[0], *range(count)), (-1, *[0] * count))
    )


def drawn(proposal: Proposal, budget: Budget) -> Proposal:
    ids = np.array(sorted({proposal.tree.tokens[1], 7}))
    return replace(
        proposal, drawn_from={0: TruncatedDistribution(ids, np.ones(ids.size, np.float32))}
    )


def alien(proposal: Proposal, budget: Budget) -> Proposal:
    return replace(proposal, tree=TokenTree.chain(proposal.tree.tokens[0], [VOCAB + 5]))


def nothing(proposal: Proposal, budget: Budget) -> Proposal:
    return replace(proposal, tree=TokenTree.root_only(proposal.tree.tokens[0]), drawn_from={})


def every_other(
    spoil: Callable[[Proposal, Budget], Proposal],
) -> Callable[[Proposal, Budget], Proposal]:
    calls = iter(range(1000))
    return lambda proposal, budget: proposal if next(calls) % 2 else spoil(proposal, budget)


@pytest.mark.parametrize("options", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("spoil", [deeper, wider, drawn, alien, nothing])
async def test_wrong_drafter_costs_its_proposal_only(
    spoil: Callable[[Proposal, Budget], Proposal], options: dict[str, Any]
) -> None:
    def drafters() -> list[Drafter]:
        return [SteeredDrafter(draft_model("inner"), "wrong", every_other(spoil))]

    async with deployment(drafters=drafters) as stack:
        expected = await plain(stack, 96, options)
        result = await stack.generate("Once", 96, **options)
        assert result.token_ids == expected
        assert result.speculation.acceptance_rate == 1.0  # the good proposals went on coming
        assert result.speculation.accepted > 10
        assert result.speculation.passes > result.speculation.rounds + 3
        assert (await stack.drafts[0].info()).sessions_total == 1


def stranger(proposal: Proposal, budget: Budget) -> Proposal:
    q = TruncatedDistribution(np.array([VOCAB - 2, VOCAB - 1]), np.ones(2, np.float32))
    return replace(proposal, drawn_from=dict.fromkeys(proposal.drawn_from, q))


def unlikely(proposal: Proposal, budget: Budget) -> Proposal:
    zeros = {n: TruncatedDistribution(q.ids, 0 * q.weights) for n, q in proposal.drawn_from.items()}
    return replace(proposal, drawn_from=zeros)


@pytest.mark.parametrize("spoil", [stranger, unlikely, deeper])
async def test_distribution_that_cannot_have_been_drawn_from_is_dropped(
    spoil: Callable[[Proposal, Budget], Proposal],
) -> None:
    async with deployment(
        drafters=lambda: [SteeredDrafter(draft_model("inner"), "wrong", spoil)]
    ) as stack:
        result = await stack.generate(tokens=24, temperature=1.0, ignore_eos=True)
        assert len(result.token_ids) == 24
        assert result.speculation.drafted == 0


async def test_drafter_that_fails_costs_its_stream_and_a_new_one_is_opened() -> None:
    def fail_once(proposal: Proposal, budget: Budget) -> Proposal:
        if not failures:
            failures.append(1)
            raise ArithmeticError("out of luck")
        return proposal

    failures: list[int] = [1]  # the warm-up passes
    async with deployment(
        slow_target(), lambda: [SteeredDrafter(draft_model("inner"), "ill", fail_once)]
    ) as stack:
        failures.clear()
        result = await stack.generate(tokens=150, ignore_eos=True)
        assert tuple(result.token_ids) == greedy("Once", 150)
        assert result.speculation.accepted > 20
        assert (await stack.drafts[0].info()).sessions_total == 2
