"""Reading of JSON lines, compiled: strict grammar, strict UTF-8, no duplicate keys, and the wanted fields.

A Python object for each document would limit a stream in one process, because it needs the GIL. These kernels process
the bytes of a whole batch without the GIL and without objects. They accept a line only if it satisfies every rule. A
line that is unusual (an escape in a key, deep nesting, many keys) or wrong is left to the slow reader in `json_reader`,
which alone decides why a document is rejected.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.bits import load64, low_zeros
from stream_lsh.hashing.kernels import njit

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

# Kinds of the value of a wanted field.
MISSING, PLAIN, ESCAPED, INTEGER, OTHER = 0, 1, 2, 3, 4
# Status of a line.
ACCEPTED, LEFT = 0, 1

MAX_DEPTH = 32  # deeper nesting is left to the slow reader
MAX_KEYS = 512  # open keys of one line

_EIGHT = 0x0101010101010101  # a byte of 1 in each of a word's eight
_ONES, _TOPS, _FROM_BLANK = np.uint64(_EIGHT), np.uint64(0x80 * _EIGHT), np.uint64(0x60 * _EIGHT)
_QUOTES, BACKSLASHES = np.uint64(34 * _EIGHT), np.uint64(92 * _EIGHT)
_KEY, _FIRST_KEY, _VALUE, _FIRST_VALUE, _NEXT = 0, 1, 2, 3, 4


@njit
def skip_space(data: Bytes, at: int, end: int) -> int:
    """The next place from `at` on that has no white space of JSON, or the end."""
    while at < end and (data[at] == 32 or data[at] == 9 or data[at] == 13 or data[at] == 10):
        at += 1
    return at


@njit
def utf8_length(data: Bytes, at: int, end: int) -> int:
    """Length of the well-formed multi-byte character at `at` (Unicode table 3-7), 0 if there is none."""
    lead = data[at]
    if lead < 0xC2 or lead > 0xF4:
        return 0
    length = 2 if lead < 0xE0 else (3 if lead < 0xF0 else 4)
    if at + length > end:
        return 0
    second = data[at + 1]
    low, high = 0x80, 0xBF
    if lead == 0xE0:
        low = 0xA0
    elif lead == 0xED:
        high = 0x9F
    elif lead == 0xF0:
        low = 0x90
    elif lead == 0xF4:
        high = 0x8F
    if second < low or second > high:
        return 0
    for i in range(2, length):
        if data[at + i] & 0xC0 != 0x80:
            return 0
    return length


@njit
def _hex(byte: int) -> int:
    if 48 <= byte <= 57:
        return byte - 48
    if 97 <= byte <= 102:
        return byte - 87
    if 65 <= byte <= 70:
        return byte - 55
    return -1


@njit
def hex_unit(data: Bytes, at: int, end: int) -> int:
    """The 16-bit unit of the four hexadecimal digits at `at`, -1 if there are not four."""
    if at + 4 > end:
        return -1
    unit = 0
    for i in range(at, at + 4):
        digit = _hex(data[i])
        if digit < 0:
            return -1
        unit = unit * 16 + digit
    return unit


@njit(forceinline=True)
def zero_byte(word):  # type: ignore[no-untyped-def]
    """Of the highest bits of the eight bytes of a word, the lowest that is set is that of the lowest byte of 0."""
    return (word - _ONES) & ~word & _TOPS


@njit(forceinline=True)
def special_bytes(word):  # type: ignore[no-untyped-def]
    """The same of the lowest byte that is below 32, above 127, a quote or a backslash."""
    return (word | ~(word + _FROM_BLANK)) & _TOPS | zero_byte(word ^ _QUOTES) | zero_byte(word ^ BACKSLASHES)


@njit
def _scan_string(data: Bytes, at: int, end: int) -> tuple[int, bool]:
    """From the opening quote at `at` to behind the closing one, and whether there are escapes; -1 if malformed."""
    at += 1
    escapes = False
    while True:
        while at + 8 <= end:  # to the next special byte
            plain = low_zeros(special_bytes(load64(data, at))) >> 3
            at += plain
            if plain < 8:
                break
        if at >= end:
            return -1, escapes
        byte = data[at]
        if byte == 34:
            return at + 1, escapes
        if byte < 32:
            return -1, escapes
        if byte == 92:
            escapes = True
            if at + 1 >= end:
                return -1, escapes
            kind = data[at + 1]
            if kind == 117:
                if hex_unit(data, at + 2, end) < 0:
                    return -1, escapes
                at += 6
            elif kind in (34, 92, 47, 98, 102, 110, 114, 116):
                at += 2
            else:
                return -1, escapes
        elif byte < 128:
            at += 1
        while at < end and data[at] > 127:
            length = utf8_length(data, at, end)
            if length == 0:
                return -1, escapes
            at += length


@njit
def _scan_digits(data: Bytes, at: int, end: int) -> int:
    while at < end and 48 <= data[at] <= 57:
        at += 1
    return at


@njit
def _scan_number(data: Bytes, at: int, end: int) -> tuple[int, bool]:
    """The place behind the number at `at`, and whether it is an integer other than -0; -1 if malformed."""
    start = at
    if data[at] == 45:
        at += 1
    if at >= end or not 48 <= data[at] <= 57:
        return -1, False
    integer = not (data[at] == 48 and at > start)
    at = at + 1 if data[at] == 48 else _scan_digits(data, at, end)
    if at < end and data[at] == 46:
        integer = False
        first = at + 1
        at = _scan_digits(data, first, end)
        if at == first:
            return -1, False
    if at < end and (data[at] == 101 or data[at] == 69):
        integer = False
        at += 1
        if at < end and (data[at] == 43 or data[at] == 45):
            at += 1
        first = at
        at = _scan_digits(data, first, end)
        if at == first:
            return -1, False
    return at, integer


@njit
def _scan_literal(data: Bytes, at: int, end: int) -> int:
    """The place behind true, false or null at `at`; -1 if it is none of them."""
    if at + 4 <= end and data[at] == 116 and data[at + 1] == 114 and data[at + 2] == 117 and data[at + 3] == 101:
        return at + 4
    if at + 4 <= end and data[at] == 110 and data[at + 1] == 117 and data[at + 2] == 108 and data[at + 3] == 108:
        return at + 4
    if (
        at + 5 <= end
        and data[at] == 102
        and data[at + 1] == 97
        and data[at + 2] == 108
        and data[at + 3] == 115
        and data[at + 4] == 101
    ):
        return at + 5
    return -1


@njit
def _field(data: Bytes, start: int, end: int, names: Bytes, name_ends: Ints) -> int:
    """Number of the wanted field whose name is data[start:end], -1 if none."""
    name_start = 0
    for field in range(len(name_ends)):
        name_end = name_ends[field]
        if name_end - name_start == end - start:
            same = True
            for i in range(end - start):
                if data[start + i] != names[name_start + i]:
                    same = False
                    break
            if same:
                return field
        name_start = name_end
    return -1


@njit
def is_new_key(data: Bytes, start: int, end: int, keys: Ints, base: int, top: int) -> bool:
    """Put the digest of the key data[start:end] into keys[top]. False if it is in keys[base:top]: a duplicate key, or
    (never seen) a collision, which the slow reader decides."""
    digest = np.int64(end - start)
    for i in range(start, end):
        digest = (digest ^ np.int64(data[i])) * np.int64(0x100000001B3)
    keys[top] = digest
    for i in range(base, top):  # noqa: SIM110  # kernels have no generators
        if keys[i] == digest:
            return False
    return True


@njit
def _scan_line(
    data: Bytes, at: int, end: int, names: Bytes, name_ends: Ints, spans: Ints, kinds: Bytes, keys: Ints, stack: Ints
) -> bool:
    """Whether the line is one JSON object by every rule. Fills `spans` and `kinds` of its wanted top-level fields."""
    at = skip_space(data, at, end)
    if at >= end or data[at] != 123:
        return False
    at += 1
    # stack[d] = where the keys of the open object d begin in `keys`, or -1 for an array.
    depth, base, top = 0, 0, 0
    stack[0] = 0
    state, field, open_field = _FIRST_KEY, -1, -1
    while True:
        at = skip_space(data, at, end)
        if at >= end:
            return False
        byte = data[at]
        closes = False
        if state == _NEXT:
            if byte == 44:
                at += 1
                state = _KEY if base >= 0 else _VALUE
                continue
            closes = True
        elif state in (_FIRST_KEY, _KEY):
            if byte == 34:
                start = at + 1
                at, escapes = _scan_string(data, at, end)
                if at < 0 or escapes or top == MAX_KEYS:
                    return False
                if not is_new_key(data, start, at - 1, keys, base, top):
                    return False
                top += 1
                field = _field(data, start, at - 1, names, name_ends) if depth == 0 else -1
                at = skip_space(data, at, end)
                if at >= end or data[at] != 58:
                    return False
                at += 1
                state = _VALUE
                continue
            if state == _KEY:
                return False
            closes = True
        elif state == _FIRST_VALUE and byte == 93:
            closes = True
        if closes:
            if byte != (125 if base >= 0 else 93):
                return False
            at += 1
            if depth == 0:
                return bool(skip_space(data, at, end) == end)
            if base >= 0:
                top = base
            depth -= 1
            base = stack[depth]
            if depth == 0 and open_field >= 0:
                spans[open_field, 1] = at
            state = _NEXT
            continue
        # A value.
        start = at
        kind = OTHER
        if byte == 34:
            at, escapes = _scan_string(data, at, end)
            kind = ESCAPED if escapes else PLAIN
        elif byte == 123 or byte == 91:
            if depth == 0:
                open_field = field
                if field >= 0:
                    kinds[field] = OTHER
                    spans[field, 0] = start
            depth += 1
            if depth == MAX_DEPTH:
                return False
            base = top if byte == 123 else -1
            stack[depth] = base
            state = _FIRST_KEY if byte == 123 else _FIRST_VALUE
            at += 1
            continue
        elif byte == 45 or 48 <= byte <= 57:
            at, integer = _scan_number(data, at, end)
            kind = INTEGER if integer else OTHER
        else:
            at = _scan_literal(data, at, end)
        if at < 0:
            return False
        if depth == 0 and field >= 0:
            kinds[field] = kind
            spans[field, 0] = start
            spans[field, 1] = at
        state = _NEXT


@njit(allocates=True)
def scan_lines(
    data: Bytes, starts: Ints, ends: Ints, names: Bytes, name_ends: Ints, spans: Ints, kinds: Bytes, status: Bytes
) -> None:
    """Read lines data[starts[i]:ends[i]], each one JSON object, by RFC 8259 and Unicode table 3-7.

    names, name_ends: the f wanted top-level keys, concatenated, and where each ends. Filled in: status[n] (ACCEPTED or
    LEFT); kinds[n, f] (MISSING, PLAIN string, ESCAPED string, INTEGER, OTHER); spans[n, f, 2], the place of the value
    in data.
    """
    keys = np.empty(MAX_KEYS, np.int64)
    stack = np.empty(MAX_DEPTH, np.int64)
    for i in range(len(starts)):
        for field in range(kinds.shape[1]):
            kinds[i, field] = MISSING
        ok = _scan_line(data, starts[i], ends[i], names, name_ends, spans[i], kinds[i], keys, stack)
        status[i] = ACCEPTED if ok else LEFT


@njit
def nesting(data: Bytes) -> int:
    """How deep brackets outside strings are nested. The line need not be JSON."""
    depth, deepest = 0, 0
    inside = False
    at = 0
    while at < len(data):
        byte = data[at]
        if inside:
            if byte == 92:
                at += 1
            elif byte == 34:
                inside = False
        elif byte == 34:
            inside = True
        elif byte == 123 or byte == 91:
            depth += 1
            deepest = max(deepest, depth)
        elif byte == 125 or byte == 93:
            depth -= 1
        at += 1
    return deepest
