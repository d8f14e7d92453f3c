"""Rotary positions: cosines and sines, from the family's own frequencies."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

_STEP = 1024
"""Positions that are added to the tables at once, always the same ones together: the bits of an
entry must not depend on when it was asked for."""


class Rotary:
    """Tables of cosines and sines, [positions, dim / 2], which grow as positions are asked for."""

    def __init__(self, embedding: nn.Module) -> None:
        self._frequencies = embedding.get_buffer("inv_freq").detach().float()
        self._scaling = float(getattr(embedding, "attention_scaling", 1.0))
        self._cos = np.empty((0, len(self._frequencies)), np.float32)
        self._sin = self._cos

    def rows(self, positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.float32], ...]:
        """Cosines and sines of positions [n]: [n, dim / 2] each."""
        while len(self._cos) <= positions.max():
            start = len(self._cos)
            angles = torch.arange(start, start + _STEP).float()[:, None] * self._frequencies
            self._cos = np.concatenate([self._cos, (angles.cos() * self._scaling).numpy()])
            self._sin = np.concatenate([self._sin, (angles.sin() * self._scaling).numpy()])
        return self._cos[positions], self._sin[positions]
