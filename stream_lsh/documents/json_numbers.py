"""Reading of lists of numbers in JSON lines, compiled; each number exactly as `float` reads it.

A list that is not exactly so many finite numbers is left to the slow reader, which gives the reason for rejecting it.
So is a number whose digits do not determine its value at once: more than 19 digits, extreme exponents, and numbers
about half-way between two floats (Clinger 1990; Lemire, Number parsing at a gigabyte per second, 2021; as in Go's
strconv).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.json_scan import Bytes, Ints, skip_space
from stream_lsh.hashing.bits import float_of, multiply_high
from stream_lsh.hashing.kernels import njit

_LEAST, _MOST = -60, 60  # powers of ten; float32 ends at 10^38, and 19 digits below 10^-60 are zero


def _power(exponent: int) -> tuple[int, int]:
    """The first 128 bits of a power of ten, truncated: upper and lower half."""
    found = 10**exponent << 512 if exponent >= 0 else (1 << 1024) // 10**-exponent
    found >>= found.bit_length() - 128
    return found >> 64, found & (1 << 64) - 1


_POWERS = np.array([_power(exponent) for exponent in range(_LEAST, _MOST + 1)], np.uint64)
_EXACT = np.array([10.0**exponent for exponent in range(23)])  # those that float64 represents exactly
_ONE, _NINE, _LOW, _HALF = np.uint64(1), np.uint64(9), np.uint64(0x1FF), np.uint64(3)
_FIVE = np.uint64(5)
_WIDEST = np.uint64(1 << 53)  # up to here float64 represents every integer
_DIGITS = 19  # of a number that always fits into 64 bits


@njit
def _dyadic(digits, exponent):  # type: ignore[no-untyped-def]
    """digits * 10^exponent if a float64 represents it exactly, as for numbers from a float32; otherwise NaN."""
    power = 1.0 if exponent <= 0 else np.nan
    for _ in range(-exponent):
        if digits % _FIVE:
            return np.nan
        digits //= _FIVE
        power *= 0.5
    return np.float64(digits) * power if digits <= _WIDEST else np.nan


@njit
def _number(digits, exponent):  # type: ignore[no-untyped-def]
    """digits (uint64) * 10^exponent as the nearest float64, or NaN if that is not decided here."""
    if digits == 0:
        return 0.0
    if digits <= _WIDEST and -22 <= exponent <= 22:
        if exponent < 0:
            return np.float64(digits) / _EXACT[-exponent]
        return np.float64(digits) * _EXACT[exponent]
    if exponent < _LEAST or exponent > _MOST:
        return np.nan
    whole, shift = digits, np.int64(0)
    while digits >> np.uint64(63) == 0:
        digits <<= _ONE
        shift += 1
    high, low = multiply_high(digits, _POWERS[exponent - _LEAST, 0]), digits * _POWERS[exponent - _LEAST, 0]
    if high & _LOW == _LOW and low + digits < digits:  # the lower half of the power may matter
        more, end = multiply_high(digits, _POWERS[exponent - _LEAST, 1]), digits * _POWERS[exponent - _LEAST, 1]
        low += more
        if low < more:
            high += _ONE
        if high & _LOW == _LOW and low + _ONE == 0 and end + digits < digits:
            return _dyadic(whole, exponent)
    top = high >> np.uint64(63)
    mantissa = high >> (top + _NINE)
    if low == 0 and high & _LOW == 0 and mantissa & _HALF == 1:
        return _dyadic(whole, exponent)
    binary = ((217706 * exponent) >> 16) + 64 + 1023 - shift - (1 - np.int64(top))
    mantissa = (mantissa + (mantissa & _ONE)) >> _ONE
    if mantissa >> np.uint64(53):
        mantissa >>= _ONE
        binary += 1
    return float_of(np.uint64(binary) << np.uint64(52) | mantissa & (_WIDEST - _ONE >> _ONE))


@njit
def _list(data, at, end, out):  # type: ignore[no-untyped-def]
    """Read the list data[at:] into `out`, which it must fill. Returns where it ends, 0 if it is left to the slow
    reader."""
    at += 1
    for i in range(len(out)):
        at = skip_space(data, at, end)
        if i > 0:
            if at >= end or data[at] != 44:
                return 0
            at = skip_space(data, at + 1, end)
        negative = at < end and data[at] == 45
        at += negative
        digits, count, behind, exponent, first = np.uint64(0), 0, 0, 0, at
        point = False
        while at < end:
            byte = data[at]
            if 48 <= byte <= 57:
                digits = digits * np.uint64(10) + np.uint64(byte - 48)
                if digits > 0:
                    count += 1
                behind += point
            elif byte == 46 and not point:
                point = True
            else:
                break
            at += 1
        if at == first or count > _DIGITS:  # another kind of value; the line is JSON, so that a number is well-formed
            return 0
        if at < end and (data[at] == 101 or data[at] == 69):
            at += 1
            below = at < end and data[at] == 45
            at += at < end and (data[at] == 43 or data[at] == 45)
            while at < end and 48 <= data[at] <= 57:
                exponent = min(exponent * 10 + (data[at] - 48), 9999)
                at += 1
            exponent = -exponent if below else exponent
        number = np.float32(_number(digits, exponent - behind))
        if not np.isfinite(number):
            return 0
        out[i] = -number if negative else number
    at = skip_space(data, at, end)
    return at + 1 if at < end and data[at] == 93 else 0


@njit
def gather_numbers(data: Bytes, starts: Ints, ends: Ints, out: NDArray[np.float32], stops: Ints) -> None:
    """Read lists of numbers of lines that are JSON.

    starts, ends: int64[n], where each list begins in data, and where its line ends. Filled in: out[n, dimensions] and
    stops[n], where each list ends, or 0 if it is left to the slow reader; its numbers are then undefined.
    """
    for i in range(len(starts)):
        stops[i] = _list(data, starts[i], ends[i], out[i])
