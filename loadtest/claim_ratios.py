"""The claims `users` and `delay`: adaptive K against the best fixed one, plain among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.report import Limit
from loadtest import ratios
from loadtest.log import Log
from loadtest.method import ADAPTIVE, FIXED, PLAIN, Outcome, Plan, alternate
from loadtest.ratios import Runs
from outrider.cli.bars import Show

LEAST_RATIO, LEAST_LOW, MOST_SLOWEST = 0.97, 0.94, 1.05
LEAST_ALONE = 1.45
DEEP, CROWD = "k8", 32


def users(plan: Plan, log: Log, show: Show) -> Outcome:
    """At every number of users adaptive comes close to the best fixed setting, or above it.

    Alone it is well above plain; K=8 loses in a crowd, where adaptive does not.
    """
    runs = alternate("users", plan.served.cluster, plan.users, plan, log, show)
    figures, limits = {}, []
    for count, mine in runs.items():
        figures[str(count)], found = level(mine, f"{count} users")
        limits += found
    if 1 in runs:
        alone = ratios.throughput(runs[1], ADAPTIVE, PLAIN)
        figures["1"]["over_plain"] = asdict(alone)
        limits.append(Limit("adaptive over plain, 1 user", alone.median, LEAST_ALONE, least=True))
    if CROWD in runs:
        best = figures[str(CROWD)]["reference"]
        deep = ratios.throughput(runs[CROWD], DEEP, best)
        figures[str(CROWD)]["deep_over_reference"] = asdict(deep)
        name = f"K=8 over {best}, {CROWD} users, upper end"
        limits.append(Limit(name, deep.high, LEAST_RATIO))
    return Outcome(figures, limits)


def delay(plan: Plan, log: Log, show: Show) -> Outcome:
    """The same for one user, whatever the way to the draft service takes."""
    figures, limits = {}, []
    for round_trip in plan.round_trips_ms:
        name = f"{round_trip:g} ms"
        flags = ["--inject-draft-latency-ms", str(round_trip / 2)]  # each way
        runs = alternate(
            f"delay {name}",
            lambda flags=flags: plan.served.cluster({"orchestrator": flags}),  # type: ignore[misc]
            (1,),
            plan,
            log,
            show,
        )
        figures[name], (median, *_, failed) = level(runs[1], name)
        limits += [median, failed]
    return Outcome(figures, limits)


def level(
    runs: Runs, name: str, among: Sequence[str] = FIXED
) -> tuple[dict[str, Any], list[Limit]]:
    """Figures of adaptive against the reference, and their limits: median, interval, p95."""
    best = ratios.reference(runs, among)
    rate = ratios.throughput(runs, ADAPTIVE, best)
    slowest = ratios.slowest(runs, ADAPTIVE, best)
    failures = sum(run["failures"] for mine in runs.values() for run in mine)
    figures = {
        "reference": best,
        "throughput_ratio": asdict(rate),
        "p95_ratio": asdict(slowest),
        "tokens_per_second": {setting: ratios.pooled(mine) for setting, mine in runs.items()},
        "k": [run["k"] for run in runs[ADAPTIVE]],
        "failures": failures,
    }
    limits = [
        Limit(f"tokens/s over {best}, {name}, median", rate.median, LEAST_RATIO, least=True),
        Limit(f"tokens/s over {best}, {name}, lower end", rate.low, LEAST_LOW, least=True),
        Limit(f"p95 time per token over {best}, {name}", slowest.median, MOST_SLOWEST),
        Limit(f"failed requests, {name}", failures, 0.0),
    ]
    return figures, limits
