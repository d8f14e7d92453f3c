"""The linears of the lean decoder: weights in tiles, rows in and out as NumPy arrays.

Weights are float32, bfloat16, or int8 with a scale for each output. An int8 row is signed bytes
plus 128 with a scale. See `outrider.models.lean.products`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from outrider.models.lean.instructions import way
from outrider.models.lean.matrix_unit import LINE_BYTES, usable
from outrider.models.lean.memory import WEIGHTS
from outrider.models.lean.products import product, tiled, whole
from outrider.models.linear import rounded

Array = np.ndarray[Any, Any]
_ELEMENTS = {torch.float32: np.float32, torch.bfloat16: np.uint16, torch.int8: np.uint8}
_NO_SCALES = np.empty(0, np.float32)
_NO_START = np.empty(0, np.int32)


class Wide:
    """Rows of one width on their way into a linear, with their scales; bfloat16 is uint16."""

    def __init__(self, rows: int, width: int, kind: torch.dtype) -> None:
        elements = np.dtype(_ELEMENTS[kind])
        step = 4 // elements.itemsize
        self.array: Array = np.zeros((rows, -(-width // step) * step), elements)
        self.scales = np.ones(rows, np.float32)


class Linear:
    """x W^T with weights [out, in] in tiles.

    arrays: what `product` takes of them. width: outputs, those that fill the last tile included.
    unit: whether the matrix unit multiplies them.
    """

    def __init__(self, weight: Tensor, kind: torch.dtype) -> None:
        self.outputs, self.width = len(weight), whole(len(weight))
        start, scales, weight = _NO_START, _NO_SCALES, weight.detach()
        if kind == torch.int8:
            signed, scale = rounded(weight)
            weights = tiled(signed.numpy()).view(np.uint8)
            start, scales = np.zeros(self.width, np.int32), np.zeros(self.width, np.float32)
            start[: self.outputs] = -128 * signed.sum(dim=1, dtype=torch.int32).numpy()
            scales[: self.outputs] = scale.numpy()
        elif kind == torch.bfloat16:
            weights = tiled(weight.to(kind).view(torch.uint16).numpy())
        else:
            weights = tiled(weight.to(kind).numpy())
        self.unit = usable(np.dtype(_ELEMENTS[kind]).itemsize, weight.shape[1])
        self.arrays = WEIGHTS.put(weights), start, scales, self.unit

    def __call__(self, inputs: Wide) -> Array:
        """inputs [n, in] -> [n, out] float32, before the rows' scales."""
        out = np.empty((len(inputs.array), self.width), np.float32)
        product(self.arrays, inputs.array, out)
        return out[:, : self.outputs]


def linears_name(kind: torch.dtype) -> str:
    """Which linears a model gets here, as numerics name them."""
    name = "tiles-int8" if kind == torch.int8 else "tiles"
    size = np.dtype(_ELEMENTS[kind]).itemsize
    if kind == torch.bfloat16 and usable(size, LINE_BYTES):  # of int8 sums are the same everywhere
        return f"{name}-amx"
    found = way(size)
    return (
        name if found in ("vpdpbusd", "vdpbf16ps") or kind == torch.float32 else f"{name}-{found}"
    )
