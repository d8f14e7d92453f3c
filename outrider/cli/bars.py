"""Progress bars on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as bars

from outrider.cli.console import err
from outrider.models.progress import Progress

Show = Callable[[float, float, str], None]


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
def staged() -> Iterator[Progress]:
    """A bar for each stage that is told."""
    with bars.Progress(*_columns(), console=err()) as shown:
        tasks: dict[str, bars.TaskID] = {}

        def show(stage: str, done: float, total: float) -> None:
            if stage not in tasks:
                tasks[stage] = shown.add_task(stage, total=total, note="")
            shown.update(tasks[stage], completed=done, total=total)

        yield show


@contextmanager
def single(name: str) -> Iterator[Show]:
    """One bar, with a note behind it."""
    with bars.Progress(*_columns(), console=err()) as shown:
        task = shown.add_task(name, total=None, note="")

        def show(done: float, total: float, note: str) -> None:
            shown.update(task, completed=done, total=total, note=note)

        yield show
