"""Reading a bucket: the rows posted under a key, from the memtable and the runs on disk, newest first."""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.bits import half_at, word_at
from stream_lsh.hashing.kernels import njit, read_at
from stream_lsh.index.postings.bloom_filter import filter_mask, filter_word
from stream_lsh.index.postings.memtable import BEHIND_ALL, empty, newest_before, oldest, posted, since
from stream_lsh.index.postings.posting import first_posting, row_of, unpack
from stream_lsh.index.rows.keys import posting_key
from stream_lsh.index.rows.layout import (
    BITS,
    DIRECTORY,
    FILE,
    FILTER,
    FIRST,
    LAST,
    OCTETS,
    POSTINGS,
    ROW_BITS,
    WORDS,
)

__all__ = [
    "COPIES",
    "FOLLOWERS",
    "REPRESENTATIVES",
    "count",
    "earliest",
    "empty",
    "key_behind",
    "key_range",
    "nowhere",
    "passing",
    "probe",
    "read",
    "read_before",
]

# What is posted behind a row; with `compare_with = kept`, behind a group's number: its dropped members, and its
# representative rows.
FOLLOWERS, COPIES, REPRESENTATIVES = np.uint64(1), np.uint64(2), np.uint64(3)
_ONE = np.uint64(1)


@njit
def key_behind(hashed, what):  # type: ignore[no-untyped-def]
    """The key of what is posted behind a row, by the hash of its id, or behind a group, by its number (splitmix64's
    finaliser)."""
    x = hashed ^ (what * np.uint64(0x9E3779B97F4A7C15))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return posting_key(x ^ (x >> np.uint64(31)))


@njit
def passing(keys, runs, out):  # type: ignore[no-untyped-def]
    """The runs that may have each key, by their filters: bits uint64[n or more, w], the newest run the lowest bit. The
    loop is over runs first, so that memory latencies overlap."""
    for i in range(len(keys)):
        for w in range(out.shape[1]):
            out[i, w] = 0
    for r in range(len(runs)):
        filter, words, bit = runs[r, FILTER], np.uint64(runs[r, WORDS]), np.uint64(r & 63)
        for i in range(len(keys)):
            mask = filter_mask(keys[i])
            hit = (word_at(filter + 8 * filter_word(keys[i], words)) & mask) == mask
            out[i, r >> 6] |= np.uint64(hit) << bit
    return out


@njit
def probe(key, runs, out):  # type: ignore[no-untyped-def]
    """The same for one key; out: uint64[1, w]."""
    mask = filter_mask(key)
    for w in range(out.shape[1]):
        out[0, w] = np.uint64(0)
    for r in range(len(runs)):
        place = filter_word(key, np.uint64(runs[r, WORDS]))
        if (word_at(runs[r, FILTER] + 8 * place) & mask) == mask:
            out[0, r >> 6] |= _ONE << np.uint64(r & 63)


@njit(forceinline=True)
def nowhere(hits, at):  # type: ignore[no-untyped-def]
    """Whether no run may have the key `at`, by `passing`."""
    bits = np.uint64(0)
    for w in range(hits.shape[1]):
        bits |= hits[at, w]
    return bits == 0


@njit
def _load(runs, r, start, stop, room):  # type: ignore[no-untyped-def]
    """Read the postings [start, stop) of a run into `room`: the rest of the key, and in the low bits the row."""
    n, octets = stop - start, runs[r, OCTETS]
    if runs[r, FILE] < 0:
        for k in range(n):
            room[k] = word_at(runs[r, POSTINGS] + 8 * (start + k))
        return
    at = (8 - octets) * n
    read_at(runs[r, FILE], room.ctypes.data + at, octets * n, runs[r, POSTINGS] + octets * start)
    unpack(room.view(np.uint8), at, n, octets, room)


@njit
def _bound(runs, r, start, stop, posting, room):  # type: ignore[no-untyped-def]
    """Position of the first posting in [start, stop) that is not less than the given one."""
    while start < stop:
        middle = (start + stop) >> 1
        _load(runs, r, middle, middle + 1, room)
        if room[0] < posting:
            start = middle + 1
        else:
            stop = middle
    return start


@njit
def key_range(runs, r, key, row, end, room):  # type: ignore[no-untyped-def]
    """Begin and end of the rows of `key` in [row, end) among the postings of run r; and the position of what is in
    `room`, or -1.

    room: uint64[m], for postings read from the file: mostly all of one entry of the directory, with one read.
    """
    if row >= runs[r, LAST] or end <= runs[r, FIRST]:
        return np.int64(0), np.int64(0), np.int64(-1)
    bits, row_bits = np.uint64(runs[r, BITS]), np.uint64(runs[r, ROW_BITS])
    entry = np.int64(key >> (np.uint64(64) - bits))
    rest = first_posting(key, bits, row_bits)
    least = rest + np.uint64(max(row - runs[r, FIRST], np.int64(0)))
    wide = min(np.uint64(end - runs[r, FIRST]), _ONE << row_bits)  # they end this far behind `rest`
    low = np.int64(half_at(runs[r, DIRECTORY] + 4 * entry))
    high = np.int64(half_at(runs[r, DIRECTORY] + 4 * entry + 4))
    if high - low > len(room):  # an entry with a very long bucket
        start = _bound(runs, r, low, high, least, room)
        return start, _bound(runs, r, start, high, rest + wide, room), np.int64(-1)
    _load(runs, r, low, high, room)
    start = np.int64(0)
    while start < high - low and room[start] < least:
        start += 1
    stop = start
    while stop < high - low and room[stop] - rest < wide:
        stop += 1
    return low + start, low + stop, low


@njit
def _rows_of(runs, r, start, stop, loaded, room, out, n):  # type: ignore[no-untyped-def]
    """Append the rows at [start, stop) of a run, the last first, to the n in `out`. Returns their new number. loaded:
    position of what is in `room`, or -1."""
    while stop > start:
        begin = start
        if loaded < 0:
            begin = max(start, stop - len(room))
            _load(runs, r, begin, stop, room)
        first = begin - loaded if loaded >= 0 else np.int64(0)
        for k in range(stop - begin - 1, -1, -1):
            row = runs[r, FIRST] + row_of(room[first + k], runs[r, ROW_BITS])
            # Postings are read without a checksum, and a wrong row would be read out of bounds.
            if row >= runs[r, LAST]:
                raise OSError("a file of the index is damaged: it has postings of rows that do not exist")
            out[n] = row
            n += 1
        stop = begin
    return n


@njit
def read(key, slot, hits, at, runs, memory, row, limit, room, out):  # type: ignore[no-untyped-def]
    """The newest rows under `key` from `row` on, at most `limit`, newest first, in `out`.

    slot: the key's in the memtable. hits[at]: the runs that may have it, by `passing`.

    Returns their number, and whether there are more.
    """
    return read_before(key, slot, hits, at, runs, memory, row, BEHIND_ALL, limit, room, out)


@njit
def read_before(key, slot, hits, at, runs, memory, row, end, limit, room, out):  # type: ignore[no-untyped-def]
    """The same, of the rows in [row, end)."""
    there = since(memory, slot, key, row)
    if end < BEHIND_ALL:
        there -= since(memory, slot, key, end)
    n = newest_before(memory, slot, key, end, min(limit, there), out)
    if there > limit:
        return n, True
    for r in range(len(runs)):
        if hits[at, r >> 6] >> np.uint64(r & 63) & _ONE:
            start, stop, loaded = key_range(runs, r, key, row, end, room)
            if stop - start > limit - n:
                return _rows_of(runs, r, stop - (limit - n), stop, loaded, room, out, n), True
            n = _rows_of(runs, r, start, stop, loaded, room, out, n)
    return n, False


@njit
def count(key, slot, hits, runs, memory, row, room):  # type: ignore[no-untyped-def]
    """Number of rows posted under a key from `row` on. hits: uint64[1, w], from `probe`."""
    total = since(memory, slot, key, row)
    for r in range(len(runs)):
        if hits[0, r >> 6] >> np.uint64(r & 63) & _ONE:
            start, stop, _ = key_range(runs, r, key, row, BEHIND_ALL, room)
            total += stop - start
    return total


@njit
def earliest(key, slot, hits, runs, memory, row, limit, room, out):  # type: ignore[no-untyped-def]
    """The oldest rows under a key from `row` on, at most `limit`, oldest first, in `out`. Returns their number. hits:
    uint64[1, w], from `probe`."""
    n = np.int64(0)
    for r in range(len(runs) - 1, -1, -1):
        if n < limit and hits[0, r >> 6] >> np.uint64(r & 63) & _ONE:
            start, stop, loaded = key_range(runs, r, key, row, BEHIND_ALL, room)
            begin, n = n, _rows_of(runs, r, start, min(stop, start + limit - n), loaded, room, out, n)
            for k in range((n - begin) >> 1):
                out[begin + k], out[n - 1 - k] = out[n - 1 - k], out[begin + k]
    passed = posted(memory, slot, key) - since(memory, slot, key, row)
    return n + oldest(memory, slot, key, passed, limit - n, out[n:])
