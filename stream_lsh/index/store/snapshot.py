"""A column family as it was at one moment, while a writer continues."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rocksdict import RdictIter

from stream_lsh.index.store.errors import state_error

CURSORS = 4  # scans that may be under way, and a look-up beside them


class Snapshot:
    """Values by key, in the order of the keys. A cursor shows the moment in which it was made, so all are made at once.

    Args:
        cursors: of one column family; none if there is no such family yet.
        path: of the database, for messages.
    """

    def __init__(self, cursors: Iterable[RdictIter], path: Path) -> None:
        self._free = list(cursors)
        self._empty = not self._free
        self._path = path

    def value(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        with self._cursor() as cursor:
            if cursor is not None:
                cursor.seek(key)
                if cursor.valid():
                    return cursor.value() if cursor.key() == key else None
                cursor.status()
        return None

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All keys with this prefix from `start` on, in order, with their values.

        Raises:
            StoreError: not all of them can be read; DamagedError if their file is damaged.
        """
        with self._cursor() as cursor:
            if cursor is not None:
                cursor.seek(max(prefix, start))
                while cursor.valid() and (key := cursor.key()).startswith(prefix):
                    yield key, cursor.value()
                    cursor.next()
                cursor.status()

    def last(self, key: bytes) -> tuple[bytes, bytes] | None:
        """The last key at or before this one, and its value."""
        with self._cursor() as cursor:
            if cursor is not None:
                cursor.seek_for_prev(key)
                if cursor.valid():
                    return cursor.key(), cursor.value()
                cursor.status()
        return None

    @contextmanager
    def _cursor(self) -> Iterator[RdictIter | None]:
        """A cursor that is not in use; None if the column family does not exist."""
        if self._empty:
            yield None
            return
        cursor = self._free.pop()
        try:
            yield cursor
        except (GeneratorExit, IndexError):
            raise
        except Exception as error:
            raise state_error(self._path, error) from None
        finally:
            self._free.append(cursor)

    def release(self) -> None:
        """Release the files that it reads."""
        self._free.clear()


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
        """Wait until each snapshot is released that is in use now: until then, files that it reads remain."""
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
