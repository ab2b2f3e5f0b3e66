"""Avro values as JSON, compiled: the same bytes as fastavro and orjson make, without a Python object for a value.

The kernel follows a program (`avro_program`). It accepts a value only if its encoding satisfies every rule. It leaves
damaged, unusual and other values to fastavro, which alone decides why a value is rejected.
"""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.documents import avro_program as op
from stream_lsh.documents.json_scan import Bytes, Ints, is_new_key, special_bytes, utf8_length
from stream_lsh.hashing.bits import float_of, load64, low_zeros, store64
from stream_lsh.hashing.kernels import njit

MAX_DEPTH = 150  # calls, arrays and maps that are open
MAX_KEYS = 512  # of maps that are open
MOST_ROOM = 256 << 20  # bytes for JSON at once, without the digits of floating-point numbers
_SLACK = 40  # bytes that an operation may write without another check
_BAD, _FULL = -1, -2
_LITERALS = len(op.LITERALS)
_FLOOR, _CEILING = -719_162, 2_932_896  # days of the years 1 to 9999, since 1970
_BASE64 = np.frombuffer(f"{string.ascii_uppercase}{string.ascii_lowercase}{string.digits}+/".encode(), np.uint8)
_ESCAPES = np.zeros(128, np.uint8)  # letter of a short escape
_ESCAPES[[8, 9, 10, 12, 13, 34, 92]] = list(b'btnfr"\\')
_BETWEEN = np.frombuffer(b"--T::.", np.uint8)
_ONE, _SEVEN, _LAST, _TEN = np.uint64(1), np.uint64(7), np.uint64(63), np.uint64(10)
_MORE = np.uint64(128)


@njit
def _integer(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """A number of variable length, and the place behind it; -1 if there is none of 64 bits."""
    found, shift = np.uint64(0), np.uint64(0)
    while at < end and shift <= _LAST:
        byte = np.uint64(data[at])
        at += 1
        if shift == _LAST and byte > _ONE:
            break
        found |= (byte & ~_MORE) << shift
        if byte < _MORE:
            return np.int64(found >> _ONE) ^ -np.int64(found & _ONE), at  # type: ignore[return-value]
        shift += _SEVEN
    return 0, -1


@njit
def _sized(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Where bytes that are counted begin and end; -1 if they are not all there."""
    size, at = _integer(data, at, end)
    if at < 0 or size < 0 or size > end - at:
        return -1, -1
    return at, at + size


@njit
def _string(data: Bytes, at: int, end: int, out: Bytes, to: int) -> int:
    """Write UTF-8 data[at:end] as the inside of a JSON string. Returns where it ends, _BAD or _FULL."""
    last = len(out) - _SLACK
    while True:
        while at + 8 <= end and to <= last:
            word = load64(data, at)
            store64(out, to, word)
            plain = low_zeros(special_bytes(word)) >> 3
            at += plain
            to += plain
            if plain < 8:
                break
        if to > last:
            return _FULL
        if at >= end:
            return to
        byte = data[at]
        if byte < 32 or byte == 34 or byte == 92:
            out[to] = 92
            out[to + 1] = _ESCAPES[byte]
            if _ESCAPES[byte] == 0:
                out[to + 1] = 117
                out[to + 2] = out[to + 3] = 48
                out[to + 4] = 48 + (byte >> 4)
                out[to + 5] = (48 if byte & 15 < 10 else 87) + (byte & 15)
                to += 4
            to += 2
            at += 1
        elif byte < 128:
            out[to] = byte
            to += 1
            at += 1
        while at < end and data[at] > 127 and to <= last:
            length = utf8_length(data, at, end)
            if length == 0:
                return _BAD
            for i in range(length):
                out[to + i] = data[at + i]
            at += length
            to += length


@njit
def _base64(data: Bytes, at: int, end: int, out: Bytes, to: int) -> int:
    """Write bytes as base64. Returns where it ends, or _FULL."""
    if to + (end - at + 2) // 3 * 4 > len(out) - _SLACK:
        return _FULL
    while at < end:
        bits = 0
        for i in range(at, at + 3):
            bits = bits << 8 | (int(data[i]) if i < end else 0)
        for i in range(4):
            out[to + i] = _BASE64[bits >> (18 - 6 * i) & 63] if i <= end - at else 61
        at += 3
        to += 4
    return to


@njit
def _digits(value, width, out, to):  # type: ignore[no-untyped-def]
    """Write a number with zeros before it. Returns where it ends."""
    for i in range(width - 1, -1, -1):
        out[to + i] = 48 + value % _TEN
        value //= _TEN
    return to + width


@njit
def _long(value: int, out: Bytes, to: int) -> int:
    """Write a number. Returns where it ends."""
    size, width = np.uint64(value), 1
    if value < 0:
        out[to] = 45
        to += 1
        size = ~size + _ONE
    left = size // _TEN
    while left > np.uint64(0):
        left //= _TEN
        width += 1
    return _digits(size, width, out, to)  # type: ignore[no-any-return]


@njit
def _time(value: int, unit: int, out: Bytes, to: int) -> int:
    """Write a date (unit 0), or a timestamp in units of so many microseconds. Returns where it ends, or _BAD: it is
    outside the years 1 to 9999.

    The calendar: Howard Hinnant, chrono-compatible low-level date algorithms, civil_from_days.
    """
    day = 86_400_000_000 // unit if unit else 1
    days, rest = value // day, value % day * unit
    if days < _FLOOR or days > _CEILING:
        return _BAD
    era, day = (days + 719_468) // 146_097, (days + 719_468) % 146_097
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day += 1 - (153 * month + 2) // 5
    seconds, micros = rest // 1_000_000, rest % 1_000_000
    year, month = year + 400 * era + (month > 9), month + 3 if month < 10 else month - 9
    parts = (year, month, day, seconds // 3600, seconds // 60 % 60, seconds % 60, micros)
    to = _digits(np.uint64(year), 4, out, to)
    for i in range(1, 3 if unit == 0 else 6 if micros == 0 else 7):
        out[to] = _BETWEEN[i - 1]
        to = _digits(np.uint64(parts[i]), 2 if i < 6 else 6, out, to + 1)
    return to


@njit
def _single(bits: int) -> float:
    """The number with the bits of a float32; NaN for infinite ones, too, which JSON does not have either."""
    exponent, fraction = bits >> 23 & 255, bits & 0x7FFFFF
    size = np.nan
    if exponent == 0:
        size = fraction * 2.0**-149
    elif exponent < 255:
        size = float_of(np.uint64((exponent + 896) << 52 | fraction << 29))
    return -size if bits >> 31 else size


@njit
def _value(
    data: Bytes, at: int, end: int, code: Ints, targets: Ints, text: Bytes, out: Bytes, to: int,
    numbers: NDArray[np.float64], places: Ints, count: int, stack: Ints, keys: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Write the value data[at:end]. Returns where it ends, _BAD or _FULL, and the count of numbers.

    stack: in each row where to return, or the items that are left in a block; whether there was an item; and the number
    of open keys before. After a block's head each item takes a byte or more, so that there is an end.
    """
    row, top, used, room = 0, 0, 0, len(out) - _SLACK
    while 0 <= to <= room and at >= 0:
        operation, a, b = code[row, 0], code[row, 1], code[row, 2]
        row += 1
        if operation == op.LITERAL:
            if to + b - a > room:
                return _FULL, count
            for i in range(b - a):
                out[to + i] = text[a + i]
            to += b - a
        elif operation in (op.STRING, op.KEY):
            at, stop = _sized(data, at, end)
            if operation == op.KEY and at >= 0:
                if used == MAX_KEYS or not is_new_key(data, at, stop, keys, stack[top - 1, 2], used):
                    return _BAD, count
                used += 1
            if at >= 0:
                to = _string(data, at, stop, out, to)
            at = stop
        elif operation == op.BYTES:
            stop = at + a
            if a < 0:
                at, stop = _sized(data, at, end)
            if at < 0 or stop > end:
                return _BAD, count
            to = _base64(data, at, stop, out, to)
            at = stop
        elif operation in (op.LONG, op.TIME):
            value, at = _integer(data, at, end)
            to = _long(value, out, to) if operation == op.LONG else _time(value, a, out, to)
        elif operation == op.BOOLEAN:
            if at >= end or data[at] > 1:
                return _BAD, count
            for i in range(0 if data[at] else op.TRUE_ENDS, op.TRUE_ENDS if data[at] else _LITERALS):
                out[to] = text[i]
                to += 1
            at += 1
        elif operation in (op.FLOAT, op.DOUBLE):
            if a > end - at:
                return _BAD, count
            bits = np.uint64(0)
            for i in range(a):
                bits |= np.uint64(data[at + i]) << np.uint64(8 * i)
            numbers[count] = _single(np.int64(bits)) if operation == op.FLOAT else float_of(bits)
            places[count] = to
            count += 1
            at += a
        elif operation == op.CHOICE:
            value, at = _integer(data, at, end)
            if value < 0 or value >= b:
                return _BAD, count
            row = targets[a + value]
        elif operation == op.JUMP:
            row = a
        elif operation in (op.CALL, op.BEGIN):
            if top == MAX_DEPTH:
                return _BAD, count
            stack[top, 0], stack[top, 1], stack[top, 2] = row if operation == op.CALL else 0, 0, used
            top += 1
            row = a if operation == op.CALL else row
        elif operation == op.RETURN:
            if top == 0:
                return (to if at == end else _BAD), count
            top -= 1
            row = stack[top, 0]
        elif operation == op.NEXT:
            frame = stack[top - 1]
            if frame[0] == 0:
                frame[0], at = _integer(data, at, end)
                if frame[0] < 0 and at >= 0:  # the size of the block follows
                    frame[0] = -frame[0]
                    _, at = _integer(data, at, end)
                if at < 0 or frame[0] < 0 or frame[0] > end - at:
                    return _BAD, count
            if frame[0] == 0:
                top -= 1
                used = frame[2]
                row = a
            else:
                frame[0] -= 1
                out[to] = 44
                to += frame[1]
                frame[1] = 1
        else:
            return _BAD, count
    return _FULL if to > room or to == _FULL else _BAD, count


@njit(allocates=True)
def write_values(
    data: Bytes, starts: Ints, ends: Ints, begin: int, code: Ints, targets: Ints, text: Bytes, out: Bytes,
    stops: Ints, read: NDArray[np.bool_], numbers: NDArray[np.float64], places: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Write the JSON of values data[starts[i]:ends[i]], i >= begin, one after another into `out` as long as it has
    room.

    Filled in: stops[n], where each ends in `out`, read[n], which are written (those that are no object are not), and
    the floating-point numbers with the places in `out` where their digits are missing. Returns the place of the first
    value that found no room, and the count of numbers.
    """
    stack, keys = np.empty((MAX_DEPTH, 3), np.int64), np.empty(MAX_KEYS, np.int64)
    to, count = 0, 0
    for i in range(begin, len(starts)):
        written, counted = _value(
            data, starts[i], ends[i], code, targets, text, out, to, numbers, places, count, stack, keys
        )
        if written == _FULL:
            return i, count
        read[i] = written > to and out[to] == 123 and ends[i] > starts[i]
        if read[i]:
            to, count = written, counted
        stops[i] = to
    return len(starts), count


@njit
def insert_digits(source: Bytes, stops: Ints, places: Ints, digits: Bytes, out: Bytes) -> None:
    """Copy JSON with the digits of its numbers, which are a JSON list, and move `stops` to where values then end."""
    at, to, digit, k = 0, 0, 1, 0
    for i in range(len(stops)):
        while at < stops[i]:
            if k < len(places) and places[k] == at:
                while digits[digit] != 44 and digits[digit] != 93:
                    out[to] = digits[digit]
                    to += 1
                    digit += 1
                digit += 1
                k += 1
            out[to] = source[at]
            to += 1
            at += 1
        stops[i] = to


def warm_up() -> None:
    """Compile both kernels, or load them."""
    field = {"name": "number", "type": "double"}
    json_of([bytes(8)], 0, op.compiled({"type": "record", "name": "R", "fields": [field]}, {}))


def json_of(values: Sequence[bytes], head: int, program: op.Program) -> tuple[bytes, Ints, NDArray[np.bool_]]:
    """JSON of values behind heads of so many bytes, one after another; int64[n], where each ends; and bool[n], which
    are written. The others are empty."""
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    data, ends = np.frombuffer(b"".join(values), np.uint8), np.cumsum(lengths)
    stops, read = np.zeros(len(values), np.int64), np.zeros(len(values), bool)
    numbers, places = np.empty(len(data) // 4 + 1), np.empty(len(data) // 4 + 1, np.int64)
    parts, begin, size = list[bytes](), 0, 0
    room = min(2 * len(data) + len(program.text) * len(values) + _SLACK, MOST_ROOM)
    while begin < len(values):
        out = np.empty(room, np.uint8)
        done, count = write_values(
            data, ends - lengths + head, ends, begin, *program[:3], out, stops, read, numbers, places
        )
        if done == begin and room < MOST_ROOM:
            room = min(4 * room, MOST_ROOM)
            continue
        here = stops[begin : max(done, begin + 1)]  # a value that needs more room is left
        made = out[: here[-1]]
        if count:
            digits = np.frombuffer(orjson.dumps(numbers[:count], option=orjson.OPT_SERIALIZE_NUMPY), np.uint8)
            out = np.empty(len(made) + len(digits), np.uint8)
            insert_digits(made, here, places[:count], digits, out)
            made = out[: here[-1]]
        parts.append(made.tobytes())
        here += size
        size += len(made)
        begin += len(here)
    return b"".join(parts), stops, read
