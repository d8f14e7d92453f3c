import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.speedup import (
    best_k,
    best_k_from_survival,
    expected_accepted,
    expected_tokens,
    expected_tokens_from_survival,
    improvement,
)

# Best K and its S for an acceptance and a draft cost, verification of more rows being free.
TABLE = [
    (0.4, [(2, 1.42), (2, 1.37), (2, 1.26), (1, 1.12)]),
    (0.5, [(3, 1.63), (3, 1.55), (2, 1.41), (1, 1.20)]),
    (0.6, [(4, 1.92), (4, 1.80), (3, 1.60), (2, 1.31)]),
    (0.7, [(6, 2.35), (5, 2.18), (4, 1.87), (2, 1.46)]),
    (0.8, [(8, 3.09), (7, 2.79), (5, 2.31), (3, 1.69)]),
]
COSTS = (0.05, 0.07, 0.12, 0.25)


def test_four_drafts_at_0_8_accept_2_36_and_emit_3_36() -> None:
    assert expected_accepted(0.8, 4) == pytest.approx(2.3616)
    assert expected_tokens(0.8, 4) == pytest.approx(3.3616)


@pytest.mark.parametrize(
    ("acceptance", "cost", "k", "gain"),
    [(a, c, *cell) for a, row in TABLE for c, cell in zip(COSTS, row, strict=True)],
)
def test_best_k_and_its_improvement_are_those_of_the_table(
    acceptance: float, cost: float, k: int, gain: float
) -> None:
    assert best_k(acceptance, cost) == k
    assert improvement(acceptance, k, cost) == pytest.approx(gain, abs=0.0051)


@pytest.mark.parametrize(("acceptance", "k"), [(0.3, 5), (0.8, 4), (0.95, 8)])
def test_expectation_is_that_of_a_simulated_chain(acceptance: float, k: int) -> None:
    kept = np.random.default_rng(0).random((200_000, k)) < acceptance
    accepted = kept.cumprod(axis=1).sum(axis=1)
    assert accepted.mean() == pytest.approx(expected_accepted(acceptance, k), rel=0.01)


def test_limits_of_the_acceptance() -> None:
    assert expected_tokens(0.0, 7) == 1.0
    assert expected_tokens(1.0, 7) == 8.0
    assert expected_tokens(1 - 1e-9, 7) == pytest.approx(8.0, rel=1e-6)
    assert expected_tokens(0.5, 0) == 1.0


@given(st.floats(0, 0.99), st.floats(0.01, 1))
def test_speculation_pays_exactly_where_acceptance_exceeds_the_draft_cost(
    acceptance: float, cost: float
) -> None:
    if not math.isclose(acceptance, cost, abs_tol=1e-9):
        assert (best_k(acceptance, cost) > 0) == (acceptance > cost)


@given(st.floats(0, 0.99), st.floats(0.01, 1), st.floats(0, 0.5), st.floats(0, 0.2))
def test_no_k_beats_the_best(
    acceptance: float, cost: float, overhead: float, per_row: float
) -> None:
    def verify(rows: int) -> float:
        return 1 + per_row * (rows - 1)

    chosen = best_k(acceptance, cost, verify, overhead, k_max=16)
    gains = [1.0, *(improvement(acceptance, k, cost, verify, overhead) for k in range(1, 17))]
    assert gains[chosen] == pytest.approx(max(gains), rel=1e-12)


def test_the_unit_of_the_verify_cost_does_not_matter() -> None:
    assert improvement(0.7, 3, 0.1, lambda rows: 20.0 + rows) == improvement(
        0.7, 3, 0.1, lambda rows: 40.0 + 2 * rows
    )
    assert improvement(0.7, 3, 0.1, lambda rows: 1.0 + rows) < improvement(0.7, 3, 0.1)


def test_overhead_and_costly_rows_switch_speculation_off() -> None:
    assert best_k(0.5, 0.05, overhead=2.0) == 0
    assert best_k(0.5, 0.05, lambda rows: float(rows)) == 0


def test_survival_needs_no_independence() -> None:
    assert expected_tokens_from_survival([0.8, 0.64, 0.512, 0.4096]) == pytest.approx(
        expected_tokens(0.8, 4)
    )
    assert expected_tokens_from_survival([]) == 1.0
    assert best_k_from_survival([0.9, 0.1, 0.1, 0.1], 0.2) == 1
    assert best_k_from_survival([0.5, 0.5, 0.5, 0.5, 0.5, 0.5], 0.2) == 6


@pytest.mark.parametrize(
    ("survival", "message"),
    [
        ([0.5, 0.6], r"survival\[1\]: 0\.6, limit 0 to 0\.5"),
        ([1.1], r"survival\[0\]: 1\.1, limit 0 to 1"),
        ([0.5, math.nan], r"survival\[1\]: nan"),
    ],
)
def test_survival_that_rises_is_refused(survival: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        expected_tokens_from_survival(survival)


@pytest.mark.parametrize(
    ("acceptance", "k", "message"),
    [
        (1.1, 2, r"acceptance: 1\.1"),
        (-0.1, 2, "acceptance"),
        (math.nan, 2, "acceptance: nan"),
        (0.5, -1, "k: -1"),
    ],
)
def test_formulas_refuse_what_is_no_chance_and_no_length(
    acceptance: float, k: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        expected_tokens(acceptance, k)
