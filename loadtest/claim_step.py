"""The claim `step`: K follows a load step 1 -> 32 -> 1 users, and no text stalls.

K alone, in the crowd and alone again is its mean over the latter half of each phase. It has fallen,
or is back, at the end of the first window of 0.2 s whose mean is at or beyond the middle of the two
levels; where there is none, the whole phase counts. A fall of less than half a token shows nothing
and is refused. A stall is the longest gap between two arrivals of one text during the crowd, in
units of the median gap in its latter half, which is a round.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.prompts import running_text
from benchmarks.report import Limit
from loadtest.grid import block
from loadtest.log import Log
from loadtest.method import ADAPTIVE, Outcome, Plan
from loadtest.runs import warm_up
from loadtest.steps import Depths, Step, User, take_step
from outrider.cli.bars import Show
from outrider.cli.processes import free_ports
from outrider.models.tokenizer import load_tokenizer

CROWD = 32
PROMPT, TOKENS = 48, 384  # of each text
WINDOW_S = 0.2
MOST_FALL_S, MOST_RETURN_S, MOST_STALL, LEAST_FALL = 1.0, 3.0, 3.0, 0.5


def step(plan: Plan, log: Log, show: Show) -> Outcome:
    """The worst of all repetitions counts."""
    keys = [f"step/{turn}" for turn in range(plan.repeats)]
    missing = [key for key in keys if key not in log]
    show("step", len(keys) - len(missing), len(keys))
    if missing:
        tokenizer = load_tokenizer(plan.served.target)
        prompts = [running_text(tokenizer, PROMPT, start) for start in range(CROWD)]
        [port] = free_ports(1)
        with plan.served.cluster({"orchestrator": ["--metrics-port", str(port)]}) as cluster:
            warm_up(cluster.address, plan.load, (ADAPTIVE,))
            for key in missing:
                seen = take_step(
                    _users(plan, cluster.address, prompts),
                    CROWD,
                    phases(plan.load.seconds),
                    f"http://127.0.0.1:{port}/metrics",
                )
                log.add(key, judge(seen))
                show("step", sum(each in log for each in keys), len(keys))
    return outcome([log[key] for key in keys])


def outcome(runs: Sequence[dict[str, Any]]) -> Outcome:
    """The figures of all repetitions and the limits of the worst."""
    limits = [
        Limit("K falls by", min(run["k_alone"] - run["k_crowd"] for run in runs), LEAST_FALL, True),
        Limit("K falls within, s", max(run["fall_s"] for run in runs), MOST_FALL_S),
        Limit("K is back within, s", max(run["return_s"] for run in runs), MOST_RETURN_S),
        Limit("longest gap over median round", max(run["stall"] for run in runs), MOST_STALL),
    ]
    return Outcome({"repetitions": list(runs)}, limits)


def phases(seconds: int) -> tuple[float, float, float]:
    """Length of each phase, seconds: a third of a run, half for the crowd."""
    return seconds / 3, seconds / 2, seconds / 3


def judge(seen: Step) -> dict[str, Any]:
    """Figures of one step.

    Raises:
        ValueError: a phase is too short for a figure.
    """
    alone = level(seen.depths, _middle(seen.began, seen.up), seen.up)
    crowd = level(seen.depths, _middle(seen.up, seen.down), seen.down)
    again = level(seen.depths, _middle(seen.down, seen.ended), seen.ended)
    fall = reached(seen.depths, seen.up, seen.down, lambda k: k <= _middle(alone, crowd))
    back = reached(seen.depths, seen.down, seen.ended, lambda k: k >= _middle(alone, crowd))
    gaps = [(at, gap) for text in seen.texts for at, gap in text.gaps() if seen.up < at < seen.down]
    settled = [gap for at, gap in gaps if at > _middle(seen.up, seen.down)]
    if not settled:
        raise ValueError("seconds: no text arrived in the crowd; ask for longer runs")
    median = statistics.median(settled)
    return {
        "k_alone": alone,
        "k_crowd": crowd,
        "k_again": again,
        "fall_s": fall,
        "return_s": back,
        "median_round_ms": 1e3 * median,
        "longest_gap_ms": 1e3 * max(gap for _, gap in gaps),
        "stall": max(gap for _, gap in gaps) / median,
        "k_by_second": by_second(seen),
    }


def level(depths: Sequence[Depths], opens: float, closes: float) -> float:
    """Mean K of what was chosen between the first and the last reading within two times.

    Raises:
        ValueError: nothing was chosen.
    """
    found = _mean([reading for reading in depths if opens <= reading.at <= closes])
    if found is None:
        raise ValueError(f"seconds: no K was chosen in {closes - opens:.1f} s; ask for longer runs")
    return found


def reached(
    depths: Sequence[Depths], opens: float, closes: float, there: Callable[[float], bool]
) -> float:
    """Seconds from `opens` to the end of the first window whose mean K is `there`; or all."""
    for reading in depths:
        if opens + WINDOW_S <= reading.at <= closes:
            window = [r for r in depths if reading.at - WINDOW_S <= r.at <= reading.at]
            mean = _mean(window)
            if mean is not None and there(mean):
                return reading.at - opens
    return closes - opens


def by_second(seen: Step) -> list[float | None]:
    """Mean K of every whole second."""
    return [
        _mean([r for r in seen.depths if s <= r.at - seen.began <= s + 1])
        for s in range(int(seen.ended - seen.began))
    ]


def _mean(readings: Sequence[Depths]) -> float | None:
    if len(readings) < 2:
        return None
    chosen = readings[-1].count - readings[0].count
    return (readings[-1].total - readings[0].total) / chosen if chosen else None


def _middle(one: float, other: float) -> float:
    return (one + other) / 2


def _users(plan: Plan, address: str, prompts: Sequence[Sequence[int]]) -> Callable[[int], User]:
    options = {
        "max_tokens": TOKENS,
        "temperature": 0.0,
        "ignore_eos": True,
        "speculative": block(ADAPTIVE, plan.load.method),
    }
    return lambda number: User(address, prompts[number:] + prompts[:number], options)  # type: ignore[operator]
