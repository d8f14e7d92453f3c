"""Sixteen float32 lanes as one value inside Numba kernels, where loops must keep sums in registers.

LLVM would keep a sum in memory when it cannot prove that arrays lie apart; a value of this type it
keeps in a register. On processors with narrower vectors LLVM splits it; the bits stay the same,
since every lane is added on its own and a fused product is asked for by name.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from outrider.models.lean.instructions import FLOATS, INTS, WIDTH, fused_sum, spread

LINE = 64
_BYTE = ir.IntType(8)
_ZERO = ir.Constant(FLOATS, [0.0] * WIDTH)


class _Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Lanes")


LANES = _Lanes()


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, type_: Any) -> None:
        super().__init__(manager, type_, FLOATS)


@intrinsic
def load_lanes(typingctx: Any, array: Any, index: Any) -> Any:
    """Elements index to index + 16 of a contiguous float32 array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _load(builder, context.make_array(array)(context, builder, args[0]).data, args[1])

    return LANES(array, types.intp), codegen


@intrinsic
def store_lanes(typingctx: Any, array: Any, index: Any, lanes: Any) -> Any:
    """Writes 16 elements of a contiguous float32 array, from `index` on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(array)(context, builder, args[0]).data
        builder.store(args[2], _at(builder, data, args[1], 0, FLOATS), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, LANES), codegen


@intrinsic
def add_lanes(typingctx: Any, one: Any, other: Any) -> Any:
    """one + other."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(*args)

    return LANES(LANES, LANES), codegen


@intrinsic
def max_lanes(typingctx: Any, one: Any, other: Any) -> Any:
    """The greater of each pair of lanes, none of them NaN."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return LANES(LANES, LANES), codegen


COUNTS = 6, 3, 2, 1
"""Lines that `add_products` takes at once."""


@intrinsic
def add_products(
    typingctx: Any,
    left: Any,
    at: Any,
    apart: Any,
    right: Any,
    first: Any,
    step: Any,
    steps: Any,
    ahead: Any,
    out: Any,
    to: Any,
    out_apart: Any,
    lines: Any,
    vectors: Any,
    fresh: Any,
) -> Any:
    """out[to + l out_apart + c] += sum over i of left[at + l apart + i] right[first + i step + c].

    For l < lines, one of `COUNTS`, and c < 16 vectors, a literal. The sums stay in registers from
    the first i to the last of `steps`. `fresh`, a literal too: they begin with 0 and not with what
    is in `out`. left and out are contiguous arrays of float32, right may be bfloat16 as uint16, or
    int8. What lies `ahead` elements behind those of right that are read is fetched meanwhile.
    """
    if not all(isinstance(value, types.IntegerLiteral) for value in (vectors, fresh)):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = [
            context.make_array(kind)(context, builder, args[i]).data
            for i, kind in ((0, left), (3, right), (8, out))
        ]
        places, begin = [args[i] for i in (1, 2, 4, 5, 6, 7, 9, 10)], fresh.literal_value
        for count in COUNTS:
            here = builder.icmp_signed("==", args[11], ir.Constant(args[11].type, count))
            with builder.if_then(here):
                sum_products(builder, arrays, places, count, vectors.literal_value, begin)
        return context.get_dummy_value()

    ints = [types.intp] * 2
    literals = [types.literal(value.literal_value) for value in (vectors, fresh)]
    signature = types.void(left, *ints, right, *ints, *ints, out, *ints, types.intp, *literals)
    return signature, codegen


def sum_products(builder: Any, arrays: Any, args: Any, count: int, width: int, fresh: int) -> None:
    """`add_products` for one number of lines: pointers to left, right and out, the arguments from
    `at` to `out_apart` without these, and the number of vectors."""
    at, apart, first, step, steps, ahead, to, out_apart = args
    left, right, out = arrays
    index = at.type
    starts, places = [], []
    for line in range(count):
        along = ir.Constant(index, line)
        starts.append(builder.add(at, builder.mul(apart, along)))
        place = builder.add(to, builder.mul(out_apart, along))
        places += [_at(builder, out, place, vector, FLOATS) for vector in range(width)]
    old = [_ZERO if fresh else builder.load(place, align=4) for place in places]

    entry = builder.block
    body, end = builder.append_basic_block("steps"), builder.append_basic_block("summed")
    some = builder.icmp_signed(">", steps, ir.Constant(index, 0))
    builder.cbranch(some, body, end)
    builder.position_at_end(body)
    i = builder.phi(index)
    totals = [builder.phi(FLOATS) for _ in places]
    row = builder.add(first, builder.mul(i, step))
    values = [_load(builder, right, row, vector) for vector in range(width)]
    for at_byte in range(0, width * WIDTH * _bytes(right), LINE):
        there = builder.add(row, ahead)
        there = builder.add(there, ir.Constant(index, at_byte // _bytes(right)))
        fetch(builder, builder.gep(right, [there]))
    new = []
    for line, start in enumerate(starts):
        factor = builder.load(builder.gep(left, [builder.add(start, i)]), align=4)
        factor = spread(builder, factor)
        pairs = zip(values, totals[line * width : (line + 1) * width], strict=True)
        new += [fused_sum(builder, factor, value, total) for value, total in pairs]
    following = builder.add(i, ir.Constant(index, 1))
    i.add_incoming(ir.Constant(index, 0), entry)
    i.add_incoming(following, body)
    for total, before, after in zip(totals, old, new, strict=True):
        total.add_incoming(before, entry)
        total.add_incoming(after, body)
    builder.cbranch(builder.icmp_signed("<", following, steps), body, end)

    builder.position_at_end(end)
    sums = [builder.phi(FLOATS) for _ in places]
    for total, before, after in zip(sums, old, new, strict=True):
        total.add_incoming(before, entry)
        total.add_incoming(after, body)
    for place, total in zip(places, sums, strict=True):
        builder.store(total, place, align=4)


def _at(builder: Any, data: Any, index: Any, vector: int, kind: Any) -> Any:
    """The vector that lies `vector` vectors behind an element."""
    index = builder.add(index, ir.Constant(index.type, WIDTH * vector))
    return builder.bitcast(builder.gep(data, [index]), ir.PointerType(kind))


def _load(builder: Any, data: Any, index: Any, vector: int = 0) -> Any:
    """16 elements, float32, bfloat16 or int8, as float32."""
    if data.type.pointee == ir.FloatType():
        return builder.load(_at(builder, data, index, vector, FLOATS), align=4)
    narrow = ir.VectorType(data.type.pointee, WIDTH)
    values = builder.load(_at(builder, data, index, vector, narrow), align=_bytes(data))
    if data.type.pointee == _BYTE:
        return builder.sitofp(builder.sext(values, INTS), FLOATS)
    shift = ir.Constant(INTS, [16] * WIDTH)
    return builder.bitcast(builder.shl(builder.zext(values, INTS), shift), FLOATS)


def _bytes(data: Any) -> int:
    element = data.type.pointee
    return 4 if element == ir.FloatType() else int(element.width) // 8


def fetch(builder: Any, pointer: Any) -> None:
    """Asks for the cache line at a pointer, which may be any."""
    kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), *[ir.IntType(32)] * 3])
    ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    read, near, data = (ir.Constant(ir.IntType(32), value) for value in (0, 2, 1))
    builder.call(ask, [builder.bitcast(pointer, _BYTE.as_pointer()), read, near, data])
