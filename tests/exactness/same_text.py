"""One request in many ways: whatever drafts, the text is the target's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np

from draft_service.drafters.auto import AutoDrafter
from orchestrator.peers import Controller
from outrider.core.coupling import seeded_draw
from outrider.core.round import SamplingParams
from outrider.drafting.lookahead import LookaheadDrafter
from outrider.drafting.ngram import NgramDrafter
from target_service.engine import Engine, EngineLimits
from tests.local.drafters import NO_FAULTS, Faults, LocalDraft, LocalDrafter, draft_model
from tests.local.generation import Text, generate
from tests.local.memo_lm import as_model, memo_lm, noisy
from tests.local.reference import transformers_law, transformers_processors
from tests.local.verifiers import EngineVerifier, LocalTarget

GREEDY = SamplingParams(temperature=0.0)
SEEDED = SamplingParams(temperature=0.9, top_p=0.95, seed=2**40 + 7, choice=1)
UNSEEDED = SamplingParams()
PROMPT = [1, 2, 0, 1, 2, 5, 1, 2]
TOKENS = 24

TARGET = memo_lm(seed=0)
NOISY = noisy(TARGET, 0.15)
DRAFTS = {
    "own weights": draft_model(TARGET),
    "noisy copy": draft_model(NOISY),
    "stranger": draft_model(memo_lm(seed=5)),
    "ngram": LocalDraft(NgramDrafter()),
    "lookahead": LocalDraft(LookaheadDrafter()),
    "auto": LocalDraft(
        AutoDrafter([NgramDrafter(), LookaheadDrafter(), draft_model(NOISY).drafter])
    ),
}


def own_text(prompt: Sequence[int], sampling: SamplingParams, tokens: int) -> tuple[int, ...]:
    """Its logits at each prefix, transformers' warpers, the seed's noise; no cache, no rounds."""
    text = list(prompt)
    for _ in range(tokens):
        logits = TARGET.of(text).numpy()
        if sampling.greedy:
            text.append(int(np.argmax(logits)))
        else:
            assert sampling.seed is not None
            law = transformers_law(transformers_processors(_without_seed(sampling)), logits)
            text.append(seeded_draw(law, sampling.seed, sampling.choice, len(text)))
    return tuple(text[len(prompt) :])


def _without_seed(sampling: SamplingParams) -> SamplingParams:
    return SamplingParams(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)


def drafter(
    name: str, prompt: Sequence[int], sampling: SamplingParams, faults: Faults = NO_FAULTS
) -> LocalDrafter:
    return DRAFTS[name].open(prompt, sampling, faults)


async def alone(
    sampling: SamplingParams,
    draft: LocalDrafter | None,
    controller: Controller,
    *,
    prompt: Sequence[int] = PROMPT,
    tokens: int = TOKENS,
    lag: int = 0,
    stop_ids: tuple[int, ...] = (),
) -> Text:
    """One request over the target's step, nothing else in the batch."""
    verifier = LocalTarget(TARGET).open(prompt, sampling, tokens, lag)
    return await generate(prompt, verifier, draft, controller, tokens, stop_ids=stop_ids)


@asynccontextmanager
async def running_engine() -> AsyncIterator[Engine]:
    """The target's engine with prefill chunks small enough to be cut."""
    engine = Engine(as_model(TARGET), EngineLimits(sessions=64, prefill_rows=16))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def together(
    engine: Engine,
    requests: Sequence[tuple[Sequence[int], SamplingParams, LocalDrafter | None, Controller]],
    tokens: int = TOKENS,
    stop_ids: tuple[int, ...] = (),
) -> list[Text]:
    """Requests at once through one engine."""

    async def one(
        prompt: Sequence[int],
        sampling: SamplingParams,
        draft: LocalDrafter | None,
        controller: Controller,
    ) -> Text:
        verifier = EngineVerifier(engine, prompt, sampling, tokens)
        try:
            return await generate(prompt, verifier, draft, controller, tokens, stop_ids=stop_ids)
        finally:
            verifier.close()

    return await asyncio.gather(*(one(*request) for request in requests))


def stopped(text: tuple[int, ...], stop: int) -> tuple[int, ...]:
    """The text up to the first `stop`."""
    return text[: text.index(stop) + 1] if stop in text else text


def assert_ends_once(text: Text) -> None:
    """The last commit, and only it, says that the text is finished."""
    assert [committed.finished for committed in text.commits] == [False] * (
        len(text.commits) - 1
    ) + [True]
