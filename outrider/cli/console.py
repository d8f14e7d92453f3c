"""Where commands write, and how they end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer
from rich.console import Console

from outrider.cli.processes import ClusterError
from outrider.exceptions import OutriderError

INTERRUPTED = 130


def out() -> Console:
    """Results: standard output."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def err() -> Console:
    """Everything else: standard error."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


@contextmanager
def ending_well(interrupted_status: int = INTERRUPTED) -> Iterator[None]:
    """Turns the errors that users can do something about into one message and exit status 1.

    SIGTERM is taken for a Ctrl-C within the block, so that whatever was started is stopped.
    """
    before = signal.signal(signal.SIGTERM, _as_ctrl_c)
    try:
        yield
    except (ClusterError, OutriderError, OSError, ValueError) as error:
        err().print(f"error: {error}", style="red")
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(interrupted_status) from error
    finally:
        signal.signal(signal.SIGTERM, before)


def _as_ctrl_c(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
