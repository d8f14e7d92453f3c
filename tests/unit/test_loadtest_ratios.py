"""Medians of paired ratios, their intervals, and the choice of the reference."""

from __future__ import annotations

import random
from typing import Any

import pytest

from loadtest import ratios
from loadtest.claim_ratios import level


def run(rate: float, p95: float = 50.0, seconds: float = 30.0) -> dict[str, Any]:
    return {
        "tokens": rate * seconds,
        "window_s": seconds,
        "tokens_per_second": rate,
        "per_token_ms": {"p50": 40.0, "p95": p95},
        "k": 2.0,
        "failures": 0,
    }


@pytest.mark.parametrize(
    ("count", "low", "high", "coverage"),
    # Coverage 1 - 2 P(Bin(n, 1/2) < j), by hand: n=6, j=1: 1 - 2/64; n=20, j=6: as tables have it.
    [(1, 1, 1, 0.0), (5, 1, 5, 0.9375), (6, 1, 6, 0.96875), (9, 2, 8, 0.9609), (20, 6, 15, 0.9586)],
)
def test_intervals_are_those_of_order_statistics(
    count: int, low: int, high: int, coverage: float
) -> None:
    values = [float(value) for value in range(1, count + 1)]
    random.Random(1).shuffle(values)
    found = ratios.median_interval(values)
    assert (found.low, found.high, found.count) == (low, high, count)
    assert found.coverage == pytest.approx(coverage, abs=1e-4)
    assert found.median == (count + 1) / 2


def misses(level_asked: float) -> int:
    """In how many of 400 samples of 10 from a lopsided law the interval lacks the median."""
    source, median = random.Random(7), 0.6931471805599453
    found = 0
    for _ in range(400):
        drawn = [source.expovariate(1.0) for _ in range(10)]
        interval = ratios.median_interval(drawn, level_asked)
        found += not interval.low <= median <= interval.high
    return found


def test_intervals_hold_the_median_as_often_as_they_say() -> None:
    assert misses(0.95) <= 20  # 1 in 46 by the law, 9 of 400
    assert misses(0.3) > 60  # the control: an interval that promises less misses more


def test_no_value_is_refused() -> None:
    with pytest.raises(ValueError, match="values: 0, limit 1 or more"):
        ratios.median_interval([])


def test_the_reference_is_the_best_by_pooled_tokens_not_by_a_mean_of_rates() -> None:
    runs = {
        "plain": [run(10.0), run(10.0)],
        "k2": [run(25.0, seconds=3.0), run(9.0)],  # mean of rates 17, pooled 10.45
        "k4": [run(10.6), run(10.4)],
        "adaptive": [run(99.0), run(99.0)],
    }
    assert ratios.reference(runs, ["plain", "k2", "k4"]) == "k4"
    assert ratios.pooled([]) == 0.0


def test_ratios_are_taken_pair_by_pair() -> None:
    runs = {"adaptive": [run(10.0), run(40.0), run(30.0)], "k2": [run(10.0), run(20.0), run(30.0)]}
    found = ratios.throughput(runs, "adaptive", "k2")
    assert (found.median, found.low, found.high) == (1.0, 1.0, 2.0)


def test_a_run_without_a_figure_is_named() -> None:
    runs = {"adaptive": [run(10.0)], "plain": [run(0.0)]}
    with pytest.raises(ValueError, match="turn 0: adaptive or plain has no figure"):
        ratios.throughput(runs, "adaptive", "plain")


def test_limits_of_a_level_tell_a_loser_from_one_that_keeps_up() -> None:
    fixed = {"plain": [run(10.0)] * 6, "k2": [run(20.0)] * 6}
    figures, limits = level({**fixed, "adaptive": [run(19.8)] * 6}, "4 users", ["plain", "k2"])
    assert figures["reference"] == "k2"
    assert all(limit.kept for limit in limits)
    slow = [run(19.0, p95=60.0)] * 6
    _, limits = level({**fixed, "adaptive": slow}, "4 users", ["plain", "k2"])
    assert [limit.kept for limit in limits] == [False, True, False, True]
