"""Files that are either whole or not there, whenever the process ends."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def replace(path: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a temporary file beside `path`, then gives it that name."""
    temporary = path.with_name(f".{path.name}.part")
    write(temporary)
    with temporary.open("rb") as handle:
        os.fsync(handle.fileno())
    temporary.replace(path)


def replace_text(path: Path, text: str) -> None:
    """`replace` for a text."""
    replace(path, lambda temporary: _write_text(temporary, text))


def replace_json(path: Path, content: Any, indent: int = 1) -> None:
    """`replace` for a JSON document."""
    replace_text(path, json.dumps(content, indent=indent, ensure_ascii=False) + "\n")


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
