"""The linears of the lean decoder: packed once, fed and read through NumPy arrays.

Their weights are float32, bfloat16, or int8 with a scale for each output. `Tiled` runs our own
kernel; `Dense` and `Int8` run oneDNN's, where the processor has no instruction for ours or a weight
has an odd shape. An int8 row is signed bytes plus 128 with a scale.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from outrider.models.lean.products import TILE, available, product, tiled
from outrider.models.linear import Int8Weight, PackedWeight, padded, rounded

Array = np.ndarray[Any, Any]
_ELEMENTS = {torch.float32: np.float32, torch.bfloat16: np.uint16, torch.int8: np.uint8}
_NO_SCALES = np.empty(0, np.float32)
_NO_START = np.empty(0, np.int32)


class Wide:
    """Rows of one width on their way into a linear, as array and tensor, with their scales.

    The tensor has as many rows as oneDNN's products want.
    """

    def __init__(self, rows: int, width: int, kind: torch.dtype) -> None:
        height = rows if kind == torch.int8 else padded(rows)
        self.tensor = torch.zeros(height, width, dtype=torch.uint8 if kind == torch.int8 else kind)
        view = self.tensor.view(torch.uint16) if kind == torch.bfloat16 else self.tensor
        self.array = view.numpy()[:rows]
        self.scales = np.ones(rows, np.float32)


class Linear(Protocol):
    """x W^T of quantised or plain rows."""

    def __call__(self, inputs: Wide) -> Array:
        """inputs [n, in] -> [n, out] before the rows' scales; uint16 is bfloat16, else float32."""
        ...


def make_linear(weight: Tensor, kind: torch.dtype) -> Linear:
    """The fastest linear of float32, bfloat16 or int8 for weights [out, in] of any dtype."""
    if available(np.dtype(_ELEMENTS[kind]), *weight.shape):
        return Tiled(weight.detach(), kind)
    return Int8(weight) if kind == torch.int8 else Dense(weight.detach().to(kind))


def linears_name(kind: torch.dtype) -> str:
    """Which linears a model's usual shapes get, as numerics name them."""
    if available(np.dtype(_ELEMENTS[kind]), TILE, TILE):
        return "tiles-int8" if kind == torch.int8 else "tiles"
    return "onednn-int8" if kind == torch.int8 else "onednn-packed"


class Tiled:
    """Weights [out, in] in tiles; see `outrider.models.lean.products`."""

    def __init__(self, weight: Tensor, kind: torch.dtype) -> None:
        self._outputs = weight.shape[0]
        self._scales, self._start = _NO_SCALES, _NO_START
        if kind == torch.int8:
            whole, scale = rounded(weight)
            self._weights = tiled(whole.numpy()).view(np.uint8)
            self._start = -128 * whole.sum(dim=1, dtype=torch.int32).numpy()
            self._scales = scale.numpy()
        elif kind == torch.bfloat16:
            self._weights = tiled(weight.to(kind).view(torch.uint16).numpy())
        else:
            self._weights = tiled(weight.to(kind).numpy())

    def __call__(self, inputs: Wide) -> Array:
        """See `Linear`; float32."""
        out = np.empty((len(inputs.array), self._outputs), np.float32)
        product(self._weights, inputs.array, self._start, self._scales, out)
        return out


class Dense:
    """Weights [out, in] in float32 or bfloat16; see `PackedWeight`."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = PackedWeight(weight)
        self._half = weight.dtype == torch.bfloat16

    def __call__(self, inputs: Wide) -> Array:
        """See `Linear`; in the weights' dtype."""
        out = self._weight.product(inputs.tensor)[: len(inputs.array)]
        array: Array = (out.view(torch.uint16) if self._half else out).numpy()
        return array


class Int8:
    """Weights [out, in] rounded to int8; see `Int8Weight`."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = Int8Weight(weight)

    def __call__(self, inputs: Wide) -> Array:
        """See `Linear`; the sums times the outputs' scales, float32."""
        return self._weight.product(inputs.tensor).numpy()
