"""Deleted ranges of buckets, so that reading a bucket skips them.

Postings of deleted rows stay until their segment is deleted, and count towards no limit. An entry says: under this key
all rows from this one down to that one are deleted. A bucket full of deleted rows is then read once, and not for each
document. Deleted rows stay deleted, so that an entry never becomes wrong; a lost entry costs another read, and changes
no verdict. Removing the postings when runs are merged would not suffice: where each document is deleted soon after it
arrives, a bucket has 10,000 deleted rows before any merge. Such a document takes 100 µs without deleted ranges, 13 with
them.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.structs import Struct, Words2

BITS = 16  # of the number of entries: 1.5 MB, of which the touched part is in memory
SHORTEST = np.int64(16)
"""Number of deleted rows that make an entry worth while."""
_SHIFT, _ODD = np.uint64(64 - BITS), np.uint64(0x9E3779B97F4A7C15)


class DeletedRanges(Struct):
    """A hash table in which a slot has the range that was entered last.

    Attributes:
        slots: uint64[n, 3]: key, newest row, oldest row. Key 0 marks an empty slot.
    """

    slots: Words2

    @classmethod
    def of(cls) -> Self:
        """An empty table."""
        return cls(slots=np.zeros((1 << BITS, 3), np.uint64))


@njit(forceinline=True)
def _place(key, row):  # type: ignore[no-untyped-def]
    return np.int64((key ^ np.uint64(row) * _ODD) * _ODD >> _SHIFT)


@njit
def pass_over(deleted_ranges, key, row):  # type: ignore[no-untyped-def]
    """The oldest row of the range that begins with this row, or -1."""
    slots, place = deleted_ranges.slots, _place(key, row)
    if slots[place, 0] == key and slots[place, 1] == np.uint64(row):
        return np.int64(slots[place, 2])
    return np.int64(-1)


@njit
def remember(deleted_ranges, key, newest, oldest):  # type: ignore[no-untyped-def]
    """Enter a range: under this key all rows from `newest` down to `oldest` are deleted."""
    slots, place = deleted_ranges.slots, _place(key, newest)
    slots[place, 0], slots[place, 1], slots[place, 2] = key, np.uint64(newest), np.uint64(oldest)
