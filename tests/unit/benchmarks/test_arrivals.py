"""Rates from the times at which tokens arrived."""

import pytest

from benchmarks.arrivals import Arrivals, decode_rate, steady_rate


def _text(started: float, *arrivals: tuple[float, int]) -> Arrivals:
    times = [when for when, _ in arrivals]
    counts = [count for _, count in arrivals]
    return Arrivals(started, times, counts, list(range(sum(counts))))


def test_the_first_arrival_and_its_tokens_are_no_part_of_the_decode_rate() -> None:
    text = _text(10.0, (14.0, 3), (15.0, 1), (16.0, 3))
    assert text.first_token_s == 4.0
    assert decode_rate([text]) == 4 / 2.0


def test_the_rate_of_several_texts_is_all_tokens_over_all_time() -> None:
    slow, quick = _text(0.0, (1.0, 1), (5.0, 4)), _text(0.0, (1.0, 1), (2.0, 6))
    assert decode_rate([slow, quick]) == 10 / 5.0


def test_texts_of_one_arrival_have_no_rate() -> None:
    with pytest.raises(ValueError, match="first arrival"):
        decode_rate([_text(0.0, (1.0, 8))])


def test_empty_chunks_are_no_arrivals() -> None:
    text = Arrivals.begin()
    text.add([])
    text.add([5, 6])
    assert text.counts == [2]
    assert text.ids == [5, 6]


def test_the_steady_rate_counts_only_while_all_texts_run() -> None:
    early = _text(0.0, (1.0, 1), (2.0, 1), (3.0, 1), (4.0, 1))
    late = _text(0.0, (2.0, 1), (3.0, 2), (9.0, 5))
    assert steady_rate([early, late]) == (2 + 2) / 2.0


def test_texts_that_never_run_all_at_once_have_no_steady_rate() -> None:
    with pytest.raises(ValueError, match="all at once"):
        steady_rate([_text(0.0, (1.0, 1), (2.0, 1)), _text(0.0, (3.0, 1), (4.0, 1))])


def test_gaps_lie_between_arrivals() -> None:
    assert _text(0.0, (1.0, 1), (3.0, 2), (3.5, 1)).gaps() == [(3.0, 2.0), (3.5, 0.5)]
