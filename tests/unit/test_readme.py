"""README's numbers are those of the stored results."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tables_of_the_readme_are_those_of_the_stored_results() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "readme_table.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run scripts/readme_table.py"


def test_model_cards_tell_the_stored_figures() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "checkpoints.py"), "cards", "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run scripts/checkpoints.py cards"


def test_shipped_checkpoints_are_small() -> None:
    sizes = [path.stat().st_size for path in (ROOT / "checkpoints").glob("*/*.safetensors")]
    assert max(sizes) <= 20e6
    assert sum(sizes) <= 40e6
    data = [path.stat().st_size for path in (ROOT / "checkpoints" / "data").iterdir()]
    assert sum(data) <= 10e6


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150
