"""Sessions that share KV memory: prompts that are known, and more texts than there is room for."""

from __future__ import annotations

import asyncio

import pytest
import torch

from outrider.models.causal_lm import CausalLM
from outrider.models.pool import BLOCK
from outrider.v1 import types_pb2
from tests.contract.target_server import (
    VOCAB,
    Server,
    SteeredModel,
    commit,
    free_run,
    greedy,
    open_message,
    serving,
    verify,
)
from tests.tiny import FINGERPRINT, tiny_model

PROMPTS = [[(7 * i + seed * i * i + seed) % (VOCAB - 1) for i in range(150)] for seed in range(5)]
TAPS = (2, 0)


def model_of(blocks: int) -> CausalLM:
    """The tiny target with room for so many blocks."""
    torch.set_num_threads(1)
    block_bytes = 2 * 2 * 2 * 8 * BLOCK * 4
    return CausalLM.from_model(
        tiny_model(vocab=VOCAB),
        name="tiny-llama",
        tokenizer_fingerprint=FINGERPRINT,
        kv_bytes=blocks * block_bytes,
    )


async def generated(server: Server, prompt: list[int], tokens: int) -> list[int]:
    """Some tokens by free run, then a few by rounds of wrong proposals, one session."""
    stream, first = await server.opened(prompt, max_tokens=tokens + 8)
    await stream.send(free_run=free_run(1, len(prompt) + 1, first, commit(first), tokens - 4))
    ran, _ = await stream.run()
    text = [first, *ran]
    for round_ in range(2, 5):
        root, base_len = text[-1], len(prompt) + len(text)
        last = None if round_ == 2 else commit(root)
        await stream.send(verify=verify(round_, base_len, root, last, [63, 62]))
        text.append((await stream.evidence()).samples[0])
    stream.call.cancel()
    return text


@pytest.mark.parametrize("batch", [16, 3, 1])
async def test_with_too_little_memory_for_all_every_text_is_whole(batch: int) -> None:
    """Also where a step takes fewer sessions than wait for memory."""
    async with serving(SteeredModel(model_of(8)), max_batch=batch) as server:
        prompts = [prompt[:60] for prompt in PROMPTS]
        texts = await asyncio.gather(*(generated(server, prompt, 120) for prompt in prompts))
        for prompt, text in zip(prompts, texts, strict=True):
            assert text == greedy(prompt, len(text))
        assert await server.live(0)
        memory = (await server.info()).kv_memory
        assert (memory.block_tokens, memory.blocks) == (BLOCK, 8)
        assert memory.sessions_forgotten > 0
        assert memory.blocks_used == memory.blocks_kept > 0
        assert memory.prompt_tokens == sum(map(len, prompts)) + 2  # the warm-up's two


async def test_a_text_that_would_never_fit_is_refused_by_its_size() -> None:
    async with serving(SteeredModel(model_of(3)), max_nodes=8) as server:
        stream = server.stream()
        await stream.send(open=open_message([1] * 100, max_tokens=100))
        code, details = await stream.status()
        assert code.name == "INVALID_ARGUMENT"
        assert details == "prompt_ids + max_tokens: 200, limit 184 tokens of KV memory"


@pytest.mark.parametrize("behind", [[], [5, 6, 7], [9] * 100])
async def test_a_known_prompt_is_not_computed_again_and_its_text_is_the_same(
    behind: list[int],
) -> None:
    async with serving(SteeredModel(model_of(64))) as server:
        first = await generated(server, PROMPTS[0], 20)
        assert await server.live(0)
        prompt = PROMPTS[0] + first + behind  # the next turn of a conversation
        second = await generated(server, prompt, 12)
        assert second == greedy(prompt, len(second))
        found = server.engine.memory.prefix.found_rows
        assert found == (len(PROMPTS[0]) + len(first) - 2) // BLOCK * BLOCK


async def test_features_of_known_rows_are_the_ones_that_were_computed() -> None:
    async with serving(SteeredModel(model_of(64))) as server:
        wanted = types_pb2.FeatureSpec(taps=TAPS)
        parts = []
        for _ in range(2):
            stream = server.stream()
            await stream.send(open=open_message(PROMPTS[0], features=wanted))
            data, rows = b"", 0
            while (reply := await stream.read()).WhichOneof("message") == "features":
                assert reply.features.start == rows
                data, rows = data + reply.features.data, rows + reply.features.rows
            assert rows == len(PROMPTS[0]) - 1
            parts.append(data)
            stream.call.cancel()
            assert await server.live(0)
        assert parts[0] == parts[1]
        assert server.engine.memory.prefix.found_rows == 2 * BLOCK


async def test_without_a_prefix_cache_nothing_is_kept() -> None:
    async with serving(SteeredModel(model_of(64)), prefix_cache=0.0) as server:
        await generated(server, PROMPTS[0], 20)
        assert await server.live(0)
        assert server.engine.memory.pool.used == 0
