"""What goes into a step: every tree, a row of every free run, and prefill cut at fixed
positions."""

import asyncio
import itertools
from typing import Any

import pytest

from outrider.core.round import SamplingParams
from outrider.core.tree import TokenTree
from outrider.models.cache import KVCache
from target_service.memory import Memory
from target_service.pace import Pace
from target_service.prefix import PrefixCache
from target_service.schedule import AHEAD, Pass, Run, Schedule
from target_service.session import FreeRun, Session
from tests.tiny import small_pool

SERIALS = itertools.count()


def session(prompt: int, cached: int = 0, round_: int = 0) -> Session:
    made = Session(
        "r", list(range(prompt)), SamplingParams(temperature=0.0), KVCache(small_pool()), 1000
    )
    made.cache.length, made.round = cached, round_
    made.serial = next(SERIALS)
    return made


def waiting(it: Session, tree: TokenTree | None = None) -> Pass:
    tree = tree or TokenTree.root_only(it.tokens[-1])
    future: asyncio.Future[Any] = asyncio.Future(loop=asyncio.new_event_loop())
    future.get_loop().close()
    return Pass(it, tree, {}, True, future, lambda features: None)


def running(it: Session, acknowledged: int) -> Run:
    it.free_run = FreeRun(900, frozenset(), acknowledged)
    return Run(it, it.free_run, lambda tokens: None, lambda error: None)


def schedule_of(prefill_rows: int, blocks: int = 64, batch: int = 64) -> Schedule:
    pool = small_pool(blocks)
    return Schedule(Memory(pool, PrefixCache(pool, blocks)), Pace(prefill_rows), batch)


def rows(schedule: Schedule) -> list[int]:
    return [len(work.tokens) for _, work in schedule.take()]


@pytest.mark.parametrize(
    ("cached", "prompt", "expected", "last"),
    [
        (0, 40, range(16), False),
        (16, 40, range(16, 32), False),
        (32, 40, range(32, 40), True),
        (0, 16, range(16), True),
        (5, 40, range(5, 16), False),
        (0, 1, range(1), True),
    ],
)
def test_prefill_is_cut_at_multiples_of_the_position(
    cached: int, prompt: int, expected: range, last: bool
) -> None:
    work = waiting(session(prompt, cached)).next_work(16)
    assert list(work.tokens) == list(expected)
    assert list(work.parents) == list(range(-1, len(expected) - 1))
    assert (work.tree is not None) == last


@pytest.mark.parametrize("budget", [1, 3, 16])
def test_what_is_left_of_the_budget_never_reaches_behind_the_prompt(budget: int) -> None:
    work = waiting(session(40, 35)).next_work(budget)
    assert list(work.tokens) == list(range(35, 40))
    assert work.tree is not None
    assert len(work.parents) == 5


def test_rows_that_were_given_up_are_computed_again_in_front_of_a_round() -> None:
    tree = TokenTree((39, 20, 21), (-1, 0, 0))
    it = session(40, 0, round_=3)
    work = waiting(it, tree).next_work(100)
    assert (list(work.tokens), work.tree) == (list(range(39)), None)
    it.cache.length = 39
    assert waiting(it, tree).next_work(100).tree is tree


def test_round_behind_the_prefill_is_its_tree() -> None:
    tree = TokenTree((9, 20, 21), (-1, 0, 0))
    work = waiting(session(10, 9, round_=1), tree).next_work(16)
    assert (work.tokens, work.parents, work.tree) == ((9, 20, 21), (-1, 0, 0), tree)


def test_prefill_goes_on_until_its_rows_are_used_up_and_never_holds_trees_back() -> None:
    pool = small_pool(64)
    memory = Memory(pool, PrefixCache(pool, 64))
    schedule = Schedule(memory, Pace(44), 64)
    for _ in range(4):
        schedule.add(waiting(session(100)))
    assert rows(schedule) == [40, 8]
    stream = session(10, round_=1)
    memory.open(stream)
    assert rows(schedule) == [8]  # it may come at any time
    stream.cache.length = 9
    schedule.add(waiting(stream, TokenTree.chain(9, [1, 2])))
    assert rows(schedule) == [8, 3]
    memory.close(stream)
    schedule.remove(stream)
    assert rows(schedule) == [40, 8]


def test_with_more_waiting_than_a_step_takes_each_gets_its_turn() -> None:
    schedule = schedule_of(16, batch=2)
    sessions = [session(10, 9, round_=1) for _ in range(3)]
    for it in sessions:
        schedule.add(waiting(it))
    seen = []
    for _ in range(3):
        taken = [work.session for _, work in schedule.take()]
        assert len(taken) == 2
        for it in taken:
            it.steps += 1
        seen += [sessions.index(it) for it in taken]
    assert sorted(seen) == [0, 0, 1, 1, 2, 2]


def test_a_step_tells_how_many_it_had_no_room_for() -> None:
    schedule = schedule_of(16, batch=2)
    for _ in range(5):
        schedule.add(waiting(session(10, 9, round_=1)))
    assert len(schedule.take()) == 2
    load = schedule.load(7)
    assert (load.sessions, load.rows, load.queue, load.batch, load.left_out) == (7, 2, 5, 2, 3)


def test_one_prefill_always_goes_on() -> None:
    schedule = schedule_of(4)
    schedule.add(waiting(session(100)))
    assert rows(schedule) == [8]


def test_free_run_waits_where_it_is_too_far_ahead() -> None:
    schedule = schedule_of(16)
    it = session(10 + AHEAD, 9 + AHEAD, round_=1)
    schedule.add(running(it, acknowledged=10))
    assert rows(schedule) == []
    assert it.free_run is not None
    it.free_run.acknowledged = 11
    assert rows(schedule) == [1]


def test_items_are_found_and_forgotten_by_session() -> None:
    schedule = schedule_of(16)
    first, second = session(4), session(4)
    item = waiting(first)
    schedule.add(item)
    schedule.add(running(second, acknowledged=0))
    assert len(schedule) == len(schedule.items()) == 2
    assert schedule.find(first) is item
    assert schedule.remove(first) is item
    assert schedule.find(first) is None
    assert schedule.remove(first) is None
    assert len(schedule) == 1
