"""Reading ahead: the rows whose sets the next documents of a batch will probably need.

A document that is similar to an old row stops the kernel until that row's text is read. Where most documents are, as in
a feed of corrections or of copies of old pages, reading the texts of many documents together is several times as fast.
A wrong guess changes no verdict: a missing set is read when it is needed.
"""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.kernels import njit
from stream_lsh.index.kernel.candidates import best, forget, gather, nominate, rank
from stream_lsh.index.kernel.containment import gather_containment
from stream_lsh.index.kernel.known import newest_of_id, with_text
from stream_lsh.index.kernel.replace import was_deleted
from stream_lsh.index.kernel.row_access import agreement_with, same_hash
from stream_lsh.index.kernel.shingle_sets import is_cached
from stream_lsh.index.kernel.verify import ruled_out
from stream_lsh.index.kernel.work import AT_LEAST, NOTHING
from stream_lsh.index.postings.memtable import find
from stream_lsh.index.rows.layout import TEXT, VALID

MOST = 4
"""Rows guessed for a document."""
_FIRST = np.int64(0)


@njit
def guess(start, stop, work, rows):  # type: ignore[no-untyped-def]
    """Rows, at most MOST for each of the documents [start, stop), that these will probably be compared with and whose
    sets are not in memory, in `rows`, which has room for them. Returns their number. Nothing else is changed."""
    batch, scratch, n = work.batch, work.scratch, _FIRST
    if len(scratch.out) < AT_LEAST:
        return n
    for i in range(start, stop):
        if batch.what[i] & VALID:
            keys, first = batch.keys, batch.starts[i]
            for k in range(batch.starts[i + 1] - first):
                scratch.slots[k] = find(work.memory, keys[first + k])
            n = _of_document(i, n, work, rows)
            forget(scratch)
    return n


@njit
def _of_document(i, n, work, rows):  # type: ignore[no-untyped-def]
    batch, limits, scratch, sets = work.batch, work.limits, work.scratch, work.sets
    scratch.candidates, scratch.old_first = _FIRST, False
    old = newest_of_id(i, work) if limits.update and batch.owner[i] == work.shard else NOTHING
    if old >= 0 and was_deleted(work.rows, old):  # a deletion has no text
        old = NOTHING
    if old >= 0 and same_hash(work.rows, old, TEXT, batch, i):  # redelivered
        return n
    kept = with_text(i, work) if limits.unique else NOTHING
    if kept >= 0:
        nominate(kept, limits.full, scratch)
    elif limits.unique and old >= 0 and _similar(i, old, work):  # no other similar document was kept
        nominate(old, limits.likely, scratch)
    elif (gather_containment(i, work) if limits.samples else gather(i, work)) < 0:
        return n
    else:
        rank(limits, scratch)
    for _ in range(min(scratch.candidates, MOST)):
        row, agreement = best(scratch)
        if row >= sets.first or is_cached(sets, row):
            continue
        if agreement >= limits.likely or not sets.have[i] or not ruled_out(i, row, work):
            rows[n] = row
            n += 1
    return n


@njit
def _similar(i, row, work):  # type: ignore[no-untyped-def]
    """Whether document i is probably similar to a row."""
    limits, signatures = work.limits, work.batch.signatures
    agreement = agreement_with(work.rows, row, signatures, i * limits.signature, limits.head, limits.tops)
    return agreement >= limits.likely
