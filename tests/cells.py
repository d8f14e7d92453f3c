"""What the sweeps share: cells run on clusters side by side, each logged as it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from queue import Queue
from typing import Any, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from loadtest.log import append, read
from outrider.cli import provenance
from outrider.cli.cluster import Cluster

FOLDER = Path(__file__).parent / "results"


class Keyed(Protocol):
    """A setting with a name of its own in the log."""

    @property
    def key(self) -> str:
        """Names the cell in the log."""
        ...


C = TypeVar("C", bound=Keyed)


def done(log: Path) -> dict[str, dict[str, Any]]:
    """Finished cells of a log, by key."""
    return {row["key"]: row for row in read(log)}


def progress_bar(console: Console) -> Progress:
    """The bar that sweeps show."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console)


def run_cells(
    cells: Sequence[C],
    check: Callable[[C, str], dict[str, Any]],
    cluster: Callable[[], Cluster],
    jobs: int,
    log: Path,
    advance: Callable[[], None],
) -> None:
    """Runs `check(cell, address)` for all cells on `jobs` clusters side by side.

    Each row that it returns is logged with the commit under which the run began.
    """
    idle: Queue[str] = Queue()
    commit = provenance.commit()

    def work(cell: C) -> dict[str, Any]:
        address = idle.get()
        try:
            return {**check(cell, address), "commit": commit}
        finally:
            idle.put(address)

    with ExitStack() as stack:
        for _ in range(min(jobs, len(cells))):
            idle.put(stack.enter_context(cluster()).address)
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        for future in as_completed([pool.submit(work, cell) for cell in cells]):
            append(log, future.result())
            advance()
