"""Which code runs a head: the lean kernels on a CPU that has them, the head's own module else."""

from __future__ import annotations

import importlib.util

import torch

from outrider.models.decoders import LANES
from outrider.models.heads.eagle import EagleHead
from outrider.models.heads.eagle_torch import TorchEagle
from outrider.models.heads.medusa import MedusaHeads
from outrider.models.heads.medusa_runner import LeanMedusa, MedusaRunner, TorchMedusa
from outrider.models.heads.rows import EagleRunner
from outrider.models.linear import packing_available


def eagle_runner(
    head: EagleHead, device: torch.device, kind: torch.dtype = torch.int8
) -> EagleRunner:
    """Runs `head` on `device`; `kind` is that of its linears on a CPU: int8, bfloat16, float32."""
    if head.config.head_dim % LANES == 0 and _lean(device, kind):
        from outrider.models.heads.eagle_lean import LeanEagle

        return LeanEagle(head, kind)
    return TorchEagle(head.to(device, _plain(device)))


def medusa_runner(
    heads: MedusaHeads, device: torch.device, kind: torch.dtype = torch.int8
) -> MedusaRunner:
    """As `eagle_runner`."""
    if _lean(device, kind):
        return LeanMedusa(heads, kind)
    return TorchMedusa(heads.to(device, _plain(device)))


def _lean(device: torch.device, kind: torch.dtype) -> bool:
    dense = torch.float32 if kind == torch.float32 else torch.bfloat16
    packed = packing_available(dense, device)
    return device.type == "cpu" and packed and importlib.util.find_spec("numba") is not None


def _plain(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "cpu" else torch.bfloat16
