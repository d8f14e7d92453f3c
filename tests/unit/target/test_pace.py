"""How many prompt rows a step takes beside running streams."""

from __future__ import annotations

import pytest

from target_service.pace import CHUNK, STRETCH, Pace


def taught(bare: float, each: float, most: int = 128) -> Pace:
    pace = Pace(most)
    for _ in range(50):
        pace.learn(bare, 0, 1)
        pace.learn(bare + each * pace.rows(True), pace.rows(True), 1)
    return pace


def test_without_streams_a_step_takes_the_most() -> None:
    assert Pace(128).rows(False) == 128
    assert taught(0.01, 1.0).rows(False) == 128


def test_before_anything_is_known_streams_bear_one_chunk() -> None:
    assert Pace(128).rows(True) == CHUNK


@pytest.mark.parametrize("each", [1e-5, 1e-4, 2e-4, 4e-4])
def test_a_step_with_prompts_stays_within_the_stretch(each: float) -> None:
    rows, bare = taught(0.01, each).rows(True), 0.01
    assert rows % CHUNK == 0
    assert bare + rows * each <= STRETCH * bare * 1.001
    assert rows == 128 or bare + (rows + CHUNK) * each > STRETCH * bare * 0.999


def test_one_chunk_goes_on_however_dear() -> None:
    assert taught(0.01, 1.0).rows(True) == CHUNK


def test_rows_that_grow_dearer_become_fewer_within_a_few_steps() -> None:
    pace = taught(0.01, 1e-4)
    before = pace.rows(True)
    for _ in range(6):
        pace.learn(0.01 + 3e-4 * before, before, 1)
    assert pace.rows(True) == 2 * CHUNK
    assert before > 2 * CHUNK


def test_rows_at_most_double_from_step_to_step() -> None:
    pace = Pace(128)
    pace.learn(0.01, 0, 1)
    seen = []
    for _ in range(5):
        seen.append(pace.rows(True))
        pace.learn(0.01, seen[-1], 1)
    assert seen == [CHUNK, 2 * CHUNK, 4 * CHUNK, 8 * CHUNK, 128]


def test_rows_that_cost_nothing_are_no_reason_to_divide_by_nothing() -> None:
    assert taught(0.01, 0.0).rows(True) == 128
    assert taught(0.01, -1e-6).rows(True) == 128


def test_steps_without_streams_teach_nothing() -> None:
    pace = taught(0.01, 1e-4)
    before = pace.rows(True)
    pace.learn(9.0, 128, False)
    pace.learn(9.0, 0, False)
    assert pace.rows(True) == before


def test_among_many_streams_a_step_is_known_to_take_longer() -> None:
    """10 ms and 0.5 ms a row; behind few streams alone, many are here and prompts in every step."""
    pace = Pace(128)
    for rows in (1, 2, 4, 8) * 10:
        pace.learn(0.01 + 5e-4 * rows, 0, rows)
    for _ in range(10):
        allowed = pace.rows(True)
        pace.learn(0.01 + 5e-4 * (32 + allowed), allowed, 32)
    assert pace.rows(True) == 24  # 15.6 of 26 ms, 0.5 ms each: 31
    alone = Pace(128)
    for _ in range(40):
        alone.learn(0.0105, 0, 1)  # of a row's time nothing is known
    for _ in range(10):
        allowed = alone.rows(True)
        alone.learn(0.01 + 5e-4 * (32 + allowed), allowed, 32)
    assert alone.rows(True) == CHUNK
