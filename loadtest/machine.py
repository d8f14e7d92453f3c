"""What a stored figure must say about where it comes from."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("outrider", "torch", "transformers", "grpcio", "locust")
ROOT = Path(__file__).parent.parent


def describe() -> dict[str, Any]:
    """Versions, commit (ending in -dirty where changed, empty outside a checkout), command line, machine."""
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "commit": commit(),
        "command": shlex.join(sys.orig_argv),
        "machine": {"cpu": cpu(), "cores": os.cpu_count(), "system": platform.platform()},
    }


def commit(root: Path = ROOT) -> str:
    """The checked-out commit."""
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def cpu() -> str:
    """The processor's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
