"""Encoding and decoding of UTF-8 for kernels, one code point at a time. Lone surrogates are allowed
('surrogatepass')."""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.kernels import njit


@njit
def decode(text, place, end):  # type: ignore[no-untyped-def]
    """(code point, bytes) of the character at `place`; (U+FFFD, 1) for invalid bytes."""
    first = np.int64(text[place])
    if first < 0x80:
        return first, 1
    if 0xC2 <= first < 0xE0 and place + 1 < end:
        return (first & 0x1F) << 6 | np.int64(text[place + 1]) & 0x3F, 2
    if 0xE0 <= first < 0xF0 and place + 2 < end:
        return (first & 0x0F) << 12 | (np.int64(text[place + 1]) & 0x3F) << 6 | np.int64(text[place + 2]) & 0x3F, 3
    if 0xF0 <= first < 0xF5 and place + 3 < end:
        point = (
            (first & 0x07) << 18
            | (np.int64(text[place + 1]) & 0x3F) << 12
            | (np.int64(text[place + 2]) & 0x3F) << 6
            | np.int64(text[place + 3]) & 0x3F
        )
        return min(point, 0x10FFFF), 4
    return 0xFFFD, 1


@njit
def encode(out, place, point):  # type: ignore[no-untyped-def]
    """Write a code point as UTF-8. Returns the place behind it."""
    if point < 0x80:
        out[place] = point
        return place + 1
    if point < 0x800:
        out[place] = 0xC0 | point >> 6
        out[place + 1] = 0x80 | point & 0x3F
        return place + 2
    if point < 0x10000:
        out[place] = 0xE0 | point >> 12
        out[place + 1] = 0x80 | point >> 6 & 0x3F
        out[place + 2] = 0x80 | point & 0x3F
        return place + 3
    out[place] = 0xF0 | point >> 18
    out[place + 1] = 0x80 | point >> 12 & 0x3F
    out[place + 2] = 0x80 | point >> 6 & 0x3F
    out[place + 3] = 0x80 | point & 0x3F
    return place + 4
