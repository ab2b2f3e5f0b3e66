"""Exact similarity of shingle sets (MMDS 3.1.1), and the cache of the sets of the latest rows.

Sets are compared as 64-bit integers in the order of their texts. The new document's are in a hash table with their
places. The row's set is compared place by place with the new document's as long as both are equal, which is the usual
case for near-duplicates; only where they differ the table is used. A comparison ends when so many elements are missing
that the threshold cannot be reached. A row that is hardly similar enough is first checked against a bitmap of its set,
an upper bound of what the two share. A bitmap takes a sixth of a set, and is cached for longer.
"""

from __future__ import annotations

import numpy as np
from numba import types

from stream_lsh.families.distances import (
    CONTAINMENT,
    JACCARD,
    LEVENSHTEIN,
    WEIGHTED_JACCARD,
    edits,
    similarity_of,
    weighted_jaccard,
)
from stream_lsh.hashing.kernels import far, njit
from stream_lsh.hashing.structs import Flags, Number, Numbers, Numbers2, Reals, Struct, Words, Words2

BELOW = -1.0  # a similarity under the threshold
CONTAINS = -1024.0
"""Factor of a similarity that says: the document contains the row, and is not contained in it."""
LARGE = 4096
"""Size from which a set is cached as a hash table under `containment`: the new document's elements are looked up in
it."""
_STEP = 8  # elements compared at once where two sets are equal
_LEAST_LARGE = 1 << 24  # words; a set takes a quarter of them at most: that of a text of some 16 MB
_LARGE_WORDS = 4  # words of the ring of hash tables for each shingle of the other ring, used as they are needed
_MARK_BITS = 8  # bits of a bitmap for an element, up to twice as many: one other element in nine to 16 passes
# Columns of a ring's slots: row + 1, position ever written at, words, elements of its set. A later row overwrites an
# earlier one; a slot of zeros, which takes no memory before it is used, is empty.
ROW, AT, WORDS, SIZE = (np.int64(column) for column in range(4))


class Sets(Struct):
    """The sets in memory for a batch of n documents, and the caches. Rings are overwritten from the oldest on; rows are
    found through direct-mapped tables.

    Attributes:
        shingles, offsets, have: the batch's own; document i has shingles[offsets[i]:offsets[i + 1]] if have[i].
        documents: those that became the rows from `first` on.
        ring, slots, kept: the sets of the latest rows; `kept`: words ever written.
        bits, bit_slots, marked: the same, of bitmaps of the sets of more rows.
        large, large_slots, large_kept: the same, of hash tables of sets of more than LARGE elements, under
            `containment`.
        table: scratch: a hash table of the elements of document `filled`, and their places; or room for
            `distances.edits`.
        loaded, similarity: rows (ascending) and their similarities to document `document`, which were computed before.
    """

    shingles: Words
    offsets: Numbers
    have: Flags
    documents: Numbers
    first: Number
    ring: Words
    slots: Numbers2  # [s, 4]
    kept: Number
    bits: Words
    bit_slots: Numbers2  # [s, 4]
    marked: Number
    measure: Number  # of the index, see `families.distances`
    dimensions: Number  # of vectors or bit vectors
    large: Words
    large_slots: Numbers2  # [s, 4]
    large_kept: Number
    table: Words2  # [t, 2]
    filled: Number
    document: Number
    loaded: Numbers
    similarity: Reals

    @classmethod
    def of(cls, shingles: int, measure: int = int(JACCARD), dimensions: int = 0) -> Sets:
        """Empty caches with room for this many shingles of rows; under `jaccard` twice as many words of bitmaps, under
        `containment` four times as many of hash tables."""
        nothing = np.empty(0, np.int64)
        slots, bit_slots = (np.zeros((max(1, shingles // n), 4), np.int64) for n in (64, 8))
        ring, bits = (np.empty(max(1, n * shingles), np.uint64) for n in (1, 2 * (measure == JACCARD)))
        large = max(_LEAST_LARGE, _LARGE_WORDS * shingles) if measure == CONTAINMENT else 1
        return cls(
            shingles=np.empty(0, np.uint64), offsets=np.zeros(1, np.int64), have=np.empty(0, np.bool_),
            documents=nothing, first=0, ring=ring, slots=slots, kept=0, bits=bits, bit_slots=bit_slots, marked=0,
            measure=measure, dimensions=dimensions, large=np.empty(large, np.uint64),
            large_slots=np.zeros((max(1, large >> 13), 4), np.int64), large_kept=0,
            table=np.empty((16, 2), np.uint64), filled=-1, document=-1, loaded=nothing, similarity=np.empty(0),
        )  # fmt: skip

    def begin(self, shingles: Words, offsets: Numbers, have: Flags, first: int) -> None:
        """Take the sets of a batch whose documents become the rows from `first` on."""
        self.have = have  # mostly as before
        _begin(self, self._words, shingles, offsets, first)
        self.__dict__.update(shingles=shingles, offsets=offsets)  # a reference for as long as they are used


@njit
def _begin(sets, words, shingles, offsets, first):  # type: ignore[no-untyped-def]
    words[0], words[1], words[2], words[3] = shingles.ctypes.data, len(shingles), offsets.ctypes.data, len(offsets)
    sets.first, sets.filled, sets.document = first, -1, -1


@njit
def _take_place(capacity, slots, written, row, words, size):  # type: ignore[no-untyped-def]
    """Reserve words for a row in a ring. Returns where they begin (-1 if they are too many), and the words written
    then. written: words written so far."""
    if words > capacity >> 2:
        return np.int64(-1), written
    if written % capacity + words > capacity:  # a set is never split at the end of the ring
        written += capacity - written % capacity
    slot = row & (len(slots) - 1)
    slots[slot, ROW], slots[slot, AT], slots[slot, WORDS], slots[slot, SIZE] = row + 1, written, words, size
    return written % capacity, written + words


@njit
def place_of(ring, slots, written, row):  # type: ignore[no-untyped-def]
    """Begin and end of a row's words in a ring, -1 if they are not there; and the size of its set."""
    slot = row & (len(slots) - 1)
    if slots[slot, ROW] != row + 1 or slots[slot, AT] < written - len(ring):
        return np.int64(-1), np.int64(-1), np.int64(0)
    start = slots[slot, AT] % len(ring)
    return start, start + slots[slot, WORDS], slots[slot, SIZE]


@njit
def keep(sets, row, shingles, start, stop):  # type: ignore[no-untyped-def]
    """Cache the set shingles[start:stop] of a row, and its bitmap."""
    size, ring, bits = stop - start, sets.ring, sets.bits
    if sets.measure == CONTAINMENT and size > LARGE:
        _keep_table(sets, row, shingles, start, stop)
        return
    at, sets.kept = _take_place(len(ring), sets.slots, sets.kept, row, size, size)
    if at >= 0:
        for k in range(size):
            ring[at + k] = shingles[start + k]
    if sets.measure != JACCARD:
        return
    words = max(np.int64(1), table_size(size) * _MARK_BITS >> 7)
    at, sets.marked = _take_place(len(bits), sets.bit_slots, sets.marked, row, words, size)
    if at >= 0:
        for k in range(words):
            bits[at + k] = np.uint64(0)
        shift = _shift_of(64 * words)
        for k in range(start, stop):
            bit = shingles[k] >> shift
            bits[at + np.int64(bit >> np.uint64(6))] |= np.uint64(1) << (bit & np.uint64(63))


@njit
def _keep_table(sets, row, shingles, start, stop):  # type: ignore[no-untyped-def]
    """Cache the set shingles[start:stop] of a row as a hash table; 0 is a free entry."""
    size, large = stop - start, sets.large
    slots = size + (size >> 1)
    at, sets.large_kept = _take_place(len(large), sets.large_slots, sets.large_kept, row, slots, size)
    if at < 0:
        return
    for k in range(slots):
        large[at + k] = np.uint64(0)
    for k in range(start, stop):
        place = _entry(shingles[k], slots)
        while large[at + place] != 0:
            place = place + 1 if place + 1 < slots else np.int64(0)
        large[at + place] = shingles[k]


@njit(forceinline=True)
def _entry(value, slots):  # type: ignore[no-untyped-def]
    return np.int64(((value >> np.uint64(32)) * np.uint64(slots)) >> np.uint64(32))


@njit
def is_cached(sets, row):  # type: ignore[no-untyped-def]
    """Whether the set of a row is cached."""
    if place_of(sets.ring, sets.slots, sets.kept, row)[0] >= 0:
        return True
    return place_of(sets.large, sets.large_slots, sets.large_kept, row)[0] >= 0


@njit
def keep_all(sets, rows, shingles, offsets):  # type: ignore[no-untyped-def]
    """Cache sets that were made from texts."""
    for i in range(len(rows)):
        keep(sets, rows[i], shingles, offsets[i], offsets[i + 1])


@njit
def hopeless(bits, start, stop, other, shingles, begin, end, threshold):  # type: ignore[no-untyped-def]
    """Whether the set shingles[begin:end] shares too little with a set of `other` elements, by the bitmap of that set
    in bits[start:stop]."""
    size, missed = end - begin, np.int64(0)
    least = _needed(size, other, threshold)
    if min(size, other) < least:
        return True
    shift, first = _shift_of(64 * (stop - start)), np.uint64(start)
    for k in range(np.uint64(begin), np.uint64(end)):
        bit = shingles[k] >> shift
        missed += np.int64(~(bits[first + (bit >> np.uint64(6))] >> (bit & np.uint64(63))) & np.uint64(1))
        if missed > size - least:
            return True
    return False


@njit(forceinline=True)
def _needed(one, other, threshold):  # type: ignore[no-untyped-def]
    """How many elements two sets of these sizes share at least at the threshold, less one, so that rounding decides
    nothing."""
    return np.int64(threshold / (1.0 + threshold) * (one + other)) - 1


@njit
def table_size(size):  # type: ignore[no-untyped-def]
    """Entries of the hash table of a set: a power of two, of which at most half are used."""
    slots = np.int64(16)
    while slots < 2 * size:
        slots *= 2
    return slots


@njit
def _slot(value, mask, shift):  # type: ignore[no-untyped-def]
    return np.int64((value * np.uint64(0x9E3779B97F4A7C15)) >> shift) & mask


@njit
def _shift_of(slots):  # type: ignore[no-untyped-def]
    shift = np.uint64(64)
    while slots > 1:
        slots >>= 1
        shift -= np.uint64(1)
    return shift


@njit
def _fill(sets, document):  # type: ignore[no-untyped-def]
    """Enter a document's set into the table. No shingle is 0, which marks a free entry."""
    if sets.filled == document:
        return
    sets.filled = document
    table, shingles, start, stop = sets.table, sets.shingles, sets.offsets[document], sets.offsets[document + 1]
    slots = table_size(stop - start)
    mask, shift = slots - 1, _shift_of(slots)
    for k in range(slots):
        table[k, 0] = np.uint64(0)
    for k in range(stop - start):
        value = shingles[start + k]
        slot = _slot(value, mask, shift)
        while table[slot, 0] != 0:
            slot = (slot + 1) & mask
        table[slot, 0] = value
        table[slot, 1] = np.uint64(k)


@njit
def jaccard(sets, document, other, start, stop, threshold):  # type: ignore[no-untyped-def]
    """Exact Jaccard similarity of a document of the batch to the set other[start:stop]; BELOW if it is under the
    threshold."""
    _fill(sets, document)
    table, mine, begin, end = sets.table, sets.shingles, sets.offsets[document], sets.offsets[document + 1]
    size, candidates = end - begin, stop - start
    slots = table_size(size)
    mask, shift = slots - 1, _shift_of(slots)
    least = _needed(size, candidates, threshold)
    if min(size, candidates) < least:
        return BELOW
    missing = candidates - least  # elements that may be missing
    missed = np.int64(0)
    k, p = start, begin  # current places in both
    while k < stop:
        while k + _STEP <= stop and p + _STEP <= end:
            difference = np.uint64(0)
            for s in range(_STEP):
                difference |= other[k + s] ^ mine[p + s]
            if difference != 0:
                break
            k += _STEP
            p += _STEP
        if k == stop:
            break
        value = other[k]
        k += 1
        if p < end and mine[p] == value:
            p += 1
            continue
        slot = _slot(value, mask, shift)
        while table[slot, 0] != 0 and table[slot, 0] != value:
            slot = (slot + 1) & mask
        if table[slot, 0] == value:
            p = begin + np.int64(table[slot, 1]) + 1
        else:
            missed += 1
            if missed > missing:
                return BELOW
    shared = candidates - missed
    similarity = shared / (size + candidates - shared)
    return similarity if similarity >= threshold else BELOW


@njit
def containment(sets, document, other, start, stop, threshold):  # type: ignore[no-untyped-def]
    """The containment of a document of the batch and the set other[start:stop], as `_of_shares` returns it."""
    _fill(sets, document)
    table, size = sets.table, sets.offsets[document + 1] - sets.offsets[document]
    candidates, slots = stop - start, table_size(size)
    mask, shift, missed = slots - 1, _shift_of(slots), np.int64(0)
    missing = candidates - _least_shared(size, candidates, threshold)
    for k in range(start, stop):
        value = other[k]
        slot = _slot(value, mask, shift)
        while table[slot, 0] != 0 and table[slot, 0] != value:
            slot = (slot + 1) & mask
        if table[slot, 0] != value:
            missed += 1
            if missed > missing:
                return BELOW
    return _of_shares(candidates - missed, size, candidates, threshold)


@far(types.float64(Sets.numba_type, types.int64, types.int64, types.int64, types.int64, types.float64))
def containment_in(sets, document, start, stop, other, threshold):  # type: ignore[no-untyped-def]
    """The same for a set of `other` elements whose hash table is sets.large[start:stop]."""
    large, begin, end = sets.large, sets.offsets[document], sets.offsets[document + 1]
    size, slots, missed = end - begin, stop - start, np.int64(0)
    missing = size - _least_shared(size, other, threshold)
    for k in range(begin, end):
        value = sets.shingles[k]
        place = _entry(value, slots)
        while large[start + place] != 0 and large[start + place] != value:
            place = place + 1 if place + 1 < slots else np.int64(0)
        if large[start + place] != value:
            missed += 1
            if missed > missing:
                return BELOW
    return _of_shares(size - missed, size, other, threshold)


@njit
def _least_shared(one, other, threshold):  # type: ignore[no-untyped-def]
    """How many elements two sets of these sizes share at least if the share of either reaches the threshold, less one,
    so that rounding decides nothing."""
    return np.int64(threshold * min(one, other)) - 1


@njit
def _of_shares(shared, size, other, threshold):  # type: ignore[no-untyped-def]
    """The larger of the two shares: BELOW if it is under the threshold, multiplied by CONTAINS if only the other set's
    share reaches it."""
    mine, theirs = shared / size, shared / other
    if mine >= threshold:
        return max(mine, theirs)
    return theirs * CONTAINS if theirs >= threshold else BELOW


@njit
def similarity(sets, document, other, start, stop, threshold):  # type: ignore[no-untyped-def]
    """Exact similarity of a document of the batch to the set in other[start:stop] by the index's measure; BELOW if it
    is under the threshold."""
    if sets.measure == JACCARD:
        return jaccard(sets, document, other, start, stop, threshold)
    return measured(sets, document, other, start, stop, threshold)


@far(types.float64(Sets.numba_type, types.int64, types.uint64[::1], types.int64, types.int64, types.float64))
def measured(sets, document, other, start, stop, threshold):  # type: ignore[no-untyped-def]
    """As `similarity`, for measures other than `jaccard`."""
    if sets.measure == CONTAINMENT:
        return containment(sets, document, other, start, stop, threshold)
    mine, begin = sets.shingles, sets.offsets[document]
    size = sets.offsets[document + 1] - begin
    if sets.measure == LEVENSHTEIN:
        most = np.int64(1.0 / threshold - 0.5)  # the threshold is 1 / (1 + most)
        found = edits(mine, begin, size, other, start, stop - start, most, sets.table)
        return 1.0 / (1.0 + found) if found <= most else BELOW
    if sets.measure == WEIGHTED_JACCARD:
        found = weighted_jaccard(mine, begin, size, other, start, stop - start)
        return found if found >= threshold else BELOW
    if size != stop - start:
        return BELOW
    found = similarity_of(sets.measure, mine, begin, other, start, size, sets.dimensions)
    return found if found >= threshold else BELOW


@njit
def similarities(sets, document, shingles, offsets, threshold, out):  # type: ignore[no-untyped-def]
    """Similarity float64[n] of a document of the batch to the sets shingles[offsets[i]:offsets[i + 1]], in `out`."""
    for i in range(len(out)):
        out[i] = similarity(sets, document, shingles, offsets[i], offsets[i + 1], threshold)
