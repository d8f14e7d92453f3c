"""One layer of the lean decoder: its weights, the memory that it writes to, and its pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outrider.models.lean.linear import Array, Linear, Wide
from outrider.models.lean.passes import run_layer, run_linear
from outrider.models.lean.plan import Plan

NOTHING = np.empty(0, np.float32)


class Scratch:
    """Memory that a forward over `rows` rows writes to, kept for the next of that size.

    layer: one of those that run in it.
    """

    def __init__(self, rows: int, layer: Layer, kind: torch.dtype) -> None:
        heads, middle = layer.heads * layer.dim, layer.gate_up.outputs // 2
        self.normed = Wide(rows, layer.o.outputs, kind)
        attended, product = Wide(rows, heads, kind), Wide(rows, middle, kind)
        sums = np.empty((rows, heads), np.float32), np.empty((rows, heads), np.float32)
        linears = layer.qkv, layer.o, layer.gate_up, layer.down
        outputs = [np.empty((rows, linear.width), np.float32) for linear in linears]
        self.delta, self.scales = outputs[-1], product.scales
        self.arrays = (
            *(self.normed.array, self.normed.scales, attended.array, attended.scales),
            *(product.array, product.scales, *sums, *outputs),
        )


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
        self,
        x: Array,
        inputs: Wide,
        scratch: Scratch,
        plan: Plan,
        keys: Keys,
        following: Array = NOTHING,
    ) -> None:
        """Attention and product of all rows: x [rows, hidden] += attention's output.

        Args:
            x: the residual, float32.
            inputs: what the query, key and value projections take.
            scratch: of these rows. The product's output is left in its `delta` with `scales`, to be
                added to x; where there is a norm, it is added, and the norm of x left in `normed`.
            plan: which rows see what.
            keys: where keys and values are kept.
            following: weight of the norm behind the layer.
        """
        run_layer(
            x,
            (inputs.array, inputs.scales),
            (self.qkv.arrays, self.o.arrays, self.gate_up.arrays, self.down.arrays),
            (self.bias, self.query_norm, self.key_norm, self.middle_norm, following),
            self.eps,
            (self.heads, self.kv_heads, self.dim),
            (keys.buffer, keys.first, keys.cos, keys.sin),
            plan.arrays,
            plan.view(self.window).arrays,
            scratch.arrays,
        )


def floats(weight: Tensor | None) -> Array:
    """A weight as a float32 array of its own; without elements where there is none."""
    return np.empty(0, np.float32) if weight is None else weight.detach().float().numpy().copy()


def apply_linear(linear: Linear, rows: Array, kind: torch.dtype) -> Array:
    """rows [n, in] float32, side by side, through a linear of that kind -> [n, out] float32."""
    inputs = Wide(len(rows), rows.shape[1], kind)
    out = np.empty((len(rows), linear.width), np.float32)
    run_linear(rows, linear.arrays, inputs.array, inputs.scales, out)
    return out[:, : linear.outputs]
