"""What the next documents of a batch will ask for: rows whose sets have to be read, guessed for many of them at once.

A document that is similar to an old row stops the kernel until that row's text is read. Where most documents do, a feed
of corrections or of copies of old pages, reading the texts of many in one go is several times as fast. It is a guess:
who is not in it is read when it is asked for, and no answer depends on it.
"""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.kernels import njit
from stream_lsh.index.candidates import ENTRIES, best, forget, gather, nominate, rank
from stream_lsh.index.layout import VALID
from stream_lsh.index.match import with_text
from stream_lsh.index.memory import find
from stream_lsh.index.sets import place_of
from stream_lsh.index.verify import ruled_out

MOST = 4
"""Rows that are guessed for a document."""
_FIRST = np.int64(0)


@njit
def guess(start, stop, work, rows):  # type: ignore[no-untyped-def]
    """Rows, at most MOST for each of the documents [start, stop), that these are likely to be compared with and that
    are not at hand: in `rows`, which has room for them; their number. Nothing else is changed."""
    batch, scratch, n = work.batch, work.scratch, _FIRST
    if len(scratch.out) < ENTRIES * work.limits.bucket:
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
    limits, scratch, sets = work.limits, work.scratch, work.sets
    scratch.candidates, scratch.old_first = _FIRST, False
    kept = with_text(i, work) if limits.unique else np.int64(-1)
    if kept >= 0:
        nominate(kept, limits.full, scratch)
    elif gather(i, work) < 0:
        return n
    else:
        rank(limits, scratch)
    for _ in range(min(scratch.candidates, MOST)):
        row, agreement = best(scratch)
        if row >= sets.first or place_of(sets.ring, sets.slots, sets.kept, row)[0] >= 0:
            continue
        if agreement >= limits.likely or not sets.have[i] or not ruled_out(i, row, work):
            rows[n] = row
            n += 1
    return n
