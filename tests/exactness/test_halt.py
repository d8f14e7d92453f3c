"""Halt, stop ids and max_tokens racing each other at the end of a text."""

import pytest
from same_text import (
    GREEDY,
    PROMPT,
    SEEDED,
    TOKENS,
    alone,
    assert_ends_once,
    drafter,
    own_text,
    running_engine,
    stopped,
    together,
)

from outrider.core.round import SamplingParams
from tests.local.generation import Handover, fixed, generate
from tests.local.verifiers import EngineVerifier

samplings = pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])


@samplings
@pytest.mark.parametrize("lag", range(5))
async def test_halt_racing_the_end_of_a_text(sampling: SamplingParams, lag: int) -> None:
    """Halt is sent `left` tokens before the end, and the run goes on for `lag` more."""
    own = own_text(PROMPT, sampling, TOKENS)
    for left in range(1, 6):
        controller = Handover(fixed(3), lambda remaining, left=left: remaining > left)
        text = await alone(sampling, drafter("stranger", PROMPT, sampling), controller, lag=lag)
        assert text.tokens == own
        assert_ends_once(text)
        for stop in set(own):
            text = await alone(
                sampling,
                drafter("stranger", PROMPT, sampling),
                controller,
                lag=lag,
                stop_ids=(stop,),
            )
            assert text.tokens == stopped(own, stop)
            assert_ends_once(text)


@samplings
async def test_halt_racing_the_end_of_a_text_in_the_engine(sampling: SamplingParams) -> None:
    """Each of these ends by Halt a different number of tokens before its last one."""
    controllers = [Handover(fixed(3), lambda left, n=n: left > n) for n in range(1, 9)]
    async with running_engine() as engine:
        texts = await together(
            engine,
            [
                (PROMPT, sampling, drafter("noisy copy", PROMPT, sampling), one)
                for one in controllers
            ],
        )
        assert engine.load().queue == 0
    assert {text.tokens for text in texts} == {own_text(PROMPT, sampling, TOKENS)}


@samplings
async def test_stop_ids_and_max_tokens_end_free_runs_and_drafts_in_the_engine(
    sampling: SamplingParams,
) -> None:
    own = own_text(PROMPT, sampling, TOKENS)
    controllers = [
        fixed(0),
        fixed(8),
        *(Handover(fixed(3), lambda left, n=n: left % 4 < n) for n in (1, 2, 3)),
    ]
    async with running_engine() as engine:
        for stop, tokens in [*((stop, TOKENS) for stop in range(8)), (9, 1), (9, 2), (9, 7)]:
            texts = await together(
                engine,
                [
                    (PROMPT, sampling, drafter("noisy copy", PROMPT, sampling), one)
                    for one in controllers
                ],
                tokens,
                (stop,) if stop < 8 else (),
            )
            assert {text.tokens for text in texts} == {stopped(own[:tokens], stop)}
            for text in texts:
                assert_ends_once(text)


async def test_halt_without_a_run_is_harmless() -> None:
    async with running_engine() as engine:
        verifier = EngineVerifier(engine, PROMPT, GREEDY, TOKENS)
        await verifier.halt()
        text = await generate(
            PROMPT, verifier, drafter("own weights", PROMPT, GREEDY), fixed(4), TOKENS
        )
        await verifier.halt()
    assert text.tokens == own_text(PROMPT, GREEDY, TOKENS)
