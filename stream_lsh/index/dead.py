"""Dead rows: versions that were replaced or deleted, and rows that are there for something else than to be met. A bit
each, in memory as in the store, where a value has the bits of some rows of one generation.

Rows and postings of the dead stay until their generation goes: so what is read under a key, in whatever order it was
written and merged, is a function of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Self

import numpy as np

from stream_lsh.errors import DamagedError
from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.structs import Bytes, Number, Struct, Words
from stream_lsh.index.store import DEAD, Store, rows_key

DEAD_ROWS = "dead"  # in a shard's manifest: how many there are; missing where there are none
CHUNK = 1 << 12  # rows whose bits are written together: 512 bytes
_WORDS = CHUNK // 64
_ONE, _NONE = np.uint64(1), np.int64(-1)

Place = tuple[int, int]
"""Number and first row of a generation."""


class Dead(Struct):
    """The bits of the rows from `first` on, which begins a chunk; rows behind the last bit live.

    changed: the chunks that were written to since the last commit. count: bits that are set, of rows that are there.
    aside: a row that counts as dead for the moment, -1 = none.
    """

    bits: Words
    changed: Bytes
    first: Number
    count: Number
    aside: Number

    @classmethod
    def of(cls, row: int) -> Self:
        """Of a shard whose rows begin with this one: nobody is dead, and there is no room for anybody."""
        none = np.empty(0, np.uint64), np.empty(0, np.uint8)
        return cls(bits=none[0], changed=none[1], first=row // CHUNK * CHUNK, count=0, aside=_NONE)

    def reach(self, row: int, oldest: int) -> None:
        """Have room for the rows before this one; those before the oldest are not there any more."""
        have = int(self.first) + len(self.changed) * CHUNK
        if row <= have:
            return
        first = max(int(self.first), oldest // CHUNK * CHUNK)
        chunks, kept = -(-(row - first) // CHUNK), max(0, (have - first) // CHUNK)
        chunks += chunks >> 1
        bits, changed, gone = np.zeros(chunks * _WORDS, np.uint64), np.zeros(chunks, np.uint8), len(self.changed) - kept
        bits[: kept * _WORDS], changed[:kept] = self.bits[gone * _WORDS :], self.changed[gone:]
        self.bits, self.changed, self.first = bits, changed, first

    def forget(self, row: int) -> None:
        """The rows before this one are not there any more."""
        place = row - int(self.first)
        words = self.bits[place >> 6 :].copy()
        words[:1] >>= np.uint64(place & 63)
        self.count = int.from_bytes(words.tobytes(), "little").bit_count()

    def take(self, shard: int, generations: Sequence[Place], last: int) -> dict[bytes, bytes]:
        """The values that were changed since it was asked last, of the rows before `last`."""
        values = {}
        for chunk in np.flatnonzero(self.changed).tolist():
            begin = int(self.first) + chunk * CHUNK
            bits = np.unpackbits(self.bits[chunk * _WORDS : (chunk + 1) * _WORDS].view(np.uint8), bitorder="little")
            for (number, start), later in zip_longest(generations, generations[1:]):
                a, b = max(start, begin), min(later[1] if later else last, begin + CHUNK)
                if a < b and bits[a - begin : b - begin].any():
                    packed = np.packbits(bits[a - begin : b - begin], bitorder="little")
                    values[rows_key(DEAD, shard, number, a)] = packed.tobytes()
        self.changed[:] = 0
        return values

    def restore(self, store: Store, shard: int, generations: Sequence[Place], last: int, count: int) -> None:
        """Have what is in the store, of the rows before `last`: so many bits.

        Raises:
            DamagedError: it is not what was written.
        """
        found = 0
        for number, first in generations:
            for row, value in store.rows_of(DEAD, shard, number):
                rows = row + np.flatnonzero(np.unpackbits(np.frombuffer(value, np.uint8), bitorder="little"))
                if row < first or rows.max(initial=0) >= last:
                    raise _damaged(store, shard)
                self.reach(last, generations[0][1])
                places = (rows - int(self.first)).astype(np.uint64)
                np.bitwise_or.at(self.bits, places >> np.uint64(6), _ONE << (places & np.uint64(63)))
                found += len(rows)
        if found != count:
            raise _damaged(store, shard)
        self.count = count


def _damaged(store: Store, shard: int) -> DamagedError:
    return DamagedError(
        f"{store.path}: what says which rows of shard {shard} were replaced or deleted is damaged; restore the folder "
        "from a backup"
    )


@njit
def any_dead(dead):  # type: ignore[no-untyped-def]
    """Whether it has to be asked of a row."""
    return dead.count > 0 or dead.aside >= 0


@njit
def is_dead(dead, row):  # type: ignore[no-untyped-def]
    """Whether a row is dead."""
    if row == dead.aside:
        return True
    place = row - dead.first
    if place >> 6 >= len(dead.bits):
        return False
    return dead.bits[place >> 6] >> np.uint64(place & 63) & _ONE != 0


@njit
def bury(dead, row):  # type: ignore[no-untyped-def]
    """A row is dead from now on; there is room for its bit."""
    place = row - dead.first
    dead.count += not is_dead(dead, row)
    dead.bits[place >> 6] |= _ONE << np.uint64(place & 63)
    dead.changed[place >> 12] = 1
