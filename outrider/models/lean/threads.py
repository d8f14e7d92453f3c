"""How many threads the kernels take."""

from __future__ import annotations

import logging
from functools import cache

import numba
import torch

logger = logging.getLogger(__name__)

ALONE = "workqueue"
"""The threading layer that Numba falls back to; it costs more than a second thread brings."""


def take_threads() -> None:
    """Gives the thread that calls as many as torch has, or one where more do not pay.

    Numba keeps the number for each calling thread, so every forward says it anew.
    """
    most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    threads = torch.get_num_threads()
    numba.set_num_threads(min(threads, most))
    if torch.get_num_threads() != threads:
        # Numba's first call starts as many as there are cores and tells the OpenMP that torch uses.
        torch.set_num_threads(threads)
    if _layer() == ALONE:
        numba.set_num_threads(1)


@cache
def _layer() -> str:
    """The threading layer; Numba knows it once threads were asked for."""
    layer = str(numba.threading_layer())  # type: ignore[attr-defined]
    if layer == ALONE:
        logger.warning("kernels run on one thread: install libgomp (Debian: libgomp1) for more")
    return layer
