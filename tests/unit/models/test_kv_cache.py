"""The key-value cache keeps what it is told to keep."""

from __future__ import annotations

import pytest
import torch

from outrider.models.cache import BLOCK, KVCache, blocks_for

LAYERS, HEADS, DIM = 2, 2, 4


def filled(rows: int) -> tuple[KVCache, torch.Tensor]:
    """A cache of `rows` random rows, and the rows [rows, heads, dim] of its keys in layer 1."""
    generator = torch.Generator().manual_seed(rows)
    cache = KVCache(LAYERS)
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


def test_memory_grows_with_the_tokens_in_use_and_is_given_back() -> None:
    row = 2 * LAYERS * HEADS * DIM * 4
    for rows in (1, BLOCK, BLOCK + 1, 5 * BLOCK):
        cache, _ = filled(rows)
        assert rows * row <= cache.nbytes <= 2 * blocks_for(rows) * BLOCK * row
    cache.free()
    assert cache.nbytes == 0
    assert cache.length == 0
