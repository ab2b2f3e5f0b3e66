"""Deleted rows: versions that were replaced or deleted, and rows that are there for something else than to be met. A
mark of two bits each, in memory as in the store, where a value has the marks of some rows of one segment. Whoever meets
a thousand deleted rows reads none of them: the mark says whether there is a new representative behind it.

Rows and postings of deleted rows stay until their segment goes; under `kept` nobody counts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError
from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.structs import Bytes, Number, Numbers2, Struct, Words
from stream_lsh.index.rows.deleted_ranges import DeletedRanges
from stream_lsh.index.store.rocksdb import DEAD, Store, parts_of, rows_key

DEAD_ROWS = "dead"  # in a shard's manifest: how many there are; missing where there are none
WENT = 6  # columns of a version that went
CHUNK = 1 << 12  # rows whose marks are written together: 1 KB
LIVES, DIED, STANDS = (
    np.uint64(0),
    np.uint64(1),
    np.uint64(3),
)  # it is met; it is not; its representative is, whose row it names
_WORDS, _ROW = CHUNK // 32, np.int64(31)
_MARK, _DIED = np.uint64(3), 0x5555555555555555  # the bits of one row; those that all deleted rows have
_NONE = np.int64(-1)
_BITS = np.array([1, 2], np.uint8)  # of a mark

Place = tuple[int, int]
"""Number and first row of a segment."""


class DeletedRows(Struct):
    """The marks of the rows from `first` on, which begins a chunk; rows behind the last one live.

    changed: the chunks that were written to since the last commit. count: how many are dead of the rows that are there.
    aside: a row that counts as dead for the moment, -1 = none. went: the `gone` versions that died since then, to be
    erased: row, the row by which it was met in its group or -1, the number of rows there were, its number, its
    group, 1 if its id was deleted. deleted_ranges: in the buckets that were read.
    """

    marks: Words
    changed: Bytes
    first: Number
    count: Number
    aside: Number
    went: Numbers2  # [room, WENT]
    gone: Number
    deleted_ranges: DeletedRanges

    @classmethod
    def of(cls, row: int) -> Self:
        """Of a shard whose rows begin with this one: nobody is dead, and there is no room for anybody."""
        none = np.empty(0, np.uint64), np.empty(0, np.uint8)
        return cls(
            marks=none[0], changed=none[1], first=row // CHUNK * CHUNK, count=0, aside=_NONE,
            went=np.empty((0, WENT), np.int64), gone=0, deleted_ranges=DeletedRanges.of(),
        )  # fmt: skip

    def reach(self, row: int, oldest: int) -> None:
        """Have room for the rows before this one; those before the oldest are not there any more."""
        have = int(self.first) + len(self.changed) * CHUNK
        if row <= have:
            return
        first = max(int(self.first), oldest // CHUNK * CHUNK)
        chunks, kept = -(-(row - first) // CHUNK), max(0, (have - first) // CHUNK)
        chunks += chunks >> 1
        gone = len(self.changed) - kept
        marks, changed = np.zeros(chunks * _WORDS, np.uint64), np.zeros(chunks, np.uint8)
        marks[: kept * _WORDS], changed[:kept] = self.marks[gone * _WORDS :], self.changed[gone:]
        self.marks, self.changed, self.first = marks, changed, first

    def room_for(self, versions: int) -> None:
        """So many may die before the next commit."""
        if (least := int(self.gone) + versions) > len(self.went):
            went = np.empty((2 * least, WENT), np.int64)
            went[: self.gone] = self.went[: self.gone]
            self.went = went

    def took_leave(self) -> NDArray[np.int64]:
        """Those in `removed_by`, which is empty afterwards."""
        found = self.went[: self.gone].copy()
        self.gone = 0
        return found

    def forget(self, row: int) -> None:
        """The rows before this one are not there any more."""
        place = row - int(self.first)
        words = self.marks[place >> 5 :] & np.uint64(_DIED)
        words[:1] >>= np.uint64(2 * (place & 31))
        self.count = int.from_bytes(words.tobytes(), "little").bit_count()

    def take(self, shard: int, segments: Sequence[Place], last: int) -> dict[bytes, bytes]:
        """The values that were changed since it was asked last, of the rows before `last`."""
        values = {}
        for chunk in np.flatnonzero(self.changed).tolist():
            begin = int(self.first) + chunk * CHUNK
            bits = _bits(self.marks[chunk * _WORDS : (chunk + 1) * _WORDS].tobytes())
            for (number, start), later in zip_longest(segments, segments[1:]):
                a, b = max(start, begin), min(later[1] if later else last, begin + CHUNK)
                if a < b and bits[a - begin : b - begin].any():
                    packed = np.packbits(bits[a - begin : b - begin], bitorder="little")
                    values[rows_key(DEAD, shard, number, a)] = packed.tobytes()
        self.changed[:] = 0
        return values

    def restore(self, store: Store, shard: int, segments: Sequence[Place], last: int, count: int) -> None:
        """Have what is in the store, of the rows before `last`: so many are dead.

        Raises:
            DamagedError: it is not what was written.
        """
        found = 0
        for number, first in segments:
            for row, value in store.rows_of(DEAD, shard, number):
                bits = _bits(value)
                dead = np.flatnonzero(bits.any(axis=1))
                if row < first or row + dead.max(initial=0) >= last:
                    raise _damaged(store, shard)
                self.reach(last, segments[0][1])
                marks = (bits[dead] @ _BITS).astype(np.uint64)
                places = (row + dead - int(self.first)).astype(np.uint64)
                np.bitwise_or.at(self.marks, places >> np.uint64(5), marks << (places & np.uint64(31)) * np.uint64(2))
                found += int(bits[:, 0].sum())
        if found != count:
            raise _damaged(store, shard)
        self.count = count


def died(values: Mapping[bytes, bytes], store: Store) -> NDArray[np.int64]:
    """Who is dead in values of `Dead.take` and not yet in the store: row << 2 | mark of each."""
    found = [np.empty(0, np.int64)]
    for key, value in values.items():
        if not key.startswith(DEAD):
            continue
        bits, before = _bits(value), _bits(store.value(key) or b"")
        bits[: len(before)] ^= before[: len(bits)]
        rows = np.flatnonzero(bits.any(axis=1))
        found.append(parts_of(key)[3] + rows << 2 | bits[rows] @ _BITS)
    return np.concatenate(found)


def marked(store: Store, shard: int, segments: Sequence[Place], dead: NDArray[np.int64]) -> dict[bytes, bytes]:
    """The values in which these are dead, too, as `died` gives them; of a shard that nobody has opened."""
    values = {}
    rows, bits = dead >> 2, (dead[:, None] >> np.array([0, 1]) & 1).astype(np.uint8)
    for (number, first), later in zip_longest(segments, segments[1:]):
        mine = (rows >= first) & (rows < (later[1] if later else np.iinfo(np.int64).max))
        begins = np.maximum(rows // CHUNK * CHUNK, first)
        for begin in np.unique(begins[mine]).tolist():
            key, here = rows_key(DEAD, shard, number, begin), mine & (begins == begin)
            before, after = _bits(store.value(key) or b""), np.zeros((CHUNK, 2), np.uint8)
            after[: len(before)] = before
            after[rows[here] - begin] |= bits[here]
            values[key] = np.packbits(after, bitorder="little").tobytes().rstrip(b"\0")
    return values


def dead_between(store: Store, shard: int, segment: int, first: int, last: int) -> NDArray[np.int64]:
    """Who of some rows of a segment is dead, by the store, as `died` gives it."""
    found, before = [np.empty(0, np.int64)], store.before(DEAD, shard, segment, first)
    for begin, value in store.rows_of(DEAD, shard, segment, first if before is None else before[0]):
        if begin >= last:
            break
        bits = _bits(value)[max(0, first - begin) : last - begin]
        rows = np.flatnonzero(bits.any(axis=1))
        found.append(max(begin, first) + rows << 2 | bits[rows] @ _BITS)
    return np.concatenate(found)


def dead_in(store: Store, shard: int, segment: int) -> int:
    """How many rows of a segment are dead, by the store."""
    return sum(int(_bits(value)[:, 0].sum()) for _, value in store.rows_of(DEAD, shard, segment))


def _bits(marks: bytes) -> NDArray[np.uint8]:
    """Marks as bits [n, 2]."""
    return np.unpackbits(np.frombuffer(marks, np.uint8), bitorder="little").reshape(-1, 2)


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
def mark_of(dead, row):  # type: ignore[no-untyped-def]
    """LIVES, DIED or STANDS."""
    return DIED if row == dead.aside else lasting_mark_of(dead, row)


@njit
def lasting_mark_of(dead, row):  # type: ignore[no-untyped-def]
    """The same, whoever is aside for the moment."""
    place = row - dead.first
    if place >> 5 >= len(dead.marks):
        return LIVES
    return dead.marks[place >> 5] >> np.uint64(2 * (place & _ROW)) & _MARK


@njit
def bury(dead, row, mark):  # type: ignore[no-untyped-def]
    """A row is dead from now on; there is room for its mark."""
    place = row - dead.first
    dead.count += mark_of(dead, row) == LIVES
    dead.marks[place >> 5] |= mark << np.uint64(2 * (place & _ROW))
    dead.changed[place >> 12] = 1


@njit
def leave(dead, row, met_by, rows, seq, group, deleted):  # type: ignore[no-untyped-def]
    """A version dies: it is buried, and to be erased; there is room."""
    bury(dead, row, DIED)
    dead.went[dead.gone, 0], dead.went[dead.gone, 1], dead.went[dead.gone, 2] = row, met_by, rows
    dead.went[dead.gone, 3], dead.went[dead.gone, 4], dead.went[dead.gone, 5] = seq, group, deleted
    dead.gone += 1
