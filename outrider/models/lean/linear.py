"""The linears of the lean decoder: packed once, fed and read through NumPy arrays.

`Dense` is float32 or bfloat16; `Int8` has int8 weights with a scale for each output, and takes rows
of signed bytes plus 128 with a scale each. Integer sums are exact, so an int8 row has the same bits
in any company; the others have them where the number of rows is one that `padded` gives.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from outrider.models.linear import Int8Weight, PackedWeight

Array = np.ndarray[Any, Any]


class Linear(Protocol):
    """x W^T of quantised or plain rows."""

    def __call__(self, rows: Tensor) -> Array:
        """rows [n, in] of the kind that the weights want -> [n, out], before the rows' scales."""
        ...


class Dense:
    """Weights [out, in] in float32 or bfloat16; see `PackedWeight`."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = PackedWeight(weight)
        self._half = weight.dtype == torch.bfloat16

    def __call__(self, rows: Tensor) -> Array:
        """See `Linear`; bfloat16 comes back as uint16."""
        out = self._weight.product(rows)
        array: Array = (out.view(torch.uint16) if self._half else out).numpy()
        return array


class Int8:
    """Weights [out, in] rounded to int8; see `Int8Weight`."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = Int8Weight(weight)

    def __call__(self, rows: Tensor) -> Array:
        """See `Linear`; the sums times the outputs' scales, float32."""
        return self._weight.product(rows).numpy()
