"""Blocks of past texts are found by their tokens, and go when the memory is needed."""

import random

import pytest

from outrider.core.round import Features
from outrider.models.pool import BLOCK, KVPool
from target_service.prefix import PrefixCache
from target_service.session import FeatureRequest
from tests.tiny import small_pool

TAPS = (1, 2)


def text(seed: int, blocks: int) -> list[int]:
    return random.Random(seed).choices(range(50), k=blocks * BLOCK)


def remember(cache: PrefixCache, pool: KVPool, tokens: list[int], width: int = 0) -> list[int]:
    """Keeps a text whose session ends at once; returns its blocks."""
    table = [pool.take() for _ in range(-(-len(tokens) // BLOCK))]
    features = [Features(0, len(tokens), width, bytes(2 * width * len(tokens)))] if width else []
    cache.add(tokens, table, TAPS, features)
    for block in table:
        pool.give(block)
    return table


def found(cache: PrefixCache, tokens: list[int], wanted: FeatureRequest | None = None) -> list[int]:
    return [node.block for node in cache.match(tokens, wanted)]


def test_the_longest_known_beginning_is_found_block_by_block() -> None:
    pool = small_pool(16)
    cache = PrefixCache(pool, 16)
    whole = text(1, 3)
    table = remember(cache, pool, [*whole, 7, 7])
    assert pool.used == 3
    assert found(cache, [*whole, 9]) == table[:3]
    assert found(cache, whole) == table[:2]  # the last token is the root: its row is computed
    assert found(cache, whole[: 2 * BLOCK + 5]) == table[:2]
    assert found(cache, [*whole[:BLOCK], 49, *whole[BLOCK + 1 :]]) == table[:1]
    assert found(cache, [49, *whole[1:]]) == []
    assert (cache.asked_rows, cache.found_rows) == (5 * 192 + 1 - 64 + 5, 8 * BLOCK)


def test_texts_with_the_same_beginning_share_its_blocks() -> None:
    pool = small_pool(16)
    cache = PrefixCache(pool, 16)
    start, one, other = text(1, 2), text(2, 1), text(3, 1)
    table = remember(cache, pool, start + one)
    remember(cache, pool, start + other)
    assert pool.used == cache.blocks == 4
    assert found(cache, [*start, *other, 1])[:2] == table[:2]


def test_the_longest_unused_ends_go_first_and_never_one_that_is_in_use() -> None:
    pool = small_pool(16)
    cache = PrefixCache(pool, 16)
    old, new = text(1, 2), text(2, 2)
    first, _ = remember(cache, pool, old), remember(cache, pool, new)
    found(cache, [*old, 1])
    assert cache.evict(2) == 2
    assert len(found(cache, [*old, 1])) == 2
    assert found(cache, [*new, 1]) == []
    for block in first:
        pool.share(block)
    assert cache.evict(5) == 0
    for block in first:
        pool.give(block)
    assert cache.evict(5) == 2
    assert pool.used == cache.blocks == 0


def test_a_block_that_only_its_children_keep_goes_with_them_and_theirs_stay_in_use() -> None:
    pool = small_pool(16)
    cache = PrefixCache(pool, 16)
    front, end, *_ = remember(cache, pool, text(1, 2))
    other = remember(cache, pool, text(2, 1))
    pool.share(end)  # by a session that computed the front itself
    assert cache.evict(1) == 1  # the other text, which nothing hangs on
    assert pool.holders(other[0]) == 0
    assert cache.evict(5) == 1
    assert (pool.holders(front), pool.holders(end)) == (0, 1)
    assert (pool.used, cache.blocks) == (1, 0)


def test_no_more_blocks_are_kept_than_allowed() -> None:
    pool = small_pool(16)
    cache = PrefixCache(pool, 3)
    remember(cache, pool, text(1, 2))
    remember(cache, pool, text(2, 5))
    assert pool.used == cache.blocks == 3
    assert len(found(cache, [*text(2, 5), 1])) == 3
    nothing = PrefixCache(pool, 0)
    remember(nothing, pool, text(3, 2))
    assert nothing.blocks == 0
    assert pool.used == 3


@pytest.mark.parametrize(
    ("width", "window", "blocks"), [(4, 0, 3), (0, 0, 0), (0, BLOCK + 1, 1), (0, 1, 2), (4, 9, 3)]
)
def test_where_features_are_wanted_blocks_count_only_with_them(
    width: int, window: int, blocks: int
) -> None:
    pool = small_pool(16)
    cache = PrefixCache(pool, 16)
    whole = text(1, 3)
    remember(cache, pool, whole, width)
    assert len(found(cache, [*whole, 1], FeatureRequest(TAPS, window))) == blocks
    assert len(found(cache, [*whole, 1], FeatureRequest((0,), 0))) == 0
    assert len(found(cache, [*whole, 1])) == 3


def test_features_are_put_together_from_parts_and_kept_for_whole_blocks_only() -> None:
    pool = small_pool(16)
    cache = PrefixCache(pool, 16)
    tokens = text(1, 2)
    data = bytes(range(256)) * (2 * BLOCK * 4 // 256)
    whole = Features(0, 2 * BLOCK, 2, data)
    parts = [whole.rows_from(0, 40), whole.rows_from(40, 50), whole.rows_from(90, 30)]
    table = [pool.take() for _ in range(2)]
    cache.add(tokens, table, TAPS, parts)
    one, two = cache.match([*tokens, 1], None)
    assert one.features[TAPS] == whole.rows_from(0, BLOCK)
    assert two.features == {}
