"""Products of few rows with large weights, as fast as the weights can be read.

Weights lie in tiles of 32 outputs, in the order in which a tile is worked through: step by step 32
times four bytes, which are one float32, two bfloat16 or four int8 of an output's row. A tile's sums
stay in registers, two vectors for each of up to twelve rows, and each lane adds the steps in their
order. So a row has the same bits whatever rows stand beside it.

int8: bytes plus 128 times signed bytes, added in int32, exactly (VPDPBUSD, or VPMADDWD on 16 bits).
bfloat16: pairs of products added in float32 (VDPBF16PS, or two fused multiply-adds, whose sums are
rounded otherwise). float32: one fused multiply-add a step. Where the processor has a matrix unit it
takes int8 and bfloat16, see `outrider.models.lean.matrix_unit`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.extending import intrinsic

from outrider.core.compiled import fused_inline, parallel
from outrider.models.lean.instructions import (
    FLOATS,
    INDEX,
    INTS,
    WIDTH,
    index,
    multiply_add,
    spread,
    vector_at,
)
from outrider.models.lean.matrix_unit import LINES, begin, end, multiply, scale_sums

TILE = 32
"""Outputs of a tile; two vectors."""


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

    linear: weights as `tiled` has them, start, factor, and whether the matrix unit multiplies.
    inputs [rows, n] and out [rows, m] float32, m in whole tiles. Of bytes, inputs are signed ones
    plus 128, start [m] int32 is what takes that out again, and factor [m] the outputs' scales;
    others have neither.
    """
    weights, start, factor, unit = linear
    tiles = out.shape[1] // TILE
    if unit:
        for tile in prange(tiles):
            _by_unit(weights, inputs, start, factor, out, tile)
    else:
        for tile in prange(tiles):
            _by_vectors(weights, inputs, start, factor, out, tile)


@fused_inline
def _by_unit(weights, inputs, start, factor, out, tile):
    rows, row = inputs.shape[0], 0
    if rows >= 2 * LINES:
        begin(inputs, LINES)
        while row + 2 * LINES <= rows:
            multiply(weights, inputs, out, tile, row, 2)
            row += 2 * LINES
    rest = rows - row
    if rest > 0:
        begin(inputs, rest % LINES if rest % LINES else LINES)
        if rest >= LINES:
            multiply(weights, inputs, out, tile, row, 1)
            row += LINES
        if row < rows:
            multiply(weights, inputs, out, tile, row, 0)
    end(inputs)
    if start.shape[0] > 0:
        for each in range(rows):
            scale_sums(out, start, factor, tile, each)


@fused_inline
def _by_vectors(weights, inputs, start, factor, out, tile):
    rows, row = inputs.shape[0], 0
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
    sums = INTS if exact else FLOATS

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[:5], args[:5], strict=True)
        ]
        w, x, begin, scale, y = (array.data for array in arrays)
        wide = builder.extract_value(arrays[1].shape, 1)
        high = builder.extract_value(arrays[4].shape, 1)
        number = count.literal_value
        column = builder.mul(args[5], index(TILE))
        halves = [column, builder.add(column, index(WIDTH))]
        lines = [builder.add(args[6], index(line)) for line in range(number)]
        lefts = [builder.gep(x, [builder.mul(line, wide)]) for line in lines]
        first = (
            [vector_at(builder, begin, at, sums) for at in halves] if exact else [sums(None)] * 2
        )
        base = builder.gep(w, [builder.mul(column, wide)])
        step_bytes = index(4 // _size(inputs))
        steps = builder.sdiv(wide, step_bytes)

        entry = builder.block
        body, end = builder.append_basic_block("steps"), builder.append_basic_block("summed")
        builder.branch(body)
        builder.position_at_end(body)
        step = builder.phi(INDEX)
        totals = [[builder.phi(sums) for _ in halves] for _ in lines]
        at = builder.mul(step, step_bytes)
        right = [
            vector_at(builder, base, builder.add(builder.mul(at, index(TILE)), more), INTS)
            for more in (index(0), builder.mul(step_bytes, index(WIDTH)))
        ]
        added = []
        for left, total in zip(lefts, totals, strict=True):
            word = builder.bitcast(builder.gep(left, [at]), ir.PointerType(ir.IntType(32)))
            four = spread(builder, builder.load(word, align=1))
            pair = zip(total, right, strict=True)
            added.append([multiply_add(builder, _size(inputs), t, four, r) for t, r in pair])
        following = builder.add(step, index(1))
        step.add_incoming(index(0), entry)
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
                    factors = vector_at(builder, scale, half, FLOATS)
                    value = builder.fmul(builder.sitofp(value, FLOATS), factors)
                place = builder.gep(y, [builder.add(builder.mul(line, high), half)])
                builder.store(value, builder.bitcast(place, ir.PointerType(FLOATS)), align=4)
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


def _size(array: Any) -> int:
    return int(array.dtype.bitwidth) // 8
