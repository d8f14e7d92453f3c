"""Linear layers for the CPU: oneDNN kernels on weights packed once.

Measured on the machines this was built for (torch 2.13, AVX-512): for 2 to 64 rows every row of a
packed product has the same bits, whatever the number of rows and whoever the neighbours are, in
float32 and in bfloat16; a single row takes another kernel where the input is wide. So few rows are
padded and long inputs run in slices.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

SLICE = 64
"""Most rows of one product: the number up to which rows were proved independent of each other."""
_LEAST = 4
"""Fewer rows are padded: two would do for the bits, but four cost less than one or two (28 against
35 and 40 ms for all linears of the default target in float32 on one thread)."""
_TYPICAL_ROWS = 16


def packing_available(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether packed linears exist for this dtype and device; says nothing about their speed."""
    if device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


class PackedLinear(nn.Module):
    """y = x W^T + b with W in oneDNN's own layout. For inference only.

    Args:
        weight: [out, in], float32 or bfloat16, on the CPU.
        bias: [out] or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._packed = torch.ops.mkldnn._reorder_linear_weight(
            weight.detach().contiguous(), _TYPICAL_ROWS
        )
        self._bias = None if bias is None else bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]."""
        flat = x.reshape(-1, self.in_features)
        rows = flat.shape[0]
        if rows <= SLICE:
            out = self._product(flat)
        else:
            out = torch.cat([self._product(part) for part in torch.split(flat, SLICE)])
        return out.view(*x.shape[:-1], self.out_features)

    def _product(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        if rows < _LEAST:
            x = nn.functional.pad(x, (0, 0, 0, _LEAST - rows))
        out: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._packed, self._bias, "none", [], ""
        )
        return out[:rows]


def pack_linears(model: nn.Module) -> int:
    """Replaces every linear layer of `model`, a tied head included, and returns their number.

    The embedding keeps its own weight. The model can no longer be trained or saved.
    """
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child.weight, child.bias))
            elif type(child) is Conv1D:
                setattr(parent, name, PackedLinear(child.weight.T, child.bias))
            else:
                continue
            count += 1
    return count
