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

NO_SPECULATION = Speculation("", 0, 0, 0, 0, 0, 0, True)


@dataclass(frozen=True)
class Sample:
    """One request as its user saw it; times in seconds.

    started: since the epoch, so that all workers' samples share a clock.
    first_token_s: from the request to the first token.
    tokens: emitted tokens. Times per output token need two.
    speculation: as the response tells it; with no counts where it has no such block.
    """

    started: float
    total_s: float
    first_token_s: float
    tokens: int
    speculation: Speculation = NO_SPECULATION

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Sample:
        """The reverse of `dataclasses.asdict`."""
        return cls(**{**stored, "speculation": Speculation(**stored["speculation"])})

    @property
    def per_token_s(self) -> float | None:
        """Seconds between tokens behind the first one; None where there is no second token."""
        return (self.total_s - self.first_token_s) / (self.tokens - 1) if self.tokens > 1 else None

    @property
    def ended(self) -> float:
        """When the last token was there."""
        return self.started + self.total_s

    @property
    def depths(self) -> int:
        """Sum over rounds of the depth that the tree reached."""
        return sum(self.speculation.drafted_per_position)

    @property
    def k(self) -> float | None:
        """Mean depth over target passes, those of K=0 among them; None without a pass."""
        passes = self.speculation.passes
        return self.depths / passes if passes else None

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
    told = [sample.speculation for sample in samples]
    drafted = sum(each.drafted for each in told)
    rounds = sum(each.rounds for each in told)
    passes = sum(each.passes for each in told)
    methods = sorted({each.method for each in told if each.method})
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
        acceptance_rate=sum(each.accepted for each in told) / drafted if drafted else None,
        acceptance_length=sum(each.emitted for each in told) / rounds if rounds else None,
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
    return [Sample.from_json(sample) for sample in stored["samples"]], Counter(stored["failures"])


def write_samples(path: Path, samples: Sequence[Sample], failures: Mapping[str, int]) -> None:
    """The reverse of `read_samples`."""
    stored = {"samples": [asdict(sample) for sample in samples], "failures": dict(failures)}
    path.write_text(json.dumps(stored), encoding="utf-8")
