"""A log of finished runs: JSON lines, so that a second call goes on where the first one ended.

Each row is on the disk before the next run begins. A line that was cut off, by a kill in the middle
of writing it, is passed over: its run counts as not done.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read(path: Path) -> list[dict[str, Any]]:
    """The whole rows of a log in the order in which they were written; none without a file."""
    if not path.exists():
        return []
    return [row for line in path.read_bytes().splitlines() if (row := _row(line)) is not None]


def append(path: Path, row: Mapping[str, Any]) -> None:
    """Adds a row, which is on the disk once this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        begins = "\n" if _cut_off(file) else ""
        file.write(f"{begins}{json.dumps(row)}\n".encode())
        file.flush()
        os.fsync(file.fileno())


class Log:
    """Runs by key, under one configuration: rows of another one stay in the file, unread.

    Args:
        path: the file; made with the first row.
        config: all that a run's figures depend on besides its key, the commit among it.
    """

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self.path = path
        self._config = json.loads(json.dumps(config))  # as it will be read back
        self._runs = {
            row["key"]: row["run"] for row in read(path) if row.get("config") == self._config
        }

    def __contains__(self, key: str) -> bool:
        return key in self._runs

    def __getitem__(self, key: str) -> dict[str, Any]:
        run: dict[str, Any] = self._runs[key]
        return run

    def add(self, key: str, run: Mapping[str, Any]) -> None:
        """Stores a run that has ended."""
        append(self.path, {"key": key, "config": self._config, "run": run})
        self._runs[key] = json.loads(json.dumps(run))


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _cut_off(file: Any) -> bool:
    if file.seek(0, os.SEEK_END) == 0:
        return False
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) != b"\n")
