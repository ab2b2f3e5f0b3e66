"""Deleted rows: a mark of two bits for each row. Reading a bucket skips them without reading the rows. Both bits say
that a row is a representative row, which is read as the row of another document. The second bit alone says that a row
was superseded: it is live, and no longer met where it is posted.

In the store, a value has the marks of some rows of one segment. Rows and postings of deleted rows stay until their
segment is deleted; with `compare_with = kept` they count towards no limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError
from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.structs import Bytes, Flag, Number, Numbers2, Struct, Words
from stream_lsh.index.rows.deleted_ranges import DeletedRanges
from stream_lsh.index.store.rocksdb import DELETED_MARKS, Store, parts_of, rows_key

DELETED_ROWS = "deleted_rows"  # in a shard's manifest: number of deleted rows; missing if there are none
VERSION_COLUMNS = 6  # columns of a deleted version
CHUNK = 1 << 12  # rows whose marks are written together: 1 KB
MARK_LIVE, MARK_DELETED, MARK_SUPERSEDED, MARK_REPRESENTATIVE = (np.uint64(mark) for mark in range(4))
_WORDS, _ROW = CHUNK // 32, np.int64(31)
_MARK, _DELETED_BITS = np.uint64(3), 0x5555555555555555  # the bits of one row; the bit that marks a row as deleted
_NONE = np.int64(-1)
ALONE = np.int64(2)  # of a version that stays, only the representative row is entered
_BITS = np.array([1, 2], np.uint8)  # bits of a mark
_SHIFTS = np.array([0, 2, 4, 6], np.uint8)  # of the marks in a byte

Place = tuple[int, int]
"""Number and first row of a segment."""


class DeletedRows(Struct):
    """The marks of the rows from `first` on. Rows behind the last mark are live.

    Attributes:
        first: first row of a chunk.
        changed: the chunks written to since the last commit.
        count: number of existing rows that are deleted.
        superseded: whether any row may be superseded.
        aside: a row that counts as deleted for the moment, -1 = none.
        versions: int64[room, VERSION_COLUMNS], the versions deleted since the last commit, which are to be erased.
            Columns: row; its representative row, the row itself, or -1 if it was no representative; number of rows at
            that time; number; group; 1 if its id was deleted, 2 if only the representative row is to be erased.
        version_count: how many lines of `versions` are in use.
        deleted_ranges: of the buckets read so far.
    """

    marks: Words
    changed: Bytes
    first: Number
    count: Number
    superseded: Flag
    aside: Number
    versions: Numbers2  # [room, VERSION_COLUMNS]
    version_count: Number
    deleted_ranges: DeletedRanges

    @classmethod
    def of(cls, row: int) -> Self:
        """Of a shard that begins with a row: no row is deleted, and there is no room for marks."""
        none = np.empty(0, np.uint64), np.empty(0, np.uint8)
        return cls(
            marks=none[0], changed=none[1], first=row // CHUNK * CHUNK, count=0, superseded=False, aside=_NONE,
            versions=np.empty((0, VERSION_COLUMNS), np.int64), version_count=0, deleted_ranges=DeletedRanges.of(),
        )  # fmt: skip

    def reach(self, row: int, oldest: int) -> None:
        """Make room for the marks of the rows before `row`; rows before `oldest` do not exist."""
        have = int(self.first) + len(self.changed) * CHUNK
        if row <= have:
            return
        first = max(int(self.first), oldest // CHUNK * CHUNK)
        chunks, kept = -(-(row - first) // CHUNK), max(0, (have - first) // CHUNK)
        chunks += chunks >> 1
        dropped = len(self.changed) - kept
        marks, changed = np.zeros(chunks * _WORDS, np.uint64), np.zeros(chunks, np.uint8)
        marks[: kept * _WORDS], changed[:kept] = self.marks[dropped * _WORDS :], self.changed[dropped:]
        self.marks, self.changed, self.first = marks, changed, first

    def deleted(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these rows are deleted."""
        deleted: NDArray[np.bool_] = self.marks_of(rows) & MARK_DELETED != 0
        return deleted

    def room_for(self, versions: int) -> None:
        """Make room for this many deletions before the next commit."""
        if (least := int(self.version_count) + versions) > len(self.versions):
            more = np.empty((2 * least, VERSION_COLUMNS), np.int64)
            more[: self.version_count] = self.versions[: self.version_count]
            self.versions = more

    def enter(self, versions: NDArray[np.int64]) -> None:
        """Enter rows of `versions` for erasing."""
        self.room_for(len(versions))
        count = int(self.version_count)
        self.versions[count : count + len(versions)] = versions
        self.version_count = count + len(versions)

    def take_versions(self) -> NDArray[np.int64]:
        """The rows of `versions`, which is emptied."""
        found = self.versions[: self.version_count].copy()
        self.version_count = 0
        return found

    def marks_of(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The marks of some rows."""
        places = rows - int(self.first)
        there = places < len(self.marks) << 5
        places = np.where(there, places, 0)
        words = self.marks[places >> 5] if len(self.marks) else np.zeros(len(rows), np.uint64)
        marks: NDArray[np.uint64] = np.where(there, words >> (2 * (places & 31)).astype(np.uint64) & _MARK, MARK_LIVE)
        return marks

    def forget(self, row: int) -> None:
        """The rows before this one do not exist any more."""
        place = row - int(self.first)
        words = self.marks[place >> 5 :] & np.uint64(_DELETED_BITS)
        words[:1] >>= np.uint64(2 * (place & 31))
        self.count = int.from_bytes(words.tobytes(), "little").bit_count()

    def take(self, shard: int, segments: Sequence[Place], last: int) -> dict[bytes, bytes]:
        """The values changed since the last call, of the rows before `last`."""
        values = {}
        for chunk in np.flatnonzero(self.changed).tolist():
            begin = int(self.first) + chunk * CHUNK
            bits = _bits(self.marks[chunk * _WORDS : (chunk + 1) * _WORDS].tobytes())
            for (number, start), later in zip_longest(segments, segments[1:]):
                a, b = max(start, begin), min(later[1] if later else last, begin + CHUNK)
                if a < b and bits[a - begin : b - begin].any():
                    packed = np.packbits(bits[a - begin : b - begin], bitorder="little")
                    values[rows_key(DELETED_MARKS, shard, number, a)] = packed.tobytes()
        self.changed[:] = 0
        return values

    def restore(self, store: Store, shard: int, segments: Sequence[Place], last: int, count: int) -> None:
        """Read the marks of the rows before `last` from the store.

        Args:
            count: number of deleted rows by the manifest.

        Raises:
            DamagedError: the marks are not those that were written.
        """
        found = 0
        for number, first in segments:
            for row, value in store.rows_of(DELETED_MARKS, shard, number):
                bits = _bits(value)
                deleted = np.flatnonzero(bits.any(axis=1))
                if row < first or row + deleted.max(initial=0) >= last:
                    raise _damaged(store, shard)
                self.reach(last, segments[0][1])
                marks = (bits[deleted] @ _BITS).astype(np.uint64)
                places = (row + deleted - int(self.first)).astype(np.uint64)
                np.bitwise_or.at(self.marks, places >> np.uint64(5), marks << (places & np.uint64(31)) * np.uint64(2))
                found += int(bits[:, 0].sum())
                self.superseded |= bool((marks == MARK_SUPERSEDED).any())
        if found != count:
            raise _damaged(store, shard)
        self.count = count


def newly_marked(values: Mapping[bytes, bytes], store: Store) -> NDArray[np.int64]:
    """The rows whose marks in values of `DeletedRows.take` are not those of the store: row << 2 | mark."""
    found = [np.empty(0, np.int64)]
    for key, value in values.items():
        if not key.startswith(DELETED_MARKS):
            continue
        after, before = np.frombuffer(value, np.uint8), np.frombuffer(store.value(key) or b"", np.uint8)
        changed = after.copy()
        changed[: len(before)] ^= before[: len(after)]
        at = np.flatnonzero(changed)  # bytes, each with the marks of four rows
        rows = 4 * at[:, None] + np.arange(4)
        marks, differs = (four[at, None] >> _SHIFTS & 3 for four in (after, changed))
        found.append((parts_of(key)[3] + rows << 2 | marks)[differs != 0])
    return np.concatenate(found)


def marked(
    store: Store, shard: int, segments: Sequence[Place], marks: NDArray[np.int64]
) -> tuple[dict[bytes, bytes], int]:
    """The values in which these rows have these marks, of a shard that is not open, and how many more rows are deleted.

    Args:
        marks: as from `newly_marked`; the last one of a row counts.
    """
    values, more = {}, 0
    rows, bits = marks >> 2, (marks[:, None] >> np.array([0, 1]) & 1).astype(np.uint8)
    for (number, first), later in zip_longest(segments, segments[1:]):
        mine = (rows >= first) & (rows < (later[1] if later else np.iinfo(np.int64).max))
        begins = np.maximum(rows // CHUNK * CHUNK, first)
        for begin in np.unique(begins[mine]).tolist():
            key, here = rows_key(DELETED_MARKS, shard, number, begin), mine & (begins == begin)
            before, after = _bits(store.value(key) or b""), np.zeros((CHUNK, 2), np.uint8)
            after[: len(before)] = before
            after[rows[here] - begin] = bits[here]
            more += int(after[:, 0].sum()) - int(before[:, 0].sum())
            values[key] = np.packbits(after, bitorder="little").tobytes().rstrip(b"\0")
    return values, more


def marked_between(store: Store, shard: int, segment: int, first: int, last: int) -> NDArray[np.int64]:
    """The marked rows in [first, last) of a segment by the store, as from `newly_marked`."""
    found, before = [np.empty(0, np.int64)], store.before(DELETED_MARKS, shard, segment, first)
    for begin, value in store.rows_of(DELETED_MARKS, shard, segment, first if before is None else before[0]):
        if begin >= last:
            break
        bits = _bits(value)[max(0, first - begin) : last - begin]
        rows = np.flatnonzero(bits.any(axis=1))
        found.append(max(begin, first) + rows << 2 | bits[rows] @ _BITS)
    return np.concatenate(found)


def deleted_count(store: Store, shard: int, segment: int) -> int:
    """Number of deleted rows of a segment, by the store."""
    return sum(int(_bits(value)[:, 0].sum()) for _, value in store.rows_of(DELETED_MARKS, shard, segment))


def _bits(marks: bytes) -> NDArray[np.uint8]:
    """Marks as bits uint8[n, 2]."""
    return np.unpackbits(np.frombuffer(marks, np.uint8), bitorder="little").reshape(-1, 2)


def _damaged(store: Store, shard: int) -> DamagedError:
    return DamagedError(
        f"{store.path}: the marks of deleted rows of shard {shard} are damaged; restore the folder from a backup"
    )


@njit
def any_deleted(deleted_rows):  # type: ignore[no-untyped-def]
    """Whether any row may be deleted."""
    return deleted_rows.count > 0 or deleted_rows.aside >= 0 or deleted_rows.superseded


@njit
def mark_of(deleted_rows, row):  # type: ignore[no-untyped-def]
    """The mark of a row; MARK_DELETED for the row `aside`."""
    return MARK_DELETED if row == deleted_rows.aside else lasting_mark_of(deleted_rows, row)


@njit
def lasting_mark_of(deleted_rows, row):  # type: ignore[no-untyped-def]
    """The same, without `aside`."""
    place = row - deleted_rows.first
    if place >> 5 >= len(deleted_rows.marks):
        return MARK_LIVE
    return deleted_rows.marks[place >> 5] >> np.uint64(2 * (place & _ROW)) & _MARK


@njit
def is_live(deleted_rows, row):  # type: ignore[no-untyped-def]
    """Whether a row is not deleted; it may be superseded."""
    return mark_of(deleted_rows, row) & MARK_DELETED == 0


@njit
def mark_deleted(deleted_rows, row, mark):  # type: ignore[no-untyped-def]
    """Mark a row as deleted. There must be room for the mark."""
    before = lasting_mark_of(deleted_rows, row)
    if before == MARK_SUPERSEDED:
        before = MARK_LIVE
    deleted_rows.count += before == MARK_LIVE
    _set_mark(deleted_rows, row, before | mark)


@njit
def _set_mark(deleted_rows, row, mark):  # type: ignore[no-untyped-def]
    place = row - deleted_rows.first
    shift = np.uint64(2 * (place & _ROW))
    deleted_rows.marks[place >> 5] = deleted_rows.marks[place >> 5] & ~(_MARK << shift) | mark << shift
    deleted_rows.changed[place >> 12] = 1


@njit
def mark_superseded(deleted_rows, row, met_by, rows, seq, group):  # type: ignore[no-untyped-def]
    """Mark a row as superseded: it is not met any more, neither where it is posted nor by its representative row
    `met_by`, which is entered for erasing. There must be room."""
    if met_by != row:
        _set_mark(deleted_rows, met_by, MARK_DELETED)
        _enter(deleted_rows, row, met_by, rows, seq, group, ALONE)
    _set_mark(deleted_rows, row, MARK_SUPERSEDED)
    deleted_rows.superseded = True


@njit
def mark_version_deleted(deleted_rows, row, met_by, rows, seq, group, deleted):  # type: ignore[no-untyped-def]
    """Mark a version as deleted, and enter it for erasing. There must be room."""
    if lasting_mark_of(deleted_rows, row) == MARK_SUPERSEDED:  # rows were dropped for it before it was superseded
        if met_by >= 0:
            _enter(deleted_rows, row, met_by, rows, seq, group, ALONE)
        met_by = row
    mark_deleted(deleted_rows, row, MARK_DELETED)
    _enter(deleted_rows, row, met_by, rows, seq, group, np.int64(deleted))


@njit
def _enter(deleted_rows, row, met_by, rows, seq, group, deleted):  # type: ignore[no-untyped-def]
    version = deleted_rows.versions[deleted_rows.version_count]
    version[0], version[1], version[2], version[3], version[4], version[5] = row, met_by, rows, seq, group, deleted
    deleted_rows.version_count += 1
