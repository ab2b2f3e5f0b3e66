"""Stretches of a bucket in which nobody lives, so that whoever reads it passes over them.

The dead stay posted until their segment goes, and count in no limit. So that a bucket full of them is read once and
not for every document: under this key nobody lives from this row down to that one. Who is dead stays so, whatever is
flushed, merged or read from elsewhere meanwhile. What is forgotten here is read again: no answer depends on it.
To leave postings out when runs are merged would not do instead: a feed whose documents are deleted as they come has
10,000 of them in a bucket of the memtable, long before any merge, and takes 100 µs a document without this, 13
with it.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.structs import Struct, Words2

BITS = 16  # of the number of deleted_ranges that are known: 1.5 MB, touched as they are
SHORTEST = np.int64(16)
"""Deleted rows that are worth an entry."""
_SHIFT, _ODD = np.uint64(64 - BITS), np.uint64(0x9E3779B97F4A7C15)


class DeletedRanges(Struct):
    """slots: uint64[n, 3], each with the stretch that came last: key, newest row, oldest row. An empty one has the key
    0, which none has."""

    slots: Words2

    @classmethod
    def of(cls) -> Self:
        """None is known yet."""
        return cls(slots=np.zeros((1 << BITS, 3), np.uint64))


@njit(forceinline=True)
def _place(key, row):  # type: ignore[no-untyped-def]
    return np.int64((key ^ np.uint64(row) * _ODD) * _ODD >> _SHIFT)


@njit
def pass_over(deleted_ranges, key, row):  # type: ignore[no-untyped-def]
    """The oldest row of the stretch that begins with this one, or -1."""
    slots, place = deleted_ranges.slots, _place(key, row)
    if slots[place, 0] == key and slots[place, 1] == np.uint64(row):
        return np.int64(slots[place, 2])
    return np.int64(-1)


@njit
def remember(deleted_ranges, key, newest, oldest):  # type: ignore[no-untyped-def]
    """Nobody lives under a key between these rows."""
    slots, place = deleted_ranges.slots, _place(key, newest)
    slots[place, 0], slots[place, 1], slots[place, 2] = key, np.uint64(newest), np.uint64(oldest)
