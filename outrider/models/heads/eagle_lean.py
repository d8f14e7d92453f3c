"""An EAGLE head on the lean decoder's kernels: one layer, in int8 unless asked else, linears as
well as keys and values.

A draft that is slightly off costs acceptance only, and int8 reads half the bytes of bfloat16. The
features' own linear stays bfloat16: single channels of them are hundreds of times the others, which
one scale a row cannot hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from outrider.models.cache import KVCache
from outrider.models.heads.config import EAGLE1
from outrider.models.heads.eagle import EagleHead
from outrider.models.heads.rows import Drafted, Rows
from outrider.models.lean.layer import Keys, Layer, Scratch, apply_linear, floats
from outrider.models.lean.linear import Array, Linear, Wide
from outrider.models.lean.plan import Part, assemble, chain_part
from outrider.models.lean.rotary import Rotary
from outrider.models.lean.rows import add_norm, norm_joined, norm_parts, store_rows
from outrider.models.lean.threads import take_threads
from outrider.models.pool import KVPool, LayerShape

KV_BYTES = 1 << 28


class LeanEagle:
    """See `EagleRunner`; the head's own weights are no longer needed.

    Args:
        head: on the CPU.
        kind: of linears, keys and values: int8, bfloat16 or float32.
        kv_bytes: ceiling of the memory of keys and values.
    """

    def __init__(
        self, head: EagleHead, kind: torch.dtype = torch.int8, kv_bytes: int = KV_BYTES
    ) -> None:
        config = head.config
        self.config, self.kind = config, kind
        self.draft_ids: npt.NDArray[np.int64] = head.draft_ids.numpy().copy()
        dense = torch.float32 if kind == torch.float32 else torch.bfloat16
        self._eps, self._dense = np.float32(config.rms_norm_eps), dense
        self._embedding = head.embed_tokens.weight.detach().to(dense).contiguous()
        half = dense == torch.bfloat16
        self._table: Array = self._embedding.view(torch.uint16 if half else dense).numpy()
        self._feature_norms = _feature_norms(head)
        self._fc, self._bias = Linear(head.fc.weight, dense), floats(head.fc.bias)
        layer, make = head.layers[0], partial(Linear, kind=kind)
        if config.kind != EAGLE1:
            norms = layer.input_layernorm, layer.hidden_norm
            self._input_norms = np.stack([floats(norm.weight) for norm in norms])  # type: ignore[union-attr, arg-type]
            self._norm = floats(head.norm.weight)  # type: ignore[arg-type]
        shape = config.heads, config.kv_heads, config.head_dim
        self._layer = Layer.of(layer, make, shape, self._eps, None)
        self._head = make(head.lm_head.weight)
        self._rotary = Rotary(head.rotary_emb)
        self._scratch = lru_cache(maxsize=32)(lambda rows: Scratch(rows, self._layer, kind))
        self._inputs = lru_cache(maxsize=32)(lambda rows: Wide(rows, config.qkv_in, kind))
        shapes = [LayerShape(config.kv_heads, config.head_dim, config.head_dim)]
        self.pool = KVPool(shapes, kind, torch.device("cpu"), kv_bytes)

    def new_cache(self) -> KVCache:
        """See `EagleRunner`."""
        return KVCache(self.pool)

    def fuse(self, features: npt.NDArray[np.float32]) -> Tensor:
        """See `EagleRunner`."""
        rows = np.ascontiguousarray(features)
        if self.config.kind != EAGLE1:
            take_threads()
            for weights in self._feature_norms:
                rows = self._normed(rows, weights)
            rows = self._linear(rows)
        return torch.from_numpy(rows)

    def forward(self, batch: Sequence[Rows]) -> Drafted:
        """See `EagleRunner`."""
        take_threads()
        for rows in batch:
            rows.cache.reserve(rows.cache.length + len(rows.tokens))
        plan = assemble([_part(rows) for rows in batch])
        ids = np.array([token for rows in batch for token in rows.tokens])
        x, inputs = self._joined(ids, torch.cat([rows.g for rows in batch]).numpy())
        cos, sin = self._rotary.rows(plan.positions)
        scratch = self._scratch(len(ids))
        self._layer.run(x, inputs, scratch, plan, Keys(self.pool.array, 0, cos, sin))
        states = self._ended(x, scratch.delta, scratch.scales)
        for rows in batch:
            rows.cache.length += len(rows.tokens)
        fed = states if self.config.norm_output else x
        return Drafted(torch.from_numpy(fed), torch.from_numpy(states))

    def logits(self, states: Tensor) -> npt.NDArray[np.float32]:
        """See `EagleRunner`."""
        return apply_linear(self._head, states.numpy(), self.kind)

    def _linear(self, rows: Array) -> Array:
        out = apply_linear(self._fc, rows, self._dense)
        return out + self._bias if len(self._bias) else out

    def _normed(self, rows: Array, weights: Array) -> Array:
        """Each of a row's parts normed on its own; weights [parts, width]."""
        out = np.empty_like(rows)
        norm_parts(rows, weights, self._eps, out, np.empty(len(rows), np.float32))
        return out

    def _joined(self, ids: npt.NDArray[np.int64], g: Array) -> tuple[Array, Wide]:
        """The residual [rows, hidden] and the inputs of the layer's projections."""
        inputs = self._inputs(len(g))
        if self.config.kind == EAGLE1:
            embedded = self._embedding[torch.from_numpy(ids)].float().numpy()
            x = self._linear(np.concatenate([embedded, g], axis=1))
            store_rows(x, inputs.array, inputs.scales)
            return x, inputs
        norm_joined(
            *(self._table, ids, np.ascontiguousarray(g), self._input_norms, self._eps),
            *(inputs.array, inputs.scales),
        )
        first = self.config.norm_before_residual
        return self._normed(g, self._input_norms[1:]) if first else g.copy(), inputs

    def _ended(self, x: Array, delta: Array, scales: Array) -> Array:
        """x += delta; what the LM head takes."""
        if self.config.kind == EAGLE1:
            add_norm(x, delta, scales, self._layer.middle_norm, self._eps, x.copy(), scales.copy())
            return x
        states = np.empty_like(x)
        add_norm(x, delta, scales, self._norm, self._eps, states, np.empty(len(x), np.float32))
        return states


def _feature_norms(head: EagleHead) -> list[Array]:
    """Weights [parts, width] of the norms in front of `fc`, in their order."""
    whole = [] if head.input_norm is None else [floats(head.input_norm.weight)[None]]
    if head.fc_norm is None:
        return whole
    return [*whole, np.stack([floats(norm.weight) for norm in head.fc_norm])]  # type: ignore[arg-type]


def _part(rows: Rows) -> Part:
    cache, count = rows.cache, len(rows.tokens)
    if rows.base is None:
        return chain_part(cache, count)
    own = np.arange(cache.length, cache.length + count)
    positions = np.array([rows.base + len(path) for path in rows.paths])
    paths = [[*path, int(slot)] for path, slot in zip(rows.paths, own, strict=True)]
    return Part(cache, own, positions, np.full(count, rows.base), paths)
