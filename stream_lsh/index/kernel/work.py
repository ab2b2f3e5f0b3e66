"""What the kernel works with: one struct with the batch, the shard, room for one document, and the results."""

from __future__ import annotations

import numpy as np
from numba import types

from stream_lsh.hashing.structs import Flag, Number, Numbers, Numbers2, Reals, Struct, Words, Words2
from stream_lsh.index.kernel.document_frequency import DocumentFrequency
from stream_lsh.index.kernel.shingle_sets import Sets
from stream_lsh.index.postings.memtable import Memtable
from stream_lsh.index.rows.layout import INCOMPLETE, INVALID, KIND, MORE, RESULTS, STATUS, Batch, Limits, Rows

DONE, NO_SETS, NO_OWN_SET, NO_ROOM, FULL, REPRESENTATIVE_POSTED, NO_LOG = (np.int64(code) for code in range(7))
"""Why the kernel returns: all is done; sets of rows are needed, or of a document of the batch, which are in `wanted`;
room for the rows that a document meets; room for matches; room for the terms that were counted. REPRESENTATIVE_POSTED,
within the
kernel: there is a row more, so the document is to be looked at once more."""
EVERYTHING = 1 << 40  # more rows than a shard can have
NOBODY = np.int64(-1)
AT_LEAST = np.int64(256)
"""Rows that `Scratch.out` has room for where versions go, or have gone."""


class Scratch(Struct):
    """What one document needs while it is worked on; lengths are limits that the caller raises at NO_ROOM."""

    slots: Numbers  # where the document's keys are in memory
    out: Numbers  # rows of a bucket
    room: Words  # what is read of a run
    hits: Words2  # [1, w] runs that may hold a key that is not the document's
    table: Numbers  # hash table of the rows met: their places, -1; a power of two, at most half full
    met: Numbers2  # [m, 2] the rows met, in order, and their agreements
    met_count: Number
    bands: Words2  # under `all`: bits of the bands that they were met in
    histogram: Numbers  # rows met by agreement
    heap: Words  # the candidates: agreement and row, the best first
    candidates: Number
    old_first: Flag  # the oldest is the best
    wanted: Numbers
    wanted_count: Number

    @classmethod
    def of(cls, keys: int, runs: int, rows: int, band_words: int, most: int) -> Scratch:
        """For documents of so many keys that meet so many rows (a power of two); most: the largest agreement."""
        return cls(
            slots=np.empty(keys, np.int64), out=np.empty(rows, np.int64), room=np.empty(512, np.uint64),
            hits=np.zeros((1, (runs + 63) >> 6), np.uint64), table=np.full(2 * rows, -1, np.int64),
            met=np.empty((rows, 2), np.int64), met_count=0, bands=np.empty((rows, band_words), np.uint64),
            histogram=np.zeros(most + 1, np.int64), heap=np.empty(rows, np.uint64), candidates=0,
            old_first=False,
            wanted=np.empty(rows, np.int64), wanted_count=0,
        )  # fmt: skip


class Results(Struct):
    """What was found for n documents: a table with a line for each, and one of their matches, `found` so far."""

    columns: Numbers2  # [n, RESULTS], see `layout`
    similarity: Reals  # [n] with the oldest match
    matches: Numbers2  # [m, 4], see `layout`
    similarities: Reals  # [m]
    found: Number

    @classmethod
    def of(cls, n: int, matches: int) -> Results:
        """For n documents, with room for so many matches."""
        columns = np.full((n, RESULTS), -1, np.int64)
        columns[:, STATUS] = INVALID
        columns[:, [KIND, MORE, INCOMPLETE]] = 0
        room = np.empty((matches, 4), np.int64), np.empty(matches)
        return cls(columns=columns, similarity=np.zeros(n), matches=room[0], similarities=room[1], found=0)

    def enlarge(self) -> None:
        """Twice the room for matches."""
        self.matches = np.concatenate((self.matches, np.empty_like(self.matches)))
        self.similarities = np.concatenate((self.similarities, np.empty_like(self.similarities)))


class Work(Struct):
    """Everything. runs int64[r, COLUMNS]: the table of runs, the newest first. older, newer: what is provisional."""

    batch: Batch
    rows: Rows
    memory: Memtable
    runs: Numbers2
    older: Memtable
    newer: Memtable
    limits: Limits
    sets: Sets
    frequencies: DocumentFrequency
    scratch: Scratch
    results: Results


CODE = NUMBER = types.int64
CODE_AND_ROW = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]
WORK = Work.numba_type
"""Types of far kernels: what they return, and what they get."""
