"""Resident memory of processes, and whether it grows."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
WARM = (0.2, 0.3)  # share of the requests done: what counts as warmed up
END = 0.9


def resident_mib(pid: int) -> float:
    """Resident memory of a process, MiB.

    Raises:
        ProcessLookupError: there is no such process.
    """
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except FileNotFoundError:
        raise ProcessLookupError(f"pid: {pid} has ended") from None
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


@dataclass(frozen=True)
class Sample:
    """Memory of every process once a share of the requests (0 to 1) was done."""

    share: float
    mib: Mapping[str, float]


def growth(samples: Sequence[Sample], name: str) -> tuple[float, float]:
    """(warm MiB, growth in percent from there to the end) of a process, medians of the samples.

    Raises:
        ValueError: nothing was sampled when it was warm, or at the end.
    """
    warm = [each.mib[name] for each in samples if WARM[0] <= each.share <= WARM[1]]
    end = [each.mib[name] for each in samples if each.share >= END]
    if not warm or not end:
        raise ValueError(f"samples: none of {name} warm or at the end; ask for more requests")
    before = statistics.median(warm)
    return before, (statistics.median(end) / before - 1) * 100


def thinned(samples: Sequence[Sample], most: int) -> list[Sample]:
    """At most `most` of the samples, evenly, the first and the last among them."""
    count = min(most, len(samples))
    return [samples[i * (len(samples) - 1) // max(1, count - 1)] for i in range(count)]
