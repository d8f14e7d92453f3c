"""How claims are measured: what every one of them is given, gives back, and how settings alternate.

All settings run one after the other, turn by turn (A B C A B C ...), so that what the machine does
meanwhile meets all of them alike; a turn's runs are compared with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.report import Limit
from loadtest.grid import PROMPTS, SETTINGS
from loadtest.log import Log
from loadtest.ratios import Runs
from loadtest.runs import Load, Served, run_locust, warm_up
from outrider.cli.bars import Show
from outrider.cli.cluster import Cluster

LEAST_SECONDS, LEAST_PAIRS, LEAST_ALTERNATIONS = 30, 5, 20
"""What a claim needs; anything shorter is a trial."""

ADAPTIVE, PLAIN = "adaptive", "plain"
FIXED = tuple(setting for setting in SETTINGS if setting != ADAPTIVE)
TEMPERATURE = 0.0


@dataclass(frozen=True)
class Plan:
    """What is asked of all claims.

    pairs: turns of every setting; users: levels of the claim `users`; round_trips_ms: of the claim
    `delay`; alternations: of `idle`; repeats: load steps of `step`.
    """

    load: Load
    served: Served = field(default_factory=Served)
    pairs: int = 6
    users: tuple[int, ...] = (1, 4, 16, 32)
    round_trips_ms: tuple[float, ...] = (0.0, 5.0, 20.0, 80.0)
    alternations: int = 20
    repeats: int = 5

    @property
    def shortened(self) -> list[str]:
        """In what it falls short of the method; empty: its figures are claims."""
        asked = (
            ("seconds", self.load.seconds, LEAST_SECONDS),
            ("pairs", self.pairs, LEAST_PAIRS),
            ("alternations", self.alternations, LEAST_ALTERNATIONS),
        )
        levels = (
            ("users", self.users, Plan.users),
            ("round_trips_ms", self.round_trips_ms, Plan.round_trips_ms),
        )
        return [
            *(
                f"{name}: {value}, at least {least}"
                for name, value, least in asked
                if value < least
            ),
            *(
                f"{name}: {', '.join(map(str, given))}, at least {', '.join(map(str, needed))}"
                for name, given, needed in levels
                if not set(needed) <= set(given)
            ),
        ]


@dataclass(frozen=True)
class Outcome:
    """Figures of a claim, and the limits that decide whether it holds."""

    figures: dict[str, Any]
    limits: list[Limit]

    @property
    def holds(self) -> bool:
        """Whether every limit is kept."""
        return all(limit.kept for limit in self.limits)


Measure = Callable[[Plan, Log, Show], Outcome]
"""Runs what the log lacks and judges all of it."""


def alternate(
    name: str,
    make: Callable[[], AbstractContextManager[Cluster]],
    users: Sequence[int],
    plan: Plan,
    log: Log,
    show: Show,
) -> dict[int, Runs]:
    """Runs of every setting, `plan.pairs` each, by the number of users.

    Args:
        name: of the claim; its runs' keys begin with it.
        make: the cluster; not called where the log has all runs.
    """
    keys = {
        (count, turn, setting): f"{name}/users{count}/turn{turn}/{setting}"
        for count in users
        for turn in range(plan.pairs)
        for setting in SETTINGS
    }
    missing = [where for where, key in keys.items() if key not in log]
    done = len(keys) - len(missing)
    show(name, done, len(keys))
    if missing:
        show(name, done, len(keys), "starting a cluster")
        with make() as cluster:
            warm_up(cluster.address, plan.load, tuple(SETTINGS))
            for where in missing:
                count, _, setting = where
                show(name, done, len(keys), keys[where])
                figures = run_locust(
                    cluster.address, plan.load, setting, count, PROMPTS, TEMPERATURE
                )
                log.add(keys[where], asdict(figures))
                done += 1
                show(name, done, len(keys))
    return {
        count: {
            setting: [log[keys[count, turn, setting]] for turn in range(plan.pairs)]
            for setting in SETTINGS
        }
        for count in users
    }
