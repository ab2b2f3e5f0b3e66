"""Deletion, in the background, of the segments that the manifest does not name, as soon as no reader has them open.

A reader opens all segments of the manifest, and keeps them on the disk until it closes them. What a crash leaves behind
is deleted when the index is opened again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from stream_lsh.errors import StreamLshError
from stream_lsh.index.segments.segment import FOLDER, Segment, folder_of
from stream_lsh.index.store.errors import plainly
from stream_lsh.index.store.files import deletion_lock
from stream_lsh.index.store.rocksdb import Store


class Removal:
    """The segments of an index to delete.

    Args:
        pool: thread for the deletion.
    """

    def __init__(self, state: Path, store: Store, pool: ThreadPoolExecutor) -> None:
        self._state = state
        self._store = store
        self._pool = pool
        self._waiting: dict[int, list[Segment]] = {}
        self._deleting: Future[None] | None = None

    def sweep(self, first: int) -> None:
        """Delete everything of segments before this one."""
        names = [path.name for path in (self._state / FOLDER).glob("*")]
        found = {int(name) for name in names if name.isdecimal()} | set(self._store.segments())
        self.add({number: () for number in found if number < first})

    def add(self, segments: Mapping[int, Iterable[Segment]]) -> None:
        """Delete segments, and those that could not be deleted before.

        Args:
            segments: number of each segment, and its open parts.

        Raises:
            StoreError: the system has refused a deletion.
        """
        if self._deleting is not None and self._deleting.done():
            with plainly(self._state):
                self._deleting.result()
        self._waiting |= {number: list(parts) for number, parts in segments.items()}
        if self._waiting:
            self._deleting = self._pool.submit(self._delete)

    def _delete(self) -> None:
        deleted = False
        for number, parts in list(self._waiting.items()):
            while parts:
                segment = parts.pop()
                with suppress(StreamLshError):  # of a merge whose result is not needed
                    segment.postings.finish()
                segment.close()
                del segment  # files stay open as long as there is a reference
            folder = folder_of(self._state, number)
            with deletion_lock(self._state) as free, deletion_lock(folder) as unread:
                if free and unread:
                    self._store.drop(number)
                    if folder.exists():
                        shutil.rmtree(folder)
                    del self._waiting[number]
                    deleted = True
        if deleted:
            self._store.shorten()
