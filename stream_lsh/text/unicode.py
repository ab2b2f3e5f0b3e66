"""Character classes and lower case of a fixed Unicode version, as tables for kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.structs import Bytes, Number, Quarters, Steps, Struct
from stream_lsh.text.ascii import quick_of
from stream_lsh.text.settings import SigningSettings

TABLE_FILE = "unicode-14.npz"
PAGE_BITS = 7

# Bits of the table in the package.
WORD = 1  # letter, digit or underscore: str.isalnum or "_", what \w matches
MARK = 2  # combining mark: categories Mn, Mc, Me
JOINER = 4  # zero-width joiner and non-joiner
CONTINUOUS = 8  # letter of a script that is written without spaces
WHITE = 16  # str.isspace
PUNCTUATION = 32  # category P*, and ASCII's string.punctuation
CASED = 64  # Unicode 3.13: decides whether a sigma is final
CASE_IGNORABLE = 128
IGNORABLE = 1 << 8  # Default_Ignorable_Code_Point: soft hyphens, zero-width characters, bidi marks, variation selectors
NOT_NFC = 1 << 9  # another form in NFC
COMPOSES = 1 << 10  # may form one character with what is before it in NFC
COMPOSED = 1 << 11  # may form one character with what follows

# Bits of the kernels' tables, resolved for some settings; WORD to WHITE keep their meaning.
BLANK = 32  # written as one U+0020
SQUEEZE = 64  # never two in a row, none at the ends

# Entry of the ASCII table: output byte, then these bits. Entries >= ASCII_SLOW are processed by code points.
ASCII_WORD = 8
ASCII_SQUEEZE = 9
ASCII_SLOW = 1 << 15


@dataclass(frozen=True)
class UnicodeData:
    """The table in the package: record = records[pages[code point >> 7] << 7 | code point & 127].

    Attributes:
        flags: uint16, the bits above.
        combining: uint8, canonical combining class.
        unassigned: int32[n, 2], first and last of each range of code points that are unassigned in this version.
    """

    version: str
    pages: NDArray[np.uint16]
    records: NDArray[np.uint16]
    flags: NDArray[np.uint16]
    lower: NDArray[np.int32]
    combining: NDArray[np.uint8]
    unassigned: NDArray[np.int32]

    def records_of(self, points: NDArray[Any]) -> NDArray[np.uint16]:
        """The records of code points."""
        pages = self.pages[points >> PAGE_BITS].astype(np.int64)
        records: NDArray[np.uint16] = self.records[pages << PAGE_BITS | points & ((1 << PAGE_BITS) - 1)]
        return records


@njit(forceinline=True)
def record_of(point, pages, records):  # type: ignore[no-untyped-def]
    """The record of a code point."""
    return records[np.int64(pages[point >> PAGE_BITS]) << PAGE_BITS | point & ((1 << PAGE_BITS) - 1)]


class Tables(Struct):
    """The tables for some settings: classes are resolved, and lower-case distances are zero where case is kept. quick:
    of `quick_of`."""

    quick: Number
    ascii: Quarters
    pages: Quarters
    records: Quarters
    flags: Bytes
    lower: Steps


@cache
def unicode_data() -> UnicodeData:
    """The table, read once (a few milliseconds)."""
    with np.load(Path(__file__).with_name(TABLE_FILE), allow_pickle=False) as table:
        arrays = (table[name] for name in ("pages", "records", "flags", "lower", "combining", "unassigned"))
        return UnicodeData(str(table["version"]), *arrays)


def tables_for(settings: SigningSettings) -> Tables:
    """The kernels' tables for these settings: each step of the normalisation becomes a bit of a class."""
    data = unicode_data()
    flags = np.array([_resolve(int(flag), settings) for flag in data.flags], dtype=np.uint8)
    records = data.records_of(np.arange(128)).tolist()
    lower = data.lower if settings.lower else np.zeros_like(data.lower)
    ascii_table = np.full(256, ASCII_SLOW, dtype=np.uint16)
    for point in range(128):
        if settings.kind == "set" and point == 0x1F:
            continue  # the separator of elements is processed by code points
        flag = int(flags[records[point]])
        written = 0x20 if flag & BLANK else point + int(lower[records[point]])
        word = 1 if flag & WORD else 0
        squeeze = 1 if flag & SQUEEZE else 0
        ascii_table[point] = written | word << ASCII_WORD | squeeze << ASCII_SQUEEZE
    return Tables(
        quick=quick_of(settings), ascii=ascii_table, pages=data.pages, records=data.records, flags=flags, lower=lower
    )


def _resolve(flag: int, settings: SigningSettings) -> int:
    dropped = bool(settings.punctuation and flag & PUNCTUATION)
    result = flag & WHITE
    if dropped or (settings.space and flag & WHITE):
        result |= BLANK
        if settings.space:
            result |= SQUEEZE
    if settings.kind == "set":
        return result | WORD  # everything between two separators is an element
    if settings.kind == "words" and not dropped:
        result |= flag & WORD
        if settings.tokens == "unicode":
            result |= flag & (MARK | JOINER | CONTINUOUS)
    return result
