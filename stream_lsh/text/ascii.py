"""Normalisation of ASCII, eight bytes at a time: lower case, blanks and the ends of words, without a branch for each
byte.

All bytes of a 64-bit word are processed at once (SWAR, Knuth, TAOCP 7.1.3): for bytes x < 128, x + (128 - c) has its
highest bit set where x >= c. This halves the time of normalising English.
"""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.bits import load64, store64, store_sums
from stream_lsh.hashing.kernels import njit
from stream_lsh.text.settings import SigningSettings

GROUP = 8  # bytes processed at once, and the most that is written beyond the last place counted in `spans`

QUICK = 1  # the settings allow it
QUICK_LOWER = 2
QUICK_SPACE = 4
QUICK_WORDS = 8

_ONES = 0x0101010101010101
_TOPS = np.uint64(0x80 * _ONES)
_NONE = np.uint64(0)
_BLANKS = np.uint64(0x20 * _ONES)
_LINES = np.uint64(0x5F * _ONES)
_SEVENS = np.uint64(0x7F * _ONES)
_FROM_TAB, _BEYOND_RETURN = np.uint64((0x80 - 9) * _ONES), np.uint64((0x80 - 14) * _ONES)
_FROM_28, _BEYOND_BLANK = np.uint64((0x80 - 28) * _ONES), np.uint64((0x80 - 33) * _ONES)
_FROM_0, _BEYOND_9 = np.uint64((0x80 - 0x30) * _ONES), np.uint64((0x80 - 0x3A) * _ONES)
_FROM_A, _BEYOND_Z = np.uint64((0x80 - 0x61) * _ONES), np.uint64((0x80 - 0x7B) * _ONES)
_GATHER = np.uint64(0x0102040810204080)  # moves the lowest bits of eight bytes into the highest byte
_ALL = np.uint64(0xFF)
_S2, _S7, _S8, _S56, _S63 = (np.uint64(n) for n in (2, 7, 8, 56, 63))

# Row m: the places of the set bits of m, padded with 0; and their number.
_PLACES = np.array([([i for i in range(8) if m >> i & 1] + [0] * 8)[:8] for m in range(256)], dtype=np.uint8)
_COUNT = np.array([m.bit_count() for m in range(256)], dtype=np.int64)


def quick_of(settings: SigningSettings) -> int:
    """The bits that `ascii_run` needs of the settings; 0 where it cannot be used."""
    if settings.kind == "set" or settings.punctuation:
        return 0
    return (
        QUICK
        | (QUICK_LOWER if settings.lower else 0)
        | (QUICK_SPACE if settings.space else 0)
        | (QUICK_WORDS if settings.kind == "words" else 0)
    )


@njit
def _classify(x, lower, space, words):  # type: ignore[no-untyped-def]
    """The normalised bytes of x; then the highest bit of each byte that is part of a word; then that of each blank."""
    blank = ((x + _FROM_TAB & ~(x + _BEYOND_RETURN)) | (x + _FROM_28 & ~(x + _BEYOND_BLANK))) & space
    folded = x | _BLANKS
    letter = folded + _FROM_A & ~(folded + _BEYOND_Z) & _TOPS
    digit = x + _FROM_0 & ~(x + _BEYOND_9)
    line = ~((x ^ _LINES) + _SEVENS)
    white = (blank >> _S7) * _ALL
    return ((x | (letter & lower) >> _S2) & ~white) | (_BLANKS & white), (letter | digit | line) & words, blank


@njit
def ascii_run(text, read, end, quick, norm, spans, write, bounds, inside, squeezed):  # type: ignore[no-untyped-def]
    """Normalise groups of eight bytes, up to one with a byte that is not ASCII or with a blank to be dropped.

    Args:
        inside: 1 within a word, otherwise 0.
        squeezed: 1 if a blank here would be dropped, otherwise 0.

    Returns:
        read, write, bounds, inside and squeezed after the groups; unchanged if there was none.
    """
    lower = _TOPS if quick & QUICK_LOWER else _NONE
    space = _TOPS if quick & QUICK_SPACE else _NONE
    words = _TOPS if quick & QUICK_WORDS else _NONE
    before = np.uint64(inside)
    blank_before = np.uint64(squeezed)
    while read + 8 <= end:
        x = load64(text, read)
        written, word, blank = _classify(x, lower, space, words)
        if (x & _TOPS) | (blank & (blank << _S8 | blank_before << _S7)):
            break
        store64(norm, write, written)
        change = word ^ (word << _S8 | before << _S7)
        mask = np.int64(((change >> _S7) * _GATHER) >> _S56)
        store_sums(spans, bounds, _PLACES, mask, write)
        bounds += _COUNT[mask]
        before = word >> _S63
        blank_before = blank >> _S63
        read += 8
        write += 8
    return read, write, bounds, np.int64(before), np.int64(blank_before)
