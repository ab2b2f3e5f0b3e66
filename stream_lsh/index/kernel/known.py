"""Look-ups before a document is compared: the rows with its id, and with its text."""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.kernels import njit
from stream_lsh.index.kernel.live_rows import read_live
from stream_lsh.index.kernel.replace import was_deleted
from stream_lsh.index.kernel.row_access import same_hash, see
from stream_lsh.index.kernel.work import NOTHING
from stream_lsh.index.postings.bucket import empty, nowhere, read
from stream_lsh.index.postings.memtable import find, newest, since
from stream_lsh.index.rows.deleted_rows import any_deleted
from stream_lsh.index.rows.layout import ID, KNOWN, TEXT

_FIRST = np.int64(0)
_SAME_TEXT = np.int64(64)  # rows read of kept documents with one text


@njit
def newest_of_id(i, work):  # type: ignore[no-untyped-def]
    """The newest row with the id of document i, or -1."""
    place, row, n = work.batch.starts[i + 1] - work.batch.starts[i] - 1, NOTHING, np.int64(1)
    if work.limits.late:
        row = _provisional_with_id(i, work.newer, work)
        if row < 0:
            row = _provisional_with_id(i, work.older, work)
        if row >= 0:
            return row
    if _under(i, place, n, work):  # an id with many updates has many rows; other ids have the key by chance only
        row = _same(i, ID, n, work)
        if row < 0:
            row = _same(i, ID, _under(i, place, np.int64(len(work.scratch.out)), work), work)
    return row


@njit
def look_up(start, stop, work):  # type: ignore[no-untyped-def]
    """Write the live rows with the ids of the documents [start, stop) into KNOWN; -1 where there is none."""
    batch, columns = work.batch, work.results.columns
    for i in range(start, stop):
        if work.limits.window:
            see(work.rows, batch.log[i] - work.limits.window)
        place = batch.starts[i + 1] - batch.starts[i] - 1
        work.scratch.slots[place] = find(work.memory, batch.keys[batch.starts[i] + place])
        row = newest_of_id(i, work)
        columns[i, KNOWN] = NOTHING if row >= 0 and was_deleted(work.rows, row) else row


@njit
def with_text(i, work):  # type: ignore[no-untyped-def]
    """The row of a kept document with the text of document i, or -1; the oldest, because a new representative may have
    the text of a document that was kept meanwhile."""
    rows, out, place = work.rows, work.scratch.out, work.batch.starts[i + 1] - work.batch.starts[i] - 2
    if not any_deleted(rows.deleted_rows):
        return _same(i, TEXT, _under(i, place, np.int64(len(out)), work), work)
    at, oldest = work.batch.starts[i] + place, NOTHING
    n, _ = read_live(work.batch.keys[at], work.scratch.slots[place], work.hits, at, _SAME_TEXT, work)
    for k in range(n):
        if same_hash(rows, out[k], TEXT, work.batch, i) and (oldest < 0 or out[k] < oldest):
            oldest = out[k]
    return oldest


@njit
def _under(i, place, most, work):  # type: ignore[no-untyped-def]
    """The newest rows, at most `most`, under the key of document i at `place`, in `scratch.out`. Returns their number.
    Other ids or texts have this key by chance only."""
    batch, scratch = work.batch, work.scratch
    at, slot, out = batch.starts[i] + place, scratch.slots[place], scratch.out
    if empty(work.memory, slot) and nowhere(work.hits, at):
        return _FIRST
    n, _ = read(batch.keys[at], slot, work.hits, at, work.runs, work.memory, work.rows.seen, most, scratch.room, out)
    return n


@njit
def _provisional_with_id(i, segment, work):  # type: ignore[no-untyped-def]
    """The newest provisional row of a block with the document's id, or -1."""
    out, key = work.scratch.out, work.batch.keys[work.batch.starts[i + 1] - 1]
    slot = find(segment, key)
    there = since(segment, slot, key, work.rows.seen)
    row = _same(i, ID, newest(segment, slot, key, min(there, np.int64(1)), out), work)
    if row < 0 and there > 1:
        row = _same(i, ID, newest(segment, slot, key, min(there, np.int64(len(out))), out), work)
    return row


@njit
def _same(i, what, n, work):  # type: ignore[no-untyped-def]
    """The first of the n rows in `scratch.out` with the same hash as document i, or -1."""
    out = work.scratch.out
    for k in range(n):
        if same_hash(work.rows, out[k], what, work.batch, i):
            return out[k]
    return NOTHING
