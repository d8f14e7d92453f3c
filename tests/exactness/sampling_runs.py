"""Counts of the first three tokens over many runs, and a drafter that can be made wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pytest

from draft_service.drafters import choose
from draft_service.drafters.draft_model import DraftModelDrafter
from outrider.core.acceptance import Kind
from outrider.core.round import SamplingParams
from outrider.core.sampling import Law, truncate, warp
from outrider.drafting.base import DraftSession
from tests.local.drafters import LocalDraft
from tests.local.generation import Text, fixed, generate
from tests.local.laws import joint_law
from tests.local.memo_lm import MemoLM, as_model
from tests.local.reference import transformers_law, transformers_processors
from tests.local.verifiers import LocalTarget

TOKENS = 3
VOCAB = 8
M = 4
WAVE = 250  # loops at once: they share forwards


@dataclass(frozen=True)
class Shape:
    """What a round drafts."""

    depth: int
    nodes: int


CHAIN = Shape(2, 2)
TREE = Shape(2, 6)


def memoise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remembers the warped laws of logits seen before: the same numbers, many times faster."""
    warped: dict[tuple[bytes, SamplingParams], Law] = {}
    cut = lru_cache(maxsize=None)(lambda data, m: truncate(np.frombuffer(data), m))

    def remembered(logits: npt.NDArray[np.float32], params: SamplingParams) -> Law:
        key = logits.tobytes(), replace(params, seed=None)
        if key not in warped:
            warped[key] = warp(logits, params)
        return warped[key]

    def rows(logits: npt.NDArray[np.float32], params: SamplingParams) -> list[Law]:
        return [remembered(row, params) for row in logits]

    monkeypatch.setattr("target_service.evidence.warp_rows", rows)
    monkeypatch.setattr(choose, "warp", remembered)
    monkeypatch.setattr(choose, "truncate", lambda q, m: cut(q.tobytes(), m))


def exact_law(
    model: MemoLM, prompt: Sequence[int], sampling: SamplingParams
) -> npt.NDArray[np.float64]:
    """P [V, V, V] from the model's own logits and transformers' own warpers."""
    processors = transformers_processors(replace(sampling, seed=None))
    return joint_law(
        lambda prefix: transformers_law(processors, model.of(prefix).numpy()), prompt, VOCAB, TOKENS
    )


def count_tokens(
    target: MemoLM,
    draft: LocalDraft,
    prompt: Sequence[int],
    sampling: Callable[[int], SamplingParams],
    shape: Shape,
    samples: int,
) -> tuple[npt.NDArray[np.float64], dict[Kind, int]]:
    """Counts [V, V, V] of the first three tokens, and tokens of each kind among them."""
    local = LocalTarget(target, seed=11)
    uniform = np.random.default_rng([11, 3]).random
    counts = np.zeros((VOCAB,) * TOKENS)
    kinds: dict[Kind, int] = dict.fromkeys(Kind, 0)

    async def one(number: int) -> Text:
        params = sampling(number)
        verifier, drafter = local.open(prompt, params, 8), draft.open(prompt, params)
        controller = fixed(shape.depth, shape.nodes, M)
        text = await generate(
            prompt, verifier, drafter, controller, 8, uniform=uniform, least=TOKENS
        )
        draft.drafter.close(drafter._session)
        return text

    async def all_of_them() -> None:
        for start in range(0, samples, WAVE):
            for text in await asyncio.gather(*map(one, range(start, min(start + WAVE, samples)))):
                counts[text.tokens[:TOKENS]] += 1
                for kind in text.kinds[:TOKENS]:
                    kinds[kind] += 1

    asyncio.run(all_of_them())
    return counts, kinds


class WrongDrafter(DraftModelDrafter):
    """draft_model with another way to choose children; `make` gets q [V] after the warpers."""

    def __init__(
        self, model: MemoLM, make: Callable[[npt.NDArray[np.float64], int], choose.Children]
    ) -> None:
        super().__init__(as_model(model))
        self._make = make

    def open(self, prompt: Sequence[int], sampling: SamplingParams) -> DraftSession:
        session = super().open(prompt, sampling)
        session.state.choose = lambda logits, count, position, budget: self._make(
            choose.warp(logits, sampling).dense(), count
        )
        return session
