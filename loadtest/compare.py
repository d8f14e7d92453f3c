"""`python -m loadtest.compare`: the grid of load tests, a Locust run a cell.

Settings {plain, K=2, 4, 8, adaptive} by users by the target's batch limit by kind of prompt. Every
cell is stored as it ends (`cells.jsonl` in the folder of results); a second call with the same
options at the same commit goes on where the first one ended. At the end come `grid.json`,
`grid.csv`, `grid.md` and, where matplotlib is installed, `throughput.png`, `latency.png` and
`k.png`. It takes cells times seconds, and some seconds more for each; `--quick` is a smoke test of
less than five minutes. Each batch limit has a cluster of its own; a given `--address` has its own
limit, which is not varied.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from loadtest import grid, plots, tables
from loadtest.grid import Cell
from loadtest.log import Log
from loadtest.options import Device, Drafters, Dtype, Fresh, Method, Target
from loadtest.runs import Load, Served, batch_limit, run_locust, warm_up
from outrider import Client
from outrider.cli import provenance
from outrider.cli.bars import Show, staged
from outrider.cli.console import ending_well, err
from outrider.files import replace_json

THREADS = ("OMP_NUM_THREADS", "GOMP_SPINCOUNT")
TABLE_WIDTH = 130  # in files and logs; 80 cuts columns off
FULL: dict[str, Sequence[Any]] = {
    "settings": tuple(grid.SETTINGS),
    "users": grid.USERS,
    "batches": grid.BATCHES,
    "kinds": tuple(grid.TEMPERATURES),
}
QUICK: dict[str, Sequence[Any]] = {
    "settings": ("plain", "k4", "adaptive"),
    "users": (1, 8),
    "batches": (4,),
    "kinds": ("code", "creative"),
}
SECONDS, QUICK_SECONDS = 20, 5


def run(
    cells: Sequence[Cell], log: Log, load: Load, served: Served, address: str | None, show: Show
) -> None:
    """Runs the cells that the log lacks."""
    missing = [cell for cell in cells if cell.key not in log]
    done = len(cells) - len(missing)
    show("grid", done, len(cells))
    for batch, mine in groupby(missing, key=lambda cell: cell.batch):
        show("grid", done, len(cells), "starting a cluster" if address is None else "")
        with batch_limit(served, batch, address) as reached:
            todo = list(mine)
            warm_up(reached, load, list(dict.fromkeys(cell.setting for cell in todo)))
            for cell in todo:
                show("grid", done, len(cells), cell.key)
                temperature = grid.TEMPERATURES[cell.kind]
                figures = run_locust(
                    reached, load, cell.setting, cell.users, cell.prompts, temperature
                )
                with Client(reached) as client:
                    model = client.info().model
                about = {"model": model.name, "numerics": model.numerics.label}
                log.add(cell.key, {**asdict(cell), **asdict(figures), **about})
                done += 1
    show("grid", done, len(cells))


def write_results(folder: Path, about: dict[str, Any], rows: Sequence[tables.Row]) -> None:
    """Everything that is made of the cells; a word where there are no plots."""
    replace_json(folder / "grid.json", {"run": about, "cells": list(rows)}, indent=2)
    tables.write_csv(folder / "grid.csv", rows)
    (folder / "grid.md").write_text(tables.markdown(rows), encoding="utf-8")
    try:
        plots.draw(folder, rows)
    except ValueError as error:
        err().print(str(error))


def main(
    quick: Annotated[bool, typer.Option("--quick", help="a small grid, within 5 minutes")] = False,
    address: Annotated[
        str | None, typer.Option(help="HOST:PORT; without it, clusters of its own")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--setting", help="plain, k2, k4, k8, adaptive")
    ] = None,
    users: Annotated[list[int] | None, typer.Option(help="numbers of users")] = None,
    batches: Annotated[
        list[int] | None, typer.Option("--batch", help="the target's --max-batch")
    ] = None,
    kinds: Annotated[
        list[str] | None, typer.Option("--kind", help="code, chat, creative (at temperature 1)")
    ] = None,
    seconds: Annotated[
        int | None, typer.Option(min=1, help="length of each run [default: 20, quick: 5]")
    ] = None,
    method: Method = "",
    max_tokens: Annotated[int, typer.Option(min=1, help="tokens per request")] = 48,
    target: Target = "default",
    drafter: Drafters = None,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    out: Annotated[Path, typer.Option(help="folder of the results")] = Path("build/loadtest"),
    fresh: Fresh = False,
) -> None:
    """Runs the grid; exit status 1 where a request failed. --setting, --users, --batch, --kind may
    be repeated.
    """
    with ending_well():
        given = {"settings": settings, "users": users, "batches": batches, "kinds": kinds}
        axes: dict[str, Any] = {
            **(QUICK if quick else FULL),
            **{name: v for name, v in given.items() if v},
        }
        if address is not None:
            if batches:
                raise ValueError("batch: a given address has a limit of its own; leave one out")
            axes["batches"] = (None,)
        cells = grid.cells(**axes)
        load = Load(seconds or (QUICK_SECONDS if quick else SECONDS), max_tokens, method)
        served = Served(target, tuple(drafter) if drafter else None, dtype, device)
        about = {**asdict(load), **asdict(served), "address": address}
        log = open_log(out / "cells.jsonl", about, fresh=fresh)
        with staged() as show:
            run(cells, log, load, served, address, show)
        rows = [log[cell.key] for cell in cells]
        write_results(out, {**about, **provenance.facts()}, rows)
    console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH)
    console.print(tables.table(rows))
    console.print(f"stored in {out}")
    if any(row["failures"] or not row["requests"] for row in rows):
        raise typer.Exit(1)


def open_log(path: Path, about: dict[str, Any], *, fresh: bool) -> Log:
    """The log of runs made so, at this commit, with what the user set for threads."""
    if fresh:
        path.unlink(missing_ok=True)
    threads = {name: os.environ.get(name) for name in THREADS}
    return Log(path, {**about, **threads, "commit": provenance.commit()})


if __name__ == "__main__":
    typer.run(main)
