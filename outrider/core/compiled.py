"""How kernels are compiled.

No fast-math flag is given: products and sums stand as written, rounded one by one as IEEE 754 says,
so a kernel gives the same bits on every processor, whatever vectors the compiler makes of it.
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


def inline(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """A part of kernels, put in their place."""
    compiled = numba.njit(nogil=True, cache=True, inline="always")(function)
    return cast(Callable[_Arguments, _Result], compiled)
