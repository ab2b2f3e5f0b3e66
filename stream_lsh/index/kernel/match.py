"""The matching kernel: documents in the order of the log against one shard.

A document is compared with all rows before it, including those of its own batch. The verdicts therefore do not depend
on how the log was cut into batches. The steps (docs/explanation/how-matching-works.md), in `_judge` and
`compare.compare`:

0. With a window, rows that have left it are read nowhere.
1. A known id makes a document redelivered, or rejected, or an update; a deletion deletes the id's version (`replace`).
   With `compare_with = kept`, a text that was kept is found by one look-up.
2. The newest rows of each of its buckets are read. A row whose signature agrees well enough is a candidate.
3. Candidates are verified in the order of their agreement, the newest first among equals, until enough match.
4. With several shards and `kept`, a document without a match is compared with the provisional rows too: half of what is
   read and verified are the oldest. Whether they were kept is decided by the resolution, from the matches of all
   shards.
5. The document is stored. With `kept` it is posted in its buckets only if nothing matched. With `all` a copy or
   follower is posted behind the row that it follows. A document that meets this row also reads what is behind it.
"""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.bits import float_of
from stream_lsh.hashing.kernels import njit
from stream_lsh.index.kernel.candidates import forget
from stream_lsh.index.kernel.insert import store
from stream_lsh.index.kernel.known import newest_of_id
from stream_lsh.index.kernel.replace import delete, older, replace, replaced_since, supersedes, was_deleted
from stream_lsh.index.kernel.row_access import same_hash, see, word
from stream_lsh.index.kernel.rules import keeps_representative, matches_of, prepare, stored
from stream_lsh.index.kernel.work import (
    AT_LEAST,
    DELETED_BEFORE,
    DONE,
    FOUND_BEFORE,
    NO_ROOM,
    NOTHING,
    PLACE,
    POSTED_BEFORE,
    PROVISIONAL_BEFORE,
    REPRESENTATIVE_POSTED,
    ROWS_BEFORE,
    VERSIONS_BEFORE,
)
from stream_lsh.index.postings.memtable import expect, find
from stream_lsh.index.rows.deleted_rows import any_deleted
from stream_lsh.index.rows.layout import (
    DELETION,
    FLAGS,
    GROUP,
    GROUP_OF,
    ID_REUSED,
    KIND,
    KIND_BITS,
    KNOWN,
    NEW,
    NO_GROUP,
    OLDEST,
    OLDEST_SEQ,
    OUTDATED,
    PARTITION,
    PARTITION_BITS,
    PARTITION_MASK,
    REDELIVERED,
    REPLACED_SINCE,
    SEQ,
    SIMILARITY,
    STATUS,
    SUPERSEDED,
    TEXT,
    UNKNOWN,
    VALID,
)


@njit
def match(start, stop, work):  # type: ignore[no-untyped-def]
    """Match and store the documents [start, stop) of a batch; fills `work.results`.

    Returns the position reached, and DONE or what is missing to go on from there. REPRESENTATIVE_POSTED: the last row
    is a representative row, which the caller has to post, because its keys are sampled from its text.
    """
    i = start
    while i < stop:
        if work.results.progress[PLACE] != i:
            begin(i, work)
            if i + 1 < stop:
                expect(work.memory, work.batch.keys[work.batch.starts[i + 1] : work.batch.starts[i + 2]])
        code = _judge(i, work)
        if code == REPRESENTATIVE_POSTED and not work.limits.samples:
            continue
        if code != DONE:
            return i, code
        i += 1
    return stop, DONE


@njit
def begin(i, work):  # type: ignore[no-untyped-def]
    """Note that document i begins, and what there is before it."""
    progress, rows = work.results.progress, work.rows
    progress[ROWS_BEFORE], progress[POSTED_BEFORE] = rows.total, work.memory.postings
    progress[PROVISIONAL_BEFORE] = work.newer.postings
    progress[DELETED_BEFORE], progress[VERSIONS_BEFORE] = rows.deleted_rows.count, rows.deleted_rows.version_count
    progress[FOUND_BEFORE] = work.results.found
    progress[PLACE] = i


@njit
def _judge(i, work):  # type: ignore[no-untyped-def]
    """Match and store one document. Returns DONE, or what is missing, with nothing changed."""
    batch, scratch, results = work.batch, work.scratch, work.results
    columns, what, slots = results.columns, batch.what[i], scratch.slots
    owned = batch.owner[i] == work.shard
    if not what & (VALID | DELETION):
        return DONE
    if work.limits.window:
        see(work.rows, batch.log[i] - work.limits.window)
    code = prepare(i, work)
    if code != DONE:
        return code
    # All look-ups first: they are independent, and their memory latencies overlap.
    keys, first = batch.keys, batch.starts[i]
    for k in range(batch.starts[i + 1] - first):
        slots[k] = find(work.memory, keys[first + k])
    old = in_place_of = NOTHING
    if what & DELETION and not (owned and work.limits.store):
        return DONE
    changing = any_deleted(work.rows.deleted_rows) or work.limits.update or work.limits.keep or what & DELETION
    if changing and work.limits.unique and len(scratch.out) < AT_LEAST:
        return NO_ROOM
    if owned:
        old = newest_of_id(i, work)
        if old >= 0 and not was_deleted(work.rows, old):
            columns[i, PARTITION] = np.int64(word(work.rows, old, FLAGS) >> PARTITION_BITS) & PARTITION_MASK
        if what & DELETION:
            return delete(i, old, work)
        if old >= 0 and _answered(i, old, work):
            return DONE
        if old >= 0 and was_deleted(work.rows, old):
            old = NOTHING
    columns[i, STATUS] = NEW
    before, work.rows.deleted_rows.aside = results.found, old
    code, original, follows = matches_of(i, work)
    if old >= 0 and code == DONE and work.limits.unique and original < 0:
        code, in_place_of = keeps_representative(i, old, work)
    work.rows.deleted_rows.aside = NOTHING
    if old >= 0 and code == DONE and work.limits.store:
        code = replace(i, old, in_place_of, work)
    if code == DONE:
        outranked = columns[i, SUPERSEDED]
        if outranked >= 0 and (columns[i, OLDEST] >= 0 or in_place_of >= 0):
            outranked = columns[i, SUPERSEDED] = NOTHING
        if outranked >= 0 and not work.limits.late:
            supersedes(i, before, work)
        if work.limits.unique:
            of = columns[i, OLDEST] if in_place_of < 0 or work.limits.late else in_place_of
            columns[i, GROUP_OF] = np.int64(word(work.rows, of, GROUP) if of >= 0 else batch.words[i, SEQ])
        if work.limits.store and owned:
            store(i, original, follows, work)
            stored(i, work)
    else:
        results.found = before
    forget(scratch)
    return code


@njit
def _answered(i, row, work):  # type: ignore[no-untyped-def]
    """Whether the newest row of document i's id decides the verdict. For the same text, the first verdict is
    repeated."""
    rows, results, limits = work.rows, work.results, work.limits
    columns, deleted = results.columns, was_deleted(rows, row)
    if (
        deleted and word(rows, row, SEQ) == work.batch.words[i, SEQ]
    ):  # deleted by this document, for which a representative row was added
        return False
    same = not deleted and same_hash(rows, row, TEXT, work.batch, i)
    if not same and (deleted or limits.update):
        columns[i, STATUS] = OUTDATED
        return older(i, row, work)
    columns[i, STATUS] = REDELIVERED if same else ID_REUSED
    columns[i, KNOWN] = row
    if limits.late:
        columns[i, OLDEST_SEQ] = np.int64(word(rows, row, SEQ))
        if row >= work.older.first:  # its first verdict is decided by the resolution
            columns[i, KIND], columns[i, GROUP_OF], results.similarity[i] = UNKNOWN, NO_GROUP, 0.0
            return True
    if limits.update and limits.unique and replaced_since(row, work):
        columns[i, OLDEST] = REPLACED_SINCE
    columns[i, KIND] = np.int64(word(rows, row, FLAGS) >> KIND_BITS & np.uint64(0xFF))
    columns[i, GROUP_OF] = np.int64(word(rows, row, GROUP))
    results.similarity[i] = float_of(word(rows, row, SIMILARITY))
    return True
