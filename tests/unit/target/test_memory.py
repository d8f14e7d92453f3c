"""The oldest session always finds room; the youngest gives way, and nothing is lost."""

from __future__ import annotations

import itertools

from outrider.core.round import Features, SamplingParams
from outrider.models.cache import KVCache
from outrider.models.pool import BLOCK, KVPool
from target_service.memory import Memory
from target_service.prefix import PrefixCache
from target_service.session import FeatureRequest, Session
from tests.tiny import small_pool

GREEDY = SamplingParams(temperature=0.0)
SERIALS = itertools.count()


def memory_of(blocks: int) -> Memory:
    pool = small_pool(blocks)
    return Memory(pool, PrefixCache(pool, blocks))


def opened(memory: Memory, tokens: list[int], features: FeatureRequest | None = None) -> Session:
    cache = KVCache(memory.pool)
    it = Session("r", tokens, GREEDY, cache, 1000, features, serial=next(SERIALS))
    memory.open(it)
    return it


def filled(memory: Memory, rows: int, token: int = 1) -> Session:
    """A session with `rows` cached rows of committed tokens."""
    it = opened(memory, [token] * (rows + 1))
    assert memory.make_room(it, rows - it.cache.length)
    it.cache.length = rows
    return it


def test_the_youngest_session_gives_way_to_an_older_one() -> None:
    memory = memory_of(4)
    first, second, third = (filled(memory, BLOCK, token) for token in (1, 2, 3))
    assert memory.make_room(first, 2 * BLOCK)
    assert (first.cache.nbytes > 0, second.cache.length, third.cache.length) == (True, BLOCK, 0)
    assert memory.sessions_forgotten == 1
    assert memory.pool.free == 0


def test_a_young_session_waits_rather_than_take_from_older_ones() -> None:
    memory = memory_of(3)
    first, second = filled(memory, BLOCK, 1), filled(memory, BLOCK, 2)
    assert not memory.make_room(second, 2 * BLOCK)
    assert (first.cache.length, second.cache.length) == (BLOCK, BLOCK)
    memory.close(first)
    first.cache.free()
    assert memory.make_room(second, 2 * BLOCK)


def test_past_texts_go_before_the_rows_of_a_session() -> None:
    memory = memory_of(4)
    past = filled(memory, 2 * BLOCK, 1)
    memory.close(past)
    past.cache.free()
    assert memory.prefix.blocks == 2
    first, second = filled(memory, BLOCK, 2), filled(memory, BLOCK, 3)
    assert memory.make_room(first, BLOCK)
    assert (memory.prefix.blocks, second.cache.length) == (1, BLOCK)


def test_a_prompt_that_is_known_begins_with_the_blocks_of_the_past() -> None:
    memory = memory_of(8)
    past = filled(memory, 2 * BLOCK + 5)
    memory.close(past)
    again = opened(memory, [1] * (3 * BLOCK))
    assert again.cache.length == 2 * BLOCK
    assert again.cache.table == past.cache.table[:2]


def test_rows_of_an_undecided_tree_and_rows_to_be_moved_are_not_kept_for_others() -> None:
    memory = memory_of(8)
    it = filled(memory, BLOCK - 2)
    it.cache.length = BLOCK + 5  # a tree of seven nodes behind its root
    assert it.settled_rows == BLOCK - 1
    it.kept_rows = (BLOCK - 1, [BLOCK + 3])
    it.tokens += [5, 6]
    assert it.settled_rows == BLOCK - 1
    memory.close(it)
    assert memory.prefix.blocks == 0


def test_rows_with_other_bits_are_not_kept_for_others() -> None:
    memory = memory_of(8)
    it = filled(memory, BLOCK)
    it.bits_exact = False
    memory.close(it)
    assert memory.prefix.blocks == 0


def test_features_of_known_rows_are_handed_out_within_the_window() -> None:
    memory = memory_of(8)
    wanted = FeatureRequest((1,), 0)
    past = opened(memory, [1] * (BLOCK + 1), wanted)
    memory.make_room(past, BLOCK)
    past.cache.length = BLOCK
    whole = Features(0, BLOCK, 1, bytes(range(2 * BLOCK)))
    past.prompt_features = [whole]
    memory.close(past)
    again = opened(memory, [1] * (BLOCK + 10), wanted)
    assert again.kept_features == [whole]
    assert again.featured_rows == BLOCK
    windowed = opened(memory, [1] * (BLOCK + 10), FeatureRequest((1,), 15))
    first = BLOCK + 10 - 1 - 15
    assert windowed.kept_features == [whole.rows_from(first, BLOCK - first)]


def test_every_block_is_held_by_a_session_or_by_the_past() -> None:
    memory: Memory = memory_of(6)
    pool: KVPool = memory.pool
    sessions = [filled(memory, 2 * BLOCK, token) for token in (1, 2)]
    memory.close(sessions.pop())
    held = {block for it in sessions for block in it.cache.table}
    assert pool.used == len(held) + memory.prefix.blocks
