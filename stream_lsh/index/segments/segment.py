"""A segment of a shard: an interval of its documents, with files of its own for rows and postings.

Segments are never merged with each other. A segment can therefore be deleted as a whole, without rewriting and without
a pause. Its values in the store (ids, texts) are in column families of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from stream_lsh.errors import StoreError
from stream_lsh.index.kernel.insert import replay
from stream_lsh.index.postings.memtable import Memtable
from stream_lsh.index.postings.provisional import post_again
from stream_lsh.index.postings.run import earlier
from stream_lsh.index.postings.runs import Postings, Workers
from stream_lsh.index.rows.layout import FLAGS
from stream_lsh.index.rows.row_file import RowFile, Shape
from stream_lsh.index.segments.erased_rows import Keyed
from stream_lsh.index.store.files import looking, make_folder
from stream_lsh.progress import report

BLOCK = 4096  # rows read at a time
FOLDER = "segments"


class Segment:
    """Segment `number` of a shard, open. It has the shard's rows from `first` on.

    Args:
        known: its line of the manifest; None for a new segment.
        workers: None = read only.

    Attributes:
        lost: its postings are missing, or of an earlier revision; `rebuild` makes them again.

    Raises:
        DamagedError: rows or postings are missing or damaged; the message names file and remedy.
        StoreError: the postings are of an earlier revision, and cannot be built again by a reader; or the system
            refuses to read them.
    """

    def __init__(
        self,
        state: Path,
        number: int,
        shard: int,
        first: int,
        shape: Shape,
        known: dict[str, Any] | None,
        workers: Workers | None,
    ) -> None:
        self.number = number
        self.first = first
        self._shape = shape
        self._shard = shard
        folder = folder_of(state, number)
        postings = folder / "postings"
        listed = known["runs"] if known else []
        flushed = listed[-1]["last"] if listed else 0
        # The folder alone says nothing: another shard may have created it again.
        found = earlier(postings / item["file"] for item in listed)
        self.lost = bool(listed) and workers is not None and False not in found
        if workers is None and found == {True}:
            raise StoreError(
                f"the runs in {postings} are of an earlier revision; open the index for writing once: they are then "
                "built again from the rows"
            )
        with ExitStack() as opened:
            if workers is not None:
                make_folder(postings)
            else:  # the writer does not delete it meanwhile
                opened.enter_context(looking(folder))
            self.rows = RowFile(folder / f"rows-{shard}.bin", shape, flushed, read_only=workers is None)
            opened.callback(self.rows.close)
            next = known["next"] if known else 0
            self.postings = Postings(state, postings, shard, [] if self.lost else listed, next, workers)
            if workers is not None:
                self.postings.sweep()
            self._opened = opened.pop_all()

    def rebuild(self, memory: Memtable, keyed: Keyed, room: int) -> None:
        """Make the postings again from the rows, with an empty memtable that has room for `room` rows."""
        first, at, most = 0, 0, 2 * len(memory.slots) // 3  # only documents with many keys reach `most`
        for block in self._blocks():
            post_rows(block, self.first + at, self.first, memory, keyed, self._shape)
            at += len(block)
            report(f"rebuilding the postings of segment {self.number}", at, self.rows.flushed, "rows")
            if at == self.rows.flushed or at - first + BLOCK > room or memory.postings > most:
                keys, rows = memory.sorted()
                self.postings.add(keys, rows, first, at, self.rows.sync)
                self.postings.merged()
                memory.clear()
                first = at
        self.postings.wait_for_flush()
        self.lost = False

    def _blocks(self) -> Iterator[Any]:
        for first in range(0, self.rows.flushed, BLOCK):
            yield self.rows.read(first, min(first + BLOCK, self.rows.flushed))

    def manifest(self) -> dict[str, Any]:
        """Its line of the manifest."""
        return {"number": self.number, "first": self.first, **self.postings.manifest()}

    def close(self) -> None:
        self._opened.close()


def post_rows(block: Any, first: int, begin: int, memory: Memtable, keyed: Keyed, shape: Shape) -> None:
    """Post rows uint64[n, width] in a memtable. `first` is the first of them, `begin` the first row of their
    segment."""
    for start, stop in keyed.parts(block):
        keys, starts = keyed.keys(block[start:stop], first + start)
        memory.reserve(len(keys))
        part = np.ascontiguousarray(block[start:stop])
        replay(part, first + start - begin, shape.mask_words, keys, starts, shape.bands, memory)


def post_provisional_rows(block: Any, first: int, table: Memtable, keyed: Keyed, shape: Shape) -> None:
    """Post rows uint64[n, width], the first of which is `first`, in a memtable of provisional rows."""
    flags = (block[:, FLAGS] & np.uint64(0xFFFF)).astype(np.int64)
    post_again(table, *keyed.keys(block, first), shape.bands, first, flags)


def folder_of(state: Path, number: int) -> Path:
    """The folder of a segment's files."""
    return state / FOLDER / f"{number:06d}"
