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

WIDTH = 16
_FLOATS = ir.VectorType(ir.FloatType(), WIDTH)
_INTS = ir.VectorType(ir.IntType(32), WIDTH)


class _Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Lanes")


LANES = _Lanes()


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, type_: Any) -> None:
        super().__init__(manager, type_, _FLOATS)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, lane: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), ir.PointerType(lane))


@intrinsic
def load_lanes(typingctx: Any, array: Any, index: Any) -> Any:
    """Elements index to index + 16 of a contiguous float32 or bfloat16 (as uint16) array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if array.dtype == types.float32:
            pointer = _pointer(context, builder, array, args[0], args[1], _FLOATS)
            return builder.load(pointer, align=4)
        halves = ir.VectorType(ir.IntType(16), WIDTH)
        pointer = _pointer(context, builder, array, args[0], args[1], halves)
        wide = builder.zext(builder.load(pointer, align=2), _INTS)
        shift = ir.Constant(_INTS, [16] * WIDTH)
        return builder.bitcast(builder.shl(wide, shift), _FLOATS)

    return LANES(array, types.intp), codegen


@intrinsic
def store_lanes(typingctx: Any, array: Any, index: Any, lanes: Any) -> Any:
    """Writes 16 elements of a contiguous float32 array, from `index` on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, array, args[0], args[1], _FLOATS)
        builder.store(args[2], pointer, align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, LANES), codegen


@intrinsic
def zero_lanes(typingctx: Any) -> Any:
    """Sixteen zeros."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(_FLOATS, [0.0] * WIDTH)

    return LANES(), codegen


@intrinsic
def add_product(typingctx: Any, factor: Any, lanes: Any, total: Any) -> Any:
    """total + factor * lanes, rounded once; factor is a float32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one = builder.insert_element(
            ir.Constant(_FLOATS, ir.Undefined), args[0], ir.Constant(ir.IntType(32), 0)
        )
        mask = ir.Constant(_INTS, [0] * WIDTH)
        spread = builder.shuffle_vector(one, ir.Constant(_FLOATS, ir.Undefined), mask)
        module = builder.module
        fma = cgutils.get_or_insert_function(
            module, ir.FunctionType(_FLOATS, [_FLOATS] * 3), "llvm.fma.v16f32"
        )
        return builder.call(fma, [spread, args[1], args[2]])

    return LANES(types.float32, LANES, LANES), codegen
