"""Attention of packed sessions, entered through transformers' attention interface.

The rows of all sessions of a forward stand in one sequence, so that the linear layers see one
matrix. Attention runs segment by segment against each session's own cache. Every matrix product has
the shape of one block of keys and at least four rows of queries, and products of blocks are added
in order: a row then has the same bits however many rows are computed with it or cached behind it.
`tree.py` has the trees whose paths are walked one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor, nn

from outrider.models.cache import BLOCK, KVCache, blocks_for

BATCH = "outrider_batch"
MIN_ROWS = 4
"""Fewer rows go through matrix-vector kernels, which add in another order."""
SLICE = 64
"""Rows of a segment that attend at once; bounds the memory of the scores."""


class UnsupportedModelError(ValueError):
    """The model's attention does something that the packed path cannot reproduce."""


@dataclass(frozen=True)
class Shape:
    """How a layer attends: window in positions (None: all), soft cap of the scores (None: none)."""

    window: int | None = None
    softcap: float | None = None


class Piece(Protocol):
    """Rows of one segment that attend together."""

    start: int
    stop: int

    def attend(self, layer: int, queries: Tensor, shape: Shape) -> Tensor:
        """Attention of the rows `start` to `stop` of the pack.

        queries [key-value heads, groups, rows, dim], scaled already; returns the same shape in
        float32.
        """
        ...


def padded(queries: Tensor) -> Tensor:
    """Queries with as many rows as a product needs: [key-value heads, groups, >= rows, dim]."""
    _, groups, rows, _ = queries.shape
    least = -(-MIN_ROWS // groups)
    return nn.functional.pad(queries, (0, 0, 0, least - rows)) if rows < least else queries


def block_scores(queries: Tensor, keys: Tensor) -> Tensor:
    """Products with each block of keys.

    queries [key-value heads, groups, rows, dim], keys [blocks, key-value heads, dim, BLOCK];
    returns float32 [key-value heads, groups, rows, blocks * BLOCK].
    """
    heads, groups, rows, dim = queries.shape
    count = keys.shape[0]
    left = queries.reshape(1, heads, groups * rows, dim).expand(count, -1, -1, -1)
    scores = torch.bmm(
        left.reshape(count * heads, groups * rows, dim), keys.reshape(-1, dim, BLOCK)
    )
    if count > 1:
        scores = scores.view(count, heads, groups * rows, BLOCK).permute(1, 2, 0, 3)
    return scores.reshape(heads, groups, rows, count * BLOCK).float()


def block_values(weights: Tensor, values: Tensor, total: Tensor | None = None) -> Tensor:
    """Values weighted block by block and added in order to `total`.

    weights [key-value heads, groups, rows, blocks * BLOCK], values [blocks, key-value heads, BLOCK,
    dim]; returns float32 [key-value heads, groups, rows, dim].
    """
    heads, groups, rows, _ = weights.shape
    count, dim = values.shape[0], values.shape[-1]
    left = weights.view(heads, groups * rows, count, BLOCK).permute(2, 0, 1, 3)
    left = left.reshape(count * heads, groups * rows, BLOCK).to(values.dtype)
    parts = torch.bmm(left, values.reshape(count * heads, BLOCK, dim)).float()
    if parts.device.type != "cpu":  # one kernel instead of many; bits are promised on the CPU only
        whole = parts.view(count, heads, groups, rows, dim).sum(0)
        return whole if total is None else total + whole
    for part in parts.view(count, heads, groups, rows, dim):
        total = part if total is None else total + part
    assert total is not None
    return total


def soften(scores: Tensor, bias: Tensor, shape: Shape) -> Tensor:
    """Softmax over the visible keys, in float32; `bias` [rows, keys] is 0 or minus infinity."""
    if shape.softcap is not None:
        scores = torch.tanh(scores / shape.softcap) * shape.softcap
    return torch.softmax(scores.add_(bias), dim=-1)


def hide(visible: Tensor) -> Tensor:
    """The bias of a mask: 0 where visible, minus infinity elsewhere."""
    return torch.zeros(visible.shape, device=visible.device).masked_fill_(~visible, float("-inf"))


@dataclass
class MaskedPiece:
    """Rows against the cache as it lies, under a mask: chains, and trees that need not be exact.

    Shapes: visible [rows, keys] and distance [rows, keys] (in positions), keys a multiple of BLOCK.
    """

    cache: KVCache
    start: int
    stop: int
    visible: Tensor
    distance: Tensor
    _biases: dict[int | None, Tensor] = field(default_factory=dict)

    def attend(self, layer: int, queries: Tensor, shape: Shape) -> Tensor:
        """See `Piece`."""
        rows = queries.shape[2]
        queries = padded(queries)
        keys, values = self.cache.blocks(layer, self.visible.shape[1] // BLOCK)
        weights = soften(
            block_scores(queries, keys), self._bias(shape.window, queries.shape[2]), shape
        )
        return block_values(weights, values)[:, :, :rows]

    def _bias(self, window: int | None, rows: int) -> Tensor:
        bias = self._biases.get(window)
        if bias is None:
            visible = self.visible if window is None else self.visible & (self.distance < window)
            bias = hide(visible)
            if rows > len(bias):
                bias = torch.cat([bias, bias[:1].expand(rows - len(bias), -1)])
            self._biases[window] = bias
        return bias


def chain_pieces(cache: KVCache, start: int, rows: int, device: torch.device) -> list[MaskedPiece]:
    """The pieces of a segment in which each row follows the one before.

    The first stands at cache.length.
    """
    pieces = []
    for low in range(0, rows, SLICE):
        high = min(rows, low + SLICE)
        keys = torch.arange(blocks_for(cache.length + high) * BLOCK, device=device)
        own = torch.arange(cache.length + low, cache.length + high, device=device)
        distance = own[:, None] - keys
        pieces.append(MaskedPiece(cache, start + low, start + high, distance >= 0, distance))
    return pieces


@dataclass
class Batch:
    """What one forward's attention needs: where each segment's rows are written, and who attends to
    what.

    writes: (cache, first row in the pack, end row in the pack) of each segment; cache.length is
        still the
    old one.
    """

    writes: Sequence[tuple[KVCache, int, int]]
    pieces: Sequence[Piece]
    layers_seen: int = 0

    @cached_property
    def rows(self) -> int:
        """Rows of the pack."""
        return max(stop for _, _, stop in self.writes)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, shape: Shape
    ) -> Tensor:
        """Writes the rows' keys and values, then attends.

        query [heads, rows, dim], key and value [key-value heads, rows, dim]; returns [rows, heads,
        dim].
        """
        self.layers_seen += 1
        for cache, start, stop in self.writes:
            cache.write(layer, cache.length, key[:, start:stop], value[:, start:stop])
        heads, rows, dim = query.shape
        wide = query.float() if query.device.type == "cpu" else query
        wide = (wide * scale).view(key.shape[0], -1, rows, dim)
        out = query.new_empty(rows, key.shape[0], heads // key.shape[0], value.shape[-1])
        for piece in self.pieces:
            part = piece.attend(layer, wide[:, :, piece.start : piece.stop], shape)
            out[piece.start : piece.stop] = part.permute(2, 0, 1, 3)
        return out.flatten(1, 2)
