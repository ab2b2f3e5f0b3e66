"""Exact Jaccard similarity of shingle sets (MMDS 3.1.1), and a bounded cache of the sets of recent rows.

Sets are compared as 64-bit integers: the newcomer's go into a hash table once, every candidate's are looked up in it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.kernels import njit
from stream_lsh.index.layout import DOCUMENT, KIND, ROW, VERIFY

SLOTS = 1 << 17  # rows that the cache can hold; a later row takes the place of an earlier one in its slot


class SetCache:
    """A ring of shingle hashes, `capacity` values; the oldest are overwritten. Rows are found through a direct-mapped
    table."""

    def __init__(self, capacity: int) -> None:
        self.ring = np.empty(capacity, np.uint64)
        self.slots = np.full((SLOTS, 3), -1, np.int64)  # row, position ever written at, number of shingles
        self.written = np.zeros(1, np.int64)

    def add(self, rows: NDArray[np.int64], shingles: NDArray[np.uint64], offsets: NDArray[np.int64]) -> None:
        """Keep the sets of the documents whose `rows` are not negative."""
        _add(self.ring, self.slots, self.written, rows, shingles, offsets)


@njit
def _add(ring, slots, written, rows, shingles, offsets):  # type: ignore[no-untyped-def]
    capacity = len(ring)
    for i in range(len(rows)):
        size = offsets[i + 1] - offsets[i]
        if rows[i] < 0 or size > capacity >> 2:
            continue
        at = written[0] % capacity
        if at + size > capacity:  # a set is never split over the ring's end
            written[0] += capacity - at
            at = 0
        ring[at : at + size] = shingles[offsets[i] : offsets[i + 1]]
        slot = rows[i] & (SLOTS - 1)
        slots[slot, 0] = rows[i]
        slots[slot, 1] = written[0]
        slots[slot, 2] = size
        written[0] += size


@njit
def _fill(table, shingles):  # type: ignore[no-untyped-def]
    """Enter a set into an empty table of a power of two entries, at most half full; 0 is remembered in the last
    entry."""
    shift = np.uint64(64 - _bits(len(table) - 1))
    mask = len(table) - 2
    for k in range(len(shingles)):
        value = shingles[k]
        if value == 0:
            table[mask + 1] = np.uint64(1)
            continue
        slot = np.int64((value * np.uint64(0x9E3779B97F4A7C15)) >> shift)
        while table[slot] != 0:
            slot = (slot + 1) & mask
        table[slot] = value


@njit
def _bits(size):  # type: ignore[no-untyped-def]
    bits = 0
    while (1 << bits) < size:
        bits += 1
    return bits


@njit
def _shared(table, shingles):  # type: ignore[no-untyped-def]
    """How many of the shingles are in the table."""
    shift = np.uint64(64 - _bits(len(table) - 1))
    mask = len(table) - 2
    shared = 0
    for k in range(len(shingles)):
        value = shingles[k]
        if value == 0:
            shared += table[mask + 1] != 0
            continue
        slot = np.int64((value * np.uint64(0x9E3779B97F4A7C15)) >> shift)
        while table[slot] != 0 and table[slot] != value:
            slot = (slot + 1) & mask
        shared += table[slot] == value
    return shared


@njit
def verify(found, shingles, offsets, first_row, document_of, ring, slots, written, loaded, bounds, rows, out):  # type: ignore[no-untyped-def]  # fmt: skip
    """Exact similarities of candidates, as far as the candidates' sets are at hand.

    found int64[m, 6]: candidates in the order of documents (columns of `layout`). shingles, offsets: the
    batch's sets. first_row, document_of int64[k]: the batch's own rows first_row + j are the documents document_of[j].
    loaded, bounds, rows (ascending): sets read from the store for this batch.
    out float64[m]: filled where negative; stays negative where the set is not at hand, 0 for kinds other than VERIFY.
    """
    table = np.zeros(0, np.uint64)
    document = np.int64(-1)
    for c in range(len(found)):
        if out[c] >= 0:
            continue
        if found[c, KIND] != VERIFY:
            out[c] = 0.0
            continue
        row = found[c, ROW]
        at = np.searchsorted(rows, row)
        slot = row & (SLOTS - 1)
        if first_row <= row < first_row + len(document_of):
            other = document_of[row - first_row]
            candidate = shingles[offsets[other] : offsets[other + 1]]
        elif at < len(rows) and rows[at] == row:
            candidate = loaded[bounds[at] : bounds[at + 1]]
        elif slots[slot, 0] == row and slots[slot, 1] >= written[0] - len(ring):
            start = slots[slot, 1] % len(ring)
            candidate = ring[start : start + slots[slot, 2]]
        else:
            continue
        newcomer = shingles[offsets[found[c, DOCUMENT]] : offsets[found[c, DOCUMENT] + 1]]
        if found[c, DOCUMENT] != document:
            document = found[c, DOCUMENT]
            table = np.zeros((1 << _bits(max(4, 2 * len(newcomer)))) + 1, np.uint64)
            _fill(table, newcomer)
        shared = _shared(table, candidate)
        out[c] = shared / (len(newcomer) + len(candidate) - shared)
