"""Machine instructions that Python and numba lack, as intrinsics for kernels."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_I64 = ir.IntType(64)
_I128 = ir.IntType(128)

# Odd random numbers: the multipliers and seeds of all kernels (from the digits of pi, as in Blowfish and wyhash).
SEED_TOKEN = np.uint64(0x243F6A8885A308D3)
SEED_TAIL = np.uint64(0x13198A2E03707345)
SEED_LENGTH = np.uint64(0xA4093822299F31D1)
SEED_SHINGLE = np.uint64(0x082EFA98EC4E6C89)
SEED_MIX = np.uint64(0x452821E638D01377)
SEED_BAG = np.uint64(0xBE5466CF34E90C6D)
SEED_ROUND = np.uint64(0xC0AC29B7C97C50DD)
SEED_BAND = np.uint64(0x3F84D5B5B5470917)
SEED_COMPONENT = np.uint64(0x9216D5D98979FB1B)


def _address(builder: Any, data: Any, index: Any) -> Any:
    return cgutils.gep_inbounds(builder, data, index)  # type: ignore[no-untyped-call]


@intrinsic
def _fold_multiply(typing_context: Any, a: Any, b: Any) -> Any:
    """fold_multiply(a, b: uint64) -> uint64: both halves of the 128-bit product, xored (as wyhash mixes)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        product = builder.mul(builder.zext(arguments[0], _I128), builder.zext(arguments[1], _I128))
        high = builder.trunc(builder.lshr(product, ir.Constant(_I128, 64)), _I64)
        return builder.xor(high, builder.trunc(product, _I64))

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def _multiply_high(typing_context: Any, a: Any, b: Any) -> Any:
    """multiply_high(a, b: uint64) -> uint64: the upper half of the 128-bit product."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        product = builder.mul(builder.zext(arguments[0], _I128), builder.zext(arguments[1], _I128))
        return builder.trunc(builder.lshr(product, ir.Constant(_I128, 64)), _I64)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def _popcount(typing_context: Any, word: Any) -> Any:
    """popcount(word: uint64) -> uint64: the number of set bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic
def _float_of(typing_context: Any, word: Any) -> Any:
    """float_of(word: uint64) -> float64: the number with these bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.uint64), generate


@intrinsic
def _bits_of(typing_context: Any, number: Any) -> Any:
    """bits_of(number: float64) -> uint64: its bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], _I64)

    return types.uint64(types.float64), generate


@intrinsic
def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """prefetch(array: uint64[:], index): load the memory there into the cache."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [place.type, *[ir.IntType(32)] * 3])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        flags = [ir.Constant(ir.IntType(32), flag) for flag in (0, 3, 1)]  # for reading, keep, data
        builder.call(function, [place, *flags])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def _load64(typing_context: Any, array: Any, index: Any) -> Any:
    """load64(array: uint8[:], index) -> uint64: eight bytes from index on, little-endian, at any alignment.

    Nothing is checked: the array must have eight bytes from index on.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(_address(builder, data, arguments[1]), _I64.as_pointer())
        value = builder.load(pointer, align=1)
        return builder.bswap(value) if sys.byteorder == "big" else value

    return types.uint64(array, types.intp), generate


@intrinsic
def _store64(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """store64(array: uint8[:], index, value: uint64): the inverse of load64; there must be room for eight bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(_address(builder, data, arguments[1]), _I64.as_pointer())
        value = builder.bswap(arguments[2]) if sys.byteorder == "big" else arguments[2]
        builder.store(value, pointer, align=1)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.uint64), generate


@intrinsic
def _store_sums(typing_context: Any, array: Any, index: Any, offsets: Any, row: Any, base: Any) -> Any:
    """store_sums(array: uint32[:], index, offsets: uint8[:, 8], row, base).

    array[index:index + 8] = offsets[row] + base, all eight at once in vector registers. Nothing is checked.
    """
    narrow, wide = ir.VectorType(ir.IntType(8), 8), ir.VectorType(ir.IntType(32), 8)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        source = context.make_array(signature.args[2])(context, builder, arguments[2]).data
        place = builder.mul(arguments[3], ir.Constant(arguments[3].type, 8))
        pointer = builder.bitcast(_address(builder, source, place), narrow.as_pointer())
        small = builder.zext(builder.load(pointer, align=1), wide)
        base = builder.trunc(arguments[4], ir.IntType(32))
        first = builder.insert_element(ir.Constant(wide, ir.Undefined), base, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), 8), None)
        sums = builder.add(small, builder.shuffle_vector(first, ir.Constant(wide, ir.Undefined), zeros))
        out = builder.bitcast(_address(builder, target, arguments[1]), wide.as_pointer())
        builder.store(sums, out, align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, offsets, types.intp, types.intp), generate


# Without a type: to mypy an intrinsic also takes the typing context.
fold_multiply: Any = _fold_multiply
multiply_high: Any = _multiply_high
popcount: Any = _popcount
prefetch: Any = _prefetch
float_of: Any = _float_of
bits_of: Any = _bits_of
load64: Any = _load64
store64: Any = _store64
store_sums: Any = _store_sums
