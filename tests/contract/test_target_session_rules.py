"""What does not fit the session so far is refused, with the field, the value and the limit."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from target_server import (
    CONTEXT,
    VOCAB,
    Server,
    commit,
    free_run,
    open_message,
    serving,
    verify,
)

from outrider.v1 import target_pb2

INVALID, STALE = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving(max_nodes=8, max_support=8) as it:
        yield it


# Behind a first round at base_len 4 whose tree was 5 - 6 and 7 beside 5 (nodes 1, 2, 3).
STALE_VERIFIES: dict[str, tuple[dict[str, Any], str]] = {
    "same round": ({"round_": 1}, "round: 1, limit 2"),
    "skipped round": ({"round_": 3}, "round: 3, limit 2"),
    "base_len behind": ({"base_len": 4}, "base_len: 4, limit 5"),
    "base_len ahead": ({"base_len": 6}, "base_len: 6, limit 5"),
    "wrong root": ({"root": 31}, "root: token 31, limit 30"),
    "commit missing": ({"decision": None}, "commit: is missing behind a verified tree"),
    "grandchild first": (
        {"decision": commit(30, [2])},
        "commit.accepted: [2] is no path of the last tree",
    ),
    "two siblings": (
        {"decision": commit(30, [1, 3])},
        "commit.accepted: [1, 3] is no path of the last tree",
    ),
    "the root itself": (
        {"decision": commit(30, [0])},
        "commit.accepted: [0] is no path of the last tree",
    ),
    "no such node": (
        {"decision": commit(30, [4])},
        "commit.accepted: [4] is no path of the last tree",
    ),
    "accepted, not counted": ({"decision": commit(30, [1])}, "base_len: 5, limit 6"),
}


@pytest.mark.parametrize("kind", ["verify", "free_run"])
@pytest.mark.parametrize(("fields", "expected"), STALE_VERIFIES.values(), ids=STALE_VERIFIES.keys())
async def test_request_that_does_not_fit_the_session_is_a_failed_precondition(
    server: Server, fields: dict[str, Any], expected: str, kind: str
) -> None:
    stream, token = await server.opened()
    await stream.send(verify=verify(1, 4, token, commit(token), [5, 6, 7], [0, 1, 0]))
    await stream.evidence()
    build = verify if kind == "verify" else free_run
    await stream.send(
        **{
            kind: build(
                **{"round_": 2, "base_len": 5, "root": 30, "decision": commit(30), **fields}
            )
        }
    )
    code, details = await stream.status()
    assert code is STALE
    assert expected in details
    assert await server.live(0)


async def test_emitted_token_out_of_range_is_refused_before_it_fails_a_step(server: Server) -> None:
    stream, _ = await server.opened()
    await stream.send(verify=verify(1, 4, VOCAB, commit(VOCAB)))
    code, details = await stream.status()
    assert code is INVALID
    assert "commit.emitted[0]: token 64, limit 0 to 63" in details


async def test_commit_behind_a_free_run_is_refused(server: Server) -> None:
    stream, token = await server.opened()
    await stream.send(free_run=free_run(1, 4, token, commit(token), max_tokens=2))
    tokens, base_len = await stream.run()
    await stream.send(verify=verify(2, base_len + 1, 5, commit(5)))
    code, details = await stream.status()
    assert code is STALE
    assert "commit: has nothing to decide without a verified tree" in details
    assert len(tokens) == 2


@pytest.mark.parametrize("kind", ["verify", "free_run"])
async def test_nothing_but_acknowledge_and_halt_may_come_during_a_free_run(
    server: Server, kind: str
) -> None:
    stream, token = await server.opened()
    server.model.gate.clear()
    await stream.send(free_run=free_run(1, 4, token, commit(token)))
    build = verify if kind == "verify" else free_run
    await stream.send(**{kind: build(2, 5, token)})
    await asyncio.sleep(0.1)
    server.model.gate.set()
    code, details = await stream.status()
    assert code is STALE
    assert details == f"message: {kind} during a free run, limit acknowledge or halt"


async def test_open_comes_once(server: Server) -> None:
    stream, _ = await server.opened()
    await stream.send(open=open_message())
    code, details = await stream.status()
    assert code is INVALID
    assert "message: open, limit verify, free_run, acknowledge or halt" in details


async def test_tree_beyond_the_context_is_refused_and_the_deepest_that_fits_is_not(
    server: Server,
) -> None:
    prompt = [1] * (CONTEXT - 4)
    for depth, fits in ((3, True), (4, False)):
        stream, token = await server.opened(prompt, max_tokens=4)
        await stream.send(verify=verify(1, CONTEXT - 3, token, commit(token), range(depth)))
        if fits:
            assert len((await stream.evidence()).samples) == 4
        else:
            code, details = await stream.status()
            assert code is INVALID
            assert (
                f"tree: depth 4 at {CONTEXT - 3} tokens, limit {CONTEXT} tokens of context"
                in details
            )


async def test_more_tokens_than_open_announced_are_refused(server: Server) -> None:
    stream, token = await server.opened(max_tokens=3)
    await stream.send(free_run=free_run(1, 4, token, commit(token), max_tokens=3))
    code, details = await stream.status()
    assert code is STALE
    assert "max_tokens: 3, limit 2" in details


BAD_RUNS: dict[str, tuple[dict[str, Any], str]] = {
    "no tokens": ({"max_tokens": 0}, f"max_tokens: 0, limit 1 to {CONTEXT}"),
    "stop id out of range": ({"stop_ids": [5, VOCAB]}, "stop_ids[1]: token 64, limit 0 to 63"),
}


@pytest.mark.parametrize(("fields", "expected"), BAD_RUNS.values(), ids=BAD_RUNS.keys())
async def test_bad_free_run_is_an_invalid_argument(
    server: Server, fields: dict[str, Any], expected: str
) -> None:
    stream, token = await server.opened()
    await stream.send(free_run=free_run(1, 4, token, commit(token), **fields))
    code, details = await stream.status()
    assert code is INVALID
    assert expected in details


async def test_session_beyond_the_limit_is_refused_with_a_time_to_come_back() -> None:
    async with serving(max_sessions=1) as server:
        first, _ = await server.opened()
        second = server.stream()
        await second.send(open=open_message())
        code, details = await second.status()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details == "sessions: 1 open, limit 1"
        assert int(dict(await second.call.trailing_metadata())["retry-after-ms"]) > 0
        first.call.cancel()
        assert await server.live(0)
        await server.opened()


async def test_message_over_the_size_limit_is_refused_and_one_at_the_limit_is_not() -> None:
    async with serving(max_message_mib=1) as server:
        message = target_pb2.TargetRequest(open=open_message())
        message.open.request_id = "x" * (1 << 20)
        message.open.request_id = "x" * ((2 << 20) - message.ByteSize())
        for extra, code in (("", None), ("x", grpc.StatusCode.RESOURCE_EXHAUSTED)):
            message.open.request_id += extra
            assert message.ByteSize() == (1 << 20) + len(extra)
            stream = server.stream()
            await stream.call.write(message)
            if code is None:
                assert (await stream.evidence()).base_len == 3
            else:
                assert (await stream.status())[0] is code
