"""What decides the bits of a model's output, and a fingerprint of it."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Numerics:
    """Replicas with equal fingerprints are expected to compute equal bits.

    Args:
        weights_hash: SHA-256 over names, shapes and bytes of the weights as loaded.
        dtype: of the weights, such as "float32".
        quantization: "none" where the weights are as loaded.
        kernels: which kernels compute the linears and the attention, on what.
        self_check: "exact", "unchecked", or "inexact: " and what depends on a row's company; see
            `outrider.models.selfcheck`.
    """

    weights_hash: str
    dtype: str
    quantization: str
    kernels: str
    self_check: str = "unchecked"

    @property
    def fingerprint(self) -> str:
        """One string for all of it."""
        parts = self.weights_hash, self.dtype, self.quantization, self.kernels, self.self_check
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def weights_hash(model: nn.Module) -> str:
    """SHA-256 over names, shapes and bytes of all parameters (tied once) and stored buffers."""
    digest = hashlib.sha256()
    stored = model.state_dict().keys()
    buffers = ((name, b) for name, b in model.named_buffers() if name in stored)
    for name, tensor in itertools.chain(model.named_parameters(), buffers):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def kernel_set(device: torch.device, linears: str, attention: str) -> str:
    """Names the kernels: linears, attention, torch release, processor or device, and threads."""
    if device.type == "cuda":
        where = torch.cuda.get_device_name(device)
    else:
        where = f"{torch.backends.cpu.get_cpu_capability()} threads={torch.get_num_threads()}"
    kernels = f"linears={linears} attention={attention}"
    return f"{kernels} torch={torch.__version__} {device.type}={where}"
