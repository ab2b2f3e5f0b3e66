"""Writes the character table of the package: `PYTHONPATH=tests .venv/bin/python -m support.unicode_table`.

The table is made once, from the Unicode data of the running Python. Later versions of Python then give the same tokens,
the same lower case and the same NFKC. Another table changes signatures: `FORMAT` of the index must then be raised.
"""

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
    CASE_IGNORABLE,
    CASED,
    COMPOSED,
    COMPOSES,
    CONTINUOUS,
    IGNORABLE,
    JOINER,
    MARK,
    NOT_NFC,
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

# Default_Ignorable_Code_Point of DerivedCoreProperties.txt, Unicode 14.0: 4,174 code points, assigned and unassigned.
# unicodedata does not have this property.
IGNORABLE_RANGES = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
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
        flags |= CASE_IGNORABLE
    return flags


def ignorable() -> NDArray[np.bool_]:
    """bool[0x110000]: Default_Ignorable_Code_Point."""
    found = np.zeros(sys.maxunicode + 1, np.bool_)
    for first, last in IGNORABLE_RANGES:
        found[first : last + 1] = True
    return found


def composition() -> NDArray[np.uint16]:
    """uint16[0x110000]: NOT_NFC, COMPOSES and COMPOSED of every code point (UAX 15)."""
    found = np.zeros(sys.maxunicode + 1, np.uint16)
    found[0x1100:0x1113] |= COMPOSED  # Hangul: leading, vowel and trailing letters
    found[0x1161:0x1176] |= COMPOSES
    found[0x11A8:0x11C3] |= COMPOSES
    found[0xAC00 : 0xAC00 + 11172 : 28] |= COMPOSED
    singles = [(point, chr(point)) for point in range(sys.maxunicode + 1) if not 0xAC00 <= point < 0xD7A4]
    for point, char in singles:
        canonical = unicodedata.decomposition(char)
        if canonical and canonical[0] != "<":
            parts = [int(part, 16) for part in canonical.split()]
            if unicodedata.normalize("NFC", char) != char:
                found[point] |= NOT_NFC
            elif len(parts) == 2:
                found[point] |= COMPOSED  # its marks may be put into another order
                found[parts[0]] |= COMPOSED
                found[parts[1]] |= COMPOSES
    for point, char in singles:  # a form that begins with a character that composes, or with a mark
        first = unicodedata.normalize("NFD", char)[0]
        if found[point] & NOT_NFC and (found[ord(first)] & COMPOSES or unicodedata.combining(first)):
            found[point] |= COMPOSES
    return found


def unassigned() -> list[tuple[int, int]]:
    """First and last code point of each range without a category."""
    points = [point for point in range(sys.maxunicode + 1) if unicodedata.category(chr(point)) == "Cn"]
    firsts = [point for before, point in pairwise([-2, *points]) if point != before + 1]
    lasts = [point for point, behind in pairwise([*points, -2]) if behind != point + 1]
    return list(zip(firsts, lasts, strict=True))


def build() -> dict[str, NDArray[Any]]:
    """The table: records[pages[point >> PAGE_BITS] << PAGE_BITS | low bits of point] is an index into flags,
    lower and combining."""
    kinds: dict[tuple[int, int, int], int] = {}
    more = composition() | (ignorable() * IGNORABLE).astype(np.uint16)
    record_of = np.zeros(sys.maxunicode + 1, dtype=np.uint16)
    for point in range(sys.maxunicode + 1):
        char = chr(point)
        lower = char.lower()
        # Only U+0130 becomes two characters: `casing` rewrites it before.
        distance = ord(lower) - point if len(lower) == 1 else 0
        kind = flags_of(char) | int(more[point]), distance, unicodedata.combining(char)
        record_of[point] = kinds.setdefault(kind, len(kinds))
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
        "flags": np.array([flags for flags, _, _ in kinds], dtype=np.uint16),
        "lower": np.array([distance for _, distance, _ in kinds], dtype=np.int32),
        "combining": np.array([combining for _, _, combining in kinds], dtype=np.uint8),
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
