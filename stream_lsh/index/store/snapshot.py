"""A column family as it was at one moment, while a writer continues."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rocksdict
from rocksdict import RdictIter, ReadOptions

from stream_lsh.index.store.errors import state_error


class Snapshot:
    """Values by key, in the order of the keys.

    Args:
        taken: None = there is no such column family yet.
        path: of the database, for messages.
    """

    def __init__(self, taken: rocksdict.Snapshot | None, path: Path) -> None:
        self._taken = taken
        self._path = path
        self._cursor: RdictIter | None = None  # of `value`: a missing key would be an error of `taken`

    def value(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        if self._taken is None:
            return None
        try:
            if self._cursor is None:
                self._cursor = self._taken.iter(ReadOptions())
            self._cursor.seek(key)
            if self._cursor.valid():
                return self._cursor.value() if self._cursor.key() == key else None
            self._cursor.status()
        except Exception as error:
            raise state_error(self._path, error) from None
        return None

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All keys with this prefix from `start` on, in order, with their values.

        Raises:
            StoreError: not all of them can be read; DamagedError if their file is damaged.
        """
        if self._taken is None:
            return
        try:
            for cursor in each(self._taken.iter(ReadOptions()), prefix, start):
                yield cursor.key(), cursor.value()
        except Exception as error:
            raise state_error(self._path, error) from None

    def last(self, key: bytes) -> tuple[bytes, bytes] | None:
        """The last key at or before this one, and its value."""
        if self._taken is None:
            return None
        try:
            cursor = self._taken.iter(ReadOptions())
            cursor.seek_for_prev(key)
            if cursor.valid():
                return cursor.key(), cursor.value()
            cursor.status()
        except Exception as error:
            raise state_error(self._path, error) from None
        return None

    def release(self) -> None:
        """Release it: RocksDB keeps overwritten values until then."""
        self._taken = self._cursor = None


class Snapshots:
    """The snapshots of a database that are in use."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._used: set[Snapshot] = set()

    @contextmanager
    def using(self, snapshot: Snapshot) -> Iterator[Snapshot]:
        """Use a snapshot, and release it at the end."""
        with self._changed:
            self._used.add(snapshot)
        try:
            yield snapshot
        finally:
            snapshot.release()
            with self._changed:
                self._used.discard(snapshot)
                self._changed.notify_all()

    def settle(self) -> None:
        """Wait until each snapshot is released that is in use now. Afterwards a compaction removes what was
        overwritten before this call."""
        with self._changed:
            before = set(self._used)
            self._changed.wait_for(lambda: not before & self._used)


def each(cursor: RdictIter, prefix: bytes = b"", start: bytes = b"") -> Iterator[RdictIter]:
    """Move a cursor over all keys with this prefix from `start` on. Raises its error: a cursor that cannot read on is
    not valid, like one behind the last key."""
    cursor.seek(max(prefix, start))
    while cursor.valid() and cursor.key().startswith(prefix):
        yield cursor
        cursor.next()
    cursor.status()
