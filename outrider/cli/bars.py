"""Progress bars on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich import progress as bars

from outrider.cli.console import err


class Show(Protocol):
    """Told how far a stage is; a note stands behind its bar."""

    def __call__(self, stage: str, done: float, total: float, note: str = "") -> None: ...


def _columns() -> tuple[bars.ProgressColumn, ...]:
    return (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[note]}"),
    )


@contextmanager
def staged() -> Iterator[Show]:
    """A bar for each stage that is told."""
    with bars.Progress(*_columns(), console=err()) as shown:
        tasks: dict[str, bars.TaskID] = {}

        def show(stage: str, done: float, total: float, note: str = "") -> None:
            if stage not in tasks:
                tasks[stage] = shown.add_task(stage, total=total, note=note)
            shown.update(tasks[stage], completed=done, total=total, note=note)

        yield show
