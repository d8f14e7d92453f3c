"""An EAGLE head through its own module: where the lean kernels do not apply, and a reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from outrider.models.heads.config import EAGLE1
from outrider.models.heads.eagle import EagleHead
from outrider.models.heads.rows import Drafted, Rows


class TensorCache:
    """Keys and values of one session as plain tensors [kv heads, rows, dim]."""

    def __init__(self, empty: Tensor) -> None:
        self.keys = self.values = empty

    @property
    def length(self) -> int:
        """Rows it holds."""
        return self.keys.shape[1]

    def keep(self, length: int) -> None:
        """Drops all rows from `length` on."""
        self.keys, self.values = self.keys[:, :length], self.values[:, :length]

    def free(self) -> None:
        """Gives its memory back."""
        self.keep(0)


class _Packed:
    """Attention of packed rows, each session over its own cache."""

    def __init__(self, batch: Sequence[Rows]) -> None:
        self._batch = batch

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query [1, heads, rows, dim] -> [1, rows, heads * dim]."""
        outs, start = [], 0
        groups = query.shape[1] // key.shape[1]
        for rows in self._batch:
            cache: TensorCache = rows.cache
            end, old = start + len(rows.tokens), cache.length
            cache.keys = torch.cat([cache.keys, key[0, :, start:end]], dim=1)
            cache.values = torch.cat([cache.values, value[0, :, start:end]], dim=1)
            hidden = ~_visible(rows, old).to(query.device)
            keys = cache.keys.repeat_interleave(groups, 0)
            values = cache.values.repeat_interleave(groups, 0)
            own = query[0, :, start:end]
            scores = (own @ keys.mT * own.shape[-1] ** -0.5).float()
            weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
            outs.append(weights.to(values.dtype) @ values)
            start = end
        return torch.cat(outs, dim=1).transpose(0, 1).flatten(1)[None]


def _visible(rows: Rows, old: int) -> Tensor:
    """Which cached rows each row sees [rows, cached rows]."""
    count = len(rows.tokens)
    if rows.base is None:
        return torch.ones(count, old + count, dtype=torch.bool).tril(old)
    visible = torch.zeros(count, old + count, dtype=torch.bool)
    visible[:, : rows.base] = True
    for row, path in enumerate(rows.paths):
        visible[row, [*path, old + row]] = True
    return visible


class TorchEagle:
    """See `EagleRunner`."""

    def __init__(self, head: EagleHead) -> None:
        self._head = head.requires_grad_(False).train(False)
        self.config = head.config
        self.draft_ids: npt.NDArray[np.int64] = head.draft_ids.cpu().numpy().copy()
        self._device, self._dtype = head.lm_head.weight.device, head.lm_head.weight.dtype

    def new_cache(self) -> TensorCache:
        """See `EagleRunner`."""
        shape = self.config.kv_heads, 0, self.config.head_dim
        return TensorCache(torch.empty(*shape, device=self._device, dtype=self._dtype))

    @torch.inference_mode()
    def fuse(self, features: npt.NDArray[np.float32]) -> Tensor:
        """See `EagleRunner`."""
        rows = torch.from_numpy(np.ascontiguousarray(features))
        return self._head.fuse(rows.to(self._device, self._dtype)).float()

    @torch.inference_mode()
    def forward(self, batch: Sequence[Rows]) -> Drafted:
        """See `EagleRunner`."""
        ids = torch.tensor([t for rows in batch for t in rows.tokens], device=self._device)
        embedded = self._head.embed_tokens(ids)
        g = torch.cat([rows.g for rows in batch]).to(self._dtype)
        layer = self._head.layers[0]
        if self.config.kind == EAGLE1:
            inputs = residual = self._head.fc(torch.cat([embedded, g], dim=-1))
        else:
            inputs, residual = layer.joined(embedded, g)  # type: ignore[operator]
        positions = torch.tensor([p for rows in batch for p in _positions(rows)])
        cos, sin = self._head.rotary_emb(inputs, positions[None].to(self._device))
        y = layer(inputs[None], residual[None], cos, sin, _Packed(batch))[0]
        return Drafted(self._head.feedback(y).float(), self._head.head_input(y).float())

    @torch.inference_mode()
    def logits(self, states: Tensor) -> npt.NDArray[np.float32]:
        """See `EagleRunner`."""
        out: npt.NDArray[np.float32] = (
            self._head.lm_head(states.to(self._dtype)).float().cpu().numpy()
        )
        return out


def _positions(rows: Rows) -> Sequence[int]:
    if rows.base is None:
        old = rows.cache.length
        return range(old, old + len(rows.tokens))
    return [rows.base + len(path) for path in rows.paths]
