"""A free run: how far it goes ahead, what ends it, and what may follow."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from target_server import (
    Server,
    SteeredModel,
    Stream,
    commit,
    free_run,
    greedy,
    serving,
    tiny_target,
    verify,
)

from outrider.v1 import target_pb2

PROMPT = [1, 2, 3]
AHEAD = 32


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as it:
        yield it


async def tokens_until_silence(stream: Stream) -> list[int]:
    """What comes until nothing has come for a while."""
    tokens: list[int] = []
    waiting = asyncio.create_task(stream.read())
    while (await asyncio.wait([waiting], timeout=0.3))[0]:
        reply = waiting.result()
        assert reply.WhichOneof("message") == "free_run_tokens"
        tokens += reply.free_run_tokens.tokens
        waiting = asyncio.create_task(stream.read())
    stream.pending = waiting  # type: ignore[attr-defined]
    return tokens


async def test_it_stays_32_tokens_ahead_of_what_is_acknowledged_and_goes_on_behind_an_acknowledge(
    server: Server,
) -> None:
    stream, token = await server.opened(max_tokens=100)
    expected = greedy(PROMPT, 90)
    await stream.send(free_run=free_run(1, 4, token, commit(token), max_tokens=80))
    assert await tokens_until_silence(stream) == expected[1 : 1 + AHEAD]
    await stream.send(acknowledge=target_pb2.Acknowledge(base_len=4 + 10))
    first = (await stream.pending).free_run_tokens.tokens  # type: ignore[attr-defined]
    rest = [token for _ in range(9) for token in (await stream.read()).free_run_tokens.tokens]
    assert [*first, *rest] == expected[1 + AHEAD : 11 + AHEAD]
    waiting = asyncio.create_task(stream.read())
    assert not (await asyncio.wait([waiting], timeout=0.3))[0]
    waiting.cancel()


async def test_acknowledging_what_was_never_sent_does_not_let_it_run_away(server: Server) -> None:
    stream, token = await server.opened(max_tokens=200)
    await stream.send(free_run=free_run(1, 4, token, commit(token), max_tokens=150))
    await stream.send(acknowledge=target_pb2.Acknowledge(base_len=1000))
    code, details = await stream.status()
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "acknowledge.base_len: 1000, limit " in details


async def test_it_ends_behind_max_tokens_and_the_next_verify_needs_no_commit(
    server: Server,
) -> None:
    stream, token = await server.opened()
    expected = greedy(PROMPT, 12)
    await stream.send(free_run=free_run(1, 4, token, commit(token), max_tokens=5))
    assert await stream.run() == (expected[1:6], 9)
    await stream.send(verify=verify(2, 9, expected[5], None, expected[6:9]))
    evidence = await stream.evidence()
    assert (evidence.round, evidence.base_len) == (2, 9)
    assert list(evidence.samples) == expected[6:10]
    await stream.send(
        free_run=free_run(3, 12, expected[8], commit(expected[8], [1, 2]), max_tokens=3)
    )
    assert await stream.run() == (expected[9:12], 15)


async def test_a_stop_id_is_committed_and_ends_it(server: Server) -> None:
    expected = greedy(PROMPT, 40)
    stop = next(t for i, t in enumerate(expected) if i > 5 and t not in expected[:i])
    stream, token = await server.opened()
    await stream.send(free_run=free_run(1, 4, token, commit(token), max_tokens=60, stop_ids=[stop]))
    tokens, base_len = await stream.run()
    assert tokens == expected[1 : expected.index(stop) + 1]
    assert base_len == 4 + len(tokens)


async def test_halt_before_the_first_token_ends_it_without_one_or_behind_one(
    server: Server,
) -> None:
    expected = greedy(PROMPT, 4)
    stream, token = await server.opened()
    await stream.send(free_run=free_run(1, 4, token, commit(token)))
    await stream.send(halt=target_pb2.Halt())
    tokens, base_len = await stream.run()
    assert tokens == expected[1 : 1 + len(tokens)]
    assert len(tokens) < 3
    assert base_len == 4 + len(tokens)
    await stream.send(verify=verify(2, base_len, expected[len(tokens)]))
    assert list((await stream.evidence()).samples) == [expected[1 + len(tokens)]]


@pytest.mark.parametrize("at", [1, 2, 3, 7])
async def test_halt_in_mid_step_lets_that_step_finish_and_no_other(at: int) -> None:
    async with serving(SteeredModel(tiny_target(), delay_s=0.05)) as server:
        expected = greedy(PROMPT, 12)
        stream, token = await server.opened()
        await stream.send(free_run=free_run(1, 4, token, commit(token), max_tokens=10))
        for index in range(at):
            assert list((await stream.read()).free_run_tokens.tokens) == [expected[1 + index]]
        await asyncio.sleep(0.02)
        await stream.send(halt=target_pb2.Halt())
        tokens, base_len = await stream.run()
        assert tokens == [expected[1 + at]]
        assert base_len == 5 + at


async def test_halt_while_it_waits_for_an_acknowledge_ends_it_at_once(server: Server) -> None:
    stream, token = await server.opened(max_tokens=100)
    await stream.send(free_run=free_run(1, 4, token, commit(token), max_tokens=80))
    for _ in range(AHEAD):
        await stream.read()
    await stream.send(halt=target_pb2.Halt())
    assert await stream.run() == ([], 4 + AHEAD)


async def test_halt_and_acknowledge_that_cross_the_end_of_a_run_are_harmless(
    server: Server,
) -> None:
    expected = greedy(PROMPT, 5)
    stream, token = await server.opened()
    await stream.send(free_run=free_run(1, 4, token, commit(token), max_tokens=2))
    assert await stream.run() == (expected[1:3], 6)
    await stream.send(halt=target_pb2.Halt())
    await stream.send(acknowledge=target_pb2.Acknowledge(base_len=6))
    await stream.send(verify=verify(2, 6, expected[2], None, expected[3:4]))
    assert list((await stream.evidence()).samples) == expected[3:5]


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.003])
async def test_halt_that_races_the_end_never_loses_a_token_or_the_stream(
    server: Server, delay_s: float
) -> None:
    expected = greedy(PROMPT, 8)
    for run in range(1, 10):
        stream, token = await server.opened()
        await stream.send(free_run=free_run(1, 4, token, commit(token), max_tokens=3))
        await asyncio.sleep(delay_s * run)
        await stream.send(halt=target_pb2.Halt())
        tokens, base_len = await stream.run()
        assert tokens == expected[1 : 1 + len(tokens)]
        assert base_len == 4 + len(tokens)
        await stream.send(verify=verify(2, base_len, ([token, *tokens])[-1]))
        assert list((await stream.evidence()).samples) == [expected[1 + len(tokens)]]
        stream.call.cancel()


async def test_seeded_text_is_the_same_in_a_run_and_in_rounds(server: Server) -> None:
    sampling = {"temperature": 1.0, "seed": 5}
    stream, token = await server.opened(**sampling)
    await stream.send(free_run=free_run(1, 4, token, commit(token), max_tokens=6))
    expected, _ = await stream.run()
    assert len(set(expected)) > 2
    stream, again = await server.opened(**sampling)
    assert again == token
    await stream.send(verify=verify(1, 4, token, commit(token), expected[:5]))
    assert list((await stream.evidence()).samples) == expected


async def test_runs_and_rounds_of_several_sessions_share_steps(server: Server) -> None:
    expected = greedy(PROMPT, 20)
    streams = [await server.opened() for _ in range(4)]
    server.model.gate.clear()
    server.model.steps.clear()
    for index, (stream, token) in enumerate(streams):
        if index % 2:
            await stream.send(free_run=free_run(1, 4, token, commit(token), max_tokens=4))
        else:
            await stream.send(verify=verify(1, 4, token, commit(token), expected[1:4]))
    await asyncio.sleep(0.1)
    server.model.gate.set()
    for index, (stream, _) in enumerate(streams):
        if index % 2:
            assert (await stream.run())[0] == expected[1:5]
        else:
            assert list((await stream.evidence()).samples) == expected[1:5]
    assert max(server.model.steps) >= 3
