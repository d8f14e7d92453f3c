"""The key-value cache keeps what it is told to keep."""

from __future__ import annotations

import pytest
import torch

from outrider.models.cache import BLOCK, KVCache, blocks_for
from outrider.models.pool import SPARE, KVPool, LayerShape, PoolFullError

LAYERS, HEADS, DIM = 2, 2, 4
BLOCK_BYTES = LAYERS * 2 * HEADS * DIM * BLOCK * 4


def pool_of(blocks: int) -> KVPool:
    """A pool of two small layers."""
    shapes = [LayerShape(HEADS, DIM, DIM)] * LAYERS
    return KVPool(shapes, torch.float32, torch.device("cpu"), blocks * BLOCK_BYTES)


def filled(rows: int) -> tuple[KVCache, torch.Tensor]:
    """A cache of `rows` random rows, and the rows [rows, heads, dim] of its keys in layer 1."""
    generator = torch.Generator().manual_seed(rows)
    cache = KVCache(pool_of(8))
    cache.reserve(rows)
    keys = torch.randn(LAYERS, HEADS, rows, DIM, generator=generator)
    for layer in range(LAYERS):
        cache.write(layer, 0, keys[layer], -keys[layer])
    cache.length = rows
    return cache, keys[1].transpose(0, 1)


def rows_of(cache: KVCache) -> torch.Tensor:
    keys, values = cache.rows(1, torch.arange(cache.length))
    assert torch.equal(values, -keys)
    return keys


def test_rows_survive_the_growth_over_several_blocks() -> None:
    cache, first = filled(BLOCK - 1)
    cache.reserve(3 * BLOCK)
    more = torch.randn(HEADS, 2 * BLOCK, DIM)
    for layer in range(LAYERS):
        cache.write(layer, BLOCK - 1, more, -more)
    cache.length = 3 * BLOCK - 1
    assert torch.equal(rows_of(cache), torch.cat([first, more.transpose(0, 1)]))


def test_keep_compacts_the_named_rows_behind_the_prefix() -> None:
    cache, before = filled(BLOCK + 10)
    kept = [BLOCK - 3, BLOCK - 1, BLOCK + 2, BLOCK + 9]
    cache.keep(BLOCK - 4, kept)
    assert cache.length == BLOCK
    assert torch.equal(rows_of(cache), torch.cat([before[: BLOCK - 4], before[kept]]))


def test_keep_without_rows_cuts_the_end_off() -> None:
    cache, before = filled(20)
    cache.keep(7)
    assert cache.length == 7
    assert torch.equal(rows_of(cache), before[:7])


@pytest.mark.parametrize(
    ("length", "rows", "message"),
    [
        (-1, [], "length: -1, limit 0 to 10"),
        (11, [], "length: 11, limit 0 to 10"),
        (5, [4], "rows: 4, limit 5 to 9"),
        (5, [7, 6], "rows: 6, limit 8 to 9"),
        (5, [10], "rows: 10, limit 5 to 9"),
    ],
)
def test_keep_refuses_rows_that_are_not_there(length: int, rows: list[int], message: str) -> None:
    cache, before = filled(10)
    with pytest.raises(ValueError, match=message):
        cache.keep(length, rows)
    assert torch.equal(rows_of(cache), before)


def test_a_fork_is_independent_of_its_origin() -> None:
    cache, before = filled(12)
    fork = cache.fork(5)
    cache.write(1, 0, torch.zeros(HEADS, 12, DIM), torch.zeros(HEADS, 12, DIM))
    assert fork.length == 5
    assert torch.equal(rows_of(fork), before[:5])


def test_a_fork_shares_whole_blocks_and_a_writer_copies_them_first() -> None:
    cache, before = filled(2 * BLOCK + 3)
    fork = cache.fork(2 * BLOCK)
    assert fork.table == cache.table[:2]
    assert cache.pool.used == 3
    fork.keep(BLOCK + 5)
    fork.reserve(BLOCK + 6)
    assert fork.table[0] == cache.table[0]
    assert fork.table[1] != cache.table[1]
    for layer in range(LAYERS):
        fork.write(layer, BLOCK + 5, torch.zeros(HEADS, 1, DIM), torch.zeros(HEADS, 1, DIM))
    fork.length = BLOCK + 6
    assert torch.equal(rows_of(cache), before)
    assert torch.equal(rows_of(fork)[:-1], before[: BLOCK + 5])


def test_memory_grows_with_the_tokens_in_use_and_is_given_back() -> None:
    for rows in (1, BLOCK, BLOCK + 1, 5 * BLOCK):
        cache, _ = filled(rows)
        assert cache.nbytes == blocks_for(rows) * BLOCK_BYTES
        assert cache.pool.used == blocks_for(rows)
    cache.keep(BLOCK + 1)
    assert cache.pool.used == 2
    cache.free()
    assert cache.nbytes == 0
    assert cache.length == 0
    assert cache.pool.used == 0


def test_a_forgotten_cache_gives_its_blocks_back() -> None:
    cache, _ = filled(BLOCK + 1)
    pool = cache.pool
    fork = cache.fork(BLOCK)
    del cache
    assert pool.used == 1
    del fork
    assert pool.used == 0


def test_a_full_pool_says_so_and_serves_again_once_blocks_come_back() -> None:
    pool = pool_of(3)
    first, second = KVCache(pool), KVCache(pool)
    first.reserve(2 * BLOCK)
    with pytest.raises(PoolFullError, match="KV memory: 3 blocks of 64 tokens in use"):
        second.reserve(BLOCK + 1)
    first.free()
    second.reserve(3 * BLOCK)
    assert pool.free == 0


def test_a_block_is_given_back_once_by_each_holder() -> None:
    pool = pool_of(2)
    block = pool.take()
    pool.share(block)
    pool.give(block)
    assert pool.used == 1
    pool.give(block)
    assert pool.used == 0
    with pytest.raises(ValueError, match=f"block {block} was given back already"):
        pool.give(block)
    with pytest.raises(ValueError, match=f"block {block} is free"):
        pool.share(block)


def test_freed_pages_beyond_the_spare_ones_read_as_zeros_again() -> None:
    shapes = [LayerShape(4, 64, 64)]  # blocks of whole pages
    pool = KVPool(shapes, torch.float32, torch.device("cpu"), 4 * SPARE * (4 * 128 * BLOCK * 4))
    blocks = [pool.take() for _ in range(3 * SPARE)]
    for block in blocks:
        pool.buffer[block] = 1.0
    for block in blocks:
        pool.give(block)
    kept = sum(bool(pool.buffer[block].any()) for block in blocks)
    assert kept <= SPARE
