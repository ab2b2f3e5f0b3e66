"""The segments of a shard, oldest first: which of them has a row, and their files as kernels read them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError
from stream_lsh.index.postings.memtable import BEHIND_ALL
from stream_lsh.index.postings.merge_policy import pause
from stream_lsh.index.postings.runs import Workers
from stream_lsh.index.rows import layout
from stream_lsh.index.rows.deleted_rows import Place
from stream_lsh.index.rows.row_file import Shape
from stream_lsh.index.segments.segment import Segment


class Segments(list[Segment]):
    """The open segments of one shard. state, shape, workers: see `Segment`."""

    def __init__(self, state: Path, shard: int, shape: Shape, workers: Workers | None) -> None:
        super().__init__()
        self._state = state
        self._shard = shard
        self._shape = shape
        self._workers = workers

    def open(self, number: int, first: int, known: dict[str, Any] | None) -> Segment:
        """Open the next one, see `Segment`."""
        segment = Segment(self._state, number, self._shard, first, self._shape, known, self._workers)
        self.append(segment)
        return segment

    def of(self, row: int) -> Segment:
        """The segment of a row.

        Raises:
            DamagedError: there is none.
        """
        for segment in reversed(self):
            if segment.first <= row:
                return segment
        raise DamagedError(f"row {row} of shard {self._shard} is in no segment; restore the folder from a backup")

    def number_of(self, row: int) -> int:
        """The number of a row's segment."""
        return self.of(row).number

    def end_of(self, row: int) -> int:
        """The first row behind a row's segment; BEHIND_ALL if there is no later segment."""
        return next((later.first for later in self if later.first > row), int(BEHIND_ALL))

    def between(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Number, first and last row (not included) of each segment's part of the rows [first, last)."""
        for segment, later in zip_longest(self, self[1:]):
            begin, end = max(first, segment.first), min(last, later.first if later else last)
            if begin < end:
                yield segment.number, begin, end

    @property
    def places(self) -> list[Place]:
        """Their numbers and first rows."""
        return [(segment.number, segment.first) for segment in self]

    # -- for kernels ------------------------------------------------------------------------------------------------

    def table(self) -> NDArray[np.int64]:
        """Their runs, newest first, in the columns of `layout`. The runs own the arrays that the table points to."""
        lines = [run.line(g.first) for g in reversed(self) for run in g.postings.runs]
        return np.array(lines, np.int64).reshape(len(lines), layout.COLUMNS)

    def files(self) -> NDArray[np.int64]:
        """Their row files, in the columns of `layout`."""
        files = [(g.first, g.rows.file, g.rows.start) for g in self]
        return np.array(files, np.int64).reshape(len(files), 3)

    # -- background ---------------------------------------------------------------------------------------------------

    @property
    def pause(self) -> float:
        """Seconds that a writer should wait per 1,000 documents, so that merges keep up."""
        return max((pause(g.postings.levels) for g in self if not g.postings.closed), default=0.0)

    def poll(self) -> bool:
        """Take over the results of background threads. Returns whether there were any.

        The newest segment comes first: a row that is in no file is then never older than one that is in a file.
        """
        changed = [segment.postings.poll() for segment in reversed(self)]  # all of them, whatever the first returns
        return any(changed)

    def merging(self, seconds: float) -> bool:
        """Whether runs are being written or merged. Returns as soon as one is done, or after so many seconds."""
        running = [future for segment in self for future in segment.postings.running]
        wait(running, seconds, FIRST_COMPLETED)
        return bool(running)

    @property
    def changed(self) -> bool:
        """Whether their runs differ from those of the last commit."""
        return any(segment.postings.changed for segment in self)

    def committed(self) -> None:
        """Their manifests are durable."""
        for segment in self:
            segment.postings.committed()

    def finish(self) -> None:
        """Wait until the last flush is on disk; begin no merge."""
        for segment in self:
            segment.postings.finish()

    def close(self) -> None:
        for segment in self:
            segment.close()
