import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation import LogitsProcessorList

from outrider.core.round import SamplingParams
from outrider.core.sampling import draw, greedy, probabilities, truncate
from tests.local.reference import transformers_law, transformers_processors

BELOW_ONE = np.nextafter(1.0, 0.0)


def random_logits() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(20)
    plain = {f"plain {v}": rng.normal(scale=3.0, size=v) for v in (2, 8, 50, 1000)}
    ties = {f"ties {v}": rng.integers(-3, 4, size=v) for v in (3, 8, 60, 400)}
    flat = {"all alike": np.zeros(16), "one leads": np.eye(12)[3]}
    wide = {"wide": rng.normal(scale=40.0, size=300), "far off": rng.normal(size=30) + 1e4}
    return {
        name: np.asarray(x, dtype=np.float32)
        for name, x in {**plain, **ties, **flat, **wide}.items()
    }


WARPERS = [
    SamplingParams(),
    SamplingParams(temperature=0.8),
    SamplingParams(top_k=5),
    SamplingParams(top_k=1),
    SamplingParams(top_k=100_000),
    SamplingParams(top_p=0.9),
    SamplingParams(top_p=0.31),
    SamplingParams(top_p=1e-9),
    SamplingParams(min_p=0.1),
    SamplingParams(min_p=1.0),
    SamplingParams(temperature=0.8, top_k=5, top_p=0.87),
    SamplingParams(temperature=1.7, top_k=20, top_p=0.93, min_p=0.02),
    SamplingParams(temperature=0.01, top_p=0.95),
    SamplingParams(temperature=1e-6, top_k=3),
    SamplingParams(temperature=40.0, top_k=7, min_p=0.3),
    SamplingParams(temperature=1e5, top_k=3),
]


@pytest.mark.parametrize("params", WARPERS, ids=str)
def test_law_is_that_of_transformers_processors(params: SamplingParams) -> None:
    processors = transformers_processors(params)
    for name, logits in random_logits().items():
        expected = transformers_law(processors, logits)
        p = probabilities(logits, params)
        assert p.dtype == np.float64
        if params.top_p == 1.0 or np.unique(logits).size == logits.size:
            assert np.array_equal(p > 0, expected > 0), name
            assert np.allclose(p, expected, atol=1e-6, rtol=1e-6), name
        # torch's unstable sort decides which of several equal tokens leave; not how many.
        assert sorted(logits[p > 0]) == sorted(logits[expected > 0]), name
        assert np.allclose(np.sort(p), np.sort(expected), atol=1e-6, rtol=1e-6), name
        assert p.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("swapped", ["top_k and top_p", "top_p and min_p"])
def test_another_order_of_the_warpers_would_show(swapped: str) -> None:
    """The comparison above has power: on some logits a wrong order changes the support."""
    params = SamplingParams(temperature=1.7, top_k=20, top_p=0.93, min_p=0.05)
    order = list(transformers_processors(params))
    names = [type(one).__name__ for one in order]
    assert [name.removesuffix("LogitsWarper") for name in names] == [
        "Temperature",
        "TopK",
        "TopP",
        "MinP",
    ]
    first = 1 if swapped == "top_k and top_p" else 2
    order[first], order[first + 1] = order[first + 1], order[first]
    wrong = LogitsProcessorList(order)
    rng = np.random.default_rng(4)
    cases = [rng.normal(scale=3.0, size=50).astype(np.float32) for _ in range(50)]
    assert any(
        not np.array_equal(probabilities(x, params) > 0, transformers_law(wrong, x) > 0)
        for x in cases
    )


def test_ties_with_the_kth_token_stay() -> None:
    p = probabilities(np.array([3, 1, 3, 2, 2, 0], dtype=np.float32), SamplingParams(top_k=3))
    assert np.flatnonzero(p).tolist() == [0, 2, 3, 4]


def test_greedy_is_one_hot_at_the_lowest_of_equal_tokens() -> None:
    logits = np.array([1, 7, 7, 0], dtype=np.float32)
    assert greedy(logits) == 1
    assert probabilities(logits, SamplingParams(temperature=0.0)).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-12])
def test_vanishing_temperature_is_greedy_without_overflow(temperature: float) -> None:
    p = probabilities(
        np.array([1, 2, -5], dtype=np.float32), SamplingParams(temperature=temperature)
    )
    assert p.tolist() == [0, 1, 0]


def test_tokens_that_the_model_rules_out_keep_no_mass() -> None:
    p = probabilities(
        np.array([-np.inf, 0, 0, -np.inf], dtype=np.float32), SamplingParams(top_k=3, top_p=0.99)
    )
    assert p.tolist() == [0, 0.5, 0.5, 0]


@given(
    st.lists(st.sampled_from([0.0, 1e-300, 1e-17, 1e-3, 0.2, 1.0]), min_size=1, max_size=12).filter(
        any
    ),
    st.one_of(st.sampled_from([0.0, BELOW_ONE, 0.5]), st.floats(0, 1, exclude_max=True)),
)
def test_no_token_without_mass_is_ever_drawn(weights: list[float], uniform: float) -> None:
    assert weights[draw(np.array(weights), uniform)] > 0


@pytest.mark.parametrize("uniform", [0.0, BELOW_ONE])
def test_draw_at_both_ends_of_the_uniform(uniform: float) -> None:
    p = np.array([0, 0, 0.1, 0.7, 0.2, 0])
    assert draw(p, uniform) == (2 if uniform == 0.0 else 4)


def test_draw_gives_each_token_its_share_of_the_uniform() -> None:
    p = np.array([0.25, 0, 0.5, 0.25])
    drawn = [draw(p, u) for u in np.arange(0.005, 1, 0.01)]
    assert [drawn.count(token) for token in range(4)] == [25, 0, 50, 25]


def test_truncation_keeps_the_likeliest_and_renormalises_in_float32() -> None:
    q = truncate(np.array([0.1, 0.0, 0.4, 0.05, 0.25, 0.2]), 3)
    assert q.ids.tolist() == [2, 4, 5]
    assert q.weights.dtype == np.float32
    assert np.allclose(q.weights, np.array([0.4, 0.25, 0.2]) / 0.85)
    assert q.probabilities.sum() == pytest.approx(1.0, abs=1e-15)


def test_truncation_drops_what_has_no_mass_in_float32() -> None:
    q = truncate(np.array([0.0, 1.0, 1e-60, 0.0]), 4)
    assert q.ids.tolist() == [1]


@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_truncation_has_m_ascending_ids_none_less_likely_than_those_left_out(
    m: int, seed: int
) -> None:
    q = np.random.default_rng(seed).dirichlet(np.full(8, 0.3))
    cut = truncate(q, m)
    assert cut.ids.tolist() == sorted(set(cut.ids.tolist()))
    assert cut.ids.size <= m
    left_out = np.delete(q, cut.ids)
    assert not left_out.size or left_out.max() <= max(q[cut.ids].min(), 1e-45)
    assert (cut.weights > 0).all()


def test_a_tiny_top_p_keeps_one_token_of_a_flat_distribution() -> None:
    flat = np.zeros(50, dtype=np.float32)
    for top_p in (1e-9, 1e-17, 5e-324):
        p = probabilities(flat, SamplingParams(top_p=top_p))
        assert np.flatnonzero(p).tolist() == [49]
        assert p[49] == 1.0
