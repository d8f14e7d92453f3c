"""With children drawn by an EAGLE head, tokens keep the law of the target alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch

from draft_service.drafters import eagle
from draft_service.drafters.choose import Children, Choose
from outrider.core.round import Budget, SamplingParams, TruncatedDistribution
from outrider.core.sampling import Logits, probabilities
from outrider.models.causal_lm import Segment
from outrider.models.heads.eagle_lean import LeanEagle
from tests.heads import tiny_eagle
from tests.local.drafters import LocalDraft
from tests.local.generation import fixed, generate
from tests.local.laws import g_test, joint_law
from tests.local.verifiers import LocalTarget
from tests.tiny import tiny, tiny_model

VOCAB, LAYERS, HIDDEN, TOKENS, TEXTS = 5, 2, 64, 3, 1500
PROMPT = [1, 2, 0, 1]
MODEL = tiny(vocab=VOCAB, layers=LAYERS, hidden=HIDDEN)
SAMPLING = SamplingParams(temperature=1.5)


def _law(prefix: Sequence[int]) -> npt.NDArray[np.float64]:
    hidden = MODEL.forward([Segment.chain(MODEL.new_cache(), prefix)])
    return probabilities(MODEL.logits(hidden.states[-1:])[0].numpy(), SAMPLING)


LAW = joint_law(_law, PROMPT, VOCAB, TOKENS)


def _draft() -> LocalDraft:
    target = tiny_model(vocab=VOCAB, layers=LAYERS, hidden=HIDDEN)
    head = tiny_eagle(target, torch.tensor([0, 1, 3, 4])).eval()
    drafter = eagle.EagleDrafter(LeanEagle(head, kv_bytes=1 << 24), head.config)
    drafter._rng = np.random.default_rng(3)
    return LocalDraft(drafter)


async def _counts(draft: LocalDraft) -> tuple[npt.NDArray[np.float64], int]:
    """How often each text came, and how many drafted tokens were accepted."""
    counts, accepted = np.zeros(LAW.shape), 0
    target = LocalTarget(MODEL)
    uniform = np.random.default_rng(4).random

    async def one() -> None:
        nonlocal accepted
        session = draft.open(PROMPT, SAMPLING)
        verifier = target.open(PROMPT, SAMPLING, TOKENS, features=draft.drafter.features)
        text = await generate(PROMPT, verifier, session, fixed(2, 4, m=3), TOKENS, uniform=uniform)
        counts[text.tokens] += 1
        accepted += text.report.accepted
        draft.drafter.close(session._session)

    for _ in range(TEXTS // 50):
        await asyncio.gather(*(one() for _ in range(50)))
    return counts, accepted


async def test_texts_drafted_with_drawn_children_have_the_targets_law() -> None:
    counts, accepted = await _counts(_draft())
    assert accepted > TEXTS / 10
    assert g_test(counts, LAW) > 1e-3


async def test_a_head_that_declares_another_law_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = eagle.strategy

    def lying(*args: object) -> Choose:
        choose = honest(*args)  # type: ignore[arg-type]

        def wrong(logits: Logits, count: int, position: int, budget: Budget) -> Children:
            children = choose(logits, count, position, budget)
            assert children.drawn_from is not None
            q = children.drawn_from
            return Children(
                children.tokens, TruncatedDistribution(q.ids, np.roll(q.weights, 1).copy())
            )

        return wrong

    monkeypatch.setattr(eagle, "strategy", lying)
    counts, _ = await _counts(_draft())
    assert g_test(counts, LAW) < 1e-6
