"""Draws the grid: throughput and time per token against users, and K as a run went on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from loadtest.tables import Row

Line = tuple[Sequence[float], Sequence[float], str, str]
"""x, y, label, and matplotlib's line style."""


def draw(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """Writes throughput.png, latency.png and k.png: a field for each kind and batch limit.

    Raises:
        ValueError: matplotlib is not installed.
        OSError: a file cannot be written.
    """
    pictures: tuple[tuple[str, str, str, Callable[[Sequence[Row]], list[Line]]], ...] = (
        ("throughput", "users", "tokens/s", _throughput),
        ("latency", "users", "ms per token, p50 and p95 (dashed)", _latency),
        ("k", "s", "K, mean over passes", _depths),
    )
    return [_picture(folder / f"{name}.png", rows, x, y, lines) for name, x, y, lines in pictures]


def _picture(
    path: Path, rows: Sequence[Row], x: str, y: str, lines: Callable[[Sequence[Row]], list[Line]]
) -> Path:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("plots: need matplotlib, pip install 'outrider[plot]'") from error
    kinds, batches = _values(rows, "kind"), _values(rows, "batch")
    size = (4.2 * len(batches), 3.2 * len(kinds))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    fields = figure.subplots(len(kinds), len(batches), squeeze=False)
    for kind, line in zip(kinds, fields, strict=True):
        for batch, field in zip(batches, line, strict=True):
            mine = [row for row in rows if (row["kind"], row["batch"]) == (kind, batch)]
            for xs, ys, label, style in lines(mine):
                field.plot(xs, ys, style, label=label, markersize=3, linewidth=1)
            field.set_title(f"{kind}, {'as served' if batch is None else f'{batch} a step'}")
            field.set_xlabel(x)
            field.set_ylabel(y)
            field.set_ylim(bottom=0)
            if x == "users":
                field.set_xscale("log", base=2)
                users = _values(mine, "users")
                field.set_xticks(users, [str(count) for count in users])
            if field.get_legend_handles_labels()[0]:
                field.legend(fontsize="x-small")
    figure.savefig(path, format="png", dpi=110)
    return path


def _throughput(rows: Sequence[Row]) -> list[Line]:
    return [
        ([row["users"] for row in mine], [row["tokens_per_second"] for row in mine], setting, "o-")
        for setting, mine in _by_setting(rows)
    ]


def _latency(rows: Sequence[Row]) -> list[Line]:
    lines: list[Line] = []
    for index, (setting, mine) in enumerate(_by_setting(rows)):
        for p, style in (("p50", "o-"), ("p95", "o--")):
            seen = [row for row in mine if row["per_token_ms"][p] is not None]
            users = [row["users"] for row in seen]
            label = setting if p == "p50" else "_"
            times = [row["per_token_ms"][p] for row in seen]
            lines.append((users, times, label, f"C{index}{style}"))
    return lines


def _depths(rows: Sequence[Row]) -> list[Line]:
    lines: list[Line] = []
    for row in rows:
        if row["setting"] == "adaptive":
            seen = [(second, k) for second, k in enumerate(row["k_by_second"]) if k is not None]
            seconds, depths = [second for second, _ in seen], [k for _, k in seen]
            lines.append((seconds, depths, f"{row['users']} users", "-"))
    return lines


def _by_setting(rows: Sequence[Row]) -> Iterable[tuple[str, list[Row]]]:
    for setting in _values(rows, "setting"):
        yield setting, [row for row in rows if row["setting"] == setting]


def _values(rows: Sequence[Row], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))
