"""The place where a text begins to repeat itself."""

from __future__ import annotations

import pytest

from training.loops import LoopDetector, repeats_needed


def cut_at(tokens: list[int]) -> tuple[int, int] | None:
    """How many tokens were told when a loop was found, and how many to cut."""
    detector = LoopDetector()
    for told, token in enumerate(tokens, start=1):
        cut = detector.add(token)
        if cut:
            return told, cut
    return None


@pytest.mark.parametrize("period", [1, 2, 3, 5, 6, 17, 40])
def test_a_period_is_cut_down_to_one_once_it_stands_often_enough(period: int) -> None:
    before, unit = list(range(100, 120)), list(range(period))
    needed = repeats_needed(period)
    told, cut = cut_at(before + unit * needed) or (0, 0)
    assert told == len(before) + period * needed
    assert (before + unit * needed)[: told - cut] == before + unit


@pytest.mark.parametrize("period", [1, 2, 3, 5, 6, 17, 40])
def test_one_token_less_is_no_loop(period: int) -> None:
    before, unit = list(range(100, 120)), list(range(period))
    assert cut_at(before + (unit * repeats_needed(period))[:-1]) is None


def test_text_without_repetition_and_a_period_of_41_are_left_alone() -> None:
    assert cut_at(list(range(300))) is None
    assert cut_at(list(range(41)) * 5) is None


def test_a_repetition_that_is_broken_begins_anew() -> None:
    unit = list(range(10))
    assert cut_at(unit * 2 + [99] + unit * 2) is None
