"""Machine code of kernels is kept where a change of any of their sources is seen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import outrider
from outrider.core import compiled

PACKAGE = Path(outrider.__file__).parent
DECORATED = re.compile(r"^@(kernel|fused|parallel|inline|fused_inline|intrinsic|overload)\b", re.M)


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process was told at its start does not count here."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(compiled, "cache_folder", compiled.cache_folder.__wrapped__)


def copied_sources(folder: Path) -> Path:
    for name in compiled.KERNEL_FILES:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((PACKAGE / name).read_bytes())
    return folder


@pytest.mark.parametrize("name", compiled.KERNEL_FILES)
def test_a_change_of_any_source_gives_another_folder(tmp_path: Path, name: str) -> None:
    package = copied_sources(tmp_path)
    assert compiled.sources_digest(package) == compiled.sources_digest()
    (package / name).write_text((package / name).read_text() + "\n")
    assert compiled.sources_digest(package) != compiled.sources_digest()


def test_every_file_with_kernels_is_among_the_sources() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if DECORATED.search(path.read_text())
    }
    assert found
    assert found <= set(compiled.KERNEL_FILES)


def test_no_kernel_goes_around_the_folder() -> None:
    around = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\bn?jit\(|\bimport n?jit\b", path.read_text())
    ]
    assert around == ["core/compiled.py"]


def test_the_folder_lies_in_the_home_under_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_HOME", str(tmp_path))
    assert compiled.cache_folder() == tmp_path / "kernels" / compiled.sources_digest()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "other"))
    assert compiled.cache_folder() == tmp_path / "other"


def test_kernels_are_kept_in_the_folder_and_without_one_they_still_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def twice(x: int) -> int:
        return 2 * x

    monkeypatch.setenv("OUTRIDER_HOME", str(tmp_path))
    assert compiled.kernel(twice)(3) == 6
    assert list((tmp_path / "kernels").rglob("*twice*.nbc"))
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("OUTRIDER_HOME", str(blocked))
    assert compiled.kernel(twice)(4) == 8
    assert "compiled at every start" in caplog.text


def test_the_sdk_comes_without_the_compiler_and_without_torch() -> None:
    code = "import sys, outrider; outrider.Client; print(*sorted(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    loaded = set(out.stdout.split())
    assert "outrider.client" in loaded
    assert not loaded & {"numba", "torch", "transformers"}
