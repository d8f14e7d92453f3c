"""Clients that leave, targets that are lost, replicas that come and go: nothing hangs, nothing is
kept."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from stack import DraftReplica, deployment, fixed, standard_drafters
from stack_models import greedy, model
from target_server import SteeredModel

from outrider.exceptions import OutriderError, Unavailable

GREEDY: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True, "speculative": fixed(4)}
SEEDED: dict[str, Any] = {
    "temperature": 0.9,
    "seed": 5,
    "ignore_eos": True,
    "speculative": fixed(4),
}


def slow_target(delay_s: float = 0.004) -> SteeredModel:
    return SteeredModel(model(), delay_s=delay_s)


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
async def test_target_that_stalls_is_unavailable_behind_its_deadline(
    speculative: dict[str, Any],
) -> None:
    async with deployment(slow_target(0.01), target_deadline_s=0.3) as stack:
        stream = stack.client.stream(
            "Once", max_tokens=400, **{**GREEDY, "speculative": speculative}
        )
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
