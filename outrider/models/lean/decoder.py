"""The decoder of the Llama family, lean: a few linears a layer and one kernel between two of them.

    x = embedding
    each layer:  norm, qkv, rotate, write, attend, o, + x, norm, gate and up, silu *, down, + x
    states = norm(x)

x stays float32 throughout. Llama, SmolLM, Mistral (windows), Qwen2 (biases of q, k, v) and Qwen3
(norms of each head's query and key) differ in what a layer has, not in its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numba
import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from outrider.models.lean.attention import attend, rotate_and_write
from outrider.models.lean.linear import Array, Dense, Int8, Linear
from outrider.models.lean.plan import plan
from outrider.models.lean.rotary import Rotary
from outrider.models.lean.rows import add_norm, gated, store_rows
from outrider.models.lean.threads import take_threads
from outrider.models.linear import padded
from outrider.models.numerics import kernel_set
from outrider.models.pool import LayerShape
from outrider.models.segment import Segment


@dataclass(frozen=True)
class _Layer:
    """A layer's weights; bias and norms of heads have no elements where the family has none."""

    input_norm: Array
    qkv: Linear
    bias: Array
    query_norm: Array
    key_norm: Array
    o: Linear
    middle_norm: Array
    gate_up: Linear
    down: Linear
    window: int | None


class _Wide:
    """Rows of one width on their way into a linear, as array and tensor, with their scales."""

    def __init__(self, rows: int, width: int, kind: torch.dtype) -> None:
        height = rows if kind == torch.int8 else padded(rows)
        self.tensor = torch.zeros(height, width, dtype=torch.uint8 if kind == torch.int8 else kind)
        view = self.tensor.view(torch.uint16) if kind == torch.bfloat16 else self.tensor
        self.array = view.numpy()[:rows]
        self.scales = np.ones(rows, np.float32)


class _Scratch:
    """Memory that a forward over `rows` rows writes to, kept for the next of that size."""

    def __init__(self, rows: int, hidden: int, heads: int, middle: int, kind: torch.dtype) -> None:
        self.normed = _Wide(rows, hidden, kind)
        self.attended = _Wide(rows, heads, kind)
        self.product = _Wide(rows, middle, kind)
        self.queries = np.empty((rows, heads), np.float32)
        self.sums = np.empty((rows, heads), np.float32)


class LeanDecoder:
    """Runs packed rows; see the module. `kind` is float32, bfloat16 or int8 (of the linears)."""

    name = "lean"

    def __init__(self, model: PreTrainedModel, kind: torch.dtype) -> None:
        config = model.config
        decoder: Any = model.base_model
        self.kind = kind
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.dim: int = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self._eps = np.float32(config.rms_norm_eps)
        self.cache_dtype = torch.float32 if kind == torch.float32 else torch.bfloat16
        linears = "onednn-int8" if kind == torch.int8 else "onednn-packed"
        self.kernels = kernel_set(model.device, linears, f"lean numba={numba.__version__}")
        self._make = Int8 if kind == torch.int8 else Dense
        self._rotary = Rotary(decoder.rotary_emb)
        self._embedding = decoder.embed_tokens.weight.detach()
        self._layers = [self._layer(config, layer) for layer in decoder.layers]
        self._norm = _floats(decoder.norm.weight)
        self._head = self._make(model.lm_head.weight.detach())
        sizes = config.hidden_size, self.heads * self.dim, config.intermediate_size
        self._scratch = lru_cache(maxsize=32)(lambda rows: _Scratch(rows, *sizes, kind))

    @property
    def shapes(self) -> list[LayerShape]:
        """The cache's layers."""
        return [LayerShape(self.kv_heads, self.dim, self.dim)] * len(self._layers)

    def forward(
        self, segments: Sequence[Segment], taps: Sequence[int]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See `outrider.models.causal_lm.Decoder`; everything is float32."""
        take_threads()
        tokens = torch.tensor([token for segment in segments for token in segment.tokens])
        x, rows = self._embedding[tokens].float().numpy(), len(tokens)
        plan_, pool = plan(segments), segments[0].cache.pool
        scratch, eps, dim, buffer = self._scratch(rows), self._eps, self.dim, pool.array
        normed, attended, product = scratch.normed, scratch.attended, scratch.product
        cos, sin = self._rotary.rows(plan_.positions)
        tapped: dict[int, Tensor] = {}
        delta, delta_scales = np.empty((0, 0), np.float32), normed.scales
        for index, layer in enumerate(self._layers):
            add_norm(x, delta, delta_scales, layer.input_norm, eps, normed.array, normed.scales)
            if index in taps:
                tapped[index] = torch.from_numpy(x.copy())
            qkv = layer.qkv(normed.tensor)[:rows]
            first, view = pool.offsets[index], plan_.view(layer.window)
            rotate_and_write(
                qkv,
                normed.scales,
                layer.bias,
                layer.query_norm,
                layer.key_norm,
                eps,
                cos,
                sin,
                plan_.block,
                plan_.place,
                buffer,
                first,
                scratch.queries,
                self.heads,
            )
            attend(
                scratch.queries,
                buffer,
                first,
                self.kv_heads,
                dim,
                plan_.tables,
                plan_.tiles,
                plan_.segment,
                view.begin,
                view.past,
                view.path_start,
                view.path,
                scratch.sums,
            )
            store_rows(scratch.sums, attended.array, attended.scales)
            delta = layer.o(attended.tensor)[:rows]
            add_norm(x, delta, attended.scales, layer.middle_norm, eps, normed.array, normed.scales)
            gate_up = layer.gate_up(normed.tensor)[:rows]
            gated(gate_up, normed.scales, product.array, product.scales)
            delta, delta_scales = layer.down(product.tensor)[:rows], product.scales
        states = np.empty_like(x)
        add_norm(x, delta, delta_scales, self._norm, eps, states, np.empty(rows, np.float32))
        return torch.from_numpy(states), tapped

    def logits(self, states: Tensor) -> Tensor:
        """The head: float32 states [n, hidden] -> float32 logits [n, vocab]."""
        rows = states.shape[0]
        wide = _Wide(rows, states.shape[1], self.kind)
        store_rows(states.contiguous().numpy(), wide.array, wide.scales)
        out = torch.from_numpy(self._head(wide.tensor)[:rows])
        if self.kind == torch.bfloat16:
            return out.view(torch.bfloat16).float()
        return out if self.kind == torch.float32 else out * torch.from_numpy(wide.scales)[:, None]

    def _layer(self, config: PreTrainedConfig, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        q, k, v = attention.q_proj, attention.k_proj, attention.v_proj
        biases = [_floats(p.bias) for p in (q, k, v) if p.bias is not None]
        return _Layer(
            _floats(layer.input_layernorm.weight),
            self._make(torch.cat([q.weight, k.weight, v.weight]).detach()),
            np.concatenate(biases) if biases else np.empty(0, np.float32),
            _floats(getattr(getattr(attention, "q_norm", None), "weight", None)),
            _floats(getattr(getattr(attention, "k_norm", None), "weight", None)),
            self._make(attention.o_proj.weight.detach()),
            _floats(layer.post_attention_layernorm.weight),
            self._make(torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]).detach()),
            self._make(mlp.down_proj.weight.detach()),
            _window(config, attention),
        )


def _floats(weight: Tensor | None) -> Array:
    return np.empty(0, np.float32) if weight is None else weight.detach().float().numpy().copy()


def _window(config: PreTrainedConfig, attention: Any) -> int | None:
    """Positions that a layer attends to; Mistral's layers all have the configuration's."""
    if config.model_type == "mistral":
        return cast("int | None", config.sliding_window)
    return getattr(attention, "sliding_window", None)
