"""AMX, the matrix unit of Intel's server processors: sixteen rows cost what one does.

A register holds sixteen lines of 64 bytes. Three fill one role each: rows of the inputs, sixteen
outputs' weights of as many steps (which is how `outrider.models.lean.products` lays them out), and
sums. Lines do not meet, and every row takes the steps in one order, so its bits are the same in any
company. int8 sums are exact, and so those of every other way. Of bfloat16 the unit adds the even
and the odd products of sixteen steps apart, then both to the sum.

Registers are shaped by `begin` in the thread that computes, and given up by `end`.
"""

from __future__ import annotations

import ctypes
import platform
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from outrider.models.lean.instructions import FLOATS, INDEX, INTS, WIDTH, index, vector_at

LINES = 16
"""Rows of a register."""

LINE_BYTES = 64
_NEEDED = {1: "amx-int8", 2: "amx-bf16"}
_PRODUCT = {1: "tdpbusd", 2: "tdpbf16ps"}
_AHEAD = 8
"""Steps whose weights are asked for in time: the processor itself looks no further than a page."""

_PRCTL, _ASK, _TILES = 158, 0x1023, 18
_PARTIAL = (2, 3, 5)
"""Registers of a block of fewer than sixteen rows: two of sums, one of inputs."""

_FULL = (0, 1, 4)
_SECOND = (2, 3, 5)
_WEIGHTS = (6, 7)
_BYTE = ir.IntType(8)


def _permitted() -> bool:
    """Asks Linux for the registers, which it hands out on request only, for this process."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    return int(ctypes.CDLL(None).syscall(_PRCTL, _ASK, _TILES)) == 0


_PERMITTED = _permitted()


def usable(itemsize: int, width: int) -> bool:
    """Whether rows of `width` elements of so many bytes can be multiplied here."""
    return _runs(itemsize) and _PERMITTED and width * itemsize % LINE_BYTES == 0


@intrinsic
def begin(typingctx: Any, inputs: Any, partial: Any) -> Any:
    """Shapes the registers; those of a partial block get `partial` rows, 1 to 16."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _there(inputs):
            entry = builder.function.entry_basic_block
            with builder.goto_block(entry):
                shape = builder.alloca(ir.ArrayType(_BYTE, 64))
            zero = ir.IntType(32)(0)
            builder.store(ir.Constant(ir.ArrayType(_BYTE, 64), bytearray(_shape())), shape)
            for register in _PARTIAL:
                place = builder.gep(shape, [zero, ir.IntType(32)(48 + register)])
                builder.store(builder.trunc(args[1], _BYTE), place)
            first = builder.gep(shape, [zero, zero])
            _asm(builder, "ldtilecfg ($0)", [first])
        return context.get_dummy_value()

    return types.void(inputs, types.intp), codegen


@intrinsic
def end(typingctx: Any, inputs: Any) -> Any:
    """Gives the registers up: a thread that holds them is dear to switch."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _there(inputs):
            _asm(builder, "tilerelease", [])
        return context.get_dummy_value()

    return types.void(inputs), codegen


@intrinsic
def multiply(
    typingctx: Any,
    weights: Any,
    inputs: Any,
    out: Any,
    tile: Any,
    row: Any,
    kind: Any,
) -> Any:
    """Sums of 32 outputs and a block of rows from `row` on, as the unit has them, into `out`.

    kind, a literal: 0 is a partial block of the rows that `begin` was told, 1 are sixteen rows, 2
    are thirty-two, for which the partial registers must have been shaped full.
    """
    if not isinstance(kind, types.IntegerLiteral):
        return None
    blocks = {0: [_PARTIAL], 1: [_FULL], 2: [_FULL, _SECOND]}[kind.literal_value]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not _there(inputs):
            return context.get_dummy_value()
        size = int(inputs.dtype.bitwidth) // 8
        arrays = [
            context.make_array(each)(context, builder, value)
            for each, value in zip(signature.args[:3], args[:3], strict=True)
        ]
        w, x, y = (builder.bitcast(array.data, _BYTE.as_pointer()) for array in arrays)
        wide = builder.mul(builder.extract_value(arrays[1].shape, 1), index(size))
        high = builder.mul(builder.extract_value(arrays[2].shape, 1), index(4))
        column = builder.mul(args[3], index(2 * WIDTH))
        weight = builder.gep(w, [builder.mul(column, wide)])
        lines = [builder.add(args[4], index(LINES * block)) for block in range(len(blocks))]
        rows = [builder.gep(x, [builder.mul(line, wide)]) for line in lines]
        for first, second, _ in blocks:
            for register in (first, second):
                _asm(builder, f"tilezero %tmm{register}", [])

        entry = builder.block
        body, summed = builder.append_basic_block("steps"), builder.append_basic_block("summed")
        builder.branch(body)
        builder.position_at_end(body)
        step = builder.phi(INDEX)
        at = builder.gep(weight, [builder.mul(step, index(LINES * 2 * LINE_BYTES))])
        apart = index(2 * LINE_BYTES)
        for half, register in enumerate(_WEIGHTS):
            _asm(builder, f"tileloadd {LINE_BYTES * half}($0,$1,1), %tmm{register}", [at, apart])
        for line in range(0, 2 * LINES * LINE_BYTES, LINE_BYTES):
            _asm(builder, f"prefetcht0 {_AHEAD * LINES * 2 * LINE_BYTES + line}($0)", [at])
        along = builder.mul(step, index(LINE_BYTES))
        for (first, second, left), start in zip(blocks, rows, strict=True):
            here = builder.gep(start, [along])
            _asm(builder, f"tileloadd ($0,$1,1), %tmm{left}", [here, wide])
            for total, right in zip((first, second), _WEIGHTS, strict=True):
                _asm(builder, f"{_PRODUCT[size]} %tmm{right}, %tmm{left}, %tmm{total}", [])
        following = builder.add(step, index(1))
        step.add_incoming(index(0), entry)
        step.add_incoming(following, body)
        steps = builder.sdiv(wide, index(LINE_BYTES))
        builder.cbranch(builder.icmp_signed("<", following, steps), body, summed)

        builder.position_at_end(summed)
        for (first, second, _), line in zip(blocks, lines, strict=True):
            place = builder.add(builder.mul(line, high), builder.mul(column, index(4)))
            to = builder.gep(y, [place])
            for half, register in enumerate((first, second)):
                text = f"tilestored %tmm{register}, {LINE_BYTES * half}($0,$1,1)"
                _asm(builder, text, [to, high])
        return context.get_dummy_value()

    literal = types.literal(kind.literal_value)  # type: ignore[no-untyped-call]
    return types.void(weights, inputs, out, types.intp, types.intp, literal), codegen


@intrinsic
def scale_sums(typingctx: Any, out: Any, start: Any, factor: Any, tile: Any, row: Any) -> Any:
    """Turns 32 sums of a row of `out` from int32 into (sum + start) * factor."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        y, begin, scale = (
            context.make_array(each)(context, builder, value)
            for each, value in zip(signature.args[:3], args[:3], strict=True)
        )
        high = builder.extract_value(y.shape, 1)
        column = builder.mul(args[3], index(2 * WIDTH))
        for half in range(2):
            at = builder.add(column, index(WIDTH * half))
            place = builder.gep(y.data, [builder.add(builder.mul(args[4], high), at)])
            sums = builder.load(builder.bitcast(place, INTS.as_pointer()), align=4)
            total = builder.add(sums, vector_at(builder, begin.data, at, INTS))
            scaled = builder.fmul(
                builder.sitofp(total, FLOATS), vector_at(builder, scale.data, at, FLOATS)
            )
            builder.store(scaled, builder.bitcast(place, FLOATS.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(out, start, factor, types.intp, types.intp), codegen


def _there(inputs: Any) -> bool:
    """Whether this processor can run the unit's instructions for such inputs."""
    return _runs(int(inputs.dtype.bitwidth) // 8)


def _runs(itemsize: int) -> bool:
    """Whether this processor has the unit's instructions for elements of so many bytes."""
    features = llvmlite.binding.get_host_cpu_features()
    return itemsize in _NEEDED and all(features.get(n) for n in ("amx-tile", _NEEDED[itemsize]))


def _shape() -> bytes:
    """Palette 1; of each register the bytes of a line, and its lines."""
    shape = bytearray(64)
    shape[0] = 1
    for register in range(8):
        shape[16 + 2 * register] = LINE_BYTES
        shape[48 + register] = LINES
    return bytes(shape)


def _asm(builder: Any, text: str, operands: list[Any]) -> None:
    """An instruction; the compiler keeps their order, and that of memory."""
    kind = ir.FunctionType(ir.VoidType(), [operand.type for operand in operands])
    places = ",".join([*("r" for _ in operands), "~{memory}"])
    builder.call(ir.InlineAsm(kind, text, places, side_effect=True), operands)
