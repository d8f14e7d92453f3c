"""Memory for weights."""

from __future__ import annotations

import numpy as np

from outrider.models.lean.memory import ALIGN, Shelf


def test_arrays_keep_their_elements_beside_others_and_beyond_a_chunk() -> None:
    shelf = Shelf(chunk=4096)
    given: list[np.ndarray] = [
        np.arange(n, dtype=t) for n, t in ((5, np.uint8), (900, np.float32), (9, np.int32))
    ]
    given.append(np.arange(12, dtype=np.uint16).reshape(3, 4))
    placed = [shelf.put(array) for array in given]
    for before, after in zip(given, placed, strict=True):
        assert after.dtype == before.dtype
        assert np.array_equal(after, before)
        assert after.ctypes.data % ALIGN == 0
        assert not np.shares_memory(before, after)


def test_memory_lives_as_long_as_an_array_in_it() -> None:
    shelf = Shelf(chunk=64)
    first = shelf.put(np.ones(16, np.float32))
    shelf.put(np.zeros(16, np.float32))
    del shelf
    assert first.sum() == 16
