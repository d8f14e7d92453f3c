"""How kernels are compiled.

Sums keep the order in which they are written, whatever vectors the compiler makes of them, so the
bits of a result depend on the arguments alone, not on their alignment. `kernel` gives no fast-math
flag: every operation is rounded as IEEE 754 says, the same on every processor. `fused` lets a
product and the sum behind it be one operation, where the processor has it.
Numba's cache looks at a kernel's own file only, so a kernel calls no kernel of another file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def kernel(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Compiles at the first call, keeps the machine code on disk, runs without the GIL."""
    return cast(Callable[_Arguments, _Result], numba.njit(nogil=True, cache=True)(function))


def fused(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """`kernel` with fused multiply-add."""
    compiled = numba.njit(nogil=True, cache=True, fastmath={"contract"})(function)
    return cast(Callable[_Arguments, _Result], compiled)


def inline(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """A part of kernels, put in their place."""
    compiled = numba.njit(nogil=True, cache=True, inline="always")(function)
    return cast(Callable[_Arguments, _Result], compiled)
