"""A step that raises: who is told, and who goes on."""

import asyncio
import re
from typing import Any

import grpc
import pytest
from target_server import (
    TIMEOUT,
    SteeredModel,
    commit,
    free_run,
    greedy,
    open_message,
    serving,
    tiny_target,
    verify,
)

from outrider.core.tree import TokenTree
from target_service import step
from target_service.evidence import gather
from target_service.session import Session


@pytest.mark.parametrize("behind_the_forward", [False, True])
async def test_of_the_sessions_packed_into_a_step_that_fails_only_the_one_at_fault_ends(
    behind_the_forward: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if behind_the_forward:  # where the caches have grown already

        def poisoned(session: Session, tree: TokenTree, *rest: Any) -> Any:
            if 60 in tree.tokens:
                raise ArithmeticError("poisoned")
            return gather(session, tree, *rest)

        monkeypatch.setattr(step, "gather", poisoned)
    model = SteeredModel(tiny_target(), poison=None if behind_the_forward else 60)
    async with serving(model) as server:
        streams = [await server.opened() for _ in range(4)]
        model.gate.clear()
        first = server.stream()  # holds the engine while the others pack up behind it
        await first.send(open=open_message())
        for index, (stream, drawn) in enumerate(streams):
            if index < 3:
                tokens = [60] if index == 1 else [5, 6]
                await stream.send(verify=verify(1, 4, drawn, commit(drawn), tokens))
            else:
                await stream.send(free_run=free_run(1, 4, drawn, commit(drawn), max_tokens=6))
        async with asyncio.timeout(TIMEOUT):
            while server.engine.load().queue < 5:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
        model.gate.set()
        await first.evidence()
        assert (await streams[1][0].status())[0] is grpc.StatusCode.INTERNAL
        for index in (0, 2):
            stream = streams[index][0]
            evidence = await stream.evidence()
            kept = evidence.samples[0]
            assert kept == greedy((1, 2, 3), 2)[-1]
            await stream.send(verify=verify(2, 5, kept, commit(kept), [7]))
            assert (await stream.evidence()).samples[0] == greedy((1, 2, 3), 3)[-1]
        assert (await streams[3][0].run())[0] == greedy((1, 2, 3), 7)[1:]
    assert re.search(r"a step of [2-5] sessions failed", caplog.text)
    assert "a step of 1 sessions failed" in caplog.text


async def test_step_that_fails_ends_only_its_own_sessions_and_tells_no_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(SteeredModel(tiny_target(), poison=60)) as server:
        healthy, token = await server.opened()
        ill, drawn = await server.opened()
        await ill.send(verify=verify(1, 4, drawn, commit(drawn), [60]))
        code, details = await ill.status()
        assert code is grpc.StatusCode.INTERNAL
        assert "secret" not in details
        assert "ArithmeticError: the secret of the poison" in caplog.text
        assert await server.live(1)
        await healthy.send(free_run=free_run(1, 4, token, commit(token), max_tokens=4))
        assert len((await healthy.run())[0]) == 4


async def test_free_run_whose_step_fails_is_an_internal_error() -> None:
    async with serving(SteeredModel(tiny_target())) as server:
        stream, token = await server.opened()
        server.model.poison = token
        await stream.send(free_run=free_run(1, 4, token, commit(token)))
        code, details = await stream.status()
        assert code is grpc.StatusCode.INTERNAL
        assert "secret" not in details
        assert await server.live(0)
