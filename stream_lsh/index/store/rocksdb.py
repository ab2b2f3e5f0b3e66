"""The durable part of an index: one RocksDB, written in atomic batches.

A key is a letter for the kind, the shard (uint16), the segment (uint32) and the first row of the value (uint64), big
endian. The value that holds a row is found by seeking backwards from the row. Other facts are JSON under `m/NAME`.
Values are blobs of many rows.

A segment has column families of its own: one for the ids of each shard, one for the texts of each shard, one for all
else. Each is written in ascending order, and its files need no merging. Erasing (`purge`) rewrites only the one or two
files that have the key, however large the index is.

Four column families are shared by all segments: the rows that are in no file yet, the replies that a replica keeps for
a while, the erase queue, and the group store (keys: a letter, then what `embedded.group_store` appends).
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from rocksdict import AccessType, Checkpoint, ColumnFamily, Options, Rdict, RdictIter, ReadOptions, WriteBatch

from stream_lsh.documents.fields import loaded
from stream_lsh.errors import DamagedError, StoreError
from stream_lsh.index.store import column_families, seal
from stream_lsh.index.store.column_families import FACTS, REWRITE_BLOBS, SEGMENT, alone, anew
from stream_lsh.index.store.errors import as_errors, output_error, plainly, state_error
from stream_lsh.index.store.snapshot import CURSORS, Snapshot, Snapshots, each

ROWS, IDS, TEXTS, DECISIONS, DELETED_MARKS = b"r", b"i", b"t", b"f", b"d"
PLACES, ERASED_ROWS, ANSWERS = b"p", b"e", b"a"
FREQUENCIES, JOURNAL = b"w", b"j"
GROUP, MEMBERS, FIRST_MEMBERS, SOURCES, REMOVED_MEMBERS = b"g", b"n", b"k", b"s", b"l"
_PASSING = {
    ROWS: column_families.ROWS, FREQUENCIES: column_families.ROWS, ANSWERS: column_families.ANSWERS,
    **dict.fromkeys((GROUP, MEMBERS, FIRST_MEMBERS, SOURCES, REMOVED_MEMBERS), column_families.GROUPS),
}  # fmt: skip
_ALONE = {IDS: "ids", TEXTS: "texts"}
_OF_ALL_SHARDS = {JOURNAL: "journal"}
_KEY = struct.Struct(">cHIQ")
_ROW_BYTES = 8
QUEUE_NAMES = "erase/"  # facts in the column family of the erase queue
_QUEUE = b"m/" + QUEUE_NAMES.encode()
_NEAR = 1 << 15  # rows between two keys from which their files are rewritten apart
_TRIES = 500  # attempts to open a store while another process writes to it
_SPANS = 32  # most ranges of keys of a kind in a sweep: each is some megabytes of files

Range = tuple[bytes, bytes]


class Store:
    """A RocksDB database.

    Args:
        sync: a write is on the disk when it returns.
        read_only: open the last commit, while another process may write.
        joint: ids and texts of a segment are in one column family with all else, as in earlier revisions; unless the
            store has separate ones already.

    Raises:
        DamagedError: stored data is missing, truncated or changed.
        StoreError: another process has the store open, or the system refuses it (too many open files, no rights, a full
            disk); the message names the folder.
    """

    def __init__(self, path: Path, *, sync: bool = True, read_only: bool = False, joint: bool = False) -> None:
        self.path = path
        self._sync = sync and not read_only
        self._read_only = read_only
        self._writing = threading.Lock()  # while a batch is written, and its writer notes that
        self._snapshots = Snapshots()
        self._closed = False
        with plainly(path):
            seal.check(path)
            if not read_only:
                seal.remove(path)
            elif not (path / "CURRENT").exists():  # RocksDB would create folders
                raise StoreError(f"there is no index in {path.parent}; a run with --index {path.parent} makes one")
        try:
            for _ in range(_TRIES):
                before = _manifests(path)
                names = self._open(path)
                if not read_only or _manifests(path) == before:
                    break
                # Meanwhile the writer has created a column family, or flushed and deleted a log: this reader may have
                # missed values of the state before and of the state after.
                self._db.close()
            else:
                raise StoreError(f"the index in {path.parent} changes faster than it can be opened: try again later")
            self._families = {name: self._db.get_column_family(name) for name in names if name != FACTS}
            # Segments of an earlier revision, with everything in one column family.
            self._joint = {name for name in self._families if _has_ids(name, self._families[name])}
            self._all_joint = joint and not any(alone(name) for name in self._families)
            self._handles = {name: self._db.get_column_family_handle(name) for name in self._families}
        except StoreError:
            raise
        except Exception as error:
            raise state_error(path, error) from None
        if not read_only:
            seal.remove(path)

    def _open(self, path: Path) -> list[str]:
        """Open the database. Returns the names of its column families."""
        names = Rdict.list_cf(str(path), Options(raw_mode=True)) if (path / "CURRENT").exists() else [FACTS]
        families = {name: column_families.options(name) for name in names if name != FACTS}
        access = AccessType.read_only() if self._read_only else AccessType.read_write()
        options = column_families.database(read_only=self._read_only)
        self._db = Rdict(str(path), options, column_families=families, access_type=access)
        return names

    def write(
        self, values: Mapping[bytes, bytes | None], deleted: Iterable[bytes] = (), ranges: Iterable[Range] = (),
        written: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """Write all of it, or nothing; on the disk when it returns, if the store is durable.

        Args:
            values: a value of None deletes the key.
            deleted: keys.
            ranges: ranges of keys, the end not included.
            written: called afterwards, before another thread can take a snapshot.
        """
        batch = WriteBatch(raw_mode=True)
        with as_errors(output_error, self.path):
            for begin, end in ranges:
                if (family := self._family_of(begin)) == FACTS or family in self._handles:
                    batch.delete_range(begin, end, self._handles.get(family))
            for key in deleted:
                batch.delete(key, self._handle(key))
            for key, value in values.items():
                if value is None:
                    batch.delete(key, self._handle(key))
                else:
                    batch.put(key, value, self._handle(key))
            with self._writing:
                self._db.write(batch)
                if self._sync:  # a call of its own, which lets Python's other threads run meanwhile
                    self._db.flush_wal(True)
                if written is not None:
                    written()

    @contextmanager
    def snapshot(self, prefix: bytes, taken: Callable[[], None] = lambda: None) -> Iterator[Snapshot]:
        """The column family of keys with this prefix as it is now, while another thread may write. It is to be used for
        a moment only, and in this thread. taken: called before the next write."""
        name = self._family_of(prefix)
        with self._writing:
            if self._closed:
                raise StoreError(f"the index in {self.path.parent} is closed")
            taken()
            with as_errors(state_error, self.path):
                cursors = [self._cursor(name) for _ in range(CURSORS)]
                found = Snapshot([cursor for cursor in cursors if cursor is not None], self.path)
                del cursors
        with self._snapshots.using(found):
            yield found

    def _family_of(self, key: bytes) -> str:
        """The column family of a key."""
        if key.startswith(b"m/"):
            return column_families.QUEUE if key.startswith(_QUEUE) else FACTS
        if (passing := _PASSING.get(key[:1])) is not None:
            return passing
        kind, shard, segment, _ = _KEY.unpack(key)
        name = f"{SEGMENT}{segment}"
        if kind in _OF_ALL_SHARDS:
            return f"{name}-{_OF_ALL_SHARDS[kind]}"
        return name if kind not in _ALONE or self._is_joint(name) else f"{name}-{_ALONE[kind]}-{shard}"

    @property
    def joint(self) -> bool:
        """Whether a segment has ids and texts together with all else. Erasing a value then rewrites all its texts."""
        return bool(self._joint)

    def _is_joint(self, name: str) -> bool:
        """Whether a segment's column family also has its ids and texts."""
        return name in self._joint or (self._all_joint and name.startswith(SEGMENT))

    def _handle(self, key: bytes) -> ColumnFamily | None:
        name = self._family_of(key)
        if name == FACTS:
            return None
        if name not in self._handles:
            self._families[name] = self._db.create_column_family(name, column_families.options(name))
            self._handles[name] = self._db.get_column_family_handle(name)
        return self._handles[name]

    def segments(self) -> list[int]:
        """The numbers of the segments that have values."""
        names = [name for name in self._families if name.startswith(SEGMENT)]
        return sorted({int(name.split("-")[1]) for name in names})

    def drop(self, segment: int) -> None:
        """Delete all values of a segment, with their files. No reader or writer may use them."""
        name = f"{SEGMENT}{segment}"
        for name in [known for known in list(self._handles) if known == name or known.startswith(f"{name}-")]:
            del self._handles[name]
            family = self._families.pop(name)
            with suppress(AttributeError):
                family.close()
            with as_errors(state_error, self.path):
                self._db.drop_column_family(name)

    def shorten(self, *, wait: bool = False) -> None:
        """Flush everything in the background, so that RocksDB deletes its log, which still has dropped values."""
        with as_errors(state_error, self.path):
            for family in (self._db, *list(self._families.values())):
                family.flush(wait)

    def flush(self, keys: Iterable[bytes]) -> None:
        """Flush the column families of these keys: later writes are then in other files."""
        with as_errors(output_error, self.path):
            for name in sorted({self._family_of(key) for key in keys}):
                if name in self._families:
                    self._families[name].flush(True)

    def purge(self, keys: Iterable[bytes]) -> None:
        """Rewrite the files that have these keys, without older values. `flush` must have flushed their column
        families before the keys were written and after. May run in the background."""
        spans: dict[str, list[Range]] = {}
        for key in sorted(keys):
            theirs = spans.setdefault(self._family_of(key), [(key, key)])
            begin, end = theirs[-1]
            near = parts_of(key)[3] - parts_of(end[: _KEY.size])[3] < _NEAR and key[:1] == begin[:1]
            theirs[-1:] = [(begin, key + b"\0")] if near else [theirs[-1], (key, key + b"\0")]
        for theirs in spans.values():
            self.rewrite(joined(theirs))

    def rewrite(self, spans: Iterable[Range]) -> None:
        """The same for ranges of keys, each of one column family."""
        whole = set[str]()
        with as_errors(state_error, self.path):
            for begin, end in spans:
                name = self._family_of(begin)
                if (family := self._families.get(name)) is None or name in whole:
                    continue
                # Values are in blob files, which RocksDB rewrites only all together.
                if self._is_joint(name) or begin.startswith(DECISIONS):
                    whole.add(name)
                    begin, end = b"", b"\xff"
                    family.set_options(REWRITE_BLOBS)
                family.compact_range(begin, end, anew())
        self._snapshots.settle()

    def purge_all(self) -> None:
        """Rewrite all files with values of segments, without older values."""
        self.shorten(wait=True)
        with as_errors(state_error, self.path):
            for name, family in self._families.items():
                if name.startswith(SEGMENT):
                    if not alone(name):
                        family.set_options(REWRITE_BLOBS)
                    family.compact_range(None, None, anew())
        self._snapshots.settle()

    def sweep(self, spans: Sequence[Range] = ()) -> None:
        """Remove all overwritten values from the log, the facts, the latest rows, the replies and these ranges of keys.
        May run in the background."""
        self.shorten(wait=True)
        with as_errors(state_error, self.path):
            passing = (self._families.get(name) for name in (column_families.ROWS, column_families.ANSWERS))
            for family in (self._db, *passing):
                if family is not None:
                    family.compact_range(None, None, anew())
        self.rewrite(joined(spans))

    def named(self, name: str) -> Any:
        """The JSON value stored under a name, or None."""
        value = self.value(name_key(name))
        try:
            return None if value is None else loaded(value)
        except ValueError:
            raise DamagedError(
                f"{self.path}: the entry {name!r} is damaged; restore the folder from a backup or start a new one"
            ) from None

    def names(self, prefix: str, start: str = "") -> Iterator[str]:
        """The names of `items`."""
        for cursor in self._places(name_key(prefix), name_key(start) if start else b""):
            yield cursor.key()[len(name_key("")) :].decode()

    def items(self, prefix: str, start: str = "") -> Iterator[tuple[str, Any]]:
        """All JSON values whose names begin with `prefix`, by name, from the name `start` on."""
        try:
            for key, value in self.scan(name_key(prefix), name_key(start) if start else b""):
                yield key[len(name_key("")) :].decode(), loaded(value)
        except ValueError as error:
            raise DamagedError(
                f"{self.path}: an entry {prefix}... is damaged ({error}); restore the folder from a backup"
            ) from None

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All keys with this prefix from `start` on, in order, with their values. The prefix determines the column
        family.

        Raises:
            StoreError: not all of them can be read; DamagedError if their file is damaged.
        """
        for cursor in self._places(prefix, start):
            yield cursor.key(), cursor.value()

    def rows_of(self, kind: bytes, shard: int, segment: int, first: int = 0) -> Iterator[tuple[int, bytes]]:
        """First rows, ascending, and bytes of the values of a kind that a segment has of a shard, from the row `first`
        on. Raises as `scan`."""
        begin = rows_key(kind, shard, segment, first)
        for cursor in self._places(begin[:-_ROW_BYTES], begin):
            yield parts_of(cursor.key())[3], cursor.value()

    def holding(self, kind: bytes, shard: int, segment: int, row: int) -> tuple[int, bytes]:
        """First row and bytes of the value of a kind that holds a row.

        Raises:
            DamagedError: there is none.
        """
        found = self.before(kind, shard, segment, row)
        if found is None:
            raise DamagedError(
                f"{self.path}: row {row} of shard {shard} is missing; restore the folder from a backup or start a new "
                "one"
            )
        return found

    def before(self, kind: bytes, shard: int, segment: int, row: int) -> tuple[int, bytes] | None:
        """First row and bytes of the last value of a kind that begins at or before a row; None if there is none."""
        found = self.last(_KEY.pack(kind, shard, segment, row))
        try:
            if found is not None:
                *where, first = _KEY.unpack(found[0])
                if where == [kind, shard, segment]:
                    return first, found[1]
        except struct.error:
            pass
        return None

    def last(self, key: bytes) -> tuple[bytes, bytes] | None:
        """The last key at or before this one in the same column family, and its value."""
        try:
            cursor = self._cursor(self._family_of(key))
            if cursor is not None:
                cursor.seek_for_prev(key)
                if cursor.valid():
                    return cursor.key(), cursor.value()
                cursor.status()
        except Exception as error:
            raise state_error(self.path, error) from None
        return None

    def numbers(self, kind: bytes, shard: int) -> list[int]:
        """The numbers (first rows, offsets) of the values of a kind that belongs to no segment, ascending. Raises as
        `scan`."""
        begin = rows_key(kind, shard, 0, 0)
        return [parts_of(cursor.key())[3] for cursor in self._places(begin[:-_ROW_BYTES], begin)]

    def _places(self, prefix: bytes, start: bytes) -> Iterator[RdictIter]:
        """A cursor at one key with this prefix from `start` on after the other. Raises as `scan`."""
        with as_errors(state_error, self.path):
            if (cursor := self._cursor(self._family_of(start or prefix))) is not None:
                yield from each(cursor, prefix, start)

    def _cursor(self, name: str) -> RdictIter | None:
        """An iterator over a column family; None if it does not exist."""
        family = self._db if name == FACTS else self._families.get(name)
        return None if family is None else family.iter(ReadOptions())

    def value(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        name = self._family_of(key)
        family = self._db if name == FACTS else self._families.get(name)
        try:
            value: bytes | None = None if family is None else family.get(key)
        except Exception as error:
            raise state_error(self.path, error) from None
        return value

    def checkpoint(self, path: Path) -> None:
        """Make a copy of the store at a path that does not exist. Files are hard links on the same file system.

        Raises:
            OutputError: it cannot be written.
        """
        with as_errors(output_error, path):
            Checkpoint(self._db).create_checkpoint(str(path))

    def verify(self) -> str | None:
        """Read everything, with its checksums. Returns what is wrong, or None."""
        try:
            for family in (self._db, *self._families.values()):
                for cursor in each(family.iter(ReadOptions())):
                    cursor.value()
        except Exception as error:
            return str(state_error(self.path, error))
        return None

    def close(self) -> None:
        with self._writing:
            self._closed = True
        self._snapshots.settle()
        self._handles.clear()
        try:
            for family in self._families.values():
                with suppress(AttributeError):
                    family.close()
            self._families.clear()
            self._db.close()
        except Exception as error:  # after a failed write it does not close, and only without references it unlocks
            self._families.clear()
            del self._db
            raise output_error(self.path, error) from None
        if self._sync:
            seal.write(self.path)


def joined(spans: Iterable[Range]) -> Iterator[Range]:
    """Merge neighbouring ranges, so that each kind has at most _SPANS, those of a segment's decisions each segment."""

    def kind(span: Range) -> bytes:
        return span[0][: -_ROW_BYTES if span[0].startswith(DECISIONS) else 1]

    for _, theirs in groupby(sorted(set(spans)), key=kind):
        some = list(theirs)
        for at in range(0, len(some), size := -(-len(some) // _SPANS)):
            part = some[at : at + size]
            yield part[0][0], max(end for _, end in part)


def _manifests(path: Path) -> dict[str, int]:
    """Names and sizes of the manifests of a database; every change of its files appends to one."""
    found = {}
    for manifest in path.glob("MANIFEST-*"):
        with suppress(FileNotFoundError):
            found[manifest.name] = manifest.stat().st_size
    return found


def _has_ids(name: str, family: Rdict) -> bool:
    """Whether a column family has everything of a segment, ids included."""
    if not name.startswith(SEGMENT) or alone(name):
        return False
    return next(each(family.iter(ReadOptions()), IDS), None) is not None


def rows_key(kind: bytes, shard: int, segment: int, first: int) -> bytes:
    """The key of a value whose first row is `first`."""
    return _KEY.pack(kind, shard, segment, first)


def parts_of(key: bytes) -> tuple[bytes, int, int, int]:
    """Kind, shard, segment and first row of a key of `rows_key`.

    Raises:
        struct.error: the key has another layout.
    """
    kind, shard, segment, first = _KEY.unpack(key)
    return kind, shard, segment, first


def name_key(name: str) -> bytes:
    """The key of a JSON value."""
    return b"m/" + name.encode()
