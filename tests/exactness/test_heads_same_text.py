"""With a random head beside it, the text stays the target's own: chains, trees, seeds, losses."""

from __future__ import annotations

from collections.abc import Sequence
from random import random

import pytest
import torch

from draft_service.drafters.eagle import EagleDrafter
from draft_service.drafters.medusa import MedusaDrafter
from orchestrator.loop import Limits, Loop
from orchestrator.report import Report
from orchestrator.shadow import Shadow
from outrider.core.round import Budget, Features, Proposal, SamplingParams
from outrider.drafting.base import Drafter
from outrider.models.heads.eagle_lean import LeanEagle
from outrider.models.heads.medusa_runner import LeanMedusa
from tests.heads import tiny_eagle, tiny_medusa
from tests.local.drafters import NO_FAULTS, Faults, LocalDraft, LocalDrafter
from tests.local.generation import Text, fixed, generate
from tests.local.verifiers import LocalTarget
from tests.tiny import tiny, tiny_model

VOCAB, LAYERS, HIDDEN, TOKENS = 8, 4, 64, 24
PROMPT = [1, 2, 0, 1, 2, 5, 1, 2]
MODEL = tiny(vocab=VOCAB, layers=LAYERS, hidden=HIDDEN)
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0),
    "seeded": SamplingParams(temperature=0.9, top_p=0.95, seed=2**40 + 7, choice=1),
}


def _drafter(method: str) -> Drafter:
    target = tiny_model(vocab=VOCAB, layers=LAYERS, hidden=HIDDEN)
    ids = torch.tensor([0, 1, 3, 4, 6, 7])
    if method != "eagle":
        heads = tiny_medusa(target, ids, root_embedding=method == "medusa root")
        return MedusaDrafter(LeanMedusa(heads), heads.config, LAYERS)
    head = tiny_eagle(target, ids).eval()
    return EagleDrafter(LeanEagle(head, kv_bytes=1 << 22), head.config)


DRAFTS = {method: LocalDraft(_drafter(method)) for method in ("eagle", "medusa", "medusa root")}


class _Forgetful(LocalDrafter):
    """Every second delivery of features is lost."""

    def observe(
        self, tokens: Sequence[int], features: Sequence[Features], samples: Sequence[int]
    ) -> None:
        super().observe(tokens, features if self.asked % 2 else (), samples)


async def _text(
    draft: LocalDrafter | None, sampling: SamplingParams, depth: int, nodes: int
) -> Text:
    spec = None if draft is None else draft._draft.drafter.features
    verifier = LocalTarget(MODEL).open(PROMPT, sampling, TOKENS, features=spec)
    return await generate(PROMPT, verifier, draft, fixed(depth, nodes), TOKENS)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("method", DRAFTS)
async def test_chain_and_tree_give_the_targets_own_text(method: str, sampling: str) -> None:
    params = SAMPLINGS[sampling]
    own = (await _text(None, params, 4, 0)).tokens
    drafted = accepted = 0
    for depth, nodes in ((1, 0), (4, 0), (3, 9)):
        draft = DRAFTS[method].open(PROMPT, params)
        text = await _text(draft, params, depth, nodes)
        assert text.tokens == own
        drafted += text.report.drafted
        accepted += text.report.accepted
    assert drafted > accepted > 0, "a test in which nothing is accepted or refused shows little"


@pytest.mark.parametrize("method", DRAFTS)
async def test_lost_features_and_late_proposals_change_no_token(method: str) -> None:
    params = SAMPLINGS["greedy"]
    own = (await _text(None, params, 4, 0)).tokens
    for faults in (NO_FAULTS, Faults(late=frozenset({1, 3}), dies_at=5, reopens_after=2)):
        draft = _Forgetful(DRAFTS[method], PROMPT, params, faults)
        text = await _text(draft, params, 3, 7)
        assert text.tokens == own
        assert text.report.drafted > 0


class _Beside:
    """Free runs only, and a shadow draft whenever there may be one."""

    def __init__(self) -> None:
        self.depths: list[int] = []

    def calls(self, remaining: int) -> bool:
        return True

    def choose(self, remaining: int) -> Budget | None:
        return None

    def shadow(self, remaining: int) -> Budget | None:
        return Budget(2, 2, m=4, time_left_s=1e6) if remaining > 2 else None

    def drafted(self, budget: Budget, proposal: Proposal | None, waited_s: float) -> None:
        pass

    def shadowed(self, budget: Budget, proposal: Proposal | None, compared: int, kept: int) -> None:
        self.depths.append(0 if proposal is None else proposal.tree.depth)


@pytest.mark.parametrize("method", DRAFTS)
async def test_heads_draft_in_full_beside_a_free_run(method: str) -> None:
    params, beside = SAMPLINGS["greedy"], _Beside()
    draft = DRAFTS[method].open(PROMPT, params)
    verifier = LocalTarget(MODEL).open(
        PROMPT, params, TOKENS, features=draft._draft.drafter.features
    )
    shadow = Shadow(draft, beside)
    loop = Loop(list(PROMPT), Limits(TOKENS), verifier, draft, beside, random, Report(), (), shadow)
    text = [token async for committed in loop.run() for token in committed.tokens]
    shadow.close()
    assert tuple(text) == (await _text(None, params, 4, 0)).tokens
    assert len(beside.depths) > 1
    assert set(beside.depths) == {2}
