"""The grid's results for spreadsheets and for people."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

COLUMNS = (
    "setting",
    "users",
    "batch",
    "kind",
    "method",
    "requests",
    "failures",
    "window_s",
    "tokens",
    "tokens_per_second",
    "first_token_ms_p50",
    "first_token_ms_p95",
    "per_token_ms_p50",
    "per_token_ms_p95",
    "request_ms_p50",
    "request_ms_p95",
    "acceptance_rate",
    "acceptance_length",
    "k",
)
TIMES = ("first_token_ms", "per_token_ms", "request_ms")
HEADINGS = (
    *("kind", "batch", "users", "setting", "tokens/s", "over plain", "first token", "per token"),
    *("acc. rate", "acc. length", "K", "failed"),
)
NAMES = 4  # columns of names, on the left

Row = Mapping[str, Any]
"""A cell's fields and its run's figures, side by side."""


def write_csv(path: Path, rows: Iterable[Row]) -> None:
    """One line a cell; times in milliseconds, empty where there is no value."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            spread = {f"{name}_{p}": row[name][p] for name in TIMES for p in ("p50", "p95")}
            writer.writerow({**row, **spread})


def table(rows: Sequence[Row]) -> Table:
    """For the terminal."""
    made = Table(caption="times: p50 / p95 in ms")
    for index, heading in enumerate(HEADINGS):
        made.add_column(heading, justify="left" if index < NAMES else "right")
    for cells in _texts(rows):
        made.add_row(*cells)
    return made


def markdown(rows: Sequence[Row]) -> str:
    """The same as Markdown; ends with a newline."""
    sides = ["---"] * NAMES + ["---:"] * (len(HEADINGS) - NAMES)
    lines = [HEADINGS, sides, *_texts(rows)]
    table_lines = (f"| {' | '.join(cells)} |" for cells in lines)
    return "\n".join(table_lines) + "\n\nTimes: p50 / p95 in milliseconds.\n"


def _texts(rows: Sequence[Row]) -> list[list[str]]:
    plain = {_group(row): row["tokens_per_second"] for row in rows if row["setting"] == "plain"}
    return [
        [
            row["kind"],
            "server's" if row["batch"] is None else str(row["batch"]),
            str(row["users"]),
            row["setting"],
            f"{row['tokens_per_second']:.1f}",
            _over(row["tokens_per_second"], plain.get(_group(row))),
            _times(row["first_token_ms"]),
            _times(row["per_token_ms"]),
            number(row["acceptance_rate"], 2),
            number(row["acceptance_length"], 2),
            number(row["k"], 2),
            str(row["failures"]),
        ]
        for row in rows
    ]


def _group(row: Row) -> tuple[Any, ...]:
    return row["kind"], row["batch"], row["users"]


def _over(rate: float, plain: float | None) -> str:
    return f"{rate / plain:.2f}" if plain else "-"


def _times(ms: Mapping[str, float | None]) -> str:
    return f"{number(ms['p50'], 0)} / {number(ms['p95'], 0)}"


def number(value: float | None, digits: int) -> str:
    """With so many digits behind the point; a dash for None."""
    return "-" if value is None else f"{value:.{digits}f}"
