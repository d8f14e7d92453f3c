"""Ratios of runs that alternated, and how far they can be trusted.

The interval of a median comes from order statistics (David and Nagaraja, Order Statistics, 3rd ed.,
section 7.1): of n values from any continuous law, in order, the median lies between the j-th
smallest and the j-th greatest with probability 1 - 2 P(Bin(n, 1/2) < j). It assumes nothing of the
law and, unlike a bootstrap, keeps its promise at few values. At 95 % it needs 6 of them; below
that it is the whole range, and its coverage says by how much it falls short.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEVEL = 0.95

Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""Figures of the runs of each setting, in the order in which they ran; turn i of all settings is a
pair with turn i of any other."""


@dataclass(frozen=True)
class Estimate:
    """A median with its interval.

    coverage: probability that the interval holds the median; below 0.95 for fewer than 6 values.
    """

    median: float
    low: float
    high: float
    coverage: float
    count: int


def median_interval(values: Sequence[float], level: float = LEVEL) -> Estimate:
    """The narrowest interval of order statistics that covers the median with probability `level`.

    Raises:
        ValueError: there is no value.
    """
    if not values:
        raise ValueError("values: 0, limit 1 or more")
    ordered, count = sorted(values), len(values)
    rank = max((j for j in range(1, count // 2 + 1) if _coverage(count, j) >= level), default=1)
    return Estimate(
        statistics.median(ordered),
        ordered[rank - 1],
        ordered[count - rank],
        max(0.0, _coverage(count, rank)),
        count,
    )


def _coverage(count: int, rank: int) -> float:
    return 1.0 - 2.0 * sum(math.comb(count, i) for i in range(rank)) / 2.0**count


def reference(runs: Runs, among: Sequence[str]) -> str:
    """The setting whose runs together made most tokens a second."""
    return max(among, key=lambda setting: pooled(runs[setting]))


def pooled(runs: Sequence[Mapping[str, Any]]) -> float:
    """Tokens of all runs over their seconds; 0.0 where they have none."""
    seconds = sum(run["window_s"] for run in runs)
    return sum(run["tokens"] for run in runs) / seconds if seconds else 0.0


def throughput(runs: Runs, setting: str, other: str) -> Estimate:
    """Tokens a second of a setting over those of another, pair by pair.

    Raises:
        ValueError: a run of the other one has no token.
    """
    return _paired(runs, setting, other, lambda run: run["tokens_per_second"])


def slowest(runs: Runs, setting: str, other: str) -> Estimate:
    """95th percentile of the time per token of a setting over that of another, pair by pair.

    Raises:
        ValueError: a run of the other one has no request of two tokens.
    """
    return _paired(runs, setting, other, lambda run: run["per_token_ms"]["p95"])


def _paired(runs: Runs, setting: str, other: str, figure: Any) -> Estimate:
    ratios = []
    for turn, (mine, its) in enumerate(zip(runs[setting], runs[other], strict=True)):
        value, base = figure(mine), figure(its)
        if not base or value is None:
            raise ValueError(f"turn {turn}: {setting} or {other} has no figure; runs are too short")
        ratios.append(value / base)
    return median_interval(ratios)
