"""Where Outrider keeps files of its own."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """The cache folder: OUTRIDER_HOME, or `outrider` in the user's cache folder.

    Raises:
        RuntimeError: the user has no home folder, and neither variable names another.
    """
    named = os.environ.get("OUTRIDER_HOME")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outrider"
