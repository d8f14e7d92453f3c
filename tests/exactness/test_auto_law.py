"""auto leaves the law of the target; one that chooses by what was drawn does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from sampling_runs import CHAIN, TREE, Shape, count_tokens, exact_law, memoise

from draft_service.drafters.auto import AutoDrafter
from outrider.core.acceptance import Kind
from outrider.core.round import Budget, Proposal, SamplingParams
from outrider.drafting.base import DraftSession
from outrider.drafting.ngram import NgramDrafter
from tests.local.drafters import LocalDraft, draft_model
from tests.local.laws import g_test
from tests.local.memo_lm import memo_lm, noisy

SAMPLES = 12_000
CONTROL_SAMPLES = 6_000
PASSES = 1e-4
FAILS = 1e-6
SAMPLING = SamplingParams()
PROMPT = [3, 1, 2, 0, 3, 1, 2, 5, 6, 1, 2]  # a match, and not a clear one


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    memoise(monkeypatch)


class Counting(AutoDrafter):
    """auto on a clock that stands, which counts its choices."""

    def __init__(self) -> None:
        target = memo_lm(seed=0)
        super().__init__(
            [NgramDrafter(), draft_model(noisy(target, 0.3)).drafter], clock=lambda: 0.0
        )
        self.chosen: Counter[str] = Counter()

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        proposals = super().propose(batch)
        self.chosen.update(p.method for p in proposals if p.tree.drafted)
        return proposals


class Peeking(Counting):
    """Prefers the match where the drawn token is not to its liking."""

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        proposals = []
        for session, budget in batch:
            asked = {
                method: drafter.propose([(session.state.sessions[method], budget)])[0]
                for method, drafter in self.drafters.items()
            }
            drawn, match = asked["draft_model"], asked["ngram"]
            liked = drawn.tree.drafted and drawn.tree.tokens[1] < 4
            proposals.append(drawn if liked else match)
        return proposals


def p_value(drafter: AutoDrafter, shape: Shape, samples: int) -> tuple[float, dict[Kind, int]]:
    target = memo_lm(seed=0)
    counts, kinds = count_tokens(
        target, LocalDraft(drafter), PROMPT, lambda _: SAMPLING, shape, samples
    )
    return g_test(counts, exact_law(target, PROMPT, SAMPLING)), kinds


@pytest.mark.parametrize("shape", [CHAIN, TREE], ids=["chain", "tree"])
def test_choosing_among_drafters_leaves_the_law_of_the_target(shape: Shape) -> None:
    auto = Counting()
    value, kinds = p_value(auto, shape, SAMPLES)
    assert value > PASSES
    assert min(kinds[Kind.ACCEPTED], kinds[Kind.RECOVERED]) > SAMPLES / 10
    assert min(auto.chosen["ngram"], auto.chosen["draft_model"]) > SAMPLES / 20


def test_choosing_by_what_was_drawn_is_caught() -> None:
    value, _ = p_value(Peeking(), CHAIN, CONTROL_SAMPLES)
    assert value < FAILS
