"""Scales of keys and values that are kept as bytes: float32 that lie among the bytes themselves."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from outrider.core.compiled import fused
from outrider.models.lean.instructions import FLOATS, WIDTH
from outrider.models.pool import SCALE_BYTES


@intrinsic
def _put(typingctx: Any, array: Any, byte: Any, value: Any) -> Any:
    """Writes a float32 into bytes byte to byte + 4 of a contiguous int8 array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, array, args, ir.FloatType())
        builder.store(args[2], place, align=SCALE_BYTES)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.float32), codegen


@intrinsic
def _get(typingctx: Any, array: Any, byte: Any) -> Any:
    """The float32 in bytes byte to byte + 4 of a contiguous int8 array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, array, args, ir.FloatType())
        return builder.load(place, align=SCALE_BYTES)

    return types.float32(array, types.intp), codegen


@intrinsic
def _multiply(typingctx: Any, kept: Any, byte: Any, values: Any, at: Any) -> Any:
    """values[at : at + 16] *= the float32 in kept from `byte` on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scales = builder.load(_place(context, builder, kept, args, FLOATS), align=SCALE_BYTES)
        place = _place(context, builder, values, args[2:], FLOATS)
        product = builder.fmul(builder.load(place, align=4), scales)
        builder.store(product, place, align=4)
        return context.get_dummy_value()

    return types.void(kept, types.intp, values, types.intp), codegen


def _place(context: Any, builder: Any, array: Any, args: Any, kind: Any) -> Any:
    data = context.make_array(array)(context, builder, args[0]).data
    return builder.bitcast(builder.gep(data, [args[1]]), ir.PointerType(kind))


@fused
def _times(values, at, apart, lines, kept, first, count):
    """`times_scales` where there are scales."""
    whole = count // WIDTH * WIDTH
    for line in range(lines):
        start = at + line * apart
        for i in range(0, whole, WIDTH):
            _multiply(kept, first + i * SCALE_BYTES, values, start + i)
        for i in range(whole, count):
            values[start + i] *= _get(kept, first + i * SCALE_BYTES)


def keep_scale(kept: Any, at: int, scale: float) -> None:
    """Writes a float32 into kept [n] of int8, from byte `at` on; others keep no scale."""
    raise NotImplementedError


@overload(keep_scale, inline="always")
def _keep_scale(kept, at, scale):
    if kept.dtype == types.int8:
        return lambda kept, at, scale: _put(kept, at, scale)
    return lambda kept, at, scale: None


def times_scales(
    values: Any, at: int, apart: int, lines: int, kept: Any, first: int, count: int
) -> None:
    """values[at + l apart :][:count] *= the scales [count] in kept from byte `first` on, for each
    l < lines; nothing where kept is not int8."""
    raise NotImplementedError


@overload(times_scales, inline="always")
def _times_scales(values, at, apart, lines, kept, first, count):
    if kept.dtype == types.int8:
        return lambda values, at, apart, lines, kept, first, count: _times(
            values, at, apart, lines, kept, first, count
        )
    return lambda values, at, apart, lines, kept, first, count: None
