"""From the samples of one Locust run to one line of the comparison."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table


@dataclass(frozen=True)
class Sample:
    """One request as its user saw it; times in seconds.

    started: on a clock that all samples of a run share.
    first_token_s: from the request to the first token.
    tokens: emitted tokens. Times per output token need two.
    drafted, accepted, emitted, rounds: as the response's speculation block counts them.
    """

    started: float
    total_s: float
    first_token_s: float
    tokens: int
    method: str
    rounds: int
    drafted: int
    accepted: int
    emitted: int

    @property
    def per_token_s(self) -> float | None:
        """Seconds between tokens behind the first one; None where there is no second token."""
        return (self.total_s - self.first_token_s) / (self.tokens - 1) if self.tokens > 1 else None


@dataclass(frozen=True)
class Percentiles:
    """Median and 95th percentile, milliseconds; None without samples."""

    p50: float | None
    p95: float | None

    @classmethod
    def of_seconds(cls, seconds: Iterable[float]) -> Percentiles:
        """Of durations in seconds. The 95th percentile is the nearest rank."""
        ordered = sorted(value * 1e3 for value in seconds)
        if not ordered:
            return cls(None, None)
        return cls(
            statistics.median(ordered), ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
        )


@dataclass(frozen=True)
class Cell:
    """One run: so many users, with or without speculation.

    tokens_per_second: of all users together, from the first request to the end of the last.
    acceptance_rate: accepted / drafted; acceptance_length: tokens emitted per round. None without
        rounds.
    """

    users: int
    speculation: bool
    method: str
    requests: int
    failures: int
    tokens: int
    tokens_per_second: float
    first_token_ms: Percentiles
    per_token_ms: Percentiles
    request_ms: Percentiles
    acceptance_rate: float | None
    acceptance_length: float | None


def summarise(users: int, speculation: bool, samples: Sequence[Sample], failures: int) -> Cell:
    """The figures of one run."""
    tokens = sum(sample.tokens for sample in samples)
    span = (
        max(sample.started + sample.total_s for sample in samples)
        - min(sample.started for sample in samples)
        if samples
        else 0.0
    )
    drafted = sum(sample.drafted for sample in samples)
    rounds = sum(sample.rounds for sample in samples)
    methods = sorted({sample.method for sample in samples if sample.method})
    return Cell(
        users=users,
        speculation=speculation,
        method=",".join(methods) if speculation else "plain",
        requests=len(samples),
        failures=failures,
        tokens=tokens,
        tokens_per_second=tokens / span if span else 0.0,
        first_token_ms=Percentiles.of_seconds(sample.first_token_s for sample in samples),
        per_token_ms=Percentiles.of_seconds(
            sample.per_token_s for sample in samples if sample.per_token_s is not None
        ),
        request_ms=Percentiles.of_seconds(sample.total_s for sample in samples),
        acceptance_rate=sum(sample.accepted for sample in samples) / drafted if drafted else None,
        acceptance_length=sum(sample.emitted for sample in samples) / rounds if rounds else None,
    )


def read_samples(path: Path) -> tuple[list[Sample], int]:
    """Samples and number of failures as the Locust process wrote them."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    return [Sample(**sample) for sample in stored["samples"]], stored["failures"]


def write_samples(path: Path, samples: Sequence[Sample], failures: int) -> None:
    """The reverse of `read_samples`."""
    stored = {"samples": [asdict(sample) for sample in samples], "failures": failures}
    path.write_text(json.dumps(stored), encoding="utf-8")


def write_result(path: Path, run: dict[str, Any], cells: Sequence[Cell]) -> None:
    """Stores `{"run": ..., "cells": [...]}`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {"run": run, "cells": [asdict(cell) for cell in cells]}
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def table(cells: Sequence[Cell]) -> Table:
    """The comparison; speed-up is tokens per second against plain at the same number of users."""
    shown = Table(title="With and without speculation", caption="times: p50 / p95 in ms")
    for column in ("users", "method", "requests", "failed", "tokens/s", "speed-up"):
        shown.add_column(column, justify="left" if column == "method" else "right")
    for column in ("first token", "per token", "accept. rate", "accept. length"):
        shown.add_column(column, justify="right")
    plain = {cell.users: cell.tokens_per_second for cell in cells if not cell.speculation}
    for cell in cells:
        base = plain.get(cell.users)
        shown.add_row(
            str(cell.users),
            cell.method,
            str(cell.requests),
            str(cell.failures),
            f"{cell.tokens_per_second:.1f}",
            f"{cell.tokens_per_second / base:.2f}" if base else "-",
            _times(cell.first_token_ms),
            _times(cell.per_token_ms),
            _number(cell.acceptance_rate, 2),
            _number(cell.acceptance_length, 2),
        )
    return shown


def _times(ms: Percentiles) -> str:
    return f"{_number(ms.p50, 0)} / {_number(ms.p95, 0)}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
