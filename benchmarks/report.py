"""What every benchmark's command line, table and result file have in common."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from outrider.cli import provenance
from outrider.files import replace_json

RESULTS = Path(__file__).parent / "results"
TABLE_WIDTH = 140  # in files and logs; 80 cuts columns off


@dataclass(frozen=True)
class Limit:
    """A figure that must not pass a bound.

    Args:
        name: what was measured.
        value: what came out.
        bound: that it must keep.
        least: the bound is the least value rather than the greatest.
    """

    name: str
    value: float
    bound: float
    least: bool = False

    @property
    def kept(self) -> bool:
        """Whether the value keeps the bound."""
        return self.value >= self.bound if self.least else self.value <= self.bound


def parser(description: str | None, result: str) -> argparse.ArgumentParser:
    """A parser that knows --out, by default the result file of that name, and --cores."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--out", type=Path, default=RESULTS / f"{result}.json")
    made.add_argument("--cores", type=int, default=2, help="cores that all processes may use")
    return made


def keep_to(cores: int) -> int:
    """Confines this process and those that it starts to some cores; returns how many it got.

    Raises:
        SystemExit: fewer than one is asked for.
    """
    if cores < 1:
        raise SystemExit(f"cores: {cores}, limit 1 or more")
    chosen = sorted(os.sched_getaffinity(0))[:cores]
    os.sched_setaffinity(0, chosen)
    return len(chosen)


def console() -> Console:
    """Where tables go; wide enough where nobody's screen says how wide it is."""
    made = Console()
    return made if made.is_terminal else Console(width=TABLE_WIDTH)


def progress_console() -> Console:
    """Where progress bars go."""
    return Console(stderr=True)


def limits_table(limits: Iterable[Limit]) -> Table:
    """Limits for people."""
    made = Table("figure", "measured", "limit", "")
    for limit in limits:
        sign = "at least" if limit.least else "at most"
        made.add_row(
            limit.name,
            f"{limit.value:.2f}",
            f"{sign} {limit.bound:g}",
            "kept" if limit.kept else "MISSED",
        )
    return made


def finish(out: Path, run: dict[str, Any], figures: dict[str, Any], limits: list[Limit]) -> int:
    """Stores figures with what they were measured with, prints the limits; 1 where one is missed.

    Args:
        out: the result file.
        run: options that the figures depend on; versions, commit and machine come by themselves.
        figures: by name.
        limits: that the figures must keep.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "run": {
            **run,
            **provenance.facts(),
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        },
        **figures,
        "limits": [{**asdict(limit), "kept": limit.kept} for limit in limits],
    }
    replace_json(out, document, indent=2)
    if limits:
        console().print(limits_table(limits))
    console().print(f"stored in {out}")
    return int(not all(limit.kept for limit in limits))
