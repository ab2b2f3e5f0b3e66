"""The ids in the decisions of a shard of several: of the documents for which its rows were dropped. Those are erased
that no verdict repeats any more.

Which ids a verdict repeats follows from the log alone (`replaced_since`), so they may be erased at any time after that.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stream_lsh.index.kernel.dropped_rows import represented_since
from stream_lsh.index.rows.decisions import RowDecisions, read_decisions
from stream_lsh.index.shard import Shard
from stream_lsh.index.store.rocksdb import DECISIONS, Range, Store, rows_key

STEP = 8192  # most dropped rows of a step, unless a single value has more


class DecisionNames:
    """A pass over the decisions of an open shard, in steps of bounded work."""

    def __init__(self, store: Store, shard: Shard) -> None:
        self._store = store
        self._shard = shard
        self._at = 0  # values that begin before this row are done
        self._again = True  # whether the disk may have older values of what was erased in an earlier run
        self._spans: list[Range] = []

    def step(self) -> bool:
        """Erase ids from the next values. Returns whether the pass has ended; the next call begins another one.

        Raises:
            OutputError: the disk is full or refuses the write.
            StoreError: the same, or stored data is damaged.
        """
        values, looked, ended = dict[bytes, bytes](), 0, True
        for segment, known in self._left():
            if looked >= STEP:
                ended = False
                break
            looked += len(known.rows)
            self._at = known.first + 1
            values |= self._without(segment, known)
        self._store.write(values)
        if ended:
            self._at, self._again = 0, False
        return ended

    def take(self) -> list[Range]:
        """The ranges of keys that had ids which are erased; older values of theirs have to leave the disk."""
        spans, self._spans = self._spans, []
        return spans

    def _left(self) -> Iterator[tuple[int, RowDecisions]]:
        """The values that are not done yet, each with its segment."""
        store, shard = self._store, self._shard
        for number, first in shard.segments.places:
            for row, value in store.rows_of(DECISIONS, shard.number, number, max(self._at, first)):
                yield number, read_decisions(store, shard.number, row, value)

    def _without(self, segment: int, known: RowDecisions) -> dict[bytes, bytes]:
        """The value without ids that no verdict repeats: their documents were deleted, or the row itself, or it
        has left the window."""
        shard, named = self._shard, np.array([len(name) > 0 for name in known.names], np.bool_)
        key, at = rows_key(DECISIONS, shard.number, segment, known.first), np.flatnonzero(named)
        gone = self._gone(known.rows[at], known.groups[at])
        if gone.any() or (self._again and not named.all()):
            self._spans.append((key, key + b"\0"))
        if not gone.any():
            return {}
        named[at[gone]] = False
        names = [name if kept else b"" for name, kept in zip(known.names, named.tolist(), strict=True)]
        return {key: known._replace(names=names).encode()}

    def _gone(self, rows: NDArray[np.int64], groups: NDArray[np.int64]) -> NDArray[np.bool_]:
        shard = self._shard
        represented: NDArray[np.bool_] = represented_since(rows, groups, shard.rows, shard.table, shard.memory)
        return represented | shard.rows.deleted_rows.deleted(rows) | (rows < int(shard.rows.seen))
