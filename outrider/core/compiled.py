"""How kernels are compiled, and where their machine code is kept.

Sums keep the order in which they are written, whatever vectors the compiler makes of them, so the
bits of a result depend on the arguments alone, not on their alignment. `kernel` gives no fast-math
flag: every operation is rounded as IEEE 754 says, the same on every processor. `fused` lets a
product and the sum behind it be one operation, where the processor has it.

Numba's cache looks at a kernel's own file only, though machine code holds parts of other files. So
the code is kept in a folder named after the sources of all of them: a change of any begins anew.
NUMBA_CACHE_DIR names another folder; its owner empties it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from outrider.home import home

try:
    import numba
except ImportError:  # a GPU check on a machine that lacks it: kernels run as Python, slowly
    numba = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

KERNEL_FILES = (
    "core/compiled.py",
    "core/coupling.py",
    "core/likeliest.py",
    "core/nucleus.py",
    "core/weights.py",
    "models/lean/attention.py",
    "models/lean/instructions.py",
    "models/lean/lanes.py",
    "models/lean/matrix_unit.py",
    "models/lean/narrow.py",
    "models/lean/passes.py",
    "models/lean/products.py",
    "models/lean/rotation.py",
    "models/lean/rows.py",
    "models/lean/tiles.py",
    "models/lean/vector.py",
    "models/pool.py",
)
"""Files in the package that machine code is made of; the last holds a constant."""

prange: Any = range if numba is None else numba.prange
_FUSED = {"contract"}
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def kernel(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Compiles at the first call, keeps the machine code on disk, runs without the GIL."""
    return _compiled(function)


def fused(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """`kernel` with fused multiply-add."""
    return _compiled(function, fastmath=_FUSED)


def parallel(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """`fused`, its `prange` loops spread over threads."""
    return _compiled(function, fastmath=_FUSED, parallel=True)


def inline(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """A part of kernels, put in their place."""
    return _compiled(function, inline="always")


def fused_inline(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """A part of `fused` kernels, put in their place."""
    return _compiled(function, fastmath=_FUSED, inline="always")


def _compiled(
    function: Callable[_Arguments, _Result], **flags: Any
) -> Callable[_Arguments, _Result]:
    if numba is None:
        return function
    folder = cache_folder()
    config: Any = numba.config
    # Read while a function is decorated; other users of Numba in this process keep their folder.
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder or "")
    try:
        made = numba.njit(nogil=True, cache=folder is not None, **flags)(function)
    finally:
        config.CACHE_DIR = before
    return cast(Callable[_Arguments, _Result], made)


@cache
def cache_folder() -> Path | None:
    """Where machine code is kept; None, said once, where nothing can be written."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    try:
        folder = Path(named) if named else home() / "kernels" / sources_digest()
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError) as error:
        logger.warning("kernels are compiled at every start, no folder can keep them: %s", error)
        return None
    return folder


def sources_digest(package: Path = Path(__file__).parents[1]) -> str:
    """Names the sources of all kernels: 16 hexadecimal digits.

    Raises:
        OSError: they cannot be read.
    """
    digest = hashlib.sha256()
    for name in KERNEL_FILES:
        source = (package / name).read_bytes()
        digest.update(f"{name} {len(source)}\n".encode() + source)
    return digest.hexdigest()[:16]
