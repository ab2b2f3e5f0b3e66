"""Reading a bucket: the rows posted under a key, from the runs on disk and the segment in memory, bounded at both
ends."""

from __future__ import annotations

import numpy as np

from stream_lsh.index.layout import DIRECTORY, ENTRIES, FILTER, KEYS, POSTED, SHIFT, SIZE, WORDS
from stream_lsh.index.memory import COUNT, EMPTY, HEAD, MIDDLE, find, not_empty
from stream_lsh.index.runs import filter_mask, filter_word
from stream_lsh.kernels import halves_at, njit, words_at


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
def _range(directory, keys, shift, key):  # type: ignore[no-untyped-def]
    """Where `key` begins and ends in a run's keys."""
    entry = np.int64(key >> shift)
    low, high = np.int64(directory[entry]), np.int64(directory[entry + 1])
    start, stop = low, high
    while start < stop:
        middle = (start + stop) >> 1
        if keys[middle] < key:
            start = middle + 1
        else:
            stop = middle
    stop = start
    if start < high and keys[start] == key:
        top = high
        while stop < top:
            middle = (stop + top) >> 1
            if keys[middle] <= key:
                stop = middle + 1
            else:
                top = middle
    return start, stop


@njit
def gather(key, mask, runs, memory, oldest, newest, ranges, out):  # type: ignore[no-untyped-def]
    """Rows posted under `key`, ascending: the `oldest` first and the `newest` last ones.

    Returns their number, the (possibly larger) array that holds them, and the number of all.
    """
    total = np.int64(0)
    for r in range(len(runs)):
        ranges[r, 0] = ranges[r, 1] = 0
        if mask & (np.uint32(1) << np.uint32(r)):
            directory = halves_at(runs[r, DIRECTORY], runs[r, ENTRIES])
            keys = words_at(runs[r, KEYS], runs[r, SIZE])
            ranges[r, 0], ranges[r, 1] = _range(directory, keys, np.uint64(runs[r, SHIFT]), key)
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
            rows = halves_at(runs[r, POSTED], runs[r, SIZE])
            head = min(size, max(oldest - at, 0))
            for i in range(ranges[r, 0], ranges[r, 0] + head):
                out[n] = rows[i]
                n += 1
            for i in range(ranges[r, 0] + max(head, total - newest - at), ranges[r, 1]):
                out[n] = rows[i]
                n += 1
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
