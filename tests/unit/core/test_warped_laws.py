"""The law that the kernels give against its definition in NumPy."""

import math

import numpy as np
import numpy_sampling as reference
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core import sampling
from outrider.core.nucleus import nucleus
from outrider.core.round import SamplingParams
from outrider.core.sampling import Law, largest, warp, warp_rows
from outrider.core.weights import mass_up_to, weigh
from tests.local.laws import g_test

ROUNDING = 1e-12  # a threshold that a sum meets but for this share may fall on either side
BELOW_ONE = float(np.nextafter(1.0, 0.0))

VALUES = {
    "plain": st.floats(-30, 30, width=32),
    "ties": st.integers(-3, 3).map(float),
    "huge": st.floats(-(2.0**120), 2.0**120, width=32),
    "ruled out": st.one_of(st.just(-math.inf), st.floats(-5, 5, width=32)),
}
LOGITS = st.one_of([st.lists(values, min_size=1, max_size=200) for values in VALUES.values()])
PARAMS = st.builds(
    SamplingParams,
    temperature=st.one_of(
        st.sampled_from([1.0, 0.8, 5e-324, 1e-300, 1e-6, 0.01, 40.0, 1e5]), st.floats(0.2, 2)
    ),
    top_k=st.sampled_from([0, 0, 1, 2, 5, 50, 199, 1000]),
    top_p=st.one_of(
        st.sampled_from([1.0, 5e-324, 1e-17, 1e-9, 0.5, 0.75, 1 - 1e-12, BELOW_ONE]),
        st.floats(0.01, 1),
    ),
    min_p=st.one_of(st.sampled_from([0.0, 0.0, 1e-12, 0.1, 1.0]), st.floats(0, 1)),
)


def check(logits: np.ndarray, params: SamplingParams, law: Law) -> None:
    """The support lies between those of thresholds a rounding apart; on it p is the definition's.

    Raises AssertionError.
    """
    p = law.dense()
    tight, loose = (
        reference.probabilities(logits, params, side * ROUNDING) > 0 for side in (1.0, -1.0)
    )
    support = p > 0
    assert not (tight & ~support).any()
    assert not (support & ~loose).any()
    bare = reference.probabilities(logits, SamplingParams(params.temperature))
    expected = np.where(support, bare, 0.0)
    np.testing.assert_allclose(p, expected / expected.sum(), rtol=1e-12, atol=0)


@given(LOGITS, PARAMS, st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_rows_together_have_the_laws_of_each_alone(
    values: list[float], params: SamplingParams, count: int
) -> None:
    row = np.array(values, np.float32)
    if not np.isfinite(row.max()):
        return
    rows = np.stack([np.roll(row, shift) for shift in range(count)])
    for law, alone in zip(warp_rows(rows, params), [warp(r, params) for r in rows], strict=True):
        assert np.array_equal(law.ids, alone.ids)
        assert np.array_equal(law.weights, alone.weights)
        assert (law.total, law.vocabulary) == (alone.total, alone.vocabulary)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_has_no_greatest_is_refused_among_others(bad: float) -> None:
    rows = np.stack([normal(500), normal(500, seed=1)])
    rows[1, 77] = bad
    with pytest.raises(ValueError, match="logits: the greatest is"):
        warp_rows(rows, SamplingParams(top_p=0.9))


def normal(size: int, scale: float = 3.0, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=scale, size=size).astype(np.float32)


@settings(max_examples=400)
@given(LOGITS.filter(lambda row: max(row) > -math.inf), st.sampled_from([1, 1, 9]), PARAMS)
def test_law_is_the_definitions(row: list[float], copies: int, params: SamplingParams) -> None:
    logits = np.tile(np.array(row, dtype=np.float32), copies)
    check(logits, params, warp(logits, params))


@pytest.mark.parametrize("size", [511, 512, 513, 49_152])
@pytest.mark.parametrize("scale", [0.01, 1.0, 4.0])
def test_law_of_long_rows_is_the_definitions(size: int, scale: float) -> None:
    logits = normal(size, scale)
    rounded = (np.round(logits * 8) / 8).astype(np.float32)  # as bfloat16 rounds: many ties
    for params in (
        SamplingParams(),
        SamplingParams(top_p=0.95),
        SamplingParams(temperature=0.7, top_p=1e-3),
        SamplingParams(temperature=2.0, top_p=1 - 1e-9),
        SamplingParams(top_k=50, top_p=0.9, min_p=0.02),
        SamplingParams(top_k=400),
    ):
        law = warp(logits, params)
        check(logits, params, law)
        assert np.array_equal(law.dense() > 0, reference.probabilities(logits, params) > 0)
        check(rounded, params, warp(rounded, params))


def test_a_nucleus_one_token_off_would_show() -> None:
    """Negative control of `check`."""
    logits, params = normal(1000), SamplingParams(top_p=0.9)
    kept = warp(logits, params).ids
    likely = kept[np.argsort(logits[kept])]
    for ids in (np.sort(likely[1:]), np.append(kept, np.delete(np.arange(1000), kept)[:1])):
        weights = np.exp(logits[ids].astype(np.float64))
        with pytest.raises(AssertionError):
            check(logits, params, Law(ids, weights, weights.sum(), 1000))


def test_of_equal_tokens_the_first_leave_the_nucleus() -> None:
    weights = np.full(2000, 0.25)
    weights[7] = 1.0
    assert nucleus(weights, float(weights.sum()), 0.5).tolist() == [
        7,
        *range(1002, 2000),
    ]  # 1001 quarters are within 250.375
    flat = np.ones(65)
    for top_p in (1e-17, 5e-324, 1e-3):
        assert nucleus(flat, 65.0, top_p).tolist() == [64]


@given(
    st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=1, max_size=400),
    st.integers(1, 63),
)
def test_nucleus_of_weights_whose_sums_are_exact(weights: list[float], share: int) -> None:
    """Without rounding there is one answer: the fewest of the greatest that reach the share."""
    w, top_p = np.array(weights), share / 64
    kept = nucleus(w, float(w.sum()), top_p)
    gone = np.delete(w, kept)
    assert gone.sum() <= (1 - top_p) * w.sum()
    assert gone.sum() + w[kept].min() > (1 - top_p) * w.sum() or kept.size == 1
    assert not gone.size or gone.max() <= w[kept].min()


@pytest.mark.parametrize("temperature", [1.0, 0.37, 3e5])
def test_weights_are_the_exponentials_to_a_unit_in_the_last_place(temperature: float) -> None:
    x = -np.abs(normal(20_000, 250.0)).astype(np.float32)
    x[:3] = 0.0, -708.5, -1e30
    z = x.astype(np.float64) / temperature
    with np.errstate(under="ignore"):
        exact = np.exp(z.astype(np.longdouble)).astype(np.float64)
    error = np.abs(weigh(x, 0.0, temperature) - exact)
    assert (error <= 1.01 * np.spacing(exact)).all()


def test_weight_does_not_depend_on_its_place_in_the_row() -> None:
    x = normal(1037)
    whole = weigh(x, 12.0, 1.0)
    for start in range(0, 40, 3):
        assert np.array_equal(weigh(x[start:], 12.0, 1.0), whole[start:])
        assert weigh(x[start : start + 1], 12.0, 1.0)[0] == whole[start]


def test_a_sums_bits_depend_on_the_weights_alone() -> None:
    buffer = np.random.default_rng(1).random(5000)
    weights = buffer[:4000].copy()
    total = mass_up_to(weights, math.inf)
    for shift in range(1, 9):
        buffer[shift : shift + 4000] = weights
        assert mass_up_to(buffer[shift : shift + 4000], math.inf) == total
    assert total == pytest.approx(math.fsum(weights), rel=1e-14)
    small = weights[weights <= 0.5]
    assert mass_up_to(weights, 0.5) == pytest.approx(math.fsum(small), rel=1e-14)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=400), st.integers(1, 450))
def test_largest_keeps_ties_with_the_last(values: list[int], count: int) -> None:
    x = np.array(values, dtype=np.float32)
    least = np.sort(x)[-min(count, x.size)]
    assert largest(x, count).tolist() == np.flatnonzero(x >= least).tolist()


@given(
    st.lists(st.sampled_from([0.0, 1e-300, 0.1, 0.25, 3.0]), min_size=1, max_size=1500).filter(any),
    st.floats(0, 1, exclude_max=True),
)
def test_draw_is_at_the_uniforms_share_of_the_mass(weights: list[float], uniform: float) -> None:
    p = np.array(weights)
    token = sampling.draw(p, uniform)
    assert p[token] > 0
    before, behind = math.fsum(weights[:token]), math.fsum(weights[: token + 1])
    wanted, rounding = uniform * math.fsum(weights), ROUNDING * math.fsum(weights)
    assert before - rounding <= wanted <= behind + rounding


def test_draws_of_a_warped_row_follow_its_law_and_no_other() -> None:
    logits = normal(12, 1.0, seed=3)
    params = SamplingParams(temperature=0.9, top_p=0.9)
    law = warp(logits, params)
    rng = np.random.default_rng(5)
    unseeded = np.bincount([law.draw(rng.random()) for _ in range(20_000)], minlength=12)
    seeded = np.bincount([law.seeded_draw(s, 0, 3) for s in range(20_000)], minlength=12)
    exact = reference.probabilities(logits, params)
    other = reference.probabilities(logits, SamplingParams(temperature=1.0, top_p=0.9))
    for counts in (unseeded, seeded):
        assert g_test(counts.astype(float), exact) > 1e-4
        assert g_test(counts.astype(float), other) < 1e-4


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(top_k=20)], ids=str)
def test_parts_of_a_law_are_those_of_its_probabilities(params: SamplingParams) -> None:
    logits = normal(100)
    law = warp(logits, params)
    p = law.dense()
    ids = np.array([0, 5, 17, 50, 99, int(p.argmax())])
    assert np.array_equal(law.at(ids), p[ids])
    assert law.peak == p.max()
    outside, mass = law.outside(ids)
    rest = p.copy()
    rest[ids] = 0.0
    assert mass == pytest.approx(rest.sum(), rel=1e-14)
    np.testing.assert_allclose(outside.dense(), rest / rest.sum(), rtol=1e-13)
    assert law.outside(np.arange(100))[1] == 0.0
    assert np.array_equal(law.dense(), p)


@pytest.mark.parametrize("row", [[1.0, math.nan], [1.0, math.inf], [-math.inf, -math.inf]])
def test_row_without_a_law_is_refused(row: list[float]) -> None:
    with pytest.raises(ValueError, match="logits: the greatest is"):
        warp(np.array(row, dtype=np.float32), SamplingParams())
