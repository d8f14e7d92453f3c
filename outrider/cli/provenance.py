"""What a measurement was made with."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any

PACKAGES = ("outrider", "torch", "transformers", "numba", "numpy", "grpcio", "protobuf")
SECRETS = re.compile(r"(?<=^--token=).*|(?<=://)[^/@\s]*(?=@)")
FOLDERS = re.compile(r"(^|=)/.*/")  # absolute: they tell of one machine
GIT_S = 10.0


def facts() -> dict[str, Any]:
    """Versions, commit, command line and machine, for a result file."""
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "commit": commit(),
        "command_line": command_line(sys.argv),
        "machine": machine(),
    }


def command_line(argv: Sequence[str]) -> str:
    """The command as it was typed, the token, passwords within URLs and folders of absolute paths
    hidden."""
    shown = [Path(argv[0]).name]
    for before, argument in pairwise(argv):
        hidden = "***" if before == "--token" else SECRETS.sub("***", argument)
        shown.append(FOLDERS.sub(r"\1.../", hidden))
    return shlex.join(shown)


RESULTS = ("benchmarks/results", "tests/results")


def commit() -> str | None:
    """Commit of the source tree, with -dirty behind it where files differ, stored results apart.

    None outside a source tree.
    """
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    head = _git(root, "rev-parse", "HEAD")
    sources = ("--", ".", *(f":!{folder}" for folder in RESULTS))
    if head and _git(root, "status", "--porcelain", "--untracked-files=no", *sources):
        return f"{head}-dirty"
    return head


def machine() -> dict[str, Any]:
    """Processor, cores that may be used, memory and system."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, timeout=GIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
