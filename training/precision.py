"""The format of a training's products; weights, optimiser and measurements stay float32."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from training.files import TrainingError

AUTO, FLOAT32, BFLOAT16 = "auto", "float32", "bfloat16"
DTYPES = {FLOAT32: torch.float32, BFLOAT16: torch.bfloat16}
WORTH = 1.5
"""How much faster bfloat16 must be; a processor without a unit for it is slower with it."""


def settled(asked: str, device: torch.device, stored: str | None = None) -> str:
    """The name of a format.

    Args:
        asked: float32, bfloat16, or auto.
        stored: what this training was begun with, which auto stays with.

    Raises:
        TrainingError: the name is unknown.
    """
    if asked not in (AUTO, *DTYPES):
        raise TrainingError(f"precision: {asked!r}, limit one of {AUTO}, {', '.join(DTYPES)}")
    if asked != AUTO:
        return asked
    return stored or (BFLOAT16 if _gain(device) >= WORTH else FLOAT32)


def autocast(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """Products within it are computed in `dtype`."""
    return torch.autocast(device.type, torch.bfloat16, enabled=dtype != torch.float32)


def _gain(device: torch.device) -> float:
    """How many times as fast a product of a training's shape is in bfloat16."""
    took = {dtype: _quickest(_product(device, dtype), device) for dtype in DTYPES.values()}
    return took[torch.float32] / took[torch.bfloat16]


def _product(device: torch.device, dtype: torch.dtype) -> Callable[[], Any]:
    rows = torch.randn(512, 512, device=device).to(dtype)
    weights = torch.randn(4096, 512, device=device).to(dtype)
    return lambda: rows @ weights.T


def _quickest(compute: Callable[[], Any], device: torch.device) -> float:
    """Seconds of the quickest of some calls."""
    taken = []
    for _ in range(8):
        started = time.perf_counter()
        compute()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - started)
    return min(taken)
