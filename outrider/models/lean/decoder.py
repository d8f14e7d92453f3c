"""The decoder of the Llama family, lean: a few linears a layer and one kernel between two of them.

    x = embedding
    each layer:  norm, qkv, rotate, write, attend, o, + x, norm, gate and up, silu *, down, + x
    states = norm(x)

x stays float32 throughout. Llama, SmolLM, Mistral (windows), Qwen2 (biases of q, k, v) and Qwen3
(norms of each head's query and key) differ in what a layer has, not in its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, cast

import numba
import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from outrider.models.lean.layer import NOTHING, Keys, Layer, Scratch, apply_linear, floats
from outrider.models.lean.linear import Linear, linears_name
from outrider.models.lean.plan import plan
from outrider.models.lean.rotary import Rotary
from outrider.models.lean.rows import add_norm
from outrider.models.lean.threads import take_threads
from outrider.models.numerics import kernel_set
from outrider.models.pool import LayerShape
from outrider.models.segment import Segment

_NONE = np.empty((0, 0), np.float32)


class LeanDecoder:
    """Runs packed rows; see the module. `kind`: of the linears and of keys and values."""

    name = "lean"

    def __init__(self, model: PreTrainedModel, kind: torch.dtype) -> None:
        config = model.config
        decoder: Any = model.base_model
        self.kind = kind
        heads: int = config.num_attention_heads
        dim: int = getattr(config, "head_dim", None) or config.hidden_size // heads
        shape = heads, config.num_key_value_heads, dim
        self._shape = LayerShape(config.num_key_value_heads, dim, dim)
        self._eps = np.float32(config.rms_norm_eps)
        self.cache_dtype = kind
        kept = " kv=int8" if kind == torch.int8 else ""
        lean = f"lean numba={numba.__version__}{kept}"
        self.kernels = kernel_set(model.device, linears_name(kind), lean)
        make = partial(Linear, kind=kind)
        self._rotary = Rotary(decoder.rotary_emb)
        self._embedding = decoder.embed_tokens.weight.detach()
        self._norms = [floats(layer.input_layernorm.weight) for layer in decoder.layers]
        self._layers = [
            Layer.of(layer, make, shape, self._eps, _window(config, layer.self_attn))
            for layer in decoder.layers
        ]
        self._norms.append(NOTHING)  # behind the last layer states stay float32
        self._norm = floats(decoder.norm.weight)
        self._head = make(model.lm_head.weight)
        first = self._layers[0]
        self._scratch = lru_cache(maxsize=32)(lambda rows: Scratch(rows, first, kind))

    @property
    def shapes(self) -> list[LayerShape]:
        """The cache's layers."""
        return [self._shape] * len(self._layers)

    def forward(
        self, segments: Sequence[Segment], taps: Sequence[int]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See `outrider.models.causal_lm.Decoder`; everything is float32."""
        take_threads()
        tokens = torch.tensor([token for segment in segments for token in segment.tokens])
        x, rows = self._embedding[tokens].float().numpy(), len(tokens)
        plan_, pool = plan(segments), segments[0].cache.pool
        scratch, eps = self._scratch(rows), self._eps
        normed = scratch.normed
        cos, sin = self._rotary.rows(plan_.positions)
        tapped: dict[int, Tensor] = {}
        add_norm(x, _NONE, normed.scales, self._norms[0], eps, normed.array, normed.scales)
        for index, layer in enumerate(self._layers):
            if index in taps:
                tapped[index] = torch.from_numpy(x.copy())
            keys = Keys(pool.array, pool.offsets[index], cos, sin)
            layer.run(x, normed, scratch, plan_, keys, self._norms[index + 1])
        states = np.empty_like(x)
        add_norm(
            *(x, scratch.delta, scratch.scales, self._norm, eps, states),
            np.empty(rows, np.float32),
        )
        return torch.from_numpy(states), tapped

    def logits(self, states: Tensor) -> Tensor:
        """The head: float32 states [n, hidden] -> float32 logits [n, vocab]."""
        rows = states.contiguous().numpy()
        return torch.from_numpy(apply_linear(self._head, rows, self.kind))


def _window(config: PreTrainedConfig, attention: Any) -> int | None:
    """Positions that a layer attends to; Mistral's layers all have the configuration's."""
    if config.model_type == "mistral":
        return cast("int | None", config.sliding_window)
    return getattr(attention, "sliding_window", None)
