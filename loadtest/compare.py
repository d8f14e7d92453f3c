"""`python -m loadtest.compare`: the same load with and without speculation, one Locust run each."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest import report
from outrider import Client
from outrider.cli import provenance
from outrider.cli.cluster import Cluster
from outrider.cli.console import ending_well
from outrider.cli.processes import ClusterError

LOCUSTFILE = Path(__file__).parent / "locustfile.py"
TABLE_WIDTH = 110  # in files and logs; 80 cuts columns off
STOP_S = 120  # requests that are running when the time is over may end


class LoadtestError(ClusterError):
    """A run gave no figures; the message is for the user."""


@dataclass(frozen=True)
class Load:
    """What all runs of a comparison share."""

    address: str
    seconds: int
    max_tokens: int
    temperature: float
    method: str
    k: int
    prompts: str | None


def run_cell(load: Load, users: int, speculation: bool, folder: Path) -> report.Cell:
    """One Locust process from start to end.

    Raises:
        LoadtestError: it stored no samples; the message has its last lines.
    """
    samples = folder / f"{users}-{speculation}.json"
    command = [
        *(sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary"),
        *("--users", str(users), "--spawn-rate", str(users), "--run-time", f"{load.seconds}s"),
        *("--stop-timeout", str(STOP_S), "--host", load.address, "--exit-code-on-error", "0"),
        *("--max-tokens", str(load.max_tokens), "--temperature", str(load.temperature)),
        *("--k", str(load.k if speculation else 0), "--samples", str(samples)),
    ]
    if load.method:
        command += ["--method", load.method]
    if load.prompts:
        command += ["--prompts", load.prompts]
    limit_s = load.seconds + STOP_S + 60
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    if not samples.exists():
        raise LoadtestError(
            f"locust stored no samples (status {done.returncode}): {done.stderr[-2000:]}"
        )
    return report.summarise(users, speculation, *report.read_samples(samples))


@contextmanager
def serving(address: str | None, target: str, dtype: str) -> Iterator[str]:
    """The given address, or that of a cluster that lives as long as the block."""
    if address:
        yield address
    else:
        with Cluster(target=target, dtype=dtype) as cluster:
            yield cluster.address


def compare(load: Load, users: Sequence[int], console: Console) -> list[report.Cell]:
    """Every number of users, plain first, then with speculation."""
    with Client(
        load.address
    ) as client:  # what the first request of all has to wait for is no part of a run
        client.generate("Once upon a time", max_tokens=8, temperature=0.0)
    cells = []
    with tempfile.TemporaryDirectory() as folder:
        for count in users:
            for speculation in (False, True):
                label = "with speculation" if speculation else "plain"
                console.print(f"{count} users, {label}, {load.seconds} s ...")
                cells.append(run_cell(load, count, speculation, Path(folder)))
    return cells


def main(
    address: Annotated[
        str | None, typer.Option(help="HOST:PORT; without it, a cluster of its own")
    ] = None,
    users: Annotated[list[int] | None, typer.Option(help="numbers of users [default: 1 8]")] = None,
    seconds: Annotated[int, typer.Option(min=1, help="length of each run")] = 60,
    method: Annotated[str, typer.Option(help="drafter; the server's choice without it")] = "",
    k: Annotated[int, typer.Option(help="fixed depth; -1 is the drafter's own")] = -1,
    max_tokens: Annotated[int, typer.Option(min=1, help="tokens per request")] = 48,
    temperature: Annotated[float, typer.Option(min=0.0)] = 0.0,
    prompts: Annotated[
        str | None, typer.Option(help="JSONL file as bench takes, or a folder")
    ] = None,
    target: Annotated[str, typer.Option(help="model of the own cluster")] = "default",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or int8")] = "auto",
    out: Annotated[Path, typer.Option(help="where the result is stored")] = Path(
        "build/loadtest.json"
    ),
) -> None:
    """Compares the same load with and without speculation; exit status 1 where a request failed."""
    console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH)
    with ending_well(), serving(address, target, dtype) as served:
        load = Load(served, seconds, max_tokens, temperature, method, k, prompts)
        cells = compare(load, users or [1, 8], console)
        with Client(served) as client:
            model = client.info().model
    run = {"model": model.name, "dtype": model.numerics.label, **provenance.facts()}
    report.write_result(out, run, cells)
    console.print(report.table(cells))
    console.print(f"{model.name}, {model.numerics.label}, {run['machine']['cpu']}; stored in {out}")
    if any(cell.failures or not cell.requests for cell in cells):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
