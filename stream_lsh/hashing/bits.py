"""Machine instructions that Python and numba lack, as intrinsics for kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_I32, _I64, _I128 = (ir.IntType(bits) for bits in (32, 64, 128))

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


def instruction(result: Any, *kinds: Any) -> Callable[[Callable[..., Any]], Any]:
    """An intrinsic whose code is a function of LLVM's builder and the arguments.

    Args:
        result: numba's type of the result.
        kinds: those of the arguments. None = an array of any type; the code gets the address of its first element.
    """

    def generate_with(code: Callable[..., Any]) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            values = [
                context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
                for kind, value in zip(signature.args, arguments, strict=True)
            ]
            found = code(builder, *values)
            return context.get_dummy_value() if found is None else found

        @intrinsic
        @wraps(code)
        def define(_: Any, *given: Any) -> Any:
            return result(*(kind or own for kind, own in zip(kinds, given, strict=True))), generate

        return define

    return generate_with


def _place(builder: Any, data: Any, index: Any, kind: Any) -> Any:
    """Pointer to a value of a type at an element of an array."""
    return builder.bitcast(cgutils.gep_inbounds(builder, data, index), kind.as_pointer())  # type: ignore[no-untyped-call]


def _product(builder: Any, a: Any, b: Any) -> Any:
    """Lower and upper half of the 128-bit product."""
    product = builder.mul(builder.zext(a, _I128), builder.zext(b, _I128))
    return builder.trunc(product, _I64), builder.trunc(builder.lshr(product, ir.Constant(_I128, 64)), _I64)


@instruction(types.uint64, types.uint64, types.uint64)
def fold_multiply(builder: Any, a: Any, b: Any) -> Any:
    """Both halves of the 128-bit product, xored (as wyhash mixes)."""
    return builder.xor(*_product(builder, a, b))


@instruction(types.uint64, types.uint64, types.uint64)
def multiply_high(builder: Any, a: Any, b: Any) -> Any:
    """The upper half of the 128-bit product."""
    return _product(builder, a, b)[1]


@instruction(types.uint64, types.uint64)
def popcount(builder: Any, word: Any) -> Any:
    """The number of set bits."""
    return builder.ctpop(word)


@instruction(types.int64, types.uint64)
def low_zeros(builder: Any, word: Any) -> Any:
    """The number of bits below the lowest set bit, 64 if none is set."""
    return builder.cttz(word, ir.Constant(ir.IntType(1), 0))


@instruction(types.float64, types.uint64)
def float_of(builder: Any, word: Any) -> Any:
    """The number with these bits."""
    return builder.bitcast(word, ir.DoubleType())


@instruction(types.uint64, types.float64)
def bits_of(builder: Any, number: Any) -> Any:
    """The bits of a number."""
    return builder.bitcast(number, _I64)


@instruction(types.uint64, types.int64)
def word_at(builder: Any, address: Any) -> Any:
    """The 64-bit word at an address (`array.ctypes.data`).

    A kernel with a varying number of arrays takes a table of addresses: a tuple of arrays would be copied at each call,
    and a typed list compiled at each start. The caller keeps a reference to the arrays.
    """
    return builder.load(builder.inttoptr(address, _I64.as_pointer()), align=8)


@instruction(types.uint32, types.int64)
def half_at(builder: Any, address: Any) -> Any:
    """The 32-bit word at an address."""
    return builder.load(builder.inttoptr(address, _I32.as_pointer()), align=4)


@instruction(types.void, None, types.intp)
def prefetch(builder: Any, data: Any, index: Any) -> None:
    """Load the memory at an element of an array into the cache."""
    place = builder.bitcast(builder.gep(data, [index]), ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [place.type, *[_I32] * 3])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
    builder.call(function, [place, *(ir.Constant(_I32, flag) for flag in (0, 3, 1))])  # for reading, keep, data


@instruction(types.uint64, None, types.intp)
def load64(builder: Any, data: Any, index: Any) -> Any:
    """Eight bytes of an array uint8[:] from an index on, little-endian, at any alignment.

    Nothing is checked: the array must have eight bytes from the index on.
    """
    value = builder.load(_place(builder, data, index, _I64), align=1)
    return builder.bswap(value) if sys.byteorder == "big" else value


@instruction(types.void, None, types.intp, types.uint64)
def store64(builder: Any, data: Any, index: Any, value: Any) -> None:
    """The inverse of load64; there must be room for eight bytes."""
    value = builder.bswap(value) if sys.byteorder == "big" else value
    builder.store(value, _place(builder, data, index, _I64), align=1)


@instruction(types.void, None, types.intp, None, types.intp, types.intp)
def store_sums(builder: Any, data: Any, index: Any, offsets: Any, row: Any, base: Any) -> None:
    """store_sums(array: uint32[:], index, offsets: uint8[:, 8], row, base).

    array[index:index + 8] = offsets[row] + base, all eight at once in vector registers. Nothing is checked.
    """
    narrow, wide = ir.VectorType(ir.IntType(8), 8), ir.VectorType(_I32, 8)
    source = _place(builder, offsets, builder.mul(row, ir.Constant(row.type, 8)), narrow)
    small = builder.zext(builder.load(source, align=1), wide)
    base = builder.trunc(base, _I32)
    first = builder.insert_element(ir.Constant(wide, ir.Undefined), base, ir.Constant(_I32, 0))
    sums = builder.shuffle_vector(first, ir.Constant(wide, ir.Undefined), ir.Constant(wide, None))
    builder.store(builder.add(small, sums), _place(builder, data, index, wide), align=4)
