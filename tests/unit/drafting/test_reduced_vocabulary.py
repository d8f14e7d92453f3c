"""A drafter whose logits cover some of the target's tokens speaks in the target's ids."""

from __future__ import annotations

import numpy as np
import pytest

from draft_service.drafters.choose import strategy
from draft_service.drafters.rank import NOTHING, ranking
from outrider.core.coupling import gumbel
from outrider.core.round import Budget, SamplingParams
from outrider.core.sampling import probabilities
from tests.local.laws import g_test

IDS = np.array([3, 4, 9, 17, 40, 41])
LOGITS = np.array([0.1, 1.2, -0.3, 2.0, 0.7, -1.0], np.float32)
BUDGET = Budget(depth=1, nodes=4, m=5)
SEEDED = SamplingParams(temperature=0.8, seed=11, choice=2)
POSITION = 6


def _children(sampling: SamplingParams, count: int) -> list[int]:
    choose = strategy(sampling, np.random.default_rng(0), IDS)
    return choose(LOGITS, count, POSITION, BUDGET).tokens


def test_greedy_children_are_the_likeliest_target_ids() -> None:
    assert _children(SamplingParams(temperature=0.0), 1) == [17]
    assert _children(SamplingParams(temperature=0.0), 3) == [17, 4, 40]


@pytest.mark.parametrize("seed", range(20))
def test_seeded_children_take_the_noise_of_target_ids(seed: int) -> None:
    sampling = SamplingParams(temperature=0.8, seed=seed)
    q = probabilities(LOGITS, sampling)
    scores = np.log(q) + gumbel(seed, 0, POSITION, IDS)
    expected = IDS[np.argsort(-scores)].tolist()
    assert _children(sampling, 1) == expected[:1]
    assert _children(sampling, 4) == expected[:4]


def _counts(ids: np.ndarray, draws: int = 4000) -> tuple[float, np.ndarray]:
    """p-value of the first child's law, q~ laid out over `ids`, and the seconds' counts."""
    sampling = SamplingParams(temperature=1.3)
    choose = strategy(sampling, np.random.default_rng(7), ids)
    first, second = np.zeros(50), np.zeros((50, 50))
    for _ in range(draws):
        children = choose(LOGITS, 2, POSITION, BUDGET)
        first[children.tokens[0]] += 1
        second[tuple(children.tokens)] += 1
    law = np.zeros(50)
    assert children.drawn_from is not None
    law[children.drawn_from.ids] = children.drawn_from.probabilities
    assert set(children.drawn_from.ids) <= set(IDS)
    pair = np.outer(law, law)
    np.fill_diagonal(pair, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        pair = np.where(law[:, None] > 0, pair / (1.0 - law[:, None]), 0.0)
    assert g_test(second, pair) > 1e-3
    return g_test(first, law), law


def test_drawn_children_follow_the_declared_law_over_target_ids() -> None:
    p_value, law = _counts(IDS)
    assert p_value > 1e-3
    assert np.count_nonzero(law) == BUDGET.m


def test_the_g_test_would_see_another_law() -> None:
    choose = strategy(SamplingParams(temperature=1.3), np.random.default_rng(7), IDS)
    counts, law = np.zeros(50), np.zeros(50)
    for _ in range(4000):
        counts[choose(LOGITS, 1, POSITION, BUDGET).tokens[0]] += 1
    law[IDS] = probabilities(LOGITS, SamplingParams(temperature=1.0))
    assert g_test(counts, law) < 1e-6


def test_ranked_scores_are_logarithms_of_the_law() -> None:
    ranked = ranking(SamplingParams(temperature=0.0), IDS)(LOGITS[None], 3, POSITION, BUDGET)[0]
    q = probabilities(LOGITS, SamplingParams())
    assert ranked.tokens == [17, 4, 40]
    np.testing.assert_allclose(np.exp(ranked.scores), q[[3, 1, 4]], rtol=1e-6)


def test_the_best_of_a_seeded_ranking_is_the_seeded_draw() -> None:
    ranked = ranking(SEEDED, IDS)(LOGITS[None], 4, POSITION, BUDGET)[0]
    assert ranked.tokens == _children(SEEDED, 4)
    assert max(ranked.scores) <= 0.0
    assert ranked.scores == sorted(ranked.scores, reverse=True)


def test_nothing_is_ranked_below_the_least_confidence() -> None:
    for sampling in (SamplingParams(temperature=0.0), SEEDED):
        rank = ranking(sampling, IDS)
        assert rank(LOGITS[None], 2, POSITION, Budget(1, 2, p_min=0.99)) == [NOTHING]
