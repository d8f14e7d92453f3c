"""Memory of keys and values: one buffer for each model, cut into blocks that sessions hold and
share.

The buffer is reserved address space up to the ceiling; pages become real when a block is first
written and are given back when it is freed, so memory in use follows the tokens in use.
"""

from __future__ import annotations

import itertools
import math
import mmap
import threading
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

BLOCK = 64
"""Rows of a block. Attention multiplies whole blocks and prefill is cut at their ends, so that
neither the bits of a row nor a block of a prompt depend on how many rows are cached."""
SCALE_BYTES = 4
"""Of the float32 by which a head's key or value is multiplied where they are kept as bytes."""
FOUR = 4
"""Dimensions of keys that lie side by side where they are kept as bytes."""
SPARE = 16
"""Freed blocks that keep their pages for the next session."""


class PoolFullError(RuntimeError):
    """All blocks of the pool are in use; the message names the ceiling."""


@dataclass(frozen=True)
class LayerShape:
    """Key-value heads of a layer, and the widths of a key and a value."""

    heads: int
    key_dim: int
    value_dim: int

    def elements(self, dtype: torch.dtype) -> int:
        """Elements of a block's part for this layer: keys, then values, then the scales of both."""
        scales = 2 * SCALE_BYTES if dtype == torch.int8 else 0
        return self.heads * (self.key_dim + self.value_dim + scales) * BLOCK


class KVPool:
    """Blocks of keys and values. A block has, layer after layer, keys [heads, key dim, BLOCK] and
    values [heads, BLOCK, value dim]. int8 ones are multiples of scales, which lie behind them as
    bytes of float32: those of keys [heads, BLOCK], then those of values; their keys are kept as
    [heads, key dim / 4, BLOCK, 4], see `outrider.models.lean.narrow`.

    Args:
        layers: shape of each layer.
        dtype: in which keys and values are kept.
        device: where.
        limit_bytes: the ceiling; at least two blocks are there in any case.

    Raises:
        MemoryError: this machine does not give so much.

    Blocks may be taken, shared and given by any thread; their contents belong to one at a time.
    """

    def __init__(
        self, layers: list[LayerShape], dtype: torch.dtype, device: torch.device, limit_bytes: int
    ) -> None:
        self.layers = layers
        self.offsets = list(itertools.accumulate((s.elements(dtype) for s in layers), initial=0))
        self.block_bytes: int = self.offsets[-1] * dtype.itemsize
        self.size: int = max(2, limit_bytes // self.block_bytes)
        self._pages: mmap.mmap | None = None
        self.buffer = self._allocate(dtype, device)
        half = self.buffer.view(torch.uint16) if dtype == torch.bfloat16 else self.buffer
        self.array = half.numpy() if device.type == "cpu" else np.empty((0, 0), np.float32)
        self._references = np.zeros(self.size, np.int32)
        self._free = list(range(self.size - 1, -1, -1))
        self._lock = threading.RLock()  # a cache that is collected meanwhile gives its blocks
        self._row_base, self._row_step = self._row_elements(device)

    @property
    def used(self) -> int:
        """Blocks in use."""
        return self.size - len(self._free)

    @property
    def free(self) -> int:
        """Blocks that may still be taken."""
        return len(self._free)

    def take(self) -> int:
        """A block of one's own, its contents any finite numbers.

        Raises:
            PoolFullError: none is free.
        """
        with self._lock:
            if not self._free:
                raise PoolFullError(f"KV memory: {self.size} blocks of {BLOCK} tokens in use")
            block = self._free.pop()
            self._references[block] = 1
            return block

    def share(self, block: int) -> int:
        """The same block for another holder, who must not write to it."""
        with self._lock:
            if self._references[block] < 1:
                raise ValueError(f"block {block} is free and cannot be shared")
            self._references[block] += 1
            return block

    def give(self, block: int) -> None:
        """Ends one holder's use of a block."""
        with self._lock:
            if self._references[block] < 1:
                raise ValueError(f"block {block} was given back already")
            self._references[block] -= 1
            if self._references[block]:
                return
            self._free.append(block)
            if self._pages is not None and len(self._free) > SPARE:
                self._release(self._free[-SPARE - 1])

    def holders(self, block: int) -> int:
        """How many hold a block."""
        return int(self._references[block])

    def keys(self, layer: int) -> Tensor:
        """All blocks' keys of a layer: [blocks, heads, key dim, BLOCK], a view; int8 ones lie in
        another order, see the class."""
        shape = self.layers[layer]
        return self._part(self.offsets[layer], (shape.heads, shape.key_dim, BLOCK))

    def values(self, layer: int) -> Tensor:
        """All blocks' values of a layer: [blocks, heads, BLOCK, value dim], a view."""
        shape = self.layers[layer]
        first = self.offsets[layer] + shape.heads * shape.key_dim * BLOCK
        return self._part(first, (shape.heads, BLOCK, shape.value_dim))

    def copy_row(self, source: tuple[int, int], target: tuple[int, int]) -> None:
        """Copies a row, (block, place) to (block, place), in all layers."""
        from_, to = (self._row_base + place * self._row_step for _, place in (source, target))
        self.buffer[target[0], to] = self.buffer[source[0], from_]

    def _part(self, first: int, shape: tuple[int, ...]) -> Tensor:
        width = math.prod(shape)
        return self.buffer[:, first : first + width].view(self.size, *shape)

    def _allocate(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        if device.type != "cpu":
            return torch.zeros(self.size, self.offsets[-1], dtype=dtype, device=device)
        # Private pages, for only these read as zeros again once they are given back.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        size = self.size * self.block_bytes
        try:
            self._pages = mmap.mmap(-1, size, flags=private)
        except OSError as error:
            raise MemoryError(f"KV memory: {size >> 20} MiB cannot be had: {error}") from error
        return torch.frombuffer(self._pages, dtype=dtype).view(self.size, self.offsets[-1])

    def _release(self, block: int) -> None:
        """Gives a free block's whole pages back to the system."""
        assert self._pages is not None
        first = -(-block * self.block_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (block + 1) * self.block_bytes // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:
            self._pages.madvise(mmap.MADV_DONTNEED, first, last - first)

    def _row_elements(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Where place 0 of a block has its elements, and how far they move with the place."""
        bases, steps, narrow = [], [], self.buffer.dtype == torch.int8
        for shape, offset in zip(self.layers, self.offsets, strict=False):
            keys, together = shape.heads * shape.key_dim, FOUR if narrow else 1
            element = torch.arange(keys)
            bases.append(offset + element // together * together * BLOCK + element % together)
            steps.append(torch.full((keys,), together))
            head = torch.arange(shape.heads)[:, None] * BLOCK * shape.value_dim
            values = offset + keys * BLOCK + head + torch.arange(shape.value_dim)
            bases.append(values.flatten())
            steps.append(torch.full((values.numel(),), shape.value_dim))
            if narrow:
                behind = offset + shape.heads * (shape.key_dim + shape.value_dim) * BLOCK
                scale = torch.arange(2 * shape.heads)[:, None] * BLOCK * SCALE_BYTES
                bases.append((behind + scale + torch.arange(SCALE_BYTES)).flatten())
                steps.append(torch.full((2 * shape.heads * SCALE_BYTES,), SCALE_BYTES))
        return torch.cat(bases).to(device), torch.cat(steps).to(device)
