"""The open form of EAGLE-3 against the `speculators` library itself, both ways.

Its pins do not go with ours, so it lives in an environment of its own:

    python -m venv /tmp/speculators
    /tmp/speculators/bin/pip install speculators==0.9.0
    export OUTRIDER_SPECULATORS_PYTHON=/tmp/speculators/bin/python
    python -m pytest tests/integration/test_speculators.py
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from outrider.models.heads.eagle import EagleHead
from outrider.models.heads.eagle_files import load_eagle, save_speculators
from outrider.models.heads.target import TargetParts, target_parts
from tests.heads import tiny_eagle
from tests.tiny import save_tiny

PYTHON = os.environ.get("OUTRIDER_SPECULATORS_PYTHON")
ROWS, STEPS, THEIRS = 12, 3, 3

pytestmark = pytest.mark.skipif(
    PYTHON is None, reason="OUTRIDER_SPECULATORS_PYTHON names no Python that has speculators"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Filled by both sides."""
    folder = tmp_path_factory.mktemp("speculators")
    model = save_tiny(folder / "target", layers=6)
    head = tiny_eagle(model)
    save_speculators(folder / "ours", head, target_parts(str(folder / "target")))
    generator = torch.Generator().manual_seed(0)
    width = 32 * len(head.config.taps)
    text = {
        "tokens": torch.randint(0, 64, (1, ROWS), generator=generator),
        "features": torch.randn(1, ROWS, width, generator=generator),
    }
    save_file(text, folder / "text.safetensors")
    side = Path(__file__).with_name("speculators_side.py")
    done = subprocess.run(
        [str(PYTHON), str(side), str(folder)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def target(folder: Path) -> TargetParts:
    return target_parts(str(folder / "target"))


@torch.no_grad()
def _agrees(head: EagleHead, folder: Path, name: str) -> None:
    """Whether our forward drafts what the library's did, wherever rows count."""
    from safetensors.torch import load_file

    text = load_file(folder / "text.safetensors")
    theirs = json.loads((folder / f"{name}.json").read_text())
    for step, states in enumerate(head.unroll(text["tokens"], text["features"], STEPS)):
        ours = head.logits(states)[0].argmax(-1).tolist()
        counted = ROWS - 1 - step
        assert ours[:counted] == theirs[step][:counted]


def test_what_we_write_loads_there_and_drafts_the_same(folder: Path, target: TargetParts) -> None:
    _agrees(load_eagle(folder / "ours", target), folder, "ours")


@pytest.mark.parametrize("number", range(THEIRS))
def test_what_they_write_loads_here_and_drafts_the_same(
    folder: Path, target: TargetParts, number: int
) -> None:
    head = load_eagle(folder / f"theirs-{number}", target)
    assert head.draft_ids.tolist() == list(range(0, 64, 3))
    _agrees(head, folder, f"theirs-{number}")
