"""The kernels' noise and seeded draw against their formulas, and the bound that saves noise."""

import math
from decimal import Decimal, localcontext

import numpy as np
import numpy_sampling as reference
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.core import coupling
from outrider.core.coupling import gumbel, log, noise, seeded_draw, winner
from outrider.core.round import SamplingParams
from outrider.core.sampling import warp

SEEDS = st.integers(0, 2**64 - 1)
WORDS = st.integers(0, 2**32 - 1)
MIDDLE = 2**52


def within_units(value: float, exact: Decimal, units: float) -> bool:
    return abs(Decimal(value) - exact) <= Decimal(math.ulp(value)) * Decimal(units)


@given(st.one_of(st.floats(5e-324, 1e308), st.floats(0.5, 2)))
def test_log_is_right_to_three_quarters_of_a_unit_in_the_last_place(x: float) -> None:
    with localcontext(prec=60):
        assert within_units(log(x), Decimal(x).ln(), 0.75)


@given(
    st.one_of(
        st.integers(0, 2**53 - 1),
        st.integers(0, 53).map(lambda n: 2**n - 1),
        st.integers(0, 53).map(lambda n: 2**53 - 2**n),
    )
)
@example(MIDDLE - 1)
@example(MIDDLE)
@example(round(2**52.5))
def test_noise_is_right_to_its_last_digits(k: int) -> None:
    with localcontext(prec=60):
        u = (Decimal(k) + Decimal("0.5")) / 2**53
        exact = -(-u.ln()).ln()
        assert abs(Decimal(noise(k)) - exact) <= Decimal("4e-16") * (1 + abs(exact))


@given(SEEDS, WORDS, WORDS, st.lists(WORDS, min_size=1, max_size=20))
def test_noise_of_a_token_is_the_formulas(
    seed: int, choice: int, position: int, tokens: list[int]
) -> None:
    ids = np.array(tokens)
    expected = reference.gumbel(seed, choice, position, ids)
    np.testing.assert_allclose(gumbel(seed, choice, position, ids), expected, rtol=0, atol=2e-14)


@given(
    SEEDS,
    WORDS,
    WORDS,
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 2, 7, 511, 512, 513, 3000]),
    st.sampled_from([0.0, 1.0, 4.0, 30.0]),
)
def test_seeded_draw_is_the_argmax_over_all_tokens(
    seed: int, choice: int, position: int, shape: int, size: int, scale: float
) -> None:
    rng = np.random.default_rng(shape)
    weights = np.exp(rng.normal(scale=scale, size=size))
    weights[rng.random(size) < 0.2] = 0.0
    weights[rng.integers(size)] = 1.0
    p = weights / weights.sum()
    expected = reference.seeded_draw(p, seed, choice, position)
    assert seeded_draw(p, seed, choice, position) == expected
    assert winner(np.arange(size), weights, seed, choice, position) == expected


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(top_p=0.95),
        SamplingParams(temperature=0.7, top_k=40, min_p=0.01),
        SamplingParams(temperature=3.0, top_p=0.999),
    ],
    ids=str,
)
def test_seeded_draw_of_a_row_is_the_formulas(params: SamplingParams) -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        logits = rng.normal(scale=rng.uniform(0.1, 6), size=20_000).astype(np.float32)
        expected = reference.seeded_draw(reference.probabilities(logits, params), seed, 1, 9)
        assert warp(logits, params).seeded_draw(seed, 1, 9) == expected


def test_bound_by_which_whole_chunks_are_passed_over_is_the_greatest_noise() -> None:
    greatest = noise(2**53 - 1)
    assert -log(coupling._LEAST_GAP * 2.0**-53) == pytest.approx(greatest, rel=1e-15)
    assert all(noise(2**53 - 1 - k) < greatest for k in (1, 2, 1000, 2**52))


def race(seed: int, margin: float, slack: float) -> bool:
    """Whether a token that wins by the factor 1 + margin alone is found among 5,000.

    The bound is at its tightest: the winner stands behind all others, which score nearly alike.
    """
    ids = np.arange(5000)
    scores = gumbel(seed, 0, 1, ids)
    weights = np.exp(-scores)
    weights[-1] *= 1.0 + margin
    args = np.uint64(seed), np.uint64(0), np.uint64(1)
    return bool(coupling._winner(*args, ids, weights, slack) == 4999)


@pytest.mark.parametrize("margin", [1e-11, 1e-6, 0.1])
def test_token_that_wins_by_a_hair_is_found_whatever_its_noise(margin: float) -> None:
    assert all(race(seed, margin, coupling._SLACK) for seed in range(100))


def test_a_bound_that_excludes_too_much_is_caught() -> None:
    """Negative control: bounds some percent too tight lose winners."""
    assert not all(race(seed, 1e-6, 0.9) for seed in range(100))
    weights = np.random.default_rng(0).dirichlet(np.ones(3000))
    draws = [reference.seeded_draw(weights, seed, 0, 1) for seed in range(200)]
    found = [
        coupling._winner(np.uint64(seed), np.uint64(0), np.uint64(1), np.arange(3000), weights, 0.5)
        for seed in range(200)
    ]
    assert found != draws


def test_equal_scores_go_to_the_lowest_id() -> None:
    """The same token twice has the same noise, so only the order can tell the two apart."""
    ids = np.array([4, 4, 4])
    args = np.uint64(3), np.uint64(0), np.uint64(1)
    assert coupling._winner(*args, ids, np.array([0.0, 0.5, 0.5]), coupling._SLACK) == 1


def test_no_mass_no_draw() -> None:
    with pytest.raises(ValueError, match="weights: none has mass"):
        winner(np.arange(3), np.zeros(3), 1, 0, 0)
