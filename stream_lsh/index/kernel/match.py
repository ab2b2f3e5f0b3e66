"""The kernel of the index: documents in the order of the log against one shard.

Each document sees all rows before it, those of its own batch included, so that the answers do not depend on how the
log was cut into batches. The rule (docs/architecture.md, "Matching"), as `_judge` and `_compare` have it:

0. With a window, rows older than it are not seen, wherever below rows are read.
1. An id that is known makes a document redelivered, or rejected, or replaces what was there; a deletion lets it go
   (`going`). Under `unique` a text that was kept is decided by one look-up.
2. Of each of its buckets the newest rows are read. Whoever agrees with it well enough in the signature is a candidate.
3. Candidates are verified in the order of their agreement, the newest first among equals, until enough match.
4. With several shards under `kept`, if nothing matches: the same with those that are not decided yet, but half of
   what is read and verified are the oldest. Who was kept is for others to say, who know all shards' answers.
5. It is stored. Under `unique` it is posted in its buckets only if nothing matched. Under `all` a copy or a follower is
   posted behind the row that it follows, which whoever would have met it meets instead, and looks behind.
"""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.bits import float_of
from stream_lsh.hashing.kernels import far, njit
from stream_lsh.index.kernel.candidates import forget, gather, gather_undecided, leader, nominate, rank
from stream_lsh.index.kernel.containment import gather_sharing
from stream_lsh.index.kernel.insert import store
from stream_lsh.index.kernel.live_rows import read_living
from stream_lsh.index.kernel.replace import delete, older, replace, stands, was_deleted, went_since
from stream_lsh.index.kernel.row_access import agreement_with, same_hash, see, word
from stream_lsh.index.kernel.tf_idf import compare, counted, resembles, weigh
from stream_lsh.index.kernel.verify import verify
from stream_lsh.index.kernel.work import (
    AT_LEAST,
    CODE_AND_ROW,
    DONE,
    NO_ROOM,
    NOBODY,
    NUMBER,
    REPRESENTATIVE_POSTED,
    WORK,
)
from stream_lsh.index.postings.bucket import empty, nowhere, read
from stream_lsh.index.postings.memtable import find, newest, since
from stream_lsh.index.rows.deleted_rows import any_dead
from stream_lsh.index.rows.layout import (
    DELETION,
    EXACT,
    FLAGS,
    GROUP,
    GROUP_OF,
    ID,
    ID_REUSED,
    INCOMPLETE,
    KIND,
    KIND_BITS,
    KNOWN,
    MORE,
    NEW,
    NO_GROUP,
    OLDEST,
    OLDEST_SEQ,
    OUTDATED,
    OWNED,
    REDELIVERED,
    SEQ,
    SIMILARITY,
    STATUS,
    TEXT,
    UNIQUE,
    UNKNOWN,
    VALID,
    WENT_SINCE,
)

_FIRST = np.int64(0)
_SAME_TEXT = np.int64(64)  # kept ones with one text that are looked at


@njit
def match(start, stop, work):  # type: ignore[no-untyped-def]
    """Match and store the documents [start, stop) of a batch; fills `work.results`.

    Returns the position reached, and why no further: DONE if all of them are done. Called again from there, it goes on.
    REPRESENTATIVE_POSTED: the last row stands for a new representative, which the caller has to post, as keys are made
    of its text.
    """
    i = start
    while i < stop:
        code = _judge(i, work)
        if code == REPRESENTATIVE_POSTED and not work.limits.samples:
            continue
        if code != DONE:
            return i, code
        i += 1
    return stop, DONE


@njit
def _judge(i, work):  # type: ignore[no-untyped-def]
    """Match and store one document; DONE, or what is missing, with nothing changed."""
    batch, scratch, results = work.batch, work.scratch, work.results
    columns, what, slots = results.columns, batch.what[i], scratch.slots
    if not what & (VALID | DELETION):
        return DONE
    if work.limits.window:
        see(work.rows, batch.log[i] - work.limits.window)
    if work.limits.stories:
        code = weigh(i, work)
        if code != DONE:
            return code
    # All look-ups first: they do not depend on each other, so that the waits for memory overlap.
    keys, first = batch.keys, batch.starts[i]
    for k in range(batch.starts[i + 1] - first):
        slots[k] = find(work.memory, keys[first + k])
    old = stays = NOBODY
    if what & DELETION and not (what & OWNED and work.limits.store):
        return DONE
    changing = any_dead(work.rows.dead) or work.limits.update or what & DELETION
    if changing and work.limits.unique and len(scratch.out) < AT_LEAST:
        return NO_ROOM
    if what & OWNED:
        old = newest_of_id(i, work)
        if what & DELETION:
            return delete(i, old, work)
        if old >= 0 and _answered(i, old, work):
            return DONE
        if old >= 0 and was_deleted(work.rows, old):
            old = NOBODY
    columns[i, STATUS] = NEW
    before, work.rows.dead.aside = results.found, old
    code, original, follows = _compare(i, work)
    if old >= 0 and code == DONE and work.limits.unique and original < 0:
        code, stays = stays_with(i, old, work)
    work.rows.dead.aside = NOBODY
    if old >= 0 and code == DONE and work.limits.store:
        code = replace(i, old, stays, work)
    if code == DONE:
        if work.limits.unique:
            of = columns[i, OLDEST] if stays < 0 or work.limits.late else stays
            columns[i, GROUP_OF] = np.int64(word(work.rows, of, GROUP) if of >= 0 else batch.words[i, SEQ])
        if work.limits.store and what & OWNED:
            store(i, original, follows, work)
            if work.limits.stories:
                counted(i, work)
    else:
        results.found = before
    forget(scratch)
    return code


@njit
def newest_of_id(i, work):  # type: ignore[no-untyped-def]
    """The newest row with the id of document i, or -1."""
    place, row, n = work.batch.starts[i + 1] - work.batch.starts[i] - 1, NOBODY, np.int64(1)
    if work.limits.late:
        row = _undecided_with_id(i, work.newer, work)
        if row < 0:
            row = _undecided_with_id(i, work.older, work)
        if row >= 0:
            return row
    if _under(i, place, n, work):  # an id that was updated again and again has many rows; more than one key, nobody
        row = _same(i, ID, n, work)
        if row < 0:
            row = _same(i, ID, _under(i, place, np.int64(len(work.scratch.out)), work), work)
    return row


@njit
def look_up(start, stop, work):  # type: ignore[no-untyped-def]
    """The rows of the documents that have the ids of the documents [start, stop), in KNOWN; -1 where there is none."""
    batch, columns = work.batch, work.results.columns
    for i in range(start, stop):
        if work.limits.window:
            see(work.rows, batch.log[i] - work.limits.window)
        place = batch.starts[i + 1] - batch.starts[i] - 1
        work.scratch.slots[place] = find(work.memory, batch.keys[batch.starts[i] + place])
        row = newest_of_id(i, work)
        columns[i, KNOWN] = NOBODY if row >= 0 and was_deleted(work.rows, row) else row


@njit
def with_text(i, work):  # type: ignore[no-untyped-def]
    """The row of who was kept and has the text of document i, or -1; the oldest one, as a new representative may have
    the text of one that was kept meanwhile."""
    rows, out, place = work.rows, work.scratch.out, work.batch.starts[i + 1] - work.batch.starts[i] - 2
    if not any_dead(rows.dead):
        return _same(i, TEXT, _under(i, place, np.int64(len(out)), work), work)
    at, oldest = work.batch.starts[i] + place, NOBODY
    n, _ = read_living(work.batch.keys[at], work.scratch.slots[place], work.batch.hits, at, _SAME_TEXT, work)
    for k in range(n):
        if same_hash(rows, out[k], TEXT, work.batch, i) and (oldest < 0 or out[k] < oldest):
            oldest = out[k]
    return oldest


@njit
def _answered(i, row, work):  # type: ignore[no-untyped-def]
    """Whether what is known of the id of document i, its newest row, decides; if it has the same text, the first
    verdict on it is said again."""
    rows, results, limits = work.rows, work.results, work.limits
    columns, deleted = results.columns, was_deleted(rows, row)
    if (
        deleted and word(rows, row, SEQ) == work.batch.words[i, SEQ]
    ):  # by this document, for which a new representative was posted
        return False
    same = not deleted and same_hash(rows, row, TEXT, work.batch, i)
    if not same and (deleted or limits.update):
        columns[i, STATUS] = OUTDATED
        return older(i, row, work)
    columns[i, STATUS] = REDELIVERED if same else ID_REUSED
    columns[i, KNOWN] = row
    if limits.update and limits.unique and not limits.late and went_since(row, work):
        columns[i, OLDEST] = WENT_SINCE
    if limits.late:
        columns[i, OLDEST_SEQ] = np.int64(word(rows, row, SEQ))
        if row >= work.older.first:  # its first verdict is for others to say
            columns[i, KIND], columns[i, GROUP_OF], results.similarity[i] = UNKNOWN, NO_GROUP, 0.0
            return True
    columns[i, KIND] = np.int64(word(rows, row, FLAGS) >> KIND_BITS & np.uint64(0xFF))
    columns[i, GROUP_OF] = np.int64(word(rows, row, GROUP))
    results.similarity[i] = float_of(word(rows, row, SIMILARITY))
    return True


@far(CODE_AND_ROW(NUMBER, NUMBER, WORK))
def stays_with(i, old, work):  # type: ignore[no-untyped-def]
    """Whether document i, which nothing matches, is similar to the version that it replaces, and that one was kept:
    DONE or what is missing, and that version or -1. With several shards others say whether it was kept, and whether
    anything matches."""
    limits, signatures, results = work.limits, work.batch.signatures, work.results
    if not limits.late and stands(old, work) < 0:
        return DONE, NOBODY
    if limits.stories:
        return DONE, old if resembles(i, old, work) else NOBODY
    if limits.samples:
        if word(work.rows, old, work.rows.signature_at) != signatures[i * limits.signature]:
            return DONE, NOBODY
    elif agreement_with(work.rows, old, signatures, i * limits.signature, limits.head, limits.tops) < limits.floor:
        return DONE, NOBODY  # nor does anybody match whom it must not match within
    columns, found, similarity = results.columns, results.found, results.similarity[i]
    kind, oldest, number, more = columns[i, KIND], columns[i, OLDEST], columns[i, OLDEST_SEQ], columns[i, MORE]
    work.scratch.candidates, work.scratch.old_first = 0, False
    nominate(old, limits.likely, work.scratch)
    code, _, _ = verify(i, work)
    similar = results.found > found
    columns[i, KIND], columns[i, OLDEST], columns[i, OLDEST_SEQ], columns[i, MORE] = kind, oldest, number, more
    results.found, results.similarity[i] = found, similarity
    return code, old if similar else NOBODY


@njit
def _begin(i, found, work):  # type: ignore[no-untyped-def]
    """Nothing matches document i yet; found: the matches of those before it."""
    columns = work.results.columns
    columns[i, KIND], columns[i, OLDEST], columns[i, MORE], columns[i, INCOMPLETE] = UNIQUE, -1, 0, 0
    work.results.similarity[i] = 0.0
    work.results.found = found
    work.scratch.candidates = 0
    work.scratch.old_first = False


@njit
def _compare(i, work):  # type: ignore[no-untyped-def]
    """Find the matches of a document. Returns DONE or what is missing, the row that it is stored behind for certain
    (under `all` that of the same text in this generation) and the place of its leader among the rows met; either may be
    -1."""
    limits, scratch, columns, before = work.limits, work.scratch, work.results.columns, work.results.found
    _begin(i, before, work)
    if limits.stories:
        code, row = compare(i, work)
        return code, row, NOBODY
    if limits.unique:
        row = with_text(i, work)
        if row >= 0:  # the only candidate, unless somebody knows the key and has made two texts with one hash
            nominate(row, limits.full, scratch)
            code, _, _ = verify(i, work)
            if code != DONE or columns[i, KIND] == EXACT:
                return code, columns[i, OLDEST], NOBODY
            _begin(i, before, work)
    cut = gather_sharing(i, work) if limits.samples else gather(i, work)
    if cut < 0:
        return NO_ROOM, NOBODY, NOBODY
    there = rank(limits, scratch)
    code, compared, original = verify(i, work)
    columns[i, INCOMPLETE] = cut + there - compared
    if not limits.unique:
        return code, original, leader(work)
    kept = columns[i, OLDEST]
    if limits.late and code == DONE and kept < 0:
        there = gather_undecided(i, work)
        if there < 0:
            return NO_ROOM, NOBODY, NOBODY
        code, compared, _ = verify(i, work)
        columns[i, MORE] = there - compared
    return code, kept, NOBODY


@njit
def _under(i, place, most, work):  # type: ignore[no-untyped-def]
    """The newest rows, at most so many, under the key of document i at `place`: in `scratch.out`; their number. More
    than one id or text has one such key by accident only."""
    batch, scratch = work.batch, work.scratch
    at, slot, out = batch.starts[i] + place, scratch.slots[place], scratch.out
    if empty(work.memory, slot) and nowhere(batch.hits, at):
        return _FIRST
    n, _ = read(batch.keys[at], slot, batch.hits, at, work.runs, work.memory, work.rows.seen, most, scratch.room, out)
    return n


@njit
def _undecided_with_id(i, segment, work):  # type: ignore[no-untyped-def]
    """The newest undecided row of a block with the document's id, or -1."""
    out, key = work.scratch.out, work.batch.keys[work.batch.starts[i + 1] - 1]
    slot = find(segment, key)
    there = since(segment, slot, key, work.rows.seen)
    row = _same(i, ID, newest(segment, slot, key, min(there, np.int64(1)), out), work)
    if row < 0 and there > 1:
        row = _same(i, ID, newest(segment, slot, key, min(there, np.int64(len(out))), out), work)
    return row


@njit
def _same(i, what, n, work):  # type: ignore[no-untyped-def]
    """The first of the n rows in `scratch.out` that has the same hash as document i, or -1."""
    out = work.scratch.out
    for k in range(n):
        if same_hash(work.rows, out[k], what, work.batch, i):
            return out[k]
    return NOBODY
