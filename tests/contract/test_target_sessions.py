"""Prefill, evidence, features, and how sessions end."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import grpc
import numpy as np
import pytest
import torch
from target_server import (
    VOCAB,
    Server,
    SteeredModel,
    commit,
    free_run,
    greedy,
    open_message,
    serving,
    tiny_target,
    verify,
)

from outrider.serving.channels import connect
from outrider.serving.wire import support_to_proto
from outrider.v1 import target_pb2_grpc
from tests.tiny import tiny_model

PROMPT = [int(token) for token in np.random.default_rng(3).integers(0, VOCAB, 150)]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving(prefill_rows=16) as it:
        yield it


async def test_prefill_in_chunks_answers_with_the_first_token(server: Server) -> None:
    stream = server.stream()
    await stream.send(open=open_message(PROMPT))
    evidence = await stream.evidence()
    assert (evidence.round, evidence.base_len) == (0, len(PROMPT))
    assert list(evidence.samples) == greedy(PROMPT, 1)
    assert evidence.load.sessions == 1
    assert evidence.forward_us > 0
    assert len(server.model.steps) == 10  # 150 rows, cut at multiples of 16


async def test_rounds_commit_paths_and_drop_what_was_refused(server: Server) -> None:
    expected = greedy(PROMPT, 12)
    stream, token = await server.opened(PROMPT)
    assert token == expected[0]
    base_len, decision, at, wrong = len(PROMPT) + 1, commit(token), 0, (expected[3] + 1) % VOCAB
    for round_ in (1, 2, 3):
        # the right path is 2 - 4 beside a wrong child at each level
        tokens = [wrong, expected[at + 1], wrong, expected[at + 2]]
        if expected[at + 1] == wrong or expected[at + 2] == wrong:
            wrong = (wrong + 1) % VOCAB
            tokens = [wrong, expected[at + 1], wrong, expected[at + 2]]
        await stream.send(
            verify=verify(round_, base_len, expected[at], decision, tokens, [0, 0, 2, 2])
        )
        evidence = await stream.evidence()
        assert [evidence.samples[node] for node in (0, 2, 4)] == expected[at + 1 : at + 4]
        assert not evidence.HasField("features")
        base_len, decision, at = base_len + 3, commit(expected[at + 3], [2, 4]), at + 3


async def test_evidence_under_a_support_is_p_on_it_and_the_mass_outside(server: Server) -> None:
    stream, token = await server.opened([1, 2, 3], temperature=1.3)
    ids = [4, 9, 30]
    await stream.send(
        verify=verify(1, 4, token, commit(token), [9, 4, 7], [0, 0, 1], [support_to_proto(0, ids)])
    )
    evidence = await stream.evidence()
    model = tiny_model(vocab=VOCAB)
    with torch.no_grad():
        p = (model(torch.tensor([[1, 2, 3, token]])).logits[0, -1].double() / 1.3).softmax(-1)
    np.testing.assert_allclose(evidence.probabilities, p[ids], rtol=1e-4)
    np.testing.assert_allclose(evidence.outside, [1 - p[ids].sum()], rtol=1e-4)
    assert len(evidence.samples) == 4
    assert evidence.samples[0] not in ids


async def test_outside_sample_is_absent_where_p_has_no_mass_there(server: Server) -> None:
    stream, token = await server.opened([1, 2, 3], temperature=1.0, top_k=1)
    ids = list(range(VOCAB))
    await stream.send(
        verify=verify(1, 4, token, commit(token), [5], [0], [support_to_proto(0, ids)])
    )
    evidence = await stream.evidence()
    assert evidence.samples[0] == -1
    assert list(evidence.outside) == [0.0]
    assert sum(evidence.probabilities) == pytest.approx(1.0)


async def test_cancelled_stream_frees_its_session_within_a_second(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    streams = [(await server.opened(max_tokens=400))[0] for _ in range(3)]
    _, token = running = await server.opened(max_tokens=400)
    await running[0].send(free_run=free_run(1, 4, token, commit(token), max_tokens=300))
    assert await server.live(4)
    for stream in [*streams, running[0]]:
        stream.call.cancel()
    assert await server.live(0)
    assert (await server.info()).sessions_total == 4
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_stream_cancelled_in_the_middle_of_a_step_is_freed_and_the_next_is_served() -> None:
    async with serving(SteeredModel(tiny_target(), delay_s=0.2)) as server:
        stream = server.stream()
        await stream.send(open=open_message())
        await asyncio.sleep(0.05)
        stream.call.cancel()
        assert await server.live(0)
        assert (await server.opened())[1] == greedy([1, 2, 3], 1)[0]


async def test_half_closed_stream_ends_well(server: Server) -> None:
    stream, _ = await server.opened()
    await stream.call.done_writing()
    assert await stream.call.read() is grpc.aio.EOF
    assert await stream.call.code() is grpc.StatusCode.OK
    assert await server.live(0)


async def test_long_prompt_lets_other_sessions_take_steps_between_its_chunks(
    server: Server,
) -> None:
    quick, token = await server.opened()
    server.model.gate.clear()
    long = server.stream()
    await long.send(open=open_message(PROMPT))
    await quick.send(free_run=free_run(1, 4, token, commit(token), max_tokens=6))
    await asyncio.sleep(0.1)
    server.model.gate.set()
    assert len((await quick.run())[0]) == 6
    assert (await long.evidence()).samples[0] == greedy(PROMPT, 1)[0]
    assert server.model.steps.count(2) >= 5


async def test_stopping_ends_open_streams_as_unavailable_and_quickly() -> None:
    async with AsyncExitStack() as outer:
        async with serving(SteeredModel(tiny_target(), delay_s=0.05)) as server:
            server.stub = target_pb2_grpc.TargetStub(
                await outer.enter_async_context(connect(server.address))
            )
            idle, _ = await server.opened()
            busy, token = await server.opened(max_tokens=400)
            await busy.send(free_run=free_run(1, 4, token, commit(token), max_tokens=300))
            await busy.read()
            started = time.perf_counter()
        assert time.perf_counter() - started < 2
        for stream in (idle, busy):
            assert (await stream.status())[0] in (
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.CANCELLED,
            )


async def test_stopping_the_engine_fails_everything_that_waits(server: Server) -> None:
    blocked, token = await server.opened(max_tokens=100)
    await blocked.send(free_run=free_run(1, 4, token, commit(token), max_tokens=80))
    for _ in range(32):  # it now waits for an acknowledge
        await blocked.read()
    server.model.gate.clear()
    waiting = [server.stream() for _ in range(4)]  # more than one step's budget of prefill
    for stream in waiting:
        await stream.send(open=open_message(PROMPT))
    await asyncio.sleep(0.1)
    asyncio.get_running_loop().call_later(0.1, server.model.gate.set)
    await server.engine.stop()
    for stream in [blocked, *waiting]:
        code, details = await stream.status()
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "draining" in details


async def test_info_tells_model_limits_and_eos(server: Server) -> None:
    info = await server.info()
    model = tiny_target()
    assert (info.model.name, info.model.vocab_size, info.model.context_length) == (
        "tiny-llama",
        VOCAB,
        512,
    )
    assert (info.layers, info.hidden_size, list(info.eos_ids)) == (2, 32, [VOCAB - 1])
    assert info.model.numerics.fingerprint == model.numerics.fingerprint
    assert (info.max_nodes, info.max_sessions, info.max_support) == (64, 64, 256)
    assert (info.live_sessions, info.sessions_total) == (0, 0)
