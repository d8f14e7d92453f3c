"""No session waits for ever for memory that others hold without need."""

from __future__ import annotations

import asyncio

import pytest

from outrider.v1 import target_pb2
from tests.contract.target_server import (
    SteeredModel,
    commit,
    free_run,
    greedy,
    open_message,
    serving,
)
from tests.contract.test_target_memory import PROMPTS, model_of

BEGINNING = [(7 * i + i * i // 3) % 60 + 1 for i in range(300)]


@pytest.mark.parametrize("share", [0.5, 0.0])
async def test_kept_blocks_give_way_though_another_sessions_hang_on_them(share: float) -> None:
    """Two sessions compute the same beginning; the one that ends first leaves its own behind."""
    model = SteeredModel(model_of(7))
    async with serving(model, max_nodes=16, prefix_cache=share) as server:
        model.gate.clear()
        short, long = server.stream(), server.stream()
        await short.send(open=open_message(BEGINNING[:129], max_tokens=4))
        await long.send(open=open_message(BEGINNING[:200], max_tokens=200))
        assert await server.live(2)
        model.gate.set()
        await short.evidence()
        text = [(await long.evidence()).samples[0]]
        short.call.cancel()
        assert await server.live(1)
        await long.send(free_run=free_run(1, 201, text[0], commit(text[0]), 199))
        async with asyncio.timeout(60):
            while (reply := await long.read()).WhichOneof("message") == "free_run_tokens":
                text += reply.free_run_tokens.tokens
                known = target_pb2.Acknowledge(base_len=reply.free_run_tokens.base_len)
                await long.send(acknowledge=known)
        assert text == greedy(BEGINNING[:200], 200)
        long.call.cancel()
        assert await server.live(0)
        memory = (await server.info()).kv_memory
        assert memory.blocks_used == memory.blocks_kept


async def test_an_older_session_that_asks_for_nothing_gives_way_and_goes_on_later() -> None:
    async with serving(SteeredModel(model_of(4)), max_nodes=8) as server:
        old, young = server.stream(), server.stream()
        await old.send(open=open_message(PROMPTS[0], max_tokens=20))
        first = (await old.evidence()).samples[0]
        await young.send(open=open_message(PROMPTS[1], max_tokens=20))
        async with asyncio.timeout(60):
            assert [(await young.evidence()).samples[0]] == greedy(PROMPTS[1], 1)
        base_len = len(PROMPTS[0]) + 1
        await old.send(free_run=free_run(1, base_len, first, commit(first), 10))
        async with asyncio.timeout(60):
            ran, _ = await old.run()
        assert [first, *ran] == greedy(PROMPTS[0], 11)
        for stream in (old, young):
            stream.call.cancel()
        assert await server.live(0)
