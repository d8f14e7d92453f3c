"""An EAGLE head on the lean decoder's kernels: one layer, its linears in int8 unless asked else.

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
from outrider.models.lean.layer import Keys, Layer, Scratch, floats, head_logits
from outrider.models.lean.linear import Array, Linear, Wide
from outrider.models.lean.plan import Part, assemble, chain_part
from outrider.models.lean.rotary import Rotary
from outrider.models.lean.rows import add_norm, store_rows
from outrider.models.lean.threads import take_threads
from outrider.models.linear import PackedLinear
from outrider.models.pool import KVPool, LayerShape

KV_BYTES = 1 << 28
_NOTHING = np.empty((0, 0), np.float32)


class LeanEagle:
    """See `EagleRunner`; the head's own weights are no longer needed.

    Args:
        head: on the CPU.
        kind: of the linears: int8, bfloat16 or float32.
        kv_bytes: ceiling of the memory of keys and values.
    """

    def __init__(
        self, head: EagleHead, kind: torch.dtype = torch.int8, kv_bytes: int = KV_BYTES
    ) -> None:
        config = head.config
        self.config, self.kind = config, kind
        self.draft_ids: npt.NDArray[np.int64] = head.draft_ids.numpy().copy()
        dense = torch.float32 if kind == torch.float32 else torch.bfloat16
        self._eps = np.float32(config.rms_norm_eps)
        self._embedding = head.embed_tokens.weight.detach().to(dense)
        self._norms = head.input_norm, head.fc_norm
        bias = None if head.fc.bias is None else head.fc.bias.detach().to(dense)
        self._fc = PackedLinear(head.fc.weight.detach().to(dense), bias)
        layer = head.layers[0]
        if config.kind != EAGLE1:
            self._token_norm = floats(layer.input_layernorm.weight)  # type: ignore[union-attr, arg-type]
            self._g_norm = floats(layer.hidden_norm.weight)  # type: ignore[union-attr, arg-type]
            self._norm = floats(head.norm.weight)  # type: ignore[arg-type]
        make = partial(Linear, kind=kind)
        shape = config.heads, config.kv_heads, config.head_dim
        self._layer = Layer.of(layer, make, shape, self._eps, None)
        self._head = make(head.lm_head.weight.detach())
        self._rotary = Rotary(head.rotary_emb)
        self._scratch = lru_cache(maxsize=32)(lambda rows: Scratch(rows, self._layer, kind))
        self._inputs = lru_cache(maxsize=32)(lambda rows: Wide(rows, config.qkv_in, kind))
        shapes = [LayerShape(config.kv_heads, config.head_dim, config.head_dim)]
        self.pool = KVPool(shapes, dense, torch.device("cpu"), kv_bytes)

    def new_cache(self) -> KVCache:
        """See `EagleRunner`."""
        return KVCache(self.pool)

    @torch.inference_mode()
    def fuse(self, features: npt.NDArray[np.float32]) -> Tensor:
        """See `EagleRunner`."""
        rows = torch.from_numpy(np.ascontiguousarray(features))
        if self.config.kind == EAGLE1:
            return rows
        norm, norms = self._norms
        if norm is not None:
            rows = norm(rows)
        if norms is not None:
            parts = rows.chunk(len(norms), dim=-1)
            rows = torch.cat([n(part) for n, part in zip(norms, parts, strict=True)], dim=-1)
        return self._linear(rows)

    @torch.inference_mode()
    def forward(self, batch: Sequence[Rows]) -> Drafted:
        """See `EagleRunner`."""
        take_threads()
        for rows in batch:
            rows.cache.reserve(rows.cache.length + len(rows.tokens))
        plan = assemble([_part(rows) for rows in batch])
        ids = torch.tensor([token for rows in batch for token in rows.tokens])
        embedded = self._embedding[ids].float()
        x, inputs = self._joined(embedded, torch.cat([rows.g for rows in batch]))
        cos, sin = self._rotary.rows(plan.positions)
        keys = Keys(self.pool.array, 0, cos, sin)
        scratch = self._scratch(len(ids))
        self._layer.run(x, inputs, scratch, plan, keys)
        states = self._ended(x, scratch.delta, scratch.scales)
        for rows in batch:
            rows.cache.length += len(rows.tokens)
        fed = states if self.config.norm_output else x
        return Drafted(torch.from_numpy(fed), torch.from_numpy(states))

    @torch.inference_mode()
    def logits(self, states: Tensor) -> npt.NDArray[np.float32]:
        """See `EagleRunner`."""
        out: npt.NDArray[np.float32] = head_logits(self._head, states, self.kind).numpy()
        return out

    def _linear(self, rows: Tensor) -> Tensor:
        dtype = self._embedding.dtype
        out: Tensor = self._fc(rows.to(dtype)).float()
        return out

    def _joined(self, embedded: Tensor, g: Tensor) -> tuple[Array, Wide]:
        """The residual [rows, hidden] and the inputs of the layer's projections."""
        inputs = self._inputs(len(g))
        if self.config.kind == EAGLE1:
            x = self._linear(torch.cat([embedded, g], dim=-1)).numpy()
            store_rows(x, inputs.array, inputs.scales)
            return x, inputs
        x = g.numpy().copy()
        normed = self._normed(x, self._g_norm)
        both = np.concatenate([self._normed(embedded.numpy(), self._token_norm), normed], axis=1)
        store_rows(both, inputs.array, inputs.scales)
        return (normed if self.config.norm_before_residual else x), inputs

    def _ended(self, x: Array, delta: Array, scales: Array) -> Array:
        """x += delta; what the LM head takes."""
        if self.config.kind == EAGLE1:
            add_norm(x, delta, scales, self._layer.middle_norm, self._eps, x.copy(), scales.copy())
            return x
        states = np.empty_like(x)
        add_norm(x, delta, scales, self._norm, self._eps, states, np.empty(len(x), np.float32))
        return states

    def _normed(self, x: Array, weight: Array) -> Array:
        out, scales = np.empty_like(x), np.empty(len(x), np.float32)
        add_norm(x, _NOTHING, scales, weight, self._eps, out, scales)
        return out


def _part(rows: Rows) -> Part:
    cache, count = rows.cache, len(rows.tokens)
    if rows.base is None:
        return chain_part(cache, count)
    own = np.arange(cache.length, cache.length + count)
    positions = np.array([rows.base + len(path) for path in rows.paths])
    paths = [[*path, int(slot)] for path, slot in zip(rows.paths, own, strict=True)]
    return Part(cache, own, positions, np.full(count, rows.base), paths)
