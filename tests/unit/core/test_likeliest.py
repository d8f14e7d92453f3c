"""The few likeliest of many, against a sort and against NumPy's logarithms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.likeliest import BLOCK, ranked


@given(st.integers(1, 3 * BLOCK), st.integers(1, 40), st.integers(1, 6), st.integers(0, 1000))
def test_places_are_those_of_a_stable_sort(size: int, count: int, levels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.integers(-levels, levels, (3, size)).astype(np.float32)  # with ties
    places, scores = ranked(logits, count)
    expected = np.argsort(-logits, axis=1, kind="stable")[:, :count]
    assert places.tolist() == expected.tolist()
    wide = logits.astype(np.float64)
    law = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(scores, np.take_along_axis(law, expected, 1), atol=1e-12)


@pytest.mark.parametrize("size", [2, BLOCK, BLOCK + 1, 16384])
def test_tokens_without_mass_have_their_place(size: int) -> None:
    logits = np.random.default_rng(size).standard_normal((2, size)).astype(np.float32)
    logits[:, : size - 2] = -np.inf
    places, scores = ranked(logits, 9)
    assert places.tolist() == np.argsort(-logits, axis=1, kind="stable")[:, :9].tolist()
    np.testing.assert_allclose(np.exp(scores).sum(axis=1), 1.0)


def test_rows_that_lie_apart_are_read_as_they_are() -> None:
    wide = np.random.default_rng(3).standard_normal((4, 300)).astype(np.float32)
    places, scores = ranked(wide[:, :200], 5)
    for row in range(4):
        alone = ranked(wide[row : row + 1, :200].copy(), 5)
        assert (places[row].tolist(), scores[row].tolist()) == tuple(a[0].tolist() for a in alone)


@pytest.mark.parametrize("wrong", [np.inf, np.nan])
def test_logits_that_give_no_law_are_refused(wrong: float) -> None:
    logits = np.zeros((3, 500), np.float32)
    logits[1, 77] = wrong
    with pytest.raises(ValueError, match="limit finite"):
        ranked(logits, 4)
    with pytest.raises(ValueError, match="limit finite"):
        ranked(np.full((1, 9), -np.inf, np.float32), 4)
