"""Deleted and replaced versions, and the new representatives of their groups.

With `compare_with = kept`, when a representative is deleted or replaced, the oldest live member of its group in the
window becomes the new representative. The row of this member was dropped, and is in no bucket. A representative row is
added: the next row, with the member's signature, and the member's row in OF. Rows are posted in their order and only
once; postings that are rebuilt from rows include representatives.

With several shards the members are in all of them, and the deleted version was in one. All shards learn its group
together with the decisions of its block. When the next block begins, each adds a representative row for its oldest live
member among the provisional rows, and the resolution chooses the oldest of all. The rows of the others mark where their
shards search from the next time.
"""

from __future__ import annotations

import numpy as np
from numba import types

from stream_lsh.documents import times
from stream_lsh.families.bands import key_of_band, key_of_mask, key_of_piece
from stream_lsh.hashing.kernels import far, njit
from stream_lsh.index.kernel.row_access import copy_words, see, word
from stream_lsh.index.kernel.work import AT_LEAST, CODE, DONE, NOTHING, NUMBER, REPRESENTATIVE_POSTED, WORK
from stream_lsh.index.postings.bucket import FOLLOWERS, REPRESENTATIVES, earliest, key_behind, probe, read
from stream_lsh.index.postings.memtable import append, find
from stream_lsh.index.postings.provisional import post_provisional
from stream_lsh.index.rows.deleted_rows import (
    MARK_DELETED,
    MARK_LIVE,
    MARK_REPRESENTATIVE,
    MARK_SUPERSEDED,
    is_live,
    lasting_mark_of,
    mark_deleted,
    mark_of,
    mark_superseded,
    mark_version_deleted,
)
from stream_lsh.index.rows.keys import posting_key
from stream_lsh.index.rows.layout import (
    DELETED,
    DELETION,
    DROPPED,
    FLAGS,
    FOLLOWS,
    GROUP,
    ID,
    ID_DELETED,
    KIND_BITS,
    LEFT,
    LIKE,
    MEMBER,
    OF,
    OLDEST,
    OLDEST_SEQ,
    OUTDATED,
    REPLACES,
    REPRESENTATIVE,
    REPRESENTATIVE_OF,
    REPRESENTATIVE_SEQ,
    ROW,
    SEQ,
    SIMILARITY,
    STATUS,
    SUPERSEDED,
    SUPERSEDES,
    TEXT,
    TIME,
    UNIQUE,
    UNKNOWN,
    WAS_REPRESENTATIVE,
)

NO_TIME = np.int64(times.NO_TIME)
_FIRST, _ONE = np.int64(0), np.int64(1)


@njit
def time_of(rows, row):  # type: ignore[no-untyped-def]
    """Event time of a row, or NO_TIME."""
    return np.int64(word(rows, row, TIME))


@njit
def older(i, row, work):  # type: ignore[no-untyped-def]
    """Whether document i has an earlier event time than a row."""
    mine, other = np.int64(work.batch.words[i, TIME]), time_of(work.rows, row)
    return mine != NO_TIME and other != NO_TIME and mine < other


@njit
def was_deleted(rows, row):  # type: ignore[no-untyped-def]
    """Whether a row is a deletion."""
    return word(rows, row, FLAGS) & np.uint64(DELETED) != 0


@far(NUMBER(NUMBER, WORK))
def representative_row_of(row, work):  # type: ignore[no-untyped-def]
    """The row by which a representative is met: its own, or a representative row; -1 if the row is no representative.
    With `compare_with = all` and several shards it is not known."""
    rows = work.rows
    if not work.limits.unique:
        kind = np.int64(word(rows, row, FLAGS) >> KIND_BITS & np.uint64(0xFF))
        return row if kind in (UNIQUE, UNKNOWN) else NOTHING
    if work.limits.late and row >= work.older.first:  # the resolution decides
        return row
    superseded = lasting_mark_of(rows.deleted_rows, row) == MARK_SUPERSEDED
    if not superseded and not word(rows, row, FLAGS) & np.uint64(DROPPED):
        return row
    newest = _newest_representative(word(rows, row, GROUP), work)
    if newest < 0 or word(rows, newest, FLAGS) & np.uint64(DROPPED):
        return NOTHING
    if lasting_mark_of(rows.deleted_rows, newest) != MARK_REPRESENTATIVE:  # its representative was superseded
        return NOTHING
    return newest if np.int64(word(rows, newest, OF)) == row else NOTHING


@njit
def _newest_representative(group, work):  # type: ignore[no-untyped-def]
    """The newest representative row of a group, or -1. With several shards the representative may be in another shard;
    then this shard's row is marked as dropped."""
    rows, memory, scratch = work.rows, work.memory, work.scratch
    key = key_behind(group, REPRESENTATIVES)
    probe(key, work.runs, scratch.hits)
    slot = find(memory, key)
    for most in (_ONE, np.int64(len(scratch.out))):  # the newest; more if another group has the same key by chance
        n, _ = read(key, slot, scratch.hits, _FIRST, work.runs, memory, rows.seen, most, scratch.room, scratch.out)
        for k in range(n):
            newest = scratch.out[k]
            if word(rows, newest, GROUP) == group and word(rows, newest, FLAGS) & np.uint64(REPRESENTATIVE):
                return newest
    return NOTHING


@far(types.boolean(NUMBER, WORK))
def replaced_since(row, work):  # type: ignore[no-untyped-def]
    """Whether the version that a row was dropped for was replaced or deleted since: its id has a newer row. With
    several shards it may be in another one: then whether the group of the row has a newer representative row. Both have
    decisions."""
    rows, memory, scratch = work.rows, work.memory, work.scratch
    if not word(rows, row, FLAGS) & np.uint64(DROPPED):
        return False
    if work.limits.late:
        return _newest_representative(word(rows, row, GROUP), work) > row
    hashed = word(rows, row, OF)
    key = posting_key(hashed)
    probe(key, work.runs, scratch.hits)
    slot = find(memory, key)
    for most in (_ONE, np.int64(len(scratch.out))):  # the newest; more if another id has the same key by chance
        n, _ = read(key, slot, scratch.hits, _FIRST, work.runs, memory, rows.seen, most, scratch.room, scratch.out)
        for k in range(n):
            if word(rows, scratch.out[k], ID) == hashed:
                return scratch.out[k] > row
    return False


@njit
def representative_of(group, row, work):  # type: ignore[no-untyped-def]
    """The new representative of a group without one row, or -1. There must be room for AT_LEAST rows. Deleted members
    are skipped once: the next search begins behind them. A superseded document is a member by the row of the one that
    superseded it (`scratch.dropped_at`), with several shards by its own."""
    rows, memory, scratch, late = work.rows, work.memory, work.scratch, work.limits.late
    keep = work.limits.keep and not late
    newest, first = _newest_representative(group, work), rows.seen
    if newest >= 0 and keep:
        first = max(first, np.int64(word(rows, newest, SIMILARITY)) + _ONE)
    elif newest >= 0:  # older members were deleted before the last representative was chosen
        left = np.int64(word(rows, newest, FLAGS) & np.uint64(DROPPED))
        if work.limits.keep:  # it may have been superseded since
            left = _ONE
        first = max(first, np.int64(word(rows, newest, OF)) + _ONE - left)
    key, n = key_behind(group, FOLLOWERS), AT_LEAST
    probe(key, work.runs, scratch.hits)
    slot = find(memory, key)
    while n == AT_LEAST:
        n = earliest(key, slot, scratch.hits, work.runs, memory, first, AT_LEAST, scratch.room, scratch.out)
        for k in range(n):
            member = scratch.dropped_at = scratch.out[k]
            first = member + 1
            if keep and word(rows, member, FLAGS) & np.uint64(SUPERSEDES) and word(rows, member, GROUP) == group:
                member = np.int64(word(rows, member, OF))
                if member != row and member >= rows.seen and is_live(rows.deleted_rows, member):
                    return member
                continue
            mark = mark_of(rows.deleted_rows, member)
            superseded = late and mark == MARK_SUPERSEDED
            if member == row or not (superseded or mark == MARK_LIVE):
                continue
            dropped = superseded or word(rows, member, FLAGS) & np.uint64(DROPPED) != 0
            if dropped and word(rows, member, GROUP) == group:
                return member
    return NOTHING


@far(CODE(NUMBER, NUMBER, WORK))
def delete(i, row, work):  # type: ignore[no-untyped-def]
    """Delete the id of document i. row: the id's newest row, or -1."""
    rows, columns = work.rows, work.results.columns
    time = np.int64(work.batch.words[i, TIME])
    columns[i, STATUS] = ID_DELETED
    if row < 0 or was_deleted(rows, row):
        if row >= 0 and word(rows, row, SEQ) == work.batch.words[i, SEQ]:  # by this record: nothing is left to do
            return DONE
        if time != NO_TIME and (row < 0 or time > time_of(rows, row)):  # for older versions that arrive later
            store_deletion(i, NOTHING, NOTHING, time, work)
        return DONE
    if older(i, row, work):
        columns[i, STATUS] = OUTDATED
        return DONE
    if time_of(rows, row) != NO_TIME:
        time = max(time, time_of(rows, row) + _ONE)
    representative = remove(i, row, work)
    store_deletion(i, representative, row, time, work)
    return REPRESENTATIVE_POSTED if representative >= 0 and work.limits.samples else DONE


@njit
def add_representatives(i, groups, found, work):  # type: ignore[no-untyped-def]
    """A block begins with document i: add a representative row for each possible representative of these groups. The
    caller posts the rows. found: int64[g, 2], row and number of each. Returns how many there are."""
    rows, log, n = work.rows, work.batch.log[i], _FIRST
    if work.limits.window:
        see(rows, log - work.limits.window)
    for g in range(len(groups)):
        representative = representative_of(np.uint64(groups[g]), NOTHING, work)
        if representative < 0:
            continue
        at, new = rows.total, rows.recent[rows.total - rows.base]
        _make_representative_row(representative, new, work)
        new[SEQ], new[TIME], new[GROUP] = word(rows, representative, SEQ), np.uint64(NO_TIME), np.uint64(groups[g])
        new[FLAGS] = np.uint64(REPRESENTATIVE) | np.uint64(UNKNOWN) << KIND_BITS
        if work.limits.window:
            new[rows.log_at] = np.uint64(log)
        _added(at, MARK_REPRESENTATIVE, rows)
        groups[n], found[n, 0], found[n, 1] = groups[g], representative, np.int64(new[SEQ])
        n += 1
    return n


@far(CODE(NUMBER, NUMBER, NUMBER, WORK))
def replace(i, row, in_place_of, work):  # type: ignore[no-untyped-def]
    """Document i replaces a version. in_place_of: that version, if document i becomes the representative in its place,
    otherwise -1. Without it the version counts as deleted before, and document i is compared with the new
    representative, if there is one. With several shards the resolution decides."""
    work.results.columns[i, LIKE] = in_place_of >= 0
    if in_place_of >= 0 and not work.limits.late:
        work.results.columns[i, WAS_REPRESENTATIVE] = 1
        _mark_version_deleted(i, row, representative_row_of(row, work), work)
        return DONE
    representative = remove(i, row, work)
    if representative < 0:
        return DONE
    store_deletion(i, representative, row, NO_TIME, work)
    return REPRESENTATIVE_POSTED


@far(NUMBER(NUMBER, NUMBER, WORK))
def remove(i, row, work):  # type: ignore[no-untyped-def]
    """Delete a version because of document i. Returns the new representative, or -1."""
    rows, columns, representative = work.rows, work.results.columns, NOTHING
    met_by = representative_row_of(row, work)
    columns[i, WAS_REPRESENTATIVE] = met_by >= 0
    if met_by >= 0 and work.limits.unique and not work.limits.late:
        representative = representative_of(word(rows, row, GROUP), row, work)
    _mark_version_deleted(i, row, met_by, work)
    if representative >= 0:
        columns[i, REPRESENTATIVE_OF], columns[i, REPRESENTATIVE_SEQ] = (
            representative,
            np.int64(word(rows, representative, SEQ)),
        )
    return representative


@njit
def _mark_version_deleted(i, row, met_by, work):  # type: ignore[no-untyped-def]
    """Mark a version as deleted because of document i. met_by: the row by which it was met."""
    columns, rows = work.results.columns, work.rows
    columns[i, REPLACES], columns[i, LEFT] = np.int64(word(rows, row, SEQ)), np.int64(word(rows, row, GROUP))
    deleted = work.batch.what[i] & DELETION != 0
    mark_version_deleted(rows.deleted_rows, row, met_by, rows.total, columns[i, REPLACES], columns[i, LEFT], deleted)


@far(types.none(NUMBER, NUMBER, NUMBER, NUMBER, WORK))
def store_deletion(i, representative, row, time, work):  # type: ignore[no-untyped-def]
    """Add a row for the deletion of document i's id. It is a representative row too, if there is a representative.

    representative: row, or -1. row: the deleted version, or -1.
    """
    batch, rows, memory = work.batch, work.rows, work.memory
    at, new = rows.total, rows.recent[rows.total - rows.base]
    flags, kind = DELETED, UNIQUE if work.limits.late else UNKNOWN
    if representative >= 0:
        flags |= REPRESENTATIVE | np.int64(word(rows, representative, FLAGS) & np.uint64(MEMBER))
        _make_representative_row(representative, new, work)
    else:
        _clear(new)
    new[SEQ], new[TIME] = batch.words[i, SEQ], np.uint64(time)
    new[ID], new[ID + 1] = batch.words[i, ID], batch.words[i, ID + 1]
    new[FLAGS] = np.uint64(flags) | np.uint64(kind) << KIND_BITS
    if work.limits.window:
        new[rows.log_at] = np.uint64(batch.log[i])
    if row >= 0 and not work.limits.late:
        new[GROUP] = word(rows, row, GROUP)
    if work.limits.late:
        post_provisional(work.newer, batch.keys[batch.starts[i + 1] - 1], at)
    else:
        if representative >= 0:
            _post_representative(new, at - memory.first, work)
        _post(batch.keys[batch.starts[i + 1] - 1], at - memory.first, memory)
    _added(at, MARK_REPRESENTATIVE if representative >= 0 else MARK_DELETED, rows)


@far(types.none(NUMBER, NUMBER, WORK))
def supersedes(i, before, work):  # type: ignore[no-untyped-def]
    """Document i supersedes the row SUPERSEDED. before: number of matches of the documents before it."""
    results, rows = work.results, work.rows
    row = results.columns[i, SUPERSEDED]
    for m in range(before, results.found):
        if results.matches[m, ROW] == row:
            results.similarity[i] = results.similarities[m]
    results.columns[i, OLDEST], results.columns[i, OLDEST_SEQ] = row, np.int64(word(rows, row, SEQ))
    if work.limits.store and work.batch.owner[i] == work.shard:
        _mark_superseded(row, work)


@njit
def supersede(i, superseded, work):  # type: ignore[no-untyped-def]
    """A block begins with document i: mark these rows as superseded, except those that were deleted since or have left
    the window."""
    rows = work.rows
    if work.limits.window:
        see(rows, work.batch.log[i] - work.limits.window)
    for k in range(len(superseded)):
        row = superseded[k]
        if row >= rows.seen and is_live(rows.deleted_rows, row):
            _mark_superseded(row, work)


@njit
def _mark_superseded(row, work):  # type: ignore[no-untyped-def]
    """Mark the row of a representative as superseded."""
    rows, met_by = work.rows, representative_row_of(row, work)
    if met_by < 0:  # only if what a decision says is wrong
        return
    seq, group = np.int64(word(rows, row, SEQ)), np.int64(word(rows, row, GROUP))
    mark_superseded(rows.deleted_rows, row, met_by, rows.total, seq, group)


@njit
def _clear(new):  # type: ignore[no-untyped-def]
    for k in range(len(new)):
        new[k] = np.uint64(0)


@njit
def _make_representative_row(representative, new, work):  # type: ignore[no-untyped-def]
    """Make a row in memory a representative row: it is met as the representative would be."""
    rows = work.rows
    _clear(new)
    new[OF] = np.uint64(representative)
    if work.limits.keep and not work.limits.late:
        new[SIMILARITY] = np.uint64(work.scratch.dropped_at)
    copy_words(rows, representative, TEXT, new[TEXT : TEXT + 2])
    copy_words(rows, representative, rows.signature_at, new[rows.signature_at :])


@njit
def _added(at, mark, rows):  # type: ignore[no-untyped-def]
    """A row was added that is no document."""
    rows.notes[at & (len(rows.notes) - 1)] = FOLLOWS
    rows.total = at + 1
    mark_deleted(rows.deleted_rows, at, mark)


@njit
def _post_representative(new, row, work):  # type: ignore[no-untyped-def]
    """Post a representative row, as `insert.post` would, in the buckets of its representative, and behind the group."""
    memory, limits = work.memory, work.limits
    _post(key_behind(new[GROUP], REPRESENTATIVES), row, memory)
    if new[FLAGS] & np.uint64(MEMBER):  # it is in its buckets itself
        return
    _post(posting_key(new[TEXT]), row, memory)
    if limits.samples:  # the caller posts it under keys sampled from the text
        return
    for band in range(limits.bands):
        if len(limits.masks):
            key = key_of_mask(new, work.rows.signature_at, band, limits.masks, limits.secret)
        elif limits.pieces:
            key = key_of_piece(new, work.rows.signature_at, limits.pieces + band, limits.secret)
        else:
            key = key_of_band(new, work.rows.signature_at, band, limits.rows, limits.bits, limits.secret)
        _post(posting_key(key), row, memory)


@njit
def _post(key, row, memory):  # type: ignore[no-untyped-def]
    append(memory, np.int64(key >> memory.shift), key, row)
