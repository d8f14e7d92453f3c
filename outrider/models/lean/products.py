"""Products of few rows with large weights, as fast as the weights can be read.

Weights lie in tiles of 32 outputs, in the order in which a tile is worked through: step by step 32
times four bytes, which are one float32, two bfloat16 or four int8 of an output's row. A tile's sums
stay in registers, two vectors for each of up to twelve rows, and each lane adds the steps in their
order. So a row has the same bits whatever rows stand beside it.

int8: bytes plus 128 times signed bytes, added in int32, exactly (VPDPBUSD, or VPMADDWD on 16 bits).
bfloat16: pairs of products added in float32 (VDPBF16PS, or two fused multiply-adds, whose sums are
rounded otherwise). float32: one fused multiply-add a step.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from outrider.core.compiled import parallel

TILE = 32
"""Outputs of a tile; two vectors."""
_LANES = 16
_FLOATS = ir.VectorType(ir.FloatType(), _LANES)
_INTS = ir.VectorType(ir.IntType(32), _LANES)
_WORDS = ir.VectorType(ir.IntType(16), 2 * _LANES)
_INDEX = ir.IntType(64)
_WAYS = {1: {"vpdpbusd": "avx512vnni", "vpmaddwd": "avx2"}, 2: {"vdpbf16ps": "avx512bf16"}}

llvmlite.binding.initialize_native_asmparser()


def way(itemsize: int) -> str:
    """How this processor multiplies elements of so many bytes: an instruction, or "plain"."""
    features = llvmlite.binding.get_host_cpu_features()
    ways = _WAYS.get(itemsize, {})
    return next((name for name, needed in ways.items() if features.get(needed)), "plain")


def tiled(weight: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A weight [outputs, inputs] in the order of its tiles, as one row; zeros fill the last tile
    and the last step."""
    width = 4 // weight.itemsize
    outputs, inputs = whole(weight.shape[0]), -(-weight.shape[1] // width) * width
    filled = np.zeros((outputs, inputs), weight.dtype)
    filled[: weight.shape[0], : weight.shape[1]] = weight
    steps = filled.reshape(outputs // TILE, TILE, inputs // width, width)
    return np.ascontiguousarray(steps.transpose(0, 2, 1, 3)).reshape(-1)


def whole(outputs: int) -> int:
    """Outputs of the tiles that hold so many."""
    return -(-outputs // TILE) * TILE


@parallel
def product(linear, inputs, out):
    """out = inputs times weights.

    linear: weights as `tiled` has them, start and factor. inputs [rows, n] and out [rows, m]
    float32, m in whole tiles. Of bytes, inputs are signed ones plus 128, start [m] int32 is what
    takes that out again, and factor [m] the outputs' scales; others have neither.
    """
    weights, start, factor = linear
    rows = inputs.shape[0]
    for tile in prange(out.shape[1] // TILE):
        row = 0
        while row + 12 <= rows:
            _rows(weights, inputs, start, factor, out, tile, row, 12)
            row += 12
        rest = rows - row
        if rest >= 8:
            _rows(weights, inputs, start, factor, out, tile, row, 8)
            row += 8
            rest -= 8
        if rest >= 6:
            _rows(weights, inputs, start, factor, out, tile, row, 6)
            row += 6
            rest -= 6
        if rest == 5:
            _rows(weights, inputs, start, factor, out, tile, row, 5)
        elif rest == 4:
            _rows(weights, inputs, start, factor, out, tile, row, 4)
        elif rest == 3:
            _rows(weights, inputs, start, factor, out, tile, row, 3)
        elif rest == 2:
            _rows(weights, inputs, start, factor, out, tile, row, 2)
        elif rest == 1:
            _rows(weights, inputs, start, factor, out, tile, row, 1)


@intrinsic
def _rows(
    typingctx: Any,
    weights: Any,
    inputs: Any,
    start: Any,
    factor: Any,
    out: Any,
    tile: Any,
    row: Any,
    count: Any,
) -> Any:
    """A tile's outputs of `count` rows from `row` on; count is a literal."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    exact = inputs.dtype == types.uint8
    sums = _INTS if exact else _FLOATS

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[:5], args[:5], strict=True)
        ]
        w, x, begin, scale, y = (array.data for array in arrays)
        wide = builder.extract_value(arrays[1].shape, 1)
        high = builder.extract_value(arrays[4].shape, 1)
        number = count.literal_value
        column = builder.mul(args[5], _index(TILE))
        halves = [column, builder.add(column, _index(_LANES))]
        lines = [builder.add(args[6], _index(line)) for line in range(number)]
        lefts = [builder.gep(x, [builder.mul(line, wide)]) for line in lines]
        first = [_vector(builder, begin, at, sums) for at in halves] if exact else [sums(None)] * 2
        base = builder.gep(w, [builder.mul(column, wide)])
        step_bytes = _index(4 // _size(inputs))
        steps = builder.sdiv(wide, step_bytes)

        entry = builder.block
        body, end = builder.append_basic_block("steps"), builder.append_basic_block("summed")
        builder.branch(body)
        builder.position_at_end(body)
        step = builder.phi(_INDEX)
        totals = [[builder.phi(sums) for _ in halves] for _ in lines]
        at = builder.mul(step, step_bytes)
        right = [
            _vector(builder, base, builder.add(builder.mul(at, _index(TILE)), more), _INTS)
            for more in (_index(0), builder.mul(step_bytes, _index(_LANES)))
        ]
        added = []
        for left, total in zip(lefts, totals, strict=True):
            spread = _spread(builder, builder.gep(left, [at]))
            pair = zip(total, right, strict=True)
            added.append([_add(builder, _size(inputs), t, spread, r) for t, r in pair])
        following = builder.add(step, _index(1))
        step.add_incoming(_index(0), entry)
        step.add_incoming(following, body)
        for total, new in zip(totals, added, strict=True):
            for half in range(2):
                total[half].add_incoming(first[half], entry)
                total[half].add_incoming(new[half], body)
        builder.cbranch(builder.icmp_signed("<", following, steps), body, end)

        builder.position_at_end(end)
        for line, new in zip(lines, added, strict=True):
            for half, value in zip(halves, new, strict=True):
                if exact:
                    factors = _vector(builder, scale, half, _FLOATS)
                    value = builder.fmul(builder.sitofp(value, _FLOATS), factors)
                place = builder.gep(y, [builder.add(builder.mul(line, high), half)])
                builder.store(value, builder.bitcast(place, ir.PointerType(_FLOATS)), align=4)
        return context.get_dummy_value()

    signature = types.void(
        weights,
        inputs,
        start,
        factor,
        out,
        types.intp,
        types.intp,
        types.literal(count.literal_value),
    )
    return signature, codegen


def _add(builder: Any, size: int, total: Any, left: Any, right: Any) -> Any:
    """total + left * right, four bytes a lane, elements of `size` bytes."""
    name = way(size)
    if name in ("vpdpbusd", "vdpbf16ps"):
        kind = ir.FunctionType(total.type, [total.type, _INTS, _INTS])
        made = ir.InlineAsm(kind, f"{name} $3, $2, $0", "=v,0,v,v")
        return builder.call(made, [total, left, right])
    if size == 4:
        return _fused(builder, left, right, total)
    if size == 2:
        for part in (_low_half, _high_half):
            total = _fused(builder, part(builder, left), part(builder, right), total)
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


def _fused(builder: Any, left: Any, right: Any, total: Any) -> Any:
    kind = ir.FunctionType(_FLOATS, [_FLOATS] * 3)
    fma = cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.v16f32")
    return builder.call(fma, [builder.bitcast(v, _FLOATS) for v in (left, right)] + [total])


def _low_half(builder: Any, pair: Any) -> Any:
    return builder.shl(pair, _same(16))


def _high_half(builder: Any, pair: Any) -> Any:
    return builder.and_(pair, _same(-0x10000))


def _signed(builder: Any, right: Any, shift: int) -> Any:
    """Bytes 0 and 2, or 1 and 3 with a shift of 8, of each lane as signed 16 bits."""
    words, eight = builder.bitcast(right, _WORDS), ir.Constant(_WORDS, [8] * _WORDS.count)
    words = words if shift else builder.shl(words, eight)
    return builder.bitcast(builder.ashr(words, eight), _INTS)


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
    return builder.shuffle_vector(*sums, ir.Constant(_INTS, list(range(_LANES))))


def _same(value: int) -> Any:
    return ir.Constant(_INTS, [value] * _LANES)


def _spread(builder: Any, pointer: Any) -> Any:
    """The four bytes at a pointer, in every lane."""
    word = builder.load(builder.bitcast(pointer, ir.PointerType(ir.IntType(32))), align=1)
    one = builder.insert_element(_INTS(ir.Undefined), word, ir.IntType(32)(0))
    return builder.shuffle_vector(one, _INTS(ir.Undefined), _INTS([0] * _LANES))


def _vector(builder: Any, pointer: Any, index: Any, kind: Any) -> Any:
    place = builder.gep(pointer, [index])
    return builder.load(builder.bitcast(place, ir.PointerType(kind)), align=1)


def _index(value: int) -> Any:
    return ir.Constant(_INDEX, value)


def _size(array: Any) -> int:
    return int(array.dtype.bitwidth) // 8
