"""The keys and values of one session: a table of blocks, growing with the tokens in use."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.models.pool import BLOCK, KVPool

__all__ = ["BLOCK", "KVCache", "blocks_for"]


def blocks_for(rows: int) -> int:
    """Blocks that hold `rows` rows; at least one."""
    return max(1, -(-rows // BLOCK))


class KVCache:
    """Keys and values of one session; row r stands in block r // BLOCK at place r % BLOCK.

    Rows at and behind `length` hold nothing that counts, but always finite numbers. Whole
    blocks may be shared with others; one that is about to be written is copied first.
    """

    def __init__(self, pool: KVPool) -> None:
        self.length = 0
        self.pool = pool
        self.table: list[int] = []
        self._copied: tuple[list[int], Tensor] | None = None

    def __del__(self) -> None:
        self.free()

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks held, shared ones included."""
        return len(self.table) * self.pool.block_bytes

    def reserve(self, rows: int) -> None:
        """Makes room for `rows` rows in all.

        Raises:
            PoolFullError: the pool has no block left; what was taken stays with this cache.
        """
        while len(self.table) < blocks_for(rows):
            self.table.append(self.pool.take())
        index = self.length // BLOCK
        if rows > self.length and self.pool.holders(self.table[index]) > 1:
            own = self.pool.take()
            self.pool.buffer[own] = self.pool.buffer[self.table[index]]
            self.pool.give(self.table[index])
            self.table[index] = own

    @torch.inference_mode()
    def write(self, layer: int, start: int, keys: Tensor, values: Tensor) -> None:
        """Puts rows into one layer; `reserve` made the room.

        Args:
            layer: index of the layer.
            start: row of the first entry.
            keys, values: [key-value heads, rows, head dim].
        """
        all_keys, all_values = self.pool.keys(layer), self.pool.values(layer)
        done, rows = 0, keys.shape[1]
        while done < rows:
            index, place = divmod(start + done, BLOCK)
            count = min(rows - done, BLOCK - place)
            block = self.table[index]
            all_keys[block, :, :, place : place + count] = keys[:, done : done + count].mT
            all_values[block, :, place : place + count] = values[:, done : done + count]
            done += count

    def blocks(self, layer: int, count: int) -> tuple[Tensor, Tensor]:
        """Keys [count, key-value heads, head dim, BLOCK] and values [count, key-value heads, BLOCK,
        head dim] of the first `count` blocks."""
        table = self._on_device()[:count]
        return self.pool.keys(layer)[table], self.pool.values(layer)[table]

    def rows(self, layer: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of single rows, keys and values: [*rows.shape, key-value heads, head dim] each."""
        table = self._on_device()
        block, place = table[rows // BLOCK], rows % BLOCK
        return self.pool.keys(layer)[block, :, :, place], self.pool.values(layer)[block, :, place]

    @torch.inference_mode()
    def keep(self, length: int, rows: Sequence[int] = ()) -> None:
        """Keeps the first `length` rows and, compacted behind them, `rows`; drops all others.

        Args:
            length: rows kept as they are, at most `self.length`.
            rows: absolute rows, ascending, each at least `length` and below `self.length`.

        Raises:
            ValueError: naming the argument, the value and the limit.
        """
        self._check_length(length)
        last = length - 1
        for row in rows:
            if not last < row < self.length:
                raise ValueError(f"rows: {row}, limit {last + 1} to {self.length - 1}")
            last = row
        for target, source in enumerate(rows, length):
            if source != target:
                self.pool.copy_row(self._place(source), self._place(target))
        self.length = length + len(rows)
        while len(self.table) > blocks_for(self.length):
            self.pool.give(self.table.pop())

    @torch.inference_mode()
    def fork(self, length: int) -> KVCache:
        """Another cache with the first `length` rows: whole blocks are shared, the rest is copied.

        Raises:
            ValueError: naming the argument, the value and the limit.
            PoolFullError: the pool has no block for the rest.
        """
        self._check_length(length)
        copy = KVCache(self.pool)
        copy.adopt(self.table[: length // BLOCK])
        copy.length = length
        if length % BLOCK:
            copy.reserve(length)
            self.pool.buffer[copy.table[-1]] = self.pool.buffer[self.table[length // BLOCK]]
        return copy

    def adopt(self, blocks: Sequence[int]) -> None:
        """Begins an empty cache with whole blocks that others hold too."""
        if self.table:
            raise ValueError(f"blocks: the cache has {len(self.table)} already, limit 0")
        self.table = [self.pool.share(block) for block in blocks]
        self.length = len(blocks) * BLOCK

    def free(self) -> None:
        """Gives all blocks back; the cache is empty and may be used again."""
        self.length = 0
        while self.table:
            self.pool.give(self.table.pop())

    def _on_device(self) -> Tensor:
        """The table where the pool is; copied when it has changed, since a GPU waits for it."""
        if self._copied is None or self._copied[0] != self.table:
            tensor = torch.tensor(self.table, device=self.pool.buffer.device)
            self._copied = list(self.table), tensor
        return self._copied[1]

    def _place(self, row: int) -> tuple[int, int]:
        return self.table[row // BLOCK], row % BLOCK

    def _check_length(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"length: {length}, limit 0 to {self.length}")
