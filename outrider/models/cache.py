"""Our own key-value cache: one per session, block by block, growing with the tokens in use."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BLOCK = 128
"""Rows of a block. Attention multiplies whole blocks, so that the shapes of its matrix products,
and with them the bits of a row, do not depend on how many rows are cached."""


def blocks_for(rows: int) -> int:
    """Blocks that hold `rows` rows; at least one."""
    return max(1, -(-rows // BLOCK))


class KVCache:
    """Keys and values of one session.

    Each layer has two tensors [blocks, key-value heads, BLOCK, head dim]; row r stands in block r
    // BLOCK at offset r % BLOCK. Rows at and behind `length` hold nothing that counts, but always
    finite numbers.

    Args:
        layers: number of the model's layers.
        dtype: in which keys and values are kept; those of the model where None.
    """

    def __init__(self, layers: int, dtype: torch.dtype | None = None) -> None:
        self.length = 0
        self._dtype = dtype
        self._capacity = 1
        self._keys: list[Tensor | None] = [None] * layers
        self._values: list[Tensor | None] = [None] * layers

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(t.nbytes for t in (*self._keys, *self._values) if t is not None)

    @torch.inference_mode()
    def reserve(self, rows: int) -> None:
        """Makes room for `rows` rows in all, doubling the blocks as often as needed."""
        blocks = self._capacity
        while blocks < blocks_for(rows):
            blocks *= 2
        if blocks == self._capacity:
            return
        self._capacity = blocks
        for side in (self._keys, self._values):
            for layer, old in enumerate(side):
                if old is not None:
                    new = old.new_zeros(blocks, *old.shape[1:])
                    new[: old.shape[0]] = old
                    side[layer] = new

    @torch.inference_mode()
    def write(self, layer: int, start: int, keys: Tensor, values: Tensor) -> None:
        """Puts rows into one layer; `reserve` made the room.

        Args:
            layer: index of the layer.
            start: row of the first entry.
            keys, values: [key-value heads, rows, head dim].
        """
        for side, new in ((self._keys, keys), (self._values, values)):
            store = side[layer]
            if store is None:
                heads, _, dim = new.shape
                store = new.new_zeros(self._capacity, heads, BLOCK, dim, dtype=self._dtype)
                side[layer] = store
            done, rows = 0, new.shape[1]
            while done < rows:
                block, offset = divmod(start + done, BLOCK)
                count = min(rows - done, BLOCK - offset)
                store[block, :, offset : offset + count] = new[:, done : done + count]
                done += count

    def blocks(self, layer: int, count: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the first `count` blocks.

        [count, key-value heads, BLOCK, head dim] each.
        """
        keys, values = self._keys[layer], self._values[layer]
        if keys is None or values is None:
            raise RuntimeError(f"layer {layer} of the cache was never written")
        return keys[:count], values[:count]

    def rows(self, layer: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of single rows, keys and values: [*rows.shape, key-value heads, head dim] each."""
        keys, values = self._keys[layer], self._values[layer]
        if keys is None or values is None:
            raise RuntimeError(f"layer {layer} of the cache was never written")
        block, offset = rows // BLOCK, rows % BLOCK
        return keys[block, :, offset], values[block, :, offset]

    @torch.inference_mode()
    def keep(self, length: int, rows: Sequence[int] = ()) -> None:
        """Keeps the first `length` rows and, compacted behind them, `rows`; drops all others.

        Args:
            length: rows kept as they are, at most `self.length`.
            rows: absolute rows, ascending, each at least `length` and below `self.length`.

        Raises:
            ValueError: naming the argument, the value and the limit.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"length: {length}, limit 0 to {self.length}")
        last = length - 1
        for row in rows:
            if not last < row < self.length:
                raise ValueError(f"rows: {row}, limit {last + 1} to {self.length - 1}")
            last = row
        moves = [(row, length + i) for i, row in enumerate(rows) if row != length + i]
        if moves:
            source, target = torch.tensor(moves).T
            for side in (self._keys, self._values):
                for store in side:
                    if store is not None:
                        moved = store[source // BLOCK, :, source % BLOCK]
                        store[target // BLOCK, :, target % BLOCK] = moved
        self.length = length + len(rows)

    @torch.inference_mode()
    def fork(self, length: int) -> KVCache:
        """An independent copy of the first `length` rows."""
        if not 0 <= length <= self.length:
            raise ValueError(f"length: {length}, limit 0 to {self.length}")
        copy = KVCache(len(self._keys), self._dtype)
        copy.length = length
        copy._capacity = min(blocks_for(length), self._capacity)
        copy._keys = [t if t is None else t[: copy._capacity].clone() for t in self._keys]
        copy._values = [t if t is None else t[: copy._capacity].clone() for t in self._values]
        return copy

    def free(self) -> None:
        """Gives all memory back; the cache is empty and may be used again."""
        self.length = 0
        self._capacity = 1
        self._keys = [None] * len(self._keys)
        self._values = [None] * len(self._values)
