"""Second step of reading JSON lines, compiled: the values that `json_scan` has found are unescaped and joined."""

from __future__ import annotations

from stream_lsh.documents.json_scan import (
    ACCEPTED,
    BACKSLASHES,
    ESCAPED,
    INTEGER,
    LEFT,
    PLAIN,
    Bytes,
    Ints,
    hex_unit,
    zero_byte,
)
from stream_lsh.hashing.bits import load64, low_zeros, store64
from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.utf8 import encode


@njit
def _unescape(data: Bytes, at: int, end: int, out: Bytes, to: int) -> int:
    """Write the inside data[at:end] of a scanned JSON string as UTF-8 to out[to:]. Returns where it ends, -1 if it has
    a lone surrogate."""
    while at < end:
        if at + 8 <= end:  # to the next backslash; `out` has room for all eight bytes, as it has for the line
            word = load64(data, at)
            store64(out, to, word)
            plain = low_zeros(zero_byte(word ^ BACKSLASHES)) >> 3
            at += plain
            to += plain
            if plain == 8:
                continue
        byte = data[at]
        if byte != 92:
            out[to] = byte
            to += 1
            at += 1
            continue
        kind = data[at + 1]
        at += 2
        if kind == 117:
            point = hex_unit(data, at, end)
            at += 4
            if 0xD800 <= point < 0xDC00 and at + 6 <= end and data[at] == 92 and data[at + 1] == 117:
                low = hex_unit(data, at + 2, end)
                if 0xDC00 <= low < 0xE000:
                    point = 0x10000 + (point - 0xD800 << 10) + (low - 0xDC00)
                    at += 6
            if 0xD800 <= point < 0xE000:
                return -1
            to = encode(out, to, point)
            continue
        if kind == 110:
            out[to] = 10
        elif kind == 116:
            out[to] = 9
        elif kind == 114:
            out[to] = 13
        elif kind == 98:
            out[to] = 8
        elif kind == 102:
            out[to] = 12
        else:
            out[to] = kind
        to += 1
    return to


@njit
def has_ink(text: Bytes, start: int, end: int) -> bool:
    """Whether text[start:end] (UTF-8) has a character for which `str.isspace` is false."""
    at = start
    while at < end:
        byte = text[at]
        if byte < 0x80:
            if not (byte == 32 or 9 <= byte <= 13 or 28 <= byte <= 31):
                return True
            at += 1
        elif byte == 0xC2:
            if text[at + 1] != 0x85 and text[at + 1] != 0xA0:
                return True
            at += 2
        elif 0xE1 <= byte <= 0xE3:
            second, third = text[at + 1], text[at + 2]
            space = (
                (byte == 0xE1 and second == 0x9A and third == 0x80)
                or (byte == 0xE2 and second == 0x80 and (third <= 0x8A or third in (0xA8, 0xA9, 0xAF)))
                or (byte == 0xE2 and second == 0x81 and third == 0x9F)
                or (byte == 0xE3 and second == 0x80 and third == 0x80)
            )
            if not space:
                return True
            at += 3
        else:
            return True
    return False


@njit
def gather_texts(data: Bytes, spans: Ints, kinds: Bytes, first: int, status: Bytes, out: Bytes, text_ends: Ints) -> int:
    """Join the text fields `first`... of each accepted line by a line break into `out`, one document after another.

    A line becomes LEFT if one of them is missing, no string or no UTF-8, or if no character is visible; its text is
    then empty.
    Fills text_ends[n] and returns the number of bytes. `out` needs room for all lines.
    """
    to = 0
    for i in range(len(status)):
        start = to
        for field in range(first, kinds.shape[1]):
            if kinds[i, field] != PLAIN and kinds[i, field] != ESCAPED:
                status[i] = LEFT
        if status[i] == ACCEPTED:
            for field in range(first, kinds.shape[1]):
                if field > first:
                    out[to] = 10
                    to += 1
                inside, end = spans[i, field, 0] + 1, spans[i, field, 1] - 1
                if kinds[i, field] == PLAIN:
                    for at in range(end - inside):  # a slice takes 2 s more to compile and is 5 % faster
                        out[to + at] = data[inside + at]
                    to += end - inside
                else:
                    to = _unescape(data, inside, end, out, to)
                    if to < 0:
                        break
            if to < 0 or not has_ink(out, start, to):
                status[i] = LEFT
                to = start
        text_ends[i] = to
    return to


@njit
def gather_integers(data: Bytes, spans: Ints, kinds: Bytes, field: int, values: Ints) -> None:
    """Fill values[i] with the INTEGER of `field`. Those of more than 18 digits and other kinds are not changed."""
    for i in range(len(values)):
        start, end = spans[i, field, 0], spans[i, field, 1]
        negative = kinds[i, field] == INTEGER and data[start] == 45
        if negative:
            start += 1
        if kinds[i, field] == INTEGER and end - start <= 18:
            value = 0
            for at in range(start, end):
                value = value * 10 + (data[at] - 48)
            values[i] = -value if negative else value
