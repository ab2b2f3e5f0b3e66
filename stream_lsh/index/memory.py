"""Recent postings: a hash table in memory from key to the rows posted under it, oldest first.

A slot is the key's high bits (linear probing), so that reading the slots in order gives the keys almost sorted, and a
flush is one pass. Probing goes on at the first slot behind the last one: who knows the hashes may choose keys that all
belong into the last slots. A bucket is a linked list of nodes; `MIDDLE` points to the first node
of its newest half, so that both ends of a bucket of any length are read in time bounded by the limit.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.kernels import njit

HEAD, TAIL, MIDDLE, COUNT = 0, 1, 2, 3  # columns of `entries`
EMPTY = np.uint64(0)


class Memory(NamedTuple):
    """The arrays of one memory segment; some slots are always empty.

    keys: uint64[slots], 0 where empty. entries: int32[slots, 4]. rows: uint32[nodes]. following: int32[nodes], -1 at
    the end. used: int64[1], nodes in use. shift: home slot of a key = key >> shift.
    """

    keys: NDArray[np.uint64]
    entries: NDArray[np.int32]
    rows: NDArray[np.uint32]
    following: NDArray[np.int32]
    used: NDArray[np.int64]
    shift: np.uint64

    @classmethod
    def of(cls, nodes: int) -> Self:
        """An empty segment for at most `nodes` postings, at most two thirds full."""
        bits = max(10, int(np.ceil(np.log2(nodes * 1.5))))
        slots = 1 << bits
        return cls(
            np.zeros(slots, np.uint64),
            np.empty((slots, 4), np.int32),
            np.empty(nodes, np.uint32),
            np.empty(nodes, np.int32),
            np.zeros(1, np.int64),
            np.uint64(64 - bits),
        )

    def clear(self) -> None:
        self.keys.fill(0)
        self.used[0] = 0

    def sorted(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        """All postings by key, then row: keys uint64[n], rows uint32[n]."""
        keys = np.empty(int(self.used[0]), np.uint64)
        rows = np.empty(int(self.used[0]), np.uint32)
        _sorted(self.keys, self.entries, self.rows, self.following, self.shift, keys, rows)
        return keys, rows


@njit(inline="always")
def not_empty(key):  # type: ignore[no-untyped-def]
    """The key itself, or 1 for the value that marks an empty slot."""
    return key if key != EMPTY else np.uint64(1)


@njit
def find(keys, shift, key):  # type: ignore[no-untyped-def]
    """The key's slot, or the empty slot where it belongs."""
    slot = np.int64(key >> shift)
    while keys[slot] != EMPTY and keys[slot] != key:
        slot += 1
        if slot == len(keys):
            slot = np.int64(0)
    return slot


@njit
def append(keys, entries, rows, following, used, slot, key, row, half):  # type: ignore[no-untyped-def]
    """Post `row` (larger than all before it) under `key`, probing from `slot` on.

    half: half the limit that the key's bucket is read with.
    """
    while keys[slot] != EMPTY and keys[slot] != key:
        slot += 1
        if slot == len(keys):
            slot = np.int64(0)
    node = np.int32(used[0])
    used[0] += 1
    rows[node] = row
    following[node] = -1
    if keys[slot] == EMPTY:
        keys[slot] = key
        entries[slot, HEAD] = node
        entries[slot, MIDDLE] = node
        entries[slot, COUNT] = 0
    else:
        following[entries[slot, TAIL]] = node
    entries[slot, TAIL] = node
    entries[slot, COUNT] += 1
    if entries[slot, COUNT] > half:
        entries[slot, MIDDLE] = following[entries[slot, MIDDLE]]


@njit
def _sorted(keys, entries, rows, following, shift, out_keys, out_rows):  # type: ignore[no-untyped-def]
    order = np.empty(len(out_keys), np.int64)
    n = 0
    for slot in range(len(keys)):
        if keys[slot] != EMPTY and np.int64(keys[slot] >> shift) <= slot:
            n = _placed(keys, order, n, slot)
    # The largest keys stand at the beginning if there was no room for them at the end.
    first = np.int64(0)
    while keys[first] != EMPTY:
        if np.int64(keys[first] >> shift) > first:
            n = _placed(keys, order, n, first)
        first += 1
    written = 0
    for i in range(n):
        node = entries[order[i], HEAD]
        while node >= 0:
            out_keys[written] = keys[order[i]]
            out_rows[written] = rows[node]
            written += 1
            node = following[node]


@njit
def _placed(keys, order, n, slot):  # type: ignore[no-untyped-def]
    """Enter a slot where its key belongs. Probing displaces a key by a few slots at most: insertion sort is linear."""
    at = n
    while at > 0 and keys[order[at - 1]] > keys[slot]:
        order[at] = order[at - 1]
        at -= 1
    order[at] = slot
    return n + 1
