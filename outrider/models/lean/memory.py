"""Weights side by side in large pages, where the system has them.

A pass reads every weight once, and with small pages it waits for their addresses too: a twelfth of
a row's time.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
CHUNK = 1 << 25
ALIGN = 64


class Shelf:
    """Takes arrays one after the other; memory is given back with the last array in a chunk."""

    def __init__(self, chunk: int = CHUNK) -> None:
        self._chunk = chunk
        self._pages: mmap.mmap | None = None
        self._used = 0

    def put(self, array: Array) -> Array:
        """The same elements, in this memory."""
        needed = -(-array.nbytes // ALIGN) * ALIGN
        if self._pages is None or self._used + needed > len(self._pages):
            self._pages, self._used = _pages(max(self._chunk, needed)), 0
        placed = np.frombuffer(self._pages, array.dtype, array.size, self._used)
        placed[:] = array.reshape(-1)
        self._used += needed
        return placed.reshape(array.shape)


def _pages(size: int) -> mmap.mmap:
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


WEIGHTS = Shelf()
