"""Linear layers for the CPU: oneDNN kernels on weights packed once.

Measured on the machines this was built for (torch 2.13, AVX-512, with and without AMX): for 2 to 32
rows every row of a packed product has the same bits, whatever the number of rows and whoever the
neighbours are, in float32 and in bfloat16; a single row takes another kernel where the input is
wide, and with AMX so do more than 32. So few rows are padded and long inputs run in slices.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

SLICE = 32
"""Most rows of one product: the number up to which rows were proved independent of each other."""
_LEAST = 4
"""Fewer rows are padded: two would do for the bits, but four cost less than one or two (28 against
35 and 40 ms for all linears of the default target in float32 on one thread)."""
_TYPICAL_ROWS = 16


def padded(rows: int) -> int:
    """Rows of a product that keeps the bits of `rows` rows: none of its slices has too few."""
    short = rows % SLICE
    return rows - short + _LEAST if short < _LEAST and (short or not rows) else rows


def packing_available(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether packed linears exist for this dtype and device; says nothing about their speed."""
    if device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


def packed_name(dtype: torch.dtype) -> str:
    """Packed linears as numerics name them: in bfloat16 those with AMX add in another order."""
    amx = dtype == torch.bfloat16 and torch.cpu._is_amx_tile_supported()
    return "onednn-packed-amx" if amx else "onednn-packed"


class PackedLinear(nn.Module):
    """y = x W^T + b with W in oneDNN's own layout. For inference only.

    Args:
        weight: [out, in], float32 or bfloat16, on the CPU.
        bias: [out] or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._weight = PackedWeight(weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]."""
        flat = x.reshape(-1, x.shape[-1])
        rows = flat.shape[0]
        flat = nn.functional.pad(flat, (0, 0, 0, padded(rows) - rows))
        out = self._weight.product(flat)[:rows]
        return out.view(*x.shape[:-1], out.shape[-1])


class PackedWeight:
    """A weight [out, in] in float32 or bfloat16, in oneDNN's own layout, and a bias [out]."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(
            weight.detach().contiguous(), _TYPICAL_ROWS
        )
        self._bias = None if bias is None else bias.detach()
        self._op = torch.ops.mkldnn._linear_pointwise.default

    def product(self, rows: Tensor) -> Tensor:
        """rows [n, in], n as `padded` has it -> [n, out]."""
        if rows.shape[0] <= SLICE:
            return self._slice(rows)
        return torch.cat([self._slice(part) for part in torch.split(rows, SLICE)])

    def _slice(self, rows: Tensor) -> Tensor:
        out: Tensor = self._op(rows, self._packed, self._bias, "none", [], "")
        return out


class QuantisedLinear(nn.Module):
    """y = x W^T + b with int8 weights, a scale for each output, and int8 rows, a scale for each.

    Args:
        weight: [out, in], on the CPU.
        bias: [out] or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._weight = Int8Weight(weight)
        self._bias = None if bias is None else bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out] in the dtype of x."""
        flat = x.reshape(-1, x.shape[-1]).float()
        scale = flat.abs().amax(dim=1, keepdim=True).clamp_min(1e-30) / 127.0
        rounded = torch.round(flat / scale)
        out = self._weight.product((rounded + 128.0).to(torch.uint8)) * scale
        out = out.to(x.dtype) if self._bias is None else out.to(x.dtype) + self._bias
        return out.view(*x.shape[:-1], out.shape[-1])


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A weight [out, in] as int8, and a float32 scale [out]; each output's largest becomes 127."""
    whole = weight.detach().float()
    scale = (whole.abs().amax(dim=1) / 127.0).clamp_min(1e-30)
    return torch.round(whole / scale[:, None]).to(torch.int8).contiguous(), scale


class Int8Weight:
    """A weight [out, in] as `rounded` has it, packed.

    On the CPU oneDNN sums bytes exactly, so a row's bits do not depend on
    the rows beside it.
    """

    def __init__(self, weight: Tensor) -> None:
        whole, self.scale = rounded(weight)
        self._packed = torch.ops.onednn.qlinear_prepack(whole, None)
        self._zero = torch.zeros(len(self.scale), dtype=torch.int32)
        self._op = torch.ops.onednn.qlinear_pointwise.default

    def product(self, rows: Tensor) -> Tensor:
        """rows [n, in] of signed bytes plus 128, as uint8 -> float32 [n, out] with the outputs'
        scales, before the rows'."""
        out: Tensor = self._op(
            *(rows, 1.0, 128, self._packed, self.scale, self._zero, None),
            *(1.0, 0, torch.float32, "none", [], ""),
        )
        return out


def pack_linears(model: nn.Module) -> int:
    """Replaces every linear layer of `model`, a tied head included, and returns their number.

    The embedding keeps its own weight. The model can no longer be trained or saved.
    """
    return _replace_linears(model, PackedLinear)


def quantise_linears(model: nn.Module) -> int:
    """As `pack_linears`, with int8 weights and activations."""
    return _replace_linears(model, QuantisedLinear)


def _replace_linears(model: nn.Module, make: Callable[[Tensor, Tensor | None], nn.Module]) -> int:
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, make(child.weight, child.bias))
            elif type(child) is Conv1D:
                setattr(parent, name, make(child.weight.T, child.bias))
            else:
                continue
            count += 1
    return count
