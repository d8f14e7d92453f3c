"""Rows of an LM head, with what a family does to its logits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel


@dataclass(frozen=True)
class Head:
    """logits = cap * tanh(x / cap) of x = scale * (states @ weight.T + bias).

    Shapes: weight [rows, hidden], bias [rows] or None; cap None where the family has none.
    """

    weight: Tensor
    bias: Tensor | None = None
    scale: float = 1.0
    cap: float | None = None

    @classmethod
    def of(cls, target: PreTrainedModel, rows: Tensor | None = None) -> Head:
        """The target's own head, or its `rows` [n], in float32."""
        config = target.config.get_text_config()
        output: Any = target.get_output_embeddings()  # type: ignore[no-untyped-call]
        weight, bias = output.weight.detach(), getattr(output, "bias", None)
        if rows is not None:
            weight, bias = weight[rows], None if bias is None else bias[rows]
        scale = getattr(config, "logit_scale", None) or 1.0
        scale /= getattr(config, "logits_scaling", None) or 1.0
        cap = getattr(config, "final_logit_softcapping", None)
        return cls(weight.float(), None if bias is None else bias.detach().float(), scale, cap)

    def logits(self, states: Tensor) -> Tensor:
        """states [n, hidden] -> [n, rows]."""
        x = torch.nn.functional.linear(states, self.weight, self.bias)
        if self.scale != 1.0:
            x = x * self.scale
        return x if self.cap is None else self.cap * torch.tanh(x / self.cap)

    def slope(self, logits: Tensor) -> Tensor | float | None:
        """How fast logits [n, rows] grow with states @ weight.T; None where it is 1."""
        if self.cap is not None:
            return (1 - (logits / self.cap).square()) * self.scale
        return None if self.scale == 1.0 else self.scale

    def with_weight(self, weight: Tensor) -> Head:
        """The same with other rows."""
        return replace(self, weight=weight)

    def to(self, where: torch.device | torch.dtype) -> Head:
        """The same on a device, or in a format."""
        bias = None if self.bias is None else self.bias.to(where)
        return replace(self, weight=self.weight.to(where), bias=bias)
