"""From the samples of one Locust run to its figures."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outrider.results import Speculation


@dataclass(frozen=True)
class Sample:
    """One request as its user saw it; times in seconds.

    started: since the epoch, so that all workers' samples share a clock.
    first_token_s: from the request to the first token.
    tokens: emitted tokens. Times per output token need two.
    drafted, accepted, emitted, rounds, passes: as the response's speculation block counts them.
    depths: sum over rounds of the depth that the tree reached.
    """

    started: float
    total_s: float
    first_token_s: float
    tokens: int
    method: str = ""
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    passes: int = 0
    depths: int = 0

    @classmethod
    def of(cls, report: Speculation | None, **seen: Any) -> Sample:
        """What the user saw, with what the response told."""
        if report is None:
            return cls(**seen)
        return cls(
            **seen,
            method=report.method,
            rounds=report.rounds,
            drafted=report.drafted,
            accepted=report.accepted,
            emitted=report.emitted,
            passes=report.passes,
            depths=sum(report.drafted_per_position),
        )

    @property
    def per_token_s(self) -> float | None:
        """Seconds between tokens behind the first one; None where there is no second token."""
        return (self.total_s - self.first_token_s) / (self.tokens - 1) if self.tokens > 1 else None

    @property
    def ended(self) -> float:
        """When the last token was there."""
        return self.started + self.total_s

    @property
    def k(self) -> float | None:
        """Mean depth over target passes, those of K=0 among them; None without a pass."""
        return self.depths / self.passes if self.passes else None

    def tokens_within(self, opens: float, closes: float) -> float:
        """Tokens that came between two times, those behind the first one evenly spread."""
        first = self.started + self.first_token_s
        spread = self.ended - first
        overlap = min(closes, self.ended) - max(opens, first)
        share = max(0.0, overlap) / spread if spread > 0 else float(opens <= first <= closes)
        return (opens <= first <= closes) + (self.tokens - 1) * share if self.tokens else 0.0


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
class Figures:
    """What one run gave.

    errors: messages of the failures, and how often each came.
    window_s: from the first request to the end of the last, or the part of it that counts.
    tokens: of all users together within it; tokens_per_second: both divided.
    acceptance_rate: accepted / drafted; acceptance_length: tokens emitted per round. None without
        rounds.
    k: mean depth over target passes, K=0 among them; k_by_second: of the requests that ran in each
        second, None where there was none.
    """

    method: str
    requests: int
    failures: int
    errors: dict[str, int]
    window_s: float
    tokens: float
    tokens_per_second: float
    first_token_ms: Percentiles
    per_token_ms: Percentiles
    request_ms: Percentiles
    acceptance_rate: float | None
    acceptance_length: float | None
    k: float | None
    k_by_second: list[float | None]


def summarise(
    samples: Sequence[Sample], failures: Mapping[str, int], longest_s: float | None = None
) -> Figures:
    """The figures of one run.

    Args:
        longest_s: throughput counts this long from the first request on. Without it, until the last
            request's end, when fewer and fewer users are left.
    """
    begun = min((sample.started for sample in samples), default=0.0)
    ended = max((sample.ended for sample in samples), default=0.0)
    if longest_s is not None:
        ended = min(ended, begun + longest_s)
    tokens = sum(sample.tokens_within(begun, ended) for sample in samples)
    drafted = sum(sample.drafted for sample in samples)
    rounds = sum(sample.rounds for sample in samples)
    passes = sum(sample.passes for sample in samples)
    methods = sorted({sample.method for sample in samples if sample.method})
    return Figures(
        method=",".join(methods) or "plain",
        requests=len(samples),
        failures=sum(failures.values()),
        errors=dict(failures),
        window_s=ended - begun,
        tokens=tokens,
        tokens_per_second=tokens / (ended - begun) if ended > begun else 0.0,
        first_token_ms=Percentiles.of_seconds(sample.first_token_s for sample in samples),
        per_token_ms=Percentiles.of_seconds(
            sample.per_token_s for sample in samples if sample.per_token_s is not None
        ),
        request_ms=Percentiles.of_seconds(sample.total_s for sample in samples),
        acceptance_rate=sum(sample.accepted for sample in samples) / drafted if drafted else None,
        acceptance_length=sum(sample.emitted for sample in samples) / rounds if rounds else None,
        k=sum(sample.depths for sample in samples) / passes if passes else None,
        k_by_second=_k_by_second(samples, begun, ended),
    )


def _k_by_second(samples: Sequence[Sample], begun: float, ended: float) -> list[float | None]:
    found: list[float | None] = []
    for second in range(int(ended - begun)):
        opens, closes = begun + second, begun + second + 1
        running = [
            sample.k
            for sample in samples
            if sample.k is not None and sample.started < closes and sample.ended > opens
        ]
        found.append(statistics.fmean(running) if running else None)
    return found


def read_samples(path: Path) -> tuple[list[Sample], Counter[str]]:
    """Samples, and failures by their messages, as the Locust process wrote them."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    return [Sample(**sample) for sample in stored["samples"]], Counter(stored["failures"])


def write_samples(path: Path, samples: Sequence[Sample], failures: Mapping[str, int]) -> None:
    """The reverse of `read_samples`."""
    stored = {"samples": [asdict(sample) for sample in samples], "failures": dict(failures)}
    path.write_text(json.dumps(stored), encoding="utf-8")
