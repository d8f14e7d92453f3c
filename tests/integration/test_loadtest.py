"""The load test's command against a real cluster, and again where it was killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = ("plain", "k2", "adaptive")


def compare(folder: Path) -> str:
    """A small grid; returns what it showed."""
    command = [sys.executable, "-m", "loadtest.compare", "--out", str(folder), "--drafter", "ngram"]
    command += [part for setting in SETTINGS for part in ("--setting", setting)]
    command += ["--kind", "code", "--users", "2", "--seconds", "1", "--max-tokens", "6"]
    command += ["--batch", "2", "--dtype", "float32"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(600)
def test_a_grid_is_measured_and_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    shown = compare(tmp_path)
    assert all(setting in shown for setting in SETTINGS)
    log = tmp_path / "cells.jsonl"
    whole = log.read_bytes()
    cells = json.loads((tmp_path / "grid.json").read_text())["cells"]
    assert [cell["setting"] for cell in cells] == list(SETTINGS)
    assert all(cell["requests"] and not cell["failures"] for cell in cells)
    assert cells[0]["k"] == 0.0
    assert cells[1]["k"] is not None
    assert {"grid.csv", "grid.md"} <= {file.name for file in tmp_path.iterdir()}

    log.write_bytes(whole[:-20])  # a kill within the last line
    compare(tmp_path)
    again = log.read_bytes()
    assert again.startswith(whole[:-20] + b"\n")
    assert again.count(b"\n") == len(SETTINGS) + 1, "one cell was run again"

    compare(tmp_path)
    assert log.read_bytes() == again, "nothing was left to do"
