"""The few greatest of many, against a sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.likeliest import BLOCK, likeliest


@given(st.integers(1, 3 * BLOCK), st.integers(1, 40), st.integers(1, 6), st.integers(0, 1000))
def test_places_are_those_of_a_stable_sort(size: int, count: int, levels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-levels, levels, size).astype(np.float32)  # with ties
    expected = np.argsort(-values, kind="stable")[:count]
    assert likeliest(values, count).tolist() == expected.tolist()


@pytest.mark.parametrize("size", [1, BLOCK, BLOCK + 1, 16384])
def test_infinite_values_have_their_place(size: int) -> None:
    values = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    values[size // 2] = np.inf
    values[: size // 3] = -np.inf
    expected = np.argsort(-values, kind="stable")[:9]
    assert likeliest(values, 9).tolist() == expected.tolist()
    assert likeliest(values[::-1], 1).tolist() == [size - 1 - size // 2]
