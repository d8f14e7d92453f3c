"""Numbers inside Numba kernels: bits of floats, an exponential, and stores by dtype.

bfloat16 travels as uint16, since NumPy has no such type. Everything here is inlined into the loops
that use it, and written so that LLVM turns those loops into vector code: no calls, no branches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from outrider.core.compiled import fused, fused_inline

_MAGIC = np.float32(12582912.0)  # 1.5 * 2^23: adding it leaves the nearest integer in the low bits
_MAGIC_BITS = np.int32(0x4B400000)
_LOG2E = np.float32(1.4426950408889634)
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(-2.12194440e-4)
_LEAST = np.float32(-87.0)


@intrinsic
def as_float(typingctx: Any, bits: Any) -> Any:
    """The float32 that has the bits of an int32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), codegen


@intrinsic
def as_bits(typingctx: Any, value: Any) -> Any:
    """The bits of a float32, as an int32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(32))

    return types.int32(types.float32), codegen


@fused_inline
def nearest(x):
    """The integer nearest to a float32 of magnitude below 2^22, ties to even, as int32."""
    return np.int32(as_bits(np.float32(x + _MAGIC)) - _MAGIC_BITS)


@fused_inline
def exponential(x):
    """exp(x) in float32 for x from -87 (below: as there) to 88, within 2 units in the last place.

    exp(x) = 2^n exp(r) with r = x - n log 2 (log 2 in two parts) and the polynomial of Cephes'
    expf.
    """
    x = max(x, _LEAST)
    n = nearest(np.float32(x * _LOG2E))
    whole = np.float32(n)
    r = np.float32(x - whole * _LN2_HIGH)
    r = np.float32(r - whole * _LN2_LOW)
    p = np.float32(1.9875691500e-4)
    p = np.float32(p * r + np.float32(1.3981999507e-3))
    p = np.float32(p * r + np.float32(8.3334519073e-3))
    p = np.float32(p * r + np.float32(4.1665795894e-2))
    p = np.float32(p * r + np.float32(1.6666665459e-1))
    p = np.float32(p * r + np.float32(5.0000001201e-1))
    p = np.float32(p * r * r + r + np.float32(1.0))
    return as_float(np.int32(as_bits(p) + (n << np.int32(23))))


@fused_inline
def to_bfloat16(x):
    """The bfloat16 nearest to a finite float32, ties to even, as uint16."""
    bits = as_bits(np.float32(x))
    return np.uint16(
        (bits + np.int32(0x7FFF) + ((bits >> np.int32(16)) & np.int32(1))) >> np.int32(16)
    )


def load_row(values: Any, out: Any) -> None:
    """Writes values [n] of float32 or bfloat16 into out [n] of float32."""
    half = values.dtype == np.uint16
    out[:] = (values.astype(np.uint32) << np.uint32(16)).view(np.float32) if half else values


@overload(load_row, inline="always")
def _load_row(values, out):
    if values.dtype == types.uint16:

        def widened(values, out):
            for i in range(values.shape[0]):
                out[i] = as_float(np.int32(values[i]) << np.int32(16))

        return widened

    def copied(values, out):
        for i in range(values.shape[0]):
            out[i] = values[i]

    return copied


def store_row(values: Any, out: Any) -> float:
    """Writes float32 values [n] into out [n] of float32, bfloat16, int8 or uint8; returns their
    scale.

    uint8 holds a signed byte plus 128, as the products of `lean.products` take it; of bytes the
    largest magnitude becomes 127. The scale is 1 for the others.
    """
    raise NotImplementedError


@fused_inline
def _largest(values):
    """The largest magnitude in values [n]."""
    largest = np.int32(0)
    for i in range(values.shape[0]):  # magnitudes order like their bits
        largest = max(largest, as_bits(values[i]) & np.int32(0x7FFFFFFF))
    return as_float(largest)


@fused_inline
def _steps(largest):
    """Steps a unit, where `largest` becomes 127 of them."""
    return np.float32(127.0) / max(largest, np.float32(1e-30))


@fused
def _store_signed(values, out):
    """`store_row` for int8."""
    largest = _largest(values)
    inverse = _steps(largest)
    for i in range(values.shape[0]):
        out[i] = np.int8(nearest(np.float32(values[i] * inverse)))
    return np.float32(largest * np.float32(1.0 / 127.0))


@overload(store_row, inline="always")
def _store_row(values, out):
    if out.dtype == types.int8:  # a call: put in place twice, Numba loses sight of its variables
        return lambda values, out: _store_signed(values, out)
    if out.dtype == types.uint8:

        def quantised(values, out):
            largest = _largest(values)
            inverse = _steps(largest)
            for i in range(values.shape[0]):
                out[i] = np.uint8(nearest(np.float32(values[i] * inverse)) + np.int32(128))
            return np.float32(largest * np.float32(1.0 / 127.0))

        return quantised
    if out.dtype == types.uint16:

        def narrowed(values, out):
            for i in range(values.shape[0]):
                out[i] = to_bfloat16(values[i])
            return np.float32(1.0)

        return narrowed

    def copied(values, out):
        for i in range(values.shape[0]):
            out[i] = values[i]
        return np.float32(1.0)

    return copied
