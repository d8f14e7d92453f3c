"""The linears of the lean decoder: packed once, fed and read through NumPy arrays.

`Dense` is float32 or bfloat16; `Int8` has int8 weights with a scale for each output, and takes rows
of signed bytes plus 128 with a scale each. Integer sums are exact, so an int8 row has the same bits
in any company; the others have them from 4 rows on, which is why fewer are padded.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from outrider.models.linear import SLICE, Int8Weight

Array = np.ndarray[Any, Any]


class Linear(Protocol):
    """x W^T of quantised or plain rows."""

    def __call__(self, rows: Tensor) -> Array:
        """rows [n, in] of the kind that the weights want -> [n, out], before the rows' scales."""
        ...


class Dense:
    """Weights [out, in] in float32 or bfloat16, in oneDNN's own layout."""

    def __init__(self, weight: Tensor) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 16)
        self._op = torch.ops.mkldnn._linear_pointwise.default
        self._half = weight.dtype == torch.bfloat16

    def __call__(self, rows: Tensor) -> Array:
        """See `Linear`; bfloat16 comes back as uint16."""
        if rows.shape[0] <= SLICE:
            out = self._op(rows, self._packed, None, "none", [], "")
        else:
            parts = torch.split(rows, SLICE)
            out = torch.cat([self._op(part, self._packed, None, "none", [], "") for part in parts])
        array: Array = (out.view(torch.uint16) if self._half else out).numpy()
        return array


class Int8:
    """Weights [out, in] rounded to int8; see `Int8Weight`."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = Int8Weight(weight)

    def __call__(self, rows: Tensor) -> Array:
        """See `Linear`; the sums times the outputs' scales, float32."""
        return self._weight.product(rows).numpy()
