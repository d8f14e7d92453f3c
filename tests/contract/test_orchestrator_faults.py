"""Peers that die, stall or lie, and clients that leave: the text stays right, nothing hangs, nothing is kept."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from stack import (
    VOCAB,
    DraftReplica,
    Stack,
    SteeredDrafter,
    deployment,
    draft_model,
    fixed,
    greedy,
    model,
    standard_drafters,
)
from target_server import SteeredModel

from outrider.core.round import Budget, Proposal, TruncatedDistribution
from outrider.core.tree import TokenTree
from outrider.drafting.base import Drafter
from outrider.exceptions import OutriderError, Unavailable

GREEDY: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True, "speculative": fixed(4)}
SEEDED: dict[str, Any] = {"temperature": 0.9, "seed": 5, "ignore_eos": True, "speculative": fixed(4)}


def slow_target(delay_s: float = 0.004) -> SteeredModel:
    return SteeredModel(model(), delay_s=delay_s)


async def plain(stack: Stack, tokens: int, options: dict[str, Any]) -> list[int]:
    result = await stack.generate("Once", tokens, **{**options, "speculative": {"n_max": 0}})
    assert result.speculation.rounds == 0
    return result.token_ids


async def eventually(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - nothing tells when a peer was seen
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("before", [0, 1, 10])
async def test_client_that_disconnects_frees_both_caches_within_a_second(before: int) -> None:
    async with deployment(slow_target(0.02)) as stack:
        streams = [stack.client.stream("Once", max_tokens=400, **GREEDY) for _ in range(3)]
        tasks = [asyncio.create_task(anext(stream)) for stream in streams]
        for stream, task in zip(streams, tasks, strict=True):
            if before:
                await task
            for _ in range(before - 1):
                await anext(stream)
        if before:
            assert stack.engine.live_sessions == 3
            assert (await stack.drafts[0].info()).live_sessions == 3
        else:
            await asyncio.sleep(0.02)
        for stream, task in zip(streams, tasks, strict=True):
            task.cancel()
            await asyncio.wait([task])
            await stream.aclose()
        assert await stack.freed()
        info = await stack.client.info()
        assert (info.live_requests, info.requests_total) == (0, 3)


async def test_request_that_runs_out_of_time_frees_both_caches() -> None:
    async with deployment(slow_target(0.05)) as stack:
        with pytest.raises(OutriderError):
            await stack.generate(tokens=400, timeout=0.5)
        assert await stack.freed()


@pytest.mark.parametrize("options", [GREEDY, SEEDED], ids=["greedy", "seeded"])
async def test_drafter_killed_in_mid_generation_changes_nothing_but_speed(options: dict[str, Any]) -> None:
    async with deployment(slow_target()) as stack:
        expected = await plain(stack, 64, options)
        tokens, kinds = [], []
        async for chunk in stack.client.stream("Once", max_tokens=64, **options):
            tokens += chunk.token_ids
            kinds += chunk.kinds
            if len(tokens) > 24 and stack.drafts[0].address and stack.drafts[0].drafters:
                await stack.drafts[0].kill()
                stack.drafts[0].drafters = []
        assert tokens == expected
        assert "accepted" in kinds[:24]
        assert "accepted" not in kinds[48:]
        assert stack.engine.live_sessions == 0


async def test_drafter_that_returns_is_drafted_with_again_by_the_same_request() -> None:
    async with deployment(slow_target(0.01)) as stack:
        tokens, kinds, killed = [], [], False
        async for chunk in stack.client.stream("Once", max_tokens=450, **GREEDY):
            tokens += chunk.token_ids
            kinds += chunk.kinds
            if len(tokens) > 16 and not killed:
                killed = True
                await stack.drafts[0].kill()
                await stack.drafts[0].start()
        assert tuple(tokens) == greedy("Once", 450)
        assert "accepted" in kinds[:16]
        assert "accepted" in kinds[-16:]
        assert kinds.count("plain") > 8
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

    async with deployment(slow_target(), drafters, draft_deadline_s=0.2) as stack:
        slow = stack.drafts[0].drafters[0]
        assert isinstance(slow, SteeredDrafter)
        slow.delay_s = 0.5
        request = asyncio.create_task(stack.generate(tokens=300, ignore_eos=True))
        await asyncio.sleep(0.4)  # the first proposal is on its way by now; the others are quick
        slow.delay_s = 0.0
        result = await request
        assert tuple(result.token_ids) == greedy("Once", 300)
        assert result.speculation.late_proposals == 1
        assert 0.2e6 < result.timings.draft_wait_us - result.timings.draft_us < 0.35e6
        assert result.speculation.accepted > 50
        assert result.kinds.count("plain") > 20


async def test_loop_does_not_wait_for_a_drafter_that_still_prefills() -> None:
    class SlowPrefill(SteeredDrafter):
        def __getattribute__(self, name: str) -> Any:
            if name == "prefill":
                time.sleep(0.3)
            return super().__getattribute__(name)

    async with deployment(slow_target(), lambda: [SlowPrefill(draft_model("inner"), "x")]) as stack:
        result = await stack.generate(tokens=150, ignore_eos=True)
        assert tuple(result.token_ids) == greedy("Once", 150)
        assert result.timings.first_token_us < 0.2e6
        assert result.timings.draft_wait_us < 1e6
        assert result.kinds[:10] == ["plain"] * 10
        assert "accepted" in result.kinds


def deeper(proposal: Proposal, budget: Budget) -> Proposal:
    return replace(proposal, tree=TokenTree.chain(proposal.tree.tokens[0], range(budget.depth + 1)))


def wider(proposal: Proposal, budget: Budget) -> Proposal:
    count = budget.nodes + 1
    return replace(proposal, tree=TokenTree((proposal.tree.tokens[0], *range(count)), (-1, *[0] * count)))


def drawn(proposal: Proposal, budget: Budget) -> Proposal:
    ids = np.array(sorted({proposal.tree.tokens[1], 7}))
    return replace(proposal, drawn_from={0: TruncatedDistribution(ids, np.ones(ids.size, np.float32))})


def alien(proposal: Proposal, budget: Budget) -> Proposal:
    return replace(proposal, tree=TokenTree.chain(proposal.tree.tokens[0], [VOCAB + 5]))


def nothing(proposal: Proposal, budget: Budget) -> Proposal:
    return replace(proposal, tree=TokenTree.root_only(proposal.tree.tokens[0]), drawn_from={})


def every_other(spoil: Callable[[Proposal, Budget], Proposal]) -> Callable[[Proposal, Budget], Proposal]:
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
        expected = await plain(stack, 48, options)
        result = await stack.generate("Once", 48, **options)
        assert result.token_ids == expected
        assert result.speculation.acceptance_rate == 1.0  # the good proposals went on coming
        assert result.speculation.accepted > 20
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
    async with deployment(drafters=lambda: [SteeredDrafter(draft_model("inner"), "wrong", spoil)]) as stack:
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


async def test_target_lost_in_mid_generation_is_unavailable_and_leaves_nothing() -> None:
    async with deployment(slow_target(0.01)) as stack:
        stream = stack.client.stream("Once", max_tokens=400, **GREEDY)
        for _ in range(5):
            await anext(stream)
        started = time.perf_counter()
        await stack.kill_target()
        with pytest.raises(Unavailable, match="target: "):
            async for _ in stream:
                pass
        with pytest.raises(Unavailable, match="target"):
            await stack.generate()
        assert time.perf_counter() - started < 3.0
        assert await stack.freed()
        await eventually(lambda: not stack.service._cluster.targets.live())
        with pytest.raises(Unavailable, match=r"target .*: no replica answers"):
            await stack.generate()


@pytest.mark.parametrize("speculative", [fixed(0), fixed(4)])
async def test_target_that_stalls_is_unavailable_behind_its_deadline(speculative: dict[str, Any]) -> None:
    async with deployment(slow_target(0.01), target_deadline_s=0.3) as stack:
        stream = stack.client.stream("Once", max_tokens=400, **{**GREEDY, "speculative": speculative})
        for _ in range(5):
            await anext(stream)
        stack.target.gate.clear()
        with pytest.raises(Unavailable, match=r"target: no reply within 0\.3 s"):
            async for _ in stream:
                pass
        stack.target.gate.set()
        assert await stack.freed()


async def test_draft_with_another_tokenizer_that_comes_later_is_never_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with deployment() as stack:
        right = stack.drafts[0]
        wrong = DraftReplica(standard_drafters, fingerprint="beef")
        await right.kill()
        wrong.address = right.address
        await wrong.start()
        await eventually(lambda: "has fingerprint beef" in caplog.text)
        result = await stack.generate(ignore_eos=True)
        assert tuple(result.token_ids) == greedy("Once", 48)
        assert result.speculation.drafted == 0
        assert (await wrong.info()).sessions_total == 0
        await wrong.kill()
        await right.start()
        await eventually(lambda: bool(stack.service._cluster.drafts.live()))
        assert (await stack.generate("Once", 200, ignore_eos=True)).speculation.accepted > 0


async def test_sessions_go_to_the_draft_replica_with_the_fewest() -> None:
    async with deployment(slow_target(0.02), replicas=2) as stack:
        streams = [stack.client.stream("Once", max_tokens=200, **GREEDY) for _ in range(6)]
        for stream in streams:
            await anext(stream)
        assert [(await draft.info()).live_sessions for draft in stack.drafts] == [3, 3]
        for stream in streams:
            await stream.aclose()
        assert await stack.freed()


async def test_session_of_a_dead_replica_moves_to_the_other() -> None:
    async with deployment(slow_target(0.01), replicas=2) as stack:
        tokens, kinds, killed = [], [], False
        async for chunk in stack.client.stream("Once", max_tokens=300, **GREEDY):
            tokens += chunk.token_ids
            kinds += chunk.kinds
            if len(tokens) > 16 and not killed:
                killed = True
                infos = [await draft.info() for draft in stack.drafts]
                first, other = sorted(range(2), key=lambda i: -infos[i].live_sessions)
                await stack.drafts[first].kill()
        assert tuple(tokens) == greedy("Once", 300)
        assert "accepted" in kinds[-16:]
        assert (await stack.drafts[other].info()).sessions_total == 1


async def test_eight_requests_at_once_get_their_own_texts_and_share_steps() -> None:
    prompts = [f"{n} Once" for n in range(8)]
    async with deployment(slow_target()) as stack:
        results = await asyncio.gather(
            *(
                stack.generate(prompt, 48, ignore_eos=True, speculative=fixed(4, "noisy"))
                for prompt in prompts
            )
        )
        for prompt, result in zip(prompts, results, strict=True):
            assert tuple(result.token_ids) == greedy(prompt, 48)
            assert result.speculation.accepted > 5
        assert max(stack.target.steps) >= 4
