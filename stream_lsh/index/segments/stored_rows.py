"""The rows of a shard, in memory or in the files of their segments, as arrays and as values of the store."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_lsh.index.rows.decisions import undo_decisions
from stream_lsh.index.rows.layout import FLAGS, Rows
from stream_lsh.index.rows.row_file import packed
from stream_lsh.index.segments.manifest import BATCH
from stream_lsh.index.segments.segments import Segments
from stream_lsh.index.store.rocksdb import ROWS, rows_key


class Stored:
    """The rows of a shard. Reading raises DamagedError where a file has been truncated."""

    def __init__(self, shard: int, rows: Rows, segments: Segments) -> None:
        self._shard = shard
        self._rows = rows
        self._segments = segments

    def words(self, row: int) -> NDArray[np.uint64]:
        """The words of a row (`layout`)."""
        words: NDArray[np.uint64] = self._block(row, row + 1)[0]
        return words

    def signature(self, row: int) -> NDArray[np.uint32]:
        """The signature uint32[k] of a row."""
        words = np.ascontiguousarray(self.words(row)[int(self._rows.signature_at) :])
        return words.view(np.uint32)

    def at(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Rows uint64[n, width]. Neighbours in a file are read together."""
        base, recent = int(self._rows.base), self._rows.recent
        out, in_memory = np.empty((len(rows), recent.shape[1]), np.uint64), rows >= base
        out[in_memory] = recent[rows[in_memory] - base]
        segments = np.searchsorted([segment.first for segment in self._segments], rows, "right")
        apart = (np.diff(rows, prepend=-2) != 1) | (np.diff(segments, prepend=-1) != 0) | in_memory
        begins = np.flatnonzero(apart)
        for i, end in zip(begins.tolist(), np.append(begins[1:], len(rows)).tolist(), strict=False):
            if not in_memory[i]:
                first = int(rows[i])
                out[i:end] = self._block(first, first + end - i)
        return out

    def flags(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The word FLAGS of rows, uint64[n], in any order."""
        size, base, out = int(FLAGS) + 1, int(self._rows.base), np.empty(len(rows), np.uint64)
        segments = np.searchsorted([segment.first for segment in self._segments], rows, "right")
        segments[rows >= base] = 0
        for number in np.unique(segments).tolist():
            at = np.flatnonzero(segments == number)
            if number:
                segment = self._segments.of(int(rows[at[0]]))
                out[at] = segment.rows.words(rows[at] - segment.first, size)[:, FLAGS]
            else:
                out[at] = self._rows.recent[rows[at] - base, FLAGS]
        return out

    def value(self, first: int, last: int) -> bytes:
        """The value of the rows [first, last), which are of one segment, and are all flushed or all in memory."""
        return packed(self._block(first, last))

    def value_untold(self, first: int, last: int) -> bytes:
        """The same, without the decisions that were written into the rows since."""
        block = self._block(first, last).copy()
        undo_decisions(block)
        return packed(block)

    def values(self, first: int, last: int) -> dict[bytes, bytes]:
        """The values of the rows [first, last), which are all in memory."""
        values = {}
        for number, begin, end in self._segments.between(first, last):
            for at in range(begin, end, BATCH):  # a shard that opens has room for no more
                values[rows_key(ROWS, self._shard, number, at)] = self.value(at, min(at + BATCH, end))
        return values

    def _block(self, first: int, last: int) -> NDArray[np.uint64]:
        base = int(self._rows.base)
        if first >= base:
            return self._rows.recent[first - base : last - base]
        segment = self._segments.of(first)
        return segment.rows.read(first - segment.first, last - segment.first)
