"""A store as the next commit will leave it."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Protocol


class Readable(Protocol):
    """What is read of a store: values by key, in the order of the keys."""

    def value(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All keys that begin with `prefix`, from `start` on, in order, and their values."""

    def last(self, key: bytes) -> tuple[bytes, bytes] | None:
        """The last key that is this one or before it, and its value."""


class Pending:
    """A store, overlaid with the values that the next commit writes (None deletes the key)."""

    def __init__(self, store: Readable, values: Mapping[bytes, bytes | None]) -> None:
        self._store = store
        self._values = values
        self._keys = sorted(values)

    def value(self, key: bytes) -> bytes | None:
        return self._values[key] if key in self._values else self._store.value(key)

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        stored = (item for item in self._store.scan(prefix, start) if item[0] not in self._values)
        return heapq.merge(stored, self._own(prefix, max(prefix, start)), key=itemgetter(0))

    def _own(self, prefix: bytes, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        for at in range(bisect_left(self._keys, start), len(self._keys)):
            key = self._keys[at]
            if not key.startswith(prefix):
                return
            if (value := self._values[key]) is not None:
                yield key, value

    def last(self, key: bytes) -> tuple[bytes, bytes] | None:
        found = [item for item in (self._store.last(key), self._own_last(key)) if item is not None]
        return max(found, key=itemgetter(0), default=None)

    def _own_last(self, key: bytes) -> tuple[bytes, bytes] | None:
        at = bisect_right(self._keys, key) - 1
        value = self._values[self._keys[at]] if at >= 0 else None
        return None if value is None else (self._keys[at], value)
