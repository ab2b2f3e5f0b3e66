"""The arguments of the kernels: one struct with the batch, the shard, scratch for one document, and the results."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from stream_lsh.hashing.structs import Flag, Number, Numbers, Numbers2, Reals, Struct, Words, Words2
from stream_lsh.index.kernel.document_frequency import DocumentFrequency
from stream_lsh.index.kernel.shingle_sets import Sets
from stream_lsh.index.postings.memtable import Memtable
from stream_lsh.index.rows.layout import (
    INVALID,
    KIND,
    MATCH_COLUMNS,
    MORE,
    NOT_COMPARED,
    RESULTS,
    STATUS,
    Batch,
    Limits,
    Rows,
)

DONE, NO_SETS, NO_OWN_SET, NO_ROOM, FULL, REPRESENTATIVE_POSTED, NO_LOG = (np.int64(code) for code in range(7))
"""Why a kernel returns. DONE: nothing is missing. NO_SETS, NO_OWN_SET: the sets of the rows, or of a document of the
batch, in `wanted`. NO_ROOM: room for the rows that a document meets. FULL: room for matches. NO_LOG: room for counted
terms. REPRESENTATIVE_POSTED: a representative row was added, and the document is processed again."""
EVERYTHING = 1 << 40  # more rows than a shard can have
NOTHING = np.int64(-1)
AT_LEAST = np.int64(256)
"""Least room of `Scratch.out` where versions are deleted or were deleted."""
MOST_MATCHES = 1 << 16
"""Most matches whose room is kept for the next batch."""


class Scratch(Struct):
    """Scratch for one document, used again for the next. Its lengths are limits, which the caller raises at NO_ROOM."""

    slots: Numbers  # slots of the document's keys in the memtable
    out: Numbers  # rows of a bucket
    room: Words  # postings read from a run
    hits: Words2  # [1, w], runs that may have a key that is not the document's
    table: Numbers  # hash table of the rows met, with their places or -1; a power of two, at most half full
    met: Numbers2  # [m, 2], the rows met, in order, and their agreements
    met_count: Number
    bands: Words2  # with `all`: bits of the bands that they were met in
    histogram: Numbers  # number of rows met by agreement
    heap: Words  # the candidates: agreement and row, the best first
    candidates: Number
    old_first: Flag  # the oldest candidate is the best
    dropped_at: Number  # the row by which the new representative was a dropped member of its group
    wanted: Numbers
    wanted_count: Number

    @classmethod
    def of(cls, keys: int, runs: int, rows: int, band_words: int, most: int) -> Scratch:
        """For documents with this many keys that meet this many rows (a power of two). most: the largest agreement."""
        return cls(
            slots=np.empty(keys, np.int64), out=np.empty(rows, np.int64), room=np.empty(512, np.uint64),
            hits=np.zeros((1, (runs + 63) >> 6), np.uint64), table=np.full(2 * rows, -1, np.int64),
            met=np.empty((rows, 2), np.int64), met_count=0, bands=np.empty((rows, band_words), np.uint64),
            histogram=np.zeros(most + 1, np.int64), heap=np.empty(rows, np.uint64), candidates=0,
            old_first=False, dropped_at=-1,
            wanted=np.empty(rows, np.int64), wanted_count=0,
        )  # fmt: skip

    def has_room(self, keys: int, runs: int, rows: int) -> bool:
        """Whether it is for documents like these."""
        return len(self.slots) >= keys and 64 * self.hits.shape[1] >= runs and len(self.out) >= rows


# Columns of `Results.progress`: the place of the latest document, and counts when it began.
PLACE, FOUND_BEFORE, ROWS_BEFORE, POSTED_BEFORE, PROVISIONAL_BEFORE, DELETED_BEFORE, VERSIONS_BEFORE = range(7)
PROGRESS = 7

_NO_RESULT = np.full(RESULTS, -1)
_NO_RESULT[STATUS] = INVALID
_NO_RESULT[[KIND, MORE, NOT_COMPARED]] = 0


class Results(Struct):
    """Results of a batch of n documents: a table with a line for each, and a table of their matches, of which `found`
    lines are used. The next batch of a shard uses the same room.

    Attributes:
        progress: how far the kernel is (`PLACE` …). It is correct after an exception or a crash, too.
    """

    columns: Numbers2  # [n or more, RESULTS], see `layout`
    similarity: Reals  # [n or more], with the oldest match
    matches: Numbers2  # [m, MATCH_COLUMNS], see `layout`
    similarities: Reals  # [m]
    found: Number
    progress: Numbers  # [PROGRESS]

    @classmethod
    def of(cls, n: int, progress: NDArray[np.int64] | None = None) -> Results:
        """With room for n documents, and for as many matches."""
        progress = np.full(PROGRESS, -1) if progress is None else progress
        return cls(
            columns=np.empty((n, RESULTS), np.int64), similarity=np.empty(n),
            matches=np.empty((n, MATCH_COLUMNS), np.int64), similarities=np.empty(n), found=0, progress=progress,
        )  # fmt: skip

    def begin(self, n: int) -> None:
        """Forget the results before, for a batch of n documents that fits."""
        self.columns[:n], self.similarity[:n], self.found, self.progress[PLACE] = _NO_RESULT, 0.0, 0, -1

    def drop(self, i: int) -> None:
        """Forget what was found for document i, the latest."""
        self.columns[i], self.similarity[i], self.found = _NO_RESULT, 0.0, int(self.progress[FOUND_BEFORE])

    def has_room(self, n: int) -> bool:
        """Whether it is for batches like this, and not for far larger ones."""
        return n <= len(self.columns) and len(self.similarities) <= MOST_MATCHES

    def enlarge(self) -> None:
        """Double the room for matches."""
        self.matches = np.concatenate((self.matches, np.empty_like(self.matches)))
        self.similarities = np.concatenate((self.similarities, np.empty_like(self.similarities)))


class Work(Struct):
    """All arguments.

    Attributes:
        shard: the one whose documents are looked up by their ids, and are stored; -1 = none.
        runs: int64[r, COLUMNS], the table of runs, newest first.
        hits: the runs that may have each key of the batch (`bucket.passing`).
        older, newer: postings of provisional rows.
    """

    batch: Batch
    shard: Number
    rows: Rows
    memory: Memtable
    runs: Numbers2
    hits: Words2
    older: Memtable
    newer: Memtable
    limits: Limits
    sets: Sets
    frequencies: DocumentFrequency
    scratch: Scratch
    results: Results


CODE = NUMBER = types.int64
CODE_AND_ROW, CODE_AND_TWO = (types.UniTuple(types.int64, n) for n in (2, 3))  # type: ignore[no-untyped-call]
WORK = Work.numba_type
"""Signatures of far kernels."""
