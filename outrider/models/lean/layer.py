"""One layer of the lean decoder: its weights, the memory that it writes to, and its pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outrider.models.lean.attention import attend
from outrider.models.lean.linear import Array, Linear, Wide
from outrider.models.lean.plan import Plan
from outrider.models.lean.rotation import rotate_and_write
from outrider.models.lean.rows import add_norm, gated, store_rows


class Scratch:
    """Memory that a forward over `rows` rows writes to, kept for the next of that size.

    hidden, heads, middle: widths of a state, of all query heads, and of the gated product.
    """

    def __init__(self, rows: int, hidden: int, heads: int, middle: int, kind: torch.dtype) -> None:
        self.normed = Wide(rows, hidden, kind)
        self.attended = Wide(rows, heads, kind)
        self.product = Wide(rows, middle, kind)
        self.queries = np.empty((rows, heads), np.float32)
        self.sums = np.empty((rows, heads), np.float32)


@dataclass(frozen=True)
class Keys:
    """Where a layer keeps keys and values, and the rotary rows: buffer [blocks, elements], the
    place of the layer's part in a block; cos, sin [rows, dim / 2]."""

    buffer: Array
    first: int
    cos: Array
    sin: Array


@dataclass(frozen=True)
class Layer:
    """A layer's weights; bias and norms of heads have no elements where the family has none."""

    heads: int
    kv_heads: int
    dim: int
    eps: np.float32
    qkv: Linear
    bias: Array
    query_norm: Array
    key_norm: Array
    o: Linear
    middle_norm: Array
    gate_up: Linear
    down: Linear
    window: int | None

    @classmethod
    def of(
        cls,
        layer: Any,
        make: Callable[[Tensor], Linear],
        shape: tuple[int, int, int],
        eps: np.float32,
        window: int | None,
    ) -> Layer:
        """The layer of a module of the Llama family's form; shape: heads, kv heads, their width."""
        attention, mlp = layer.self_attn, layer.mlp
        q, k, v = attention.q_proj, attention.k_proj, attention.v_proj
        biases = [floats(p.bias) for p in (q, k, v) if p.bias is not None]
        return cls(
            *shape,
            eps,
            make(torch.cat([q.weight, k.weight, v.weight]).detach()),
            np.concatenate(biases) if biases else np.empty(0, np.float32),
            floats(getattr(getattr(attention, "q_norm", None), "weight", None)),
            floats(getattr(getattr(attention, "k_norm", None), "weight", None)),
            make(attention.o_proj.weight.detach()),
            floats(layer.post_attention_layernorm.weight),
            make(torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]).detach()),
            make(mlp.down_proj.weight.detach()),
            window,
        )

    def run(
        self, x: Array, inputs: Wide, scratch: Scratch, plan: Plan, keys: Keys
    ) -> tuple[Array, Array]:
        """Attention and product of all rows: x [rows, hidden] += attention's output.

        Args:
            x: the residual, float32.
            inputs: what the query, key and value projections take.
            scratch: of these rows; `normed` is overwritten.
            plan: which rows see what.
            keys: where keys and values are kept.

        Returns:
            The product's output [rows, hidden], to be added to x, and its scales [rows].
        """
        normed, attended, product = scratch.normed, scratch.attended, scratch.product
        qkv, view = self.qkv(inputs), plan.view(self.window)
        rotate_and_write(
            qkv,
            inputs.scales,
            self.bias,
            self.query_norm,
            self.key_norm,
            self.eps,
            keys.cos,
            keys.sin,
            plan.block,
            plan.place,
            keys.buffer,
            keys.first,
            scratch.queries,
            self.heads,
        )
        attend(
            scratch.queries,
            keys.buffer,
            keys.first,
            self.kv_heads,
            self.dim,
            plan.tables,
            plan.tiles,
            plan.segment,
            view.begin,
            view.past,
            view.path_start,
            view.path,
            scratch.sums,
        )
        store_rows(scratch.sums, attended.array, attended.scales)
        delta = self.o(attended)
        add_norm(x, delta, attended.scales, self.middle_norm, self.eps, normed.array, normed.scales)
        gate_up = self.gate_up(normed)
        gated(gate_up, normed.scales, product.array, product.scales)
        return self.down(product), product.scales


def floats(weight: Tensor | None) -> Array:
    """A weight as a float32 array of its own; without elements where there is none."""
    return np.empty(0, np.float32) if weight is None else weight.detach().float().numpy().copy()


def head_logits(head: Linear, states: Tensor, kind: torch.dtype) -> Tensor:
    """A head's linear over float32 states [n, hidden] -> float32 [n, vocab]."""
    inputs = Wide(states.shape[0], states.shape[1], kind)
    store_rows(states.contiguous().numpy(), inputs.array, inputs.scales)
    out = torch.from_numpy(head(inputs))
    if out.dtype == torch.uint16:
        return out.view(torch.bfloat16).float()
    return out * torch.from_numpy(inputs.scales)[:, None] if kind == torch.int8 else out
