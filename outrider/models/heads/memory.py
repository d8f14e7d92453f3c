"""What the rows of an unrolled head attend to."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Attends(Protocol):
    """Attention: what a query sees is its own matter."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query [batch, heads, rows, dim], key and value alike with their heads -> [batch, rows,
        heads * dim]."""
        ...


class Memory:
    """Keys and values of the steps so far, each [batch, heads, rows, dim]."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    @property
    def steps(self) -> int:
        """How many steps it holds."""
        return len(self.keys)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Adds a step and attends: causal in the first step, each row to itself in later ones.

        query [batch, heads, rows, dim] -> [batch, rows, heads * dim].
        """
        self.keys.append(key)
        self.values.append(value)
        batch, heads, rows, dim = query.shape
        shared = key.shape[1]
        query = query.reshape(batch, shared, heads // shared, rows, dim) * dim**-0.5
        causal = torch.ones(rows, rows, dtype=torch.bool, device=query.device).tril()
        first = (query @ self.keys[0][:, :, None].mT).masked_fill(~causal, float("-inf"))
        own = [(query * k[:, :, None]).sum(-1, keepdim=True) for k in self.keys[1:]]
        weights = torch.softmax(torch.cat([first, *own], dim=-1), dim=-1)
        out = weights[..., :rows] @ self.values[0][:, :, None]
        for index, v in enumerate(self.values[1:]):
            out = out + weights[..., rows + index, None] * v[:, :, None]
        return out.reshape(batch, heads, rows, dim).transpose(1, 2).reshape(batch, rows, -1)
