"""Folders that are either whole or not there, what is read back, and who may write."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class TrainingError(ValueError):
    """Something to train from, or with, cannot be used; the message names it and the limit."""


def replace_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Lets `fill` fill a temporary folder, which then takes the place of `path`."""
    temporary = path.with_name(f".{path.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    fill(temporary)
    shutil.rmtree(path, ignore_errors=True)
    temporary.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        TrainingError: there is none.
    """
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise TrainingError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TrainingError(f"{path}: is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise TrainingError(f"{path}: is no JSON object")
    return content


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Makes `folder` and holds it for this process; the lock ends with the process.

    Raises:
        TrainingError: another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainingError(f"{folder}: another process writes to it") from None
        yield
