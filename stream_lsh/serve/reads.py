"""Requests that read the index: they are answered between the parts of other work."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Set
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

RECENT_SECONDS = 10.0  # after a read, in which the next one is expected
READ_SECONDS = 0.02  # for which other work waits at most, until the read under way is answered
AT_ONCE = 64  # reads that are taken together

T = TypeVar("T")


class Reads(Generic[T]):
    """A queue of reads. All methods but `put` are for the writer thread."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[T, Set[bytes]]] = SimpleQueue()
        self._due: list[T] = []  # after the commit
        self._later: list[T] = []
        self._uncommitted: set[bytes] = set()
        self._last = -math.inf

    def put(self, read: T, ids: Set[bytes]) -> None:
        """Add a read of documents with these ids."""
        self._last = time.monotonic()
        self._queue.put((read, ids))

    @property
    def expected(self) -> bool:
        """Whether there were reads a moment ago."""
        return time.monotonic() - self._last < RECENT_SECONDS

    def __bool__(self) -> bool:
        return bool(self._due) or not self._queue.empty()

    def take(self) -> list[T]:
        """The next reads. Those of documents that are not committed are kept back."""
        taken, self._due = self._due, []
        while len(taken) < AT_ONCE:
            try:
                read, ids = self._queue.get_nowait()
            except Empty:
                break
            if ids & self._uncommitted:
                self._later.append(read)
            else:
                taken.append(read)
        return taken

    def keep_back(self, ids: Iterable[bytes]) -> None:
        """Documents with these ids are judged, and their clients get no answer before the commit."""
        self._uncommitted.update(ids)

    def release(self) -> None:
        """Let the reads that were kept back be the next ones: the documents are committed, or their commit failed."""
        self._due += self._later
        self._later = []
        self._uncommitted.clear()
