"""Reading a bucket: the rows posted under a key, from the runs on disk and the segment in memory, bounded at both
ends."""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.kernels import halves_at, njit, read_at, words_at
from stream_lsh.index.layout import DIRECTORY, ENTRIES, FILE, FILTER, KEYS, POSTED, SHIFT, SIZE, WORDS
from stream_lsh.index.memory import COUNT, EMPTY, HEAD, MIDDLE, find, not_empty
from stream_lsh.index.runs import filter_mask, filter_word


@njit
def link_key(row):  # type: ignore[no-untyped-def]
    """The key under which the followers of a leader are posted (splitmix64's finaliser of the row)."""
    x = (np.uint64(row) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return not_empty(x ^ (x >> np.uint64(31)))


@njit
def all_keys(band_keys, ids, texts):  # type: ignore[no-untyped-def]
    """Band keys, the id's and the text's side by side, none of them the empty key: uint64[n, b + 2]."""
    n, b = band_keys.shape
    keys = np.empty((n, b + 2), np.uint64)
    for i in range(n):
        for j in range(b):
            keys[i, j] = not_empty(band_keys[i, j])
        keys[i, b] = not_empty(ids[i, 0])
        keys[i, b + 1] = not_empty(texts[i, 0])
    return keys


@njit
def passing(keys, runs):  # type: ignore[no-untyped-def]
    """Which runs may hold each key: a bit a run. One run after the other, so that the memory's latencies overlap."""
    flat = keys.reshape(-1)
    masks = np.zeros(len(flat), np.uint32)
    for r in range(len(runs)):
        filter = words_at(runs[r, FILTER], runs[r, WORDS])
        words = np.uint64(runs[r, WORDS])
        for i in range(len(flat)):
            mask = filter_mask(flat[i])
            hit = (filter[filter_word(flat[i], words)] & mask) == mask
            masks[i] |= np.uint32(hit) << np.uint32(r)
    return masks.reshape(keys.shape)


@njit
def _key_at(run, i, room):  # type: ignore[no-untyped-def]
    """One key of a run."""
    if run[FILE] < 0:
        return words_at(run[KEYS], run[SIZE])[i]
    read_at(run[FILE], room.ctypes.data, 8, run[KEYS] + 8 * i)
    return room[0]


@njit
def key_range(run, key, room):  # type: ignore[no-untyped-def]
    """Where `key` begins and ends among the keys of a run (a line of the table).

    room: uint64[m], for keys read from the file: as a rule all that share the directory's entry, with one read.
    """
    entry = np.int64(key >> np.uint64(run[SHIFT]))
    directory = halves_at(run[DIRECTORY], run[ENTRIES])
    low, high = np.int64(directory[entry]), np.int64(directory[entry + 1])
    if high - low > len(room):  # an entry with a bucket of very many postings
        start = _first(run, low, high, key, room, False)
        return start, _first(run, start, high, key, room, True)
    if run[FILE] >= 0:
        read_at(run[FILE], room.ctypes.data, 8 * (high - low), run[KEYS] + 8 * low)
        keys = room[: high - low]
    else:
        keys = words_at(run[KEYS] + 8 * low, high - low)
    start = np.int64(0)
    while start < high - low and keys[start] < key:
        start += 1
    stop = start
    while stop < high - low and keys[stop] == key:
        stop += 1
    return low + start, low + stop


@njit
def _first(run, start, stop, key, room, after):  # type: ignore[no-untyped-def]
    """Position of the first key that is not smaller than `key`, or with `after`, larger."""
    while start < stop:
        middle = (start + stop) >> 1
        found = _key_at(run, middle, room)
        if found < key or (after and found == key):
            start = middle + 1
        else:
            stop = middle
    return start


@njit
def _copy_rows(run, start, stop, out, n):  # type: ignore[no-untyped-def]
    """Append the rows at [start, stop) of a run to the n in `out`; returns their number."""
    if stop <= start:
        return n
    if run[FILE] >= 0:
        read_at(run[FILE], out.ctypes.data + 4 * n, 4 * (stop - start), run[POSTED] + 4 * start)
        return n + stop - start
    rows = halves_at(run[POSTED], run[SIZE])
    for i in range(start, stop):
        out[n] = rows[i]
        n += 1
    return n


@njit
def gather(key, mask, runs, memory, oldest, newest, ranges, room, out):  # type: ignore[no-untyped-def]
    """Rows posted under `key`, ascending: the `oldest` first and the `newest` last ones.

    Returns their number, the (possibly larger) array that holds them, and the number of all.
    """
    total = np.int64(0)
    for r in range(len(runs)):
        ranges[r, 0] = ranges[r, 1] = 0
        if mask & (np.uint32(1) << np.uint32(r)):
            ranges[r, 0], ranges[r, 1] = key_range(runs[r], key, room)
            total += ranges[r, 1] - ranges[r, 0]
    slot = find(memory.keys, memory.shift, key)
    in_memory = np.int64(0)
    if memory.keys[slot] != EMPTY:
        in_memory = np.int64(memory.entries[slot, COUNT])
    total += in_memory
    if total == 0:
        return np.int64(0), out, total
    if total <= oldest + newest:
        oldest, newest = total, np.int64(0)
    if oldest + newest > len(out):
        out = np.empty(2 * (oldest + newest), np.uint32)
    n = np.int64(0)
    at = np.int64(0)  # position of the source's first posting among all
    for r in range(len(runs)):
        size = ranges[r, 1] - ranges[r, 0]
        if size > 0:
            head = min(size, max(oldest - at, 0))
            n = _copy_rows(runs[r], ranges[r, 0], ranges[r, 0] + head, out, n)
            n = _copy_rows(runs[r], ranges[r, 0] + max(head, total - newest - at), ranges[r, 1], out, n)
            at += size
    if in_memory > 0:
        head = min(in_memory, max(oldest - at, 0))
        node = memory.entries[slot, HEAD]
        for _ in range(head):
            out[n] = memory.rows[node]
            n += 1
            node = memory.following[node]
        if newest > 0 and head < in_memory:
            if in_memory - head > newest:
                node = memory.entries[slot, MIDDLE]
            while node >= 0:
                out[n] = memory.rows[node]
                n += 1
                node = memory.following[node]
    return n, out, total


@njit
def probe_filters(key, runs):  # type: ignore[no-untyped-def]
    mask = np.uint32(0)
    bits = filter_mask(key)
    for r in range(len(runs)):
        filter = words_at(runs[r, FILTER], runs[r, WORDS])
        if (filter[filter_word(key, np.uint64(runs[r, WORDS]))] & bits) == bits:
            mask |= np.uint32(1) << np.uint32(r)
    return mask
