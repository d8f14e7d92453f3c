"""Sixteen lanes of four bytes in LLVM's terms, and how a processor multiplies and adds them."""

from __future__ import annotations

from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils

WIDTH = 16
INDEX = ir.IntType(64)
FLOATS = ir.VectorType(ir.FloatType(), WIDTH)
INTS = ir.VectorType(ir.IntType(32), WIDTH)
_WORDS = ir.VectorType(ir.IntType(16), 2 * WIDTH)
_WAYS = {1: {"vpdpbusd": "avx512vnni", "vpmaddwd": "avx2"}, 2: {"vdpbf16ps": "avx512bf16"}}

llvmlite.binding.initialize_native_asmparser()


def way(itemsize: int) -> str:
    """How this processor multiplies elements of so many bytes: an instruction, or "plain"."""
    features = llvmlite.binding.get_host_cpu_features()
    ways = _WAYS.get(itemsize, {})
    return next((name for name, needed in ways.items() if features.get(needed)), "plain")


def index(value: int) -> Any:
    """A constant place or distance."""
    return ir.Constant(INDEX, value)


def vector_at(builder: Any, pointer: Any, at: Any, kind: Any) -> Any:
    """The vector of a kind that begins at an element."""
    place = builder.gep(pointer, [at])
    return builder.load(builder.bitcast(place, ir.PointerType(kind)), align=1)


def spread(builder: Any, value: Any) -> Any:
    """A float32 or int32 in every lane."""
    lanes = ir.VectorType(value.type, WIDTH)
    one = builder.insert_element(lanes(ir.Undefined), value, ir.IntType(32)(0))
    return builder.shuffle_vector(one, lanes(ir.Undefined), INTS([0] * WIDTH))


def multiply_add(builder: Any, size: int, total: Any, left: Any, right: Any) -> Any:
    """total + left * right, four bytes a lane, elements of `size` bytes."""
    name = way(size)
    if name in ("vpdpbusd", "vdpbf16ps"):
        kind = ir.FunctionType(total.type, [total.type, INTS, INTS])
        made = ir.InlineAsm(kind, f"{name} $3, $2, $0", "=v,0,v,v")
        return builder.call(made, [total, left, right])
    if size == 4:
        return fused_sum(builder, left, right, total)
    if size == 2:
        for part in (_low_half, _high_half):
            total = fused_sum(builder, part(builder, left), part(builder, right), total)
        return total
    if name == "vpmaddwd":
        for shift in (0, 8):
            one = builder.and_(builder.lshr(left, _same(shift)), _same(0x00FF00FF))
            total = builder.add(total, _pairs(builder, one, _signed(builder, right, shift)))
        return total
    for shift in range(0, 32, 8):
        one = builder.and_(builder.lshr(left, _same(shift)), _same(0xFF))
        other = builder.ashr(builder.shl(right, _same(24 - shift)), _same(24))
        total = builder.add(total, builder.mul(one, other))
    return total


def fused_sum(builder: Any, left: Any, right: Any, total: Any) -> Any:
    """total + left * right as float32, rounded once."""
    kind = ir.FunctionType(FLOATS, [FLOATS] * 3)
    fma = cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.v16f32")
    return builder.call(fma, [builder.bitcast(v, FLOATS) for v in (left, right)] + [total])


def _low_half(builder: Any, pair: Any) -> Any:
    return builder.shl(pair, _same(16))


def _high_half(builder: Any, pair: Any) -> Any:
    return builder.and_(pair, _same(-0x10000))


def _signed(builder: Any, right: Any, shift: int) -> Any:
    """Bytes 0 and 2, or 1 and 3 with a shift of 8, of each lane as signed 16 bits."""
    words, eight = builder.bitcast(right, _WORDS), ir.Constant(_WORDS, [8] * _WORDS.count)
    words = words if shift else builder.shl(words, eight)
    return builder.bitcast(builder.ashr(words, eight), INTS)


def _pairs(builder: Any, left: Any, right: Any) -> Any:
    """Sums of the products of each lane's two signed 16 bits."""
    narrow, out = ir.VectorType(ir.IntType(16), 16), ir.VectorType(ir.IntType(32), 8)
    kind = ir.FunctionType(out, [narrow, narrow])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.pmadd.wd")
    words = [builder.bitcast(value, _WORDS) for value in (left, right)]
    sums = []
    for half in range(2):
        places = ir.Constant(
            ir.VectorType(ir.IntType(32), 16), list(range(16 * half, 16 * half + 16))
        )
        parts = [builder.shuffle_vector(v, _WORDS(ir.Undefined), places) for v in words]
        sums.append(builder.call(function, parts))
    return builder.shuffle_vector(*sums, ir.Constant(INTS, list(range(WIDTH))))


def _same(value: int) -> Any:
    return ir.Constant(INTS, [value] * WIDTH)
