"""Writes the character table of the package: `PYTHONPATH=tests .venv/bin/python -m support.unicode_table`.

The table is made once, from the Unicode data of the running Python. Later versions of Python then give the same tokens,
the same lower case and the same NFKC. Another table changes signatures: `FORMAT` of the index must then be raised.
"""

from __future__ import annotations

import string
import sys
import unicodedata
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.text import unicode
from stream_lsh.text.unicode import (
    CASED,
    CONTINUOUS,
    IGNORABLE,
    JOINER,
    MARK,
    PAGE_BITS,
    PUNCTUATION,
    TABLE_FILE,
    WHITE,
    WORD,
)

# Scripts written without spaces, by the first words of their characters' names (unicodedata has no scripts). Hangul,
# Tibetan (a mark between syllables), Javanese and Balinese (letters only in old books) are left out.
CONTINUOUS_NAMES = (
    "CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "CJK RADICAL", "KANGXI", "IDEOGRAPHIC", "HANGZHOU", "BOPOMOFO",
    "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "HENTAIGANA", "VERTICAL KANA", "MASU MARK", "YI SYLLABLE", "TANGUT",
    "NUSHU", "KHITAN SMALL", "THAI", "LAO", "KHMER", "MYANMAR", "TAI LE", "NEW TAI LUE", "TAI THAM", "TAI VIET", "AHOM",
)  # fmt: skip


def flags_of(char: str) -> int:
    """The class bits of one character."""
    category = unicodedata.category(char)
    flags = 0
    if char.isalnum() or char == "_":
        flags |= WORD
        letter = category[0] == "L" or category == "Nl"  # digits of these scripts stay together as numbers
        if letter and unicodedata.name(char, "").startswith(CONTINUOUS_NAMES):
            flags |= CONTINUOUS
    if category[0] == "M":
        flags |= MARK
    if char in "\u200c\u200d":
        flags |= JOINER
    if char.isspace():
        flags |= WHITE
    if category[0] == "P" or char in string.punctuation:
        flags |= PUNCTUATION
    # The form of a sigma behind a character shows whether str.lower takes the character for cased or ignorable (Unicode
    # 3.13).
    if (char + "Σ").lower().endswith("ς"):
        flags |= CASED
    elif ("A" + char + "Σ").lower().endswith("ς"):
        flags |= IGNORABLE
    return flags


def unassigned() -> list[tuple[int, int]]:
    """First and last code point of each range without a category."""
    points = [point for point in range(sys.maxunicode + 1) if unicodedata.category(chr(point)) == "Cn"]
    firsts = [point for before, point in pairwise([-2, *points]) if point != before + 1]
    lasts = [point for point, behind in pairwise([*points, -2]) if behind != point + 1]
    return list(zip(firsts, lasts, strict=True))


def build() -> dict[str, NDArray[Any]]:
    """The table: records[pages[point >> PAGE_BITS] << PAGE_BITS | low bits of point] is an index into flags and
    lower."""
    kinds: dict[tuple[int, int], int] = {}
    record_of = np.zeros(sys.maxunicode + 1, dtype=np.uint16)
    for point in range(sys.maxunicode + 1):
        char = chr(point)
        lower = char.lower()
        # Only U+0130 becomes two characters: `casing` rewrites it before.
        distance = ord(lower) - point if len(lower) == 1 else 0
        record_of[point] = kinds.setdefault((flags_of(char), distance), len(kinds))
    pages: list[int] = []
    records: list[NDArray[np.uint16]] = []
    seen: dict[bytes, int] = {}
    for page in record_of.reshape(-1, 1 << PAGE_BITS):
        key = page.tobytes()
        if key not in seen:
            seen[key] = len(seen)
            records.append(page)
        pages.append(seen[key])
    return {
        "version": np.array(unicodedata.unidata_version),
        "pages": np.array(pages, dtype=np.uint16),
        "records": np.concatenate(records).astype(np.uint16),
        "flags": np.array([flags for flags, _ in kinds], dtype=np.uint8),
        "lower": np.array([distance for _, distance in kinds], dtype=np.int32),
        "unassigned": np.array(unassigned(), dtype=np.int32),
    }


def main() -> None:
    """Write the table file into the package."""
    path = Path(unicode.__file__).with_name(TABLE_FILE)
    table = build()
    np.savez_compressed(path, **table)  # type: ignore[arg-type]
    sizes = {name: array.shape for name, array in table.items()}
    print(f"{path.name}: Unicode {table['version']}, {path.stat().st_size} bytes, {sizes}")


if __name__ == "__main__":
    main()
