"""Containment candidates: the rows that share enough sampled keys with a document, the best first.

The share of sampled shingles that two documents have in common estimates their containment. A bucket that has more rows
than are read belongs to a common phrase. It is left out, and the shares are of the other keys. These buckets are read
after all, the newest rows, if so many are left out that a match could be in them alone; the verdict counts them as not
compared.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stream_lsh.hashing.kernels import far, njit
from stream_lsh.index.kernel.candidates import ENTRIES, home, pass_by
from stream_lsh.index.kernel.live_rows import read_live
from stream_lsh.index.kernel.row_access import in_ring, up_to, word
from stream_lsh.index.kernel.work import NOTHING, NUMBER, WORK
from stream_lsh.index.postings.bucket import empty, nowhere, read
from stream_lsh.index.rows.deleted_rows import any_deleted
from stream_lsh.index.rows.layout import FULL, HALF

_FIRST, _ONE = np.int64(0), np.int64(1)
_SURE = np.int64(1 << 40)  # more than a document has keys


@far(NUMBER(NUMBER, WORK))
def gather_containment(i, work):  # type: ignore[no-untyped-def]
    """As `candidates.gather`, with sampled keys."""
    batch, limits, rows = work.batch, work.limits, work.rows
    first = batch.starts[i]
    keys, cut = batch.starts[i + 1] - first - 2, _FIRST
    for j in range(keys):
        n, more = _read(j, first + j, work)
        if n < 0:
            return NOTHING
        cut += more
        if not more:
            share(n, _ONE, work)
    alone = cut > 0 and cut >= needed(np.float64(keys), limits)
    left = keys if alone else keys - cut
    if alone:
        for j in range(keys):
            n, more = _read(j, first + j, work)
            if n < 0:
                return NOTHING
            if more:
                share(n, _ONE, work)
    if not limits.unique:  # a row with the same text shares all keys, and may have none
        n, more = _read(keys, first + keys, work)
        if n < 0:
            return NOTHING
        share(n, _SURE, work)
        cut += more
        alone |= more
    _rank(left, keys, work)
    if not limits.unique and (rows.guides < rows.seen or any_deleted(rows.deleted_rows)) and not pass_by(work):
        return NOTHING
    return cut if alone else _FIRST


@njit
def _read(j, at, work):  # type: ignore[no-untyped-def]
    """The newest rows in the bucket of the document's key j, which is key `at` of the batch, in `scratch.out`. Returns
    their number, -1 if there is no room; and whether there are more."""
    batch, limits, scratch, rows = work.batch, work.limits, work.scratch, work.rows
    slot, out, key = scratch.slots[j], scratch.out, batch.keys[at]
    if empty(work.memory, slot) and nowhere(work.hits, at):
        return _FIRST, False
    row, entries, deleted_rows = rows.seen, limits.bucket, any_deleted(rows.deleted_rows)
    if not limits.unique and rows.guides < rows.seen:
        row, entries = rows.guides, ENTRIES * limits.bucket
    if not limits.unique and deleted_rows:
        entries = ENTRIES * limits.bucket
    most = min(entries, len(scratch.met) - scratch.met_count - 1)
    if limits.unique and deleted_rows:
        n, more = read_live(key, slot, work.hits, at, most, work)
    else:
        n, more = read(key, slot, work.hits, at, work.runs, work.memory, row, most, scratch.room, out)
    if more and most < entries:
        return NOTHING, False
    if not limits.unique:
        n, further = up_to(rows, n, out, limits.bucket)
        more |= further
    return n, more


@njit
def share(n, times, work):  # type: ignore[no-untyped-def]
    """Add `times` to the number or weight of the keys that the n rows in `scratch.out` share with the document."""
    scratch = work.scratch
    out, table, met, met_count = scratch.out, scratch.table, scratch.met, scratch.met_count
    mask = np.int64(len(table) - 1)
    for k in range(n):
        row = out[k]
        slot = home(row, table)
        while table[slot] >= 0 and met[table[slot], 0] != row:
            slot = (slot + 1) & mask
        m = table[slot]
        if m < 0:
            m = met_count
            met_count += 1
            table[slot] = m
            met[m, 0] = row
            met[m, 1] = 0
        met[m, 1] += times
    scratch.met_count = met_count


@njit
def needed(keys, limits):  # type: ignore[no-untyped-def]
    """As `families.containment.needed`, for a number of keys that may be an estimate."""
    return max(1.0, math.ceil(limits.threshold * keys - limits.slack * math.sqrt(keys) - 1e-9))


@njit
def _rank(left, keys, work):  # type: ignore[no-untyped-def]
    """Convert the number of keys that a row met shares with the document into its agreement; `left` of the document's
    `keys` were read. A row that shares too few has none. The same part of the row's own keys is assumed to have been
    read."""
    limits, scratch, rows = work.limits, work.scratch, work.rows
    met, histogram, part = scratch.met, scratch.histogram, left / max(keys, _ONE)
    own, kept, ring_mask = needed(np.float64(left), limits), in_ring(rows), np.int64(len(rows.notes) - 1)
    for m in range(scratch.met_count):
        row, shared = met[m, 0], met[m, 1]
        if row >= kept:
            theirs = np.int64(rows.ring[(row & ring_mask) * limits.head + 1])
        else:
            theirs = np.int64(word(rows, row, rows.signature_at + 1))
        other = max(np.float64(shared), theirs * part)
        agreement: Any = NOTHING
        if shared >= _SURE or (shared > 0 and shared >= left):
            agreement = FULL
        elif shared >= own:
            agreement = HALF + np.int64((HALF - 1) * shared / left)
        elif shared >= needed(other, limits):
            agreement = _ONE + np.int64((HALF - 2) * shared / other)
        met[m, 1] = agreement
        if agreement >= 0:
            histogram[agreement] += 1
