"""Keys and values that are kept as bytes: how they are written, and what a query scores with them.

Each key and value has a scale, a float32 that lies among the bytes of its block. Keys are bytes
plus 128, four dimensions side by side: [dim / 4, BLOCK, 4]. A query becomes signed bytes with a
scale too, so that a score is a sum of whole numbers, exact in any order, times both scales.

Kernels call all of this for wider keys and values too, which have no scales.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from outrider.core.compiled import fused
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
from outrider.models.lean.lanes import COUNTS, LINE, fetch, sum_products
from outrider.models.lean.vector import store_row
from outrider.models.pool import BLOCK, FOUR, SCALE_BYTES

VECTORS = BLOCK // WIDTH
_ZERO = 128
"""The byte of a key that stands for 0."""


@intrinsic
def _narrow(typingctx: Any, kept: Any) -> Any:
    """Whether kept [n] is int8: a constant, of which LLVM drops what is never run."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(ir.IntType(1), int(kept.dtype == types.int8))

    return types.boolean(kept), codegen


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
def keep_scale(kept, byte, scale):
    """Writes a float32 into kept [n] from a byte on."""
    if _narrow(kept):
        _put(kept, byte, scale)


@fused
def times_scales(values, at, apart, lines, kept, first, count):
    """values[at + l apart :][:count] *= the scales [count] in kept from byte `first` on, for each
    l < lines."""
    if _narrow(kept):
        whole = count // WIDTH * WIDTH
        for line in range(lines):
            start = at + line * apart
            for i in range(0, whole, WIDTH):
                _multiply(kept, first + i * SCALE_BYTES, values, start + i)
            for i in range(whole, count):
                values[start + i] *= _get(kept, first + i * SCALE_BYTES)


@fused
def keep_key(key, kept, first, place):
    """Writes a key [dim], as it is stored, to a place of the keys that begin at kept[first]."""
    for i in range(key.shape[0]):
        if _narrow(kept):
            at = (i // FOUR * BLOCK + place) * FOUR + i % FOUR
            kept[first + at] = np.int8(np.int32(key[i]) ^ -_ZERO)
        else:
            kept[first + i * BLOCK + place] = key[i]


def prepare(queries: Any, lines: int, dim: int, pool: Any) -> Any:
    """Queries [lines, dim] float32 as `score_lines` wants them for keys of that pool."""
    return narrowed(queries, lines, dim) if pool.dtype == np.int8 else queries


@overload(prepare, inline="always")
def _prepare(queries, lines, dim, pool):
    if pool.dtype == types.int8:
        return lambda queries, lines, dim, pool: narrowed(queries, lines, dim)
    return lambda queries, lines, dim, pool: queries


@fused
def narrowed(queries, lines, dim):
    """Queries [lines, dim] as signed bytes, their scales [lines], and the sums [lines] that the 128
    in keys adds to their scores, to be taken out again."""
    rows, scales = np.empty(lines * dim, np.int8), np.empty(lines, np.float32)
    starts = np.empty(lines, np.int32)
    for line in range(lines):
        own = rows[line * dim : (line + 1) * dim]
        scales[line] = store_row(queries[line * dim : (line + 1) * dim], own)
        total = np.int32(0)
        for i in range(dim):
            total += np.int32(own[i])
        starts[line] = np.int32(-_ZERO) * total
    return rows, scales, starts


@intrinsic
def score_lines(
    typingctx: Any,
    queries: Any,
    line: Any,
    dim: Any,
    kept: Any,
    first: Any,
    ahead: Any,
    scales: Any,
    out: Any,
    to: Any,
    apart: Any,
    lines: Any,
) -> Any:
    """out[to + l apart :][:BLOCK] = the scores of `lines` queries from `line` on, one of `COUNTS`.

    queries: what `prepare` gives. kept [n] holds keys from `first` on, those that are bytes have
    scales from `scales` on; what is read next lies `ahead` behind the keys.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        narrow = isinstance(queries, types.BaseTuple)
        parts = [builder.extract_value(args[0], i) for i in range(3)] if narrow else [args[0]]
        kinds = (*(queries if narrow else [queries]), kept, out)
        arrays = [
            context.make_array(kind)(context, builder, value).data
            for kind, value in zip(kinds, (*parts, args[3], args[7]), strict=True)
        ]
        for count in COUNTS:
            here = builder.icmp_signed("==", args[10], ir.Constant(INDEX, count))
            with builder.if_then(here):
                (_sum_bytes if narrow else _sum_floats)(builder, arrays, args, count)
        return context.get_dummy_value()

    ints = [types.intp] * 3
    arguments = [queries, types.intp, types.intp, kept, *ints, out, *ints]
    return types.void(*arguments), codegen


def _sum_floats(builder: Any, arrays: Any, args: Any, count: int) -> None:
    """`score_lines` for one number of lines and wider keys, dimension by dimension."""
    line, dim, first, ahead, to, apart = (args[i] for i in (1, 2, 4, 5, 8, 9))
    left, block = (builder.mul(line, dim), dim), index(BLOCK)
    places = *left, first, block, dim, ahead, to, apart
    sum_products(builder, arrays, places, count, VECTORS, fresh=1)


def _sum_bytes(builder: Any, arrays: Any, args: Any, count: int) -> None:
    """`score_lines` for one number of lines and keys that are bytes."""
    rows, factors, starts, kept, out = arrays
    line, dim, first, ahead, scales, to, apart = (args[i] for i in (1, 2, 4, 5, 6, 8, 9))
    lines = [builder.add(line, index(i)) for i in range(count)]
    lefts = [builder.mul(each, dim) for each in lines]
    begun = [spread(builder, builder.load(builder.gep(starts, [each]))) for each in lines]
    step_bytes = index(BLOCK * FOUR)

    entry, body = builder.block, builder.append_basic_block("steps")
    end = builder.append_basic_block("summed")
    builder.branch(body)
    builder.position_at_end(body)
    i = builder.phi(INDEX)
    totals = [[builder.phi(INTS) for _ in range(VECTORS)] for _ in lines]
    at = builder.add(first, builder.mul(i, step_bytes))
    keys = [
        vector_at(builder, kept, builder.add(at, index(LINE * v)), INTS) for v in range(VECTORS)
    ]
    for v in range(VECTORS):
        fetch(builder, builder.gep(kept, [builder.add(builder.add(at, ahead), index(LINE * v))]))
    sums = []
    for left, total in zip(lefts, totals, strict=True):
        word = builder.gep(rows, [builder.add(left, builder.mul(i, index(FOUR)))])
        word = builder.load(builder.bitcast(word, ir.PointerType(ir.IntType(32))), align=1)
        four = spread(builder, word)
        sums.append(
            [multiply_add(builder, 1, t, k, four) for t, k in zip(total, keys, strict=True)]
        )
    following = builder.add(i, index(1))
    i.add_incoming(index(0), entry)
    i.add_incoming(following, body)
    for total, before, new in zip(totals, begun, sums, strict=True):
        for vector in range(VECTORS):
            total[vector].add_incoming(before, entry)
            total[vector].add_incoming(new[vector], body)
    builder.cbranch(builder.icmp_signed("<", builder.mul(following, index(FOUR)), dim), body, end)

    builder.position_at_end(end)
    for number, (each, new) in enumerate(zip(lines, sums, strict=True)):
        factor = spread(builder, builder.load(builder.gep(factors, [each])))
        start = builder.add(to, builder.mul(apart, index(number)))
        for vector, value in enumerate(new):
            scale = builder.add(scales, index(LINE * vector))
            own = builder.fmul(vector_at(builder, kept, scale, FLOATS), factor)
            score = builder.fmul(builder.sitofp(value, FLOATS), own)
            place = builder.gep(out, [builder.add(start, index(WIDTH * vector))])
            builder.store(score, builder.bitcast(place, ir.PointerType(FLOATS)), align=4)
