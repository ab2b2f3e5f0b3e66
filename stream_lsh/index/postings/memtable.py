"""The memtable: a hash table from keys to the rows posted under them.

A key's slot is given by its high bits (linear probing). Reading the slots in order yields the keys almost sorted, and a
flush is one pass. Nearly all keys have one row, which is in the slot itself. The rows of a longer bucket are in blocks
of growing size, each with a pointer to the one before. The newest rows of a bucket are therefore read first, from
adjacent memory.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.bits import prefetch
from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.structs import Halves, Number, Struct, Unsigned, Words2

EMPTY = np.uint64(0)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
BEHIND_ALL = np.int64(1 << 62)  # greater than any row
# A block of the pool: where the block before begins (0: none), number of rows, room for rows, then the rows.
_BEFORE, _USED, _ROOM, _ROWS = 0, 1, 2, 3
_SMALLEST, _LARGEST = 4, 256
_GROWTH = 8  # of the number of slots, where there are fewer than the memtable needs when it is full
POOL_WORDS = 4  # most words of the pool for one posting: two rows in a block of four


def power_of_two(least: int) -> int:
    """The least power of two that is at least this."""
    return 1 << max(0, least - 1).bit_length()


def _bits(postings: int) -> int:
    """Of the number of slots for so many postings."""
    return max(4, int(np.ceil(np.log2(postings * 1.5))))


class Memtable(Struct):
    """The arrays of a memtable; some slots are always empty.

    Attributes:
        slots: uint64[s, 2], key and value. An empty slot has the key 0. The value's high half is the newest block, its
            low half the number of rows; without a block the low half is the row.
        pool: the blocks.
        used: words of the pool in use.
        postings: their number.
        shift: the home slot of a key is key >> shift.
        first: the shard's row that rows are counted from.
    """

    slots: Words2
    pool: Halves
    used: Number
    postings: Number
    shift: Unsigned
    first: Number

    @classmethod
    def of(cls, postings: int, at_first: int | None = None) -> Self:
        """An empty memtable with room for this many postings, which fill at most two thirds of the slots.

        at_first: it begins with slots for so many, so that few documents take little memory; `reserve` makes room for
        more. None = slots for all.
        """
        bits = _bits(min(postings, at_first or postings))
        return cls(
            slots=np.zeros((1 << bits, 2), np.uint64), pool=np.empty(POOL_WORDS * postings + 1, np.uint32), used=1,
            postings=0, shift=np.uint64(64 - bits), first=0,
        )  # fmt: skip

    def clear(self) -> None:
        self.slots.fill(0)
        self.used, self.postings = 1, 0

    def begin(self, first: int) -> None:
        """Empty it, for the rows from `first` on."""
        self.clear()
        self.first = first

    def reserve(self, postings: int) -> None:
        """Make room for this many more postings, for documents with many keys."""
        self.reserve_slots(postings)
        there = int(self.postings) + postings
        if POOL_WORDS * there + 1 > len(self.pool):
            pool = np.empty(2 * POOL_WORDS * there + 1, np.uint32)
            pool[: self.used] = self.pool[: self.used]
            self.pool = pool

    def reserve_slots(self, postings: int) -> None:
        """Make slots for at most this many more postings, for which the pool has room."""
        there = int(self.postings) + postings
        if 3 * there > 2 * len(self.slots):
            usual = len(self.pool) // POOL_WORDS
            bits = max(_bits(there), min(_bits(_GROWTH * there), _bits(usual)))
            slots, shift = np.zeros((1 << bits, 2), np.uint64), np.uint64(64 - bits)
            move(self.slots, slots, shift)
            self.slots, self.shift = slots, shift

    def shrink(self, postings: int) -> None:
        """Reduce an empty memtable to room for this many postings."""
        if POOL_WORDS * postings + 1 < len(self.pool):
            usual = Memtable.of(postings)
            self.slots, self.shift, self.pool = usual.slots, usual.shift, usual.pool

    def sorted(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        """All postings by key, then row: keys uint64[n], rows uint32[n]."""
        keys, rows = np.empty(int(self.postings), np.uint64), np.empty(int(self.postings), np.uint32)
        _sorted(self.slots, self.pool, self.shift, keys, rows)
        return keys, rows


@njit
def move(slots, larger, shift):  # type: ignore[no-untyped-def]
    """Copy the slots of a table into a larger, empty one."""
    for slot in range(len(slots)):
        if slots[slot, 0] != EMPTY:
            to = _from(larger, np.int64(slots[slot, 0] >> shift), slots[slot, 0])
            larger[to, 0], larger[to, 1] = slots[slot, 0], slots[slot, 1]


@njit
def find(memory, key):  # type: ignore[no-untyped-def]
    """The key's slot, or the empty slot where it belongs."""
    return _from(memory.slots, np.int64(key >> memory.shift), key)


@njit(forceinline=True)
def _from(slots, slot, key):  # type: ignore[no-untyped-def]
    while slots[slot, 0] != EMPTY and slots[slot, 0] != key:
        slot += 1
        if slot == len(slots):
            slot = np.int64(0)
    return slot


@njit
def expect(memory, keys):  # type: ignore[no-untyped-def]
    """Load the first slots of keys into the cache: `find` and `append` follow."""
    for key in keys:
        prefetch(memory.slots, 2 * np.int64(key >> memory.shift))


@njit
def append(memory, slot, key, row):  # type: ignore[no-untyped-def]
    """Post `row`, greater than all before it, under `key`, probing from `slot` on."""
    slots, pool = memory.slots, memory.pool
    slot = _from(slots, slot, key)
    memory.postings += 1
    if slots[slot, 0] == EMPTY:
        slots[slot, 0] = key
        slots[slot, 1] = np.uint64(row)
        return
    value = slots[slot, 1]
    block = np.int64(value >> _HALF)
    count = value & _LOW
    if block == 0:
        block = _new_block(memory, np.int64(0), np.int64(_SMALLEST))
        pool[block + _ROWS] = np.uint32(count)  # the row that was in the slot
        pool[block + _USED] = 1
        count = np.uint64(1)
    elif pool[block + _USED] == pool[block + _ROOM]:
        block = _new_block(memory, block, min(2 * np.int64(pool[block + _ROOM]), np.int64(_LARGEST)))
    pool[block + _ROWS + np.int64(pool[block + _USED])] = np.uint32(row)
    pool[block + _USED] += np.uint32(1)
    slots[slot, 1] = np.uint64(block) << _HALF | (count + np.uint64(1))


@njit
def post_all(memory, keys, row):  # type: ignore[no-untyped-def]
    """Post a row under each of these keys."""
    for k in range(len(keys)):
        append(memory, np.int64(keys[k] >> memory.shift), keys[k], row)


@njit
def _new_block(memory, before, room):  # type: ignore[no-untyped-def]
    block, pool = memory.used, memory.pool
    memory.used = block + _ROWS + room
    pool[block + _BEFORE] = np.uint32(before)
    pool[block + _USED] = 0
    pool[block + _ROOM] = np.uint32(room)
    return block


@njit(forceinline=True)
def empty(memory, slot):  # type: ignore[no-untyped-def]
    """Whether a slot is empty."""
    return memory.slots[slot, 0] == EMPTY


@njit
def posted(memory, slot, key):  # type: ignore[no-untyped-def]
    """Number of rows under the key with this slot."""
    if memory.slots[slot, 0] != key:
        return np.int64(0)
    value = memory.slots[slot, 1]
    return np.int64(value & _LOW) if value >> _HALF else np.int64(1)


@njit
def since(memory, slot, key, row):  # type: ignore[no-untyped-def]
    """Number of rows under the key from `row` on."""
    n = posted(memory, slot, key)
    if n == 0 or row <= memory.first:
        return n
    value, pool, first = memory.slots[slot, 1], memory.pool, row - memory.first
    block = np.int64(value >> _HALF)
    if block == 0:
        return np.int64(np.int64(value & _LOW) >= first)
    n = np.int64(0)
    while block != 0:
        seen = np.int64(pool[block + _USED]) - _before(pool, block, first)
        n += seen
        block = np.int64(pool[block + _BEFORE]) if seen == np.int64(pool[block + _USED]) else np.int64(0)
    return n


@njit
def _before(pool, block, first):  # type: ignore[no-untyped-def]
    """Number of rows of a block that are older than `first`."""
    low, high = np.int64(0), np.int64(pool[block + _USED])
    if np.int64(pool[block + _ROWS]) >= first:  # the usual case in a long bucket
        return low
    while low < high:
        middle = (low + high) // 2
        if np.int64(pool[block + _ROWS + middle]) < first:
            low = middle + 1
        else:
            high = middle
    return low


@njit
def newest(memory, slot, key, limit, out):  # type: ignore[no-untyped-def]
    """The newest rows under a key, at most `limit`, newest first, in `out`. Returns their number."""
    return newest_before(memory, slot, key, BEHIND_ALL, limit, out)


@njit
def newest_before(memory, slot, key, row, limit, out):  # type: ignore[no-untyped-def]
    """The same, of the rows before `row`."""
    if limit <= 0 or memory.slots[slot, 0] != key:
        return np.int64(0)
    value, pool, first = memory.slots[slot, 1], memory.pool, memory.first
    block, end = np.int64(value >> _HALF), row - memory.first
    if block == 0:
        out[0] = first + np.int64(value & _LOW)
        return np.int64(out[0] < row)
    n = np.int64(0)
    while block != 0 and n < limit:
        used = np.int64(pool[block + _USED])
        place = block + _ROWS + used - 1
        if np.int64(pool[place]) >= end:
            used = _before(pool, block, end)
            place = block + _ROWS + used - 1
        for _ in range(min(limit - n, used)):
            out[n] = first + np.int64(pool[place])
            n += 1
            place -= 1
        block = np.int64(pool[block + _BEFORE])
    return n


@njit
def oldest(memory, slot, key, skipped, limit, out):  # type: ignore[no-untyped-def]
    """The oldest rows under a key without the newest `skipped`, at most `limit`, oldest first, in `out`. Returns their
    number."""
    end = posted(memory, slot, key) - skipped
    n = min(limit, end)
    if n <= 0:
        return np.int64(0)
    value, pool, first = memory.slots[slot, 1], memory.pool, memory.first
    block = np.int64(value >> _HALF)
    if block == 0:
        out[0] = first + np.int64(value & _LOW)
    while block != 0 and end > 0:
        start = end - np.int64(pool[block + _USED])
        for k in range(max(start, np.int64(0)), min(end, n)):
            out[k] = first + np.int64(pool[block + _ROWS + k - start])
        block, end = np.int64(pool[block + _BEFORE]), start
    return n


@njit(allocates=True)
def _sorted(slots, pool, shift, keys, rows):  # type: ignore[no-untyped-def]
    order = np.empty(len(keys), np.int64)
    n = 0
    for slot in range(len(slots)):
        if slots[slot, 0] != EMPTY and np.int64(slots[slot, 0] >> shift) <= slot:
            n = _placed(slots, order, n, slot)
    # The largest keys are at the beginning if there was no room for them at the end.
    first = np.int64(0)
    while slots[first, 0] != EMPTY:
        if np.int64(slots[first, 0] >> shift) > first:
            n = _placed(slots, order, n, first)
        first += 1
    written = np.int64(0)
    for i in range(n):
        key, value = slots[order[i], 0], slots[order[i], 1]
        block = np.int64(value >> _HALF)
        if block == 0:
            keys[written] = key
            rows[written] = np.uint32(value & _LOW)
            written += 1
            continue
        count = np.int64(value & _LOW)
        place = written + count
        while block != 0:
            used = np.int64(pool[block + _USED])
            place -= used
            for k in range(used):
                keys[place + k] = key
                rows[place + k] = pool[block + _ROWS + k]
            block = np.int64(pool[block + _BEFORE])
        written += count


@njit
def _placed(slots, order, n, slot):  # type: ignore[no-untyped-def]
    """Insert a slot where its key belongs. Probing displaces a key by a few slots at most: insertion sort is linear."""
    at = n
    while at > 0 and slots[order[at - 1], 0] > slots[slot, 0]:
        order[at] = order[at - 1]
        at -= 1
    order[at] = slot
    return n + 1
