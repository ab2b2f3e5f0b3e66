"""Candidates: the rows in a document's buckets, and the best of them by the agreement of signatures (MMDS 3.4)."""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.bits import prefetch
from stream_lsh.hashing.kernels import far, njit
from stream_lsh.index.kernel.live_rows import read_live
from stream_lsh.index.kernel.row_access import (
    agreement_with,
    equal,
    in_ring,
    is_copy,
    live,
    name_of,
    note_of,
    order_of,
    row_met_at,
    up_to,
    visible,
)
from stream_lsh.index.kernel.work import EVERYTHING, NOTHING, NUMBER, WORK
from stream_lsh.index.postings.bucket import COPIES, FOLLOWERS, count, earliest, empty, key_behind, nowhere, probe, read
from stream_lsh.index.postings.memtable import find
from stream_lsh.index.postings.provisional import read_provisional
from stream_lsh.index.rows.deleted_rows import any_deleted
from stream_lsh.index.rows.layout import FOLLOWED, FOLLOWS

_ROW_BITS, _ROWS = np.uint64(40), np.uint64((1 << 40) - 1)
_AGREEMENT_BITS, _AGREEMENTS = np.uint64(24), np.uint64((1 << 24) - 1)
_ONE, _FIRST = np.uint64(1), np.int64(0)
_STEP = np.int64(1)
_AHEAD = 12  # rows between the one compared and the one prefetched into the cache
ENTRIES = np.int64(16)  # with `all`, this many times more rows of a bucket are read where some are not visible


@njit(forceinline=True)
def home(row, table):  # type: ignore[no-untyped-def]
    """First slot for a row in the table of the rows met."""
    return (row * np.int64(0x9E3779B1)) >> np.int64(7) & np.int64(len(table) - 1)


@njit
def _meet(i, n, band, work):  # type: ignore[no-untyped-def]
    """Compare the rows in `scratch.out` that were not met before with document i, by the heads of their signatures.
    band: of the bucket, or -1."""
    rows, limits, scratch, signatures = work.rows, work.limits, work.scratch, work.batch.signatures
    out, table, met, bands, histogram = scratch.out, scratch.table, scratch.met, scratch.bands, scratch.histogram
    ring, at, size, tops = rows.ring, i * limits.signature, limits.head, limits.tops
    ring_mask, mask, band_words = np.int64(len(rows.notes) - 1), np.int64(len(table) - 1), bands.shape[1]
    kept, met_count = in_ring(rows), scratch.met_count
    for k in range(n):
        row = out[k]
        if k + _AHEAD < n and out[k + _AHEAD] >= kept:
            prefetch(ring, (out[k + _AHEAD] & ring_mask) * size)
            prefetch(ring, (out[k + _AHEAD] & ring_mask) * size + 8)
        slot = home(row, table)
        while table[slot] >= 0 and met[table[slot], 0] != row:
            slot = (slot + 1) & mask
        m = table[slot]
        if m < 0:
            m = met_count
            met_count += 1
            table[slot] = m
            met[m, 0] = row
            if row >= kept:
                agreement = equal(ring, (row & ring_mask) * size, signatures, at, size, tops)
            else:
                agreement = agreement_with(rows, row, signatures, at, size, tops)
            met[m, 1] = agreement
            histogram[agreement] += 1
            for w in range(band_words):
                bands[m, w] = 0
        if band >= 0 and band_words > 0:
            bands[m, band >> 6] |= _ONE << np.uint64(band & 63)
    scratch.met_count = met_count


@njit
def forget(scratch):  # type: ignore[no-untyped-def]
    """Empty the table, beginning with the row added last, so that chains of probes stay whole meanwhile."""
    table, met, histogram = scratch.table, scratch.met, scratch.histogram
    mask = np.int64(len(table) - 1)
    for m in range(scratch.met_count - 1, -1, -1):
        slot = home(met[m, 0], table)
        while table[slot] != m:
            slot = (slot + 1) & mask
        table[slot] = -1
        histogram[max(met[m, 1], _FIRST)] = 0
    scratch.met_count = 0


@njit
def gather(i, work):  # type: ignore[no-untyped-def]
    """Meet the rows in the buckets of document i; with `compare_with = all` also the followers of rows met. Returns how
    many buckets were not read to the end, or -1 if there is no room."""
    batch, limits, scratch, rows = work.batch, work.limits, work.scratch, work.rows
    first, row, entries = batch.starts[i], rows.seen, limits.bucket
    if not limits.unique and rows.guides < rows.seen:
        row, entries = rows.guides, ENTRIES * limits.bucket
    if not limits.unique and any_deleted(rows.deleted_rows):
        entries = ENTRIES * limits.bucket
    bands, cut, out = batch.starts[i + 1] - first - 2, _FIRST, scratch.out
    # Its text is looked up like a band, unless it was looked up before.
    for j in range(bands + 1 if not limits.unique or (limits.late and limits.keep) else bands):
        slot, at = scratch.slots[j], first + j
        if empty(work.memory, slot) and nowhere(work.hits, at):
            continue
        most = min(entries, len(scratch.met) - scratch.met_count - 1)
        if limits.unique and any_deleted(rows.deleted_rows):
            n, more = read_live(batch.keys[at], slot, work.hits, at, most, work)
        else:
            n, more = read(batch.keys[at], slot, work.hits, at, work.runs, work.memory, row, most, scratch.room, out)
        if more and most < entries:
            return NOTHING
        if not limits.unique:
            n, further = up_to(rows, n, out, limits.bucket)
            more |= further
        cut += more
        _meet(i, n, np.int64(j) if j < limits.bands else NOTHING, work)
    if limits.unique:
        return cut
    for m in range(scratch.met_count):
        if scratch.met[m, 1] >= limits.expand and note_of(rows, scratch.met[m, 0]) & FOLLOWED:
            deleted_rows = any_deleted(rows.deleted_rows)
            most = ENTRIES * limits.behind if deleted_rows else limits.behind
            n, more = behind(scratch.met[m, 0], FOLLOWERS, rows.guides, most, work)
            if n < 0 or scratch.met_count + n > len(scratch.met):
                return NOTHING
            cut_off = more > 0 and out[n - 1] >= rows.seen
            if deleted_rows:
                n, further = up_to(rows, n, out, limits.behind)
                cut_off |= further
            cut += cut_off
            _meet(i, n, NOTHING, work)
    if (rows.guides < rows.seen or any_deleted(rows.deleted_rows)) and not pass_by(work):
        return NOTHING
    return cut


@njit
def pass_by(work):  # type: ignore[no-untyped-def]
    """Remove the rows met that are not visible, unless they have visible copies. Returns False if there was no room."""
    rows, limits, scratch = work.rows, work.limits, work.scratch
    met, histogram = scratch.met, scratch.histogram
    for m in range(scratch.met_count):
        row, agreement = met[m, 0], met[m, 1]
        if not visible(rows, row):
            copied = _FIRST
            if agreement >= limits.floor and note_of(rows, row) & FOLLOWED:
                copied, _ = copies(row, work)
            if copied < 0:
                return False
            if _first_copy(_FIRST, copied, _STEP, row, work) < 0:
                histogram[agreement] -= 1
                met[m, 1] = NOTHING
    return True


@far(NUMBER(NUMBER, WORK))
def gather_provisional(i, work):  # type: ignore[no-untyped-def]
    """Meet the provisional rows in the buckets of document i and make candidates of the oldest and the best, the oldest
    first. Returns the number of rows that agree well enough plus the number of buckets that were not read to the end;
    -1 if there is no room."""
    batch, limits, scratch, n, cut = work.batch, work.limits, work.scratch, _FIRST, _FIRST
    forget(scratch)
    scratch.old_first = True
    scratch.candidates = 0
    entries = ENTRIES * limits.bucket if any_deleted(work.rows.deleted_rows) or limits.keep else limits.bucket
    for j in range(batch.starts[i], batch.starts[i + 1] - 1):  # under its text too
        if len(scratch.out) - n < entries:
            return NOTHING
        key, row, out = batch.keys[j], work.rows.seen, scratch.out[n:]
        m, more = read_provisional(work.older, work.newer, key, row, entries, out)
        if entries > limits.bucket:
            m, further = _live_halves(m, entries if limits.keep else limits.bucket, out, work.rows)
            more |= further
        n += m
        cut += more
    _meet(i, n, NOTHING, work)
    return cut + _choose(work)


@njit
def _live_halves(n, limit, out, rows):  # type: ignore[no-untyped-def]
    """Keep the live ones of the n provisional rows in `out`, oldest first; a representative row becomes the row of its
    representative. Of more than `limit`, half are the oldest and half the newest. Returns their number, and whether
    there are more."""
    there = _FIRST
    for k in range(n):
        met = row_met_at(rows, out[k])
        if met >= 0 and met != rows.deleted_rows.aside:
            out[there] = met
            there += 1
    if there <= limit:
        return there, False
    half = limit >> 1
    for k in range(half):
        out[limit - half + k] = out[there - half + k]
    return limit, True


@njit
def _choose(work):  # type: ignore[no-untyped-def]
    """Make candidates of the provisional rows met, as many as are verified: half of them the oldest, or with `keep`
    those of the highest rank, half those that agree best, the oldest first among equals. Rows that probably match count
    as equal, because the first of a family of copies is the one that is kept. Returns how many agree well enough."""
    limits, scratch = work.limits, work.scratch
    met, there, least, last = scratch.met, _FIRST, limits.floor, np.uint64(0)
    for agreement in range(limits.floor, len(scratch.histogram)):
        there += scratch.histogram[agreement]
    old = best = np.int64(EVERYTHING)
    if there > limits.max_candidates:
        half = limits.max_candidates >> 1
        least, better = _cut(half, limits, scratch)
        most = least
        if least == limits.likely:
            most, better = limits.full, _FIRST
        if limits.keep:
            last, old = _ranked(limits.max_candidates - half, work)
        else:
            old = _row_of(limits.max_candidates - half, limits.floor, limits.full, scratch)
        best = _row_of(half - better, least, most, scratch)
    for m in range(scratch.met_count):
        row, agreement = met[m, 0], met[m, 1]
        level = min(agreement, limits.likely)
        if agreement < limits.floor:
            continue
        first = row <= old
        if limits.keep:
            mine = order_of(row, work)
            first = mine < last or (mine == last and first)
        if first or level > least or (level == least and row <= best):
            nominate(row, agreement, scratch)
    return there


@njit
def _ranked(n, work):  # type: ignore[no-untyped-def]
    """Where the first n of the rows met end that agree well enough, of which there are at least n: the highest rank
    first, the oldest among equals. Returns `order_of` and row of the last of them."""
    met, heap, floor = work.scratch.met, work.scratch.heap, work.limits.floor
    count, better, rows = _FIRST, _FIRST, _FIRST
    for m in range(work.scratch.met_count):
        if met[m, 1] >= floor:
            count = _add(heap, count, n, order_of(met[m, 0], work))
    last = heap[0]
    for m in range(work.scratch.met_count):
        better += met[m, 1] >= floor and order_of(met[m, 0], work) < last
    for m in range(work.scratch.met_count):
        if met[m, 1] >= floor and order_of(met[m, 0], work) == last:
            rows = _add(heap, rows, n - better, np.uint64(met[m, 0]))
    return last, np.int64(heap[0])


@njit
def _row_of(n, lowest, highest, scratch):  # type: ignore[no-untyped-def]
    """The n-th oldest of the rows met whose agreement is in [lowest, highest], of which there are at least n; -1 if n
    is 0."""
    met, count = scratch.met, _FIRST
    if n == 0:
        return NOTHING
    for m in range(scratch.met_count):
        if lowest <= met[m, 1] <= highest:
            count = _add(scratch.heap, count, n, np.uint64(met[m, 0]))
    return np.int64(scratch.heap[0])


@njit
def _add(heap, count, n, value):  # type: ignore[no-untyped-def]
    """Add a value to a heap of the n smallest ones, which has `count` of them. Returns their number."""
    if count < n:
        push(heap, count, value)
        return count + 1
    if value < heap[0]:
        pop(heap, n)
        push(heap, n - 1, value)
    return count


@njit
def leader(work):  # type: ignore[no-untyped-def]
    """The place among the rows met of the one to follow: the best agreement, at least `follow`, of the visible rows of
    this segment that follow no other; -1 if there is none."""
    met, best, place = work.scratch.met, work.limits.follow - 1, NOTHING
    first = max(work.memory.first, work.rows.seen)
    for m in range(work.scratch.met_count):
        row, agreement = met[m, 0], met[m, 1]
        if agreement > best and row >= first and visible(work.rows, row) and not note_of(work.rows, row) & FOLLOWS:
            best, place = agreement, np.int64(m)
    return place


@njit
def behind(row, what, first, most, work):  # type: ignore[no-untyped-def]
    """Read the rows posted behind a row, from the row `first` on, newest first, into `scratch.out`. Returns their
    number, -1 if there is no room; and how many more there are."""
    memory, scratch = work.memory, work.scratch
    key = key_behind(name_of(work.rows, row, work.limits), what)
    probe(key, work.runs, scratch.hits)
    slot = find(memory, key)
    there = count(key, slot, scratch.hits, work.runs, memory, first, scratch.room)
    limit = min(most, there)
    if limit > len(scratch.out):
        return NOTHING, there
    n, _ = read(key, slot, scratch.hits, _FIRST, work.runs, memory, first, limit, scratch.room, scratch.out)
    return n, there - n


@njit
def copies(row, work):  # type: ignore[no-untyped-def]
    """The newest visible copies of a row, as many as are listed, in `scratch.out`. Returns their number, -1 if there is
    no room; and how many more there are. Where rows are deleted ENTRIES times as many are read; the copies behind these
    are counted without a check. A row that is no copy may be among them, by a collision of keys: see `is_copy`."""
    rows, most, out = work.rows, work.limits.copies, work.scratch.out
    if not any_deleted(rows.deleted_rows):
        return behind(row, COPIES, rows.seen, most, work)
    n, more = behind(row, COPIES, rows.seen, ENTRIES * most, work)
    if n > 0:
        n = live(rows, n, out)
    return min(n, most), more + max(n - most, _FIRST)


@njit
def oldest_copy(row, work):  # type: ignore[no-untyped-def]
    """The oldest visible copy of a row, among the first ones or the newest; there is one among the newest."""
    rows, memory, scratch = work.rows, work.memory, work.scratch
    most = min(ENTRIES * work.limits.copies, np.int64(len(scratch.out)))
    key = key_behind(name_of(rows, row, work.limits), COPIES)
    probe(key, work.runs, scratch.hits)
    slot = find(memory, key)
    for limit in (most if any_deleted(rows.deleted_rows) else np.int64(1), most):  # more after a collision of keys
        n = earliest(key, slot, scratch.hits, work.runs, memory, rows.seen, limit, scratch.room, scratch.out)
        oldest = _first_copy(_FIRST, live(rows, n, scratch.out), _STEP, row, work)
        if oldest >= 0:
            return oldest
    n, _ = copies(row, work)
    return _first_copy(n - 1, NOTHING, -_STEP, row, work)


@njit
def _first_copy(start, stop, step, row, work):  # type: ignore[no-untyped-def]
    """The first copy of a row in scratch.out[start:stop:step], or -1."""
    rows, name = work.rows, name_of(work.rows, row, work.limits)
    for k in range(start, stop, step):
        if is_copy(rows, work.scratch.out[k], name):
            return work.scratch.out[k]
    return NOTHING


@njit
def nominate(row, agreement, scratch):  # type: ignore[no-untyped-def]
    """Add a row to the candidates."""
    value = np.uint64(agreement) << _ROW_BITS | np.uint64(row)
    if scratch.old_first:
        value = (_ROWS - np.uint64(row)) << _AGREEMENT_BITS | np.uint64(agreement)
    push(scratch.heap, scratch.candidates, value)
    scratch.candidates += 1


@njit
def rank(limits, scratch):  # type: ignore[no-untyped-def]
    """Make candidates of the best rows met, as many as are verified, and of all that agree as well as the last of
    these. Returns how many agree well enough. Rows that probably match are ordered newest first, after those that agree
    fully. Enough matches are then found among sets in memory, whatever the size of the index."""
    histogram, met, others = scratch.histogram, scratch.met, _FIRST
    least, _ = _cut(limits.max_candidates, limits, scratch)
    for agreement in range(limits.floor, least):
        others += histogram[agreement]
    for m in range(scratch.met_count):
        if met[m, 1] >= least:
            nominate(met[m, 0], met[m, 1] if met[m, 1] == limits.full else min(met[m, 1], limits.likely), scratch)
    return scratch.candidates + others


@njit
def _cut(n, limits, scratch):  # type: ignore[no-untyped-def]
    """The agreement of the n-th best of the rows met, at most `likely`, at least `floor`; and how many agree better."""
    histogram, better = scratch.histogram, _FIRST
    least = np.int64(len(histogram) - 1)
    while least > limits.floor and (least > limits.likely or better + histogram[least] < n):
        better += histogram[least]
        least -= 1
    return least, better


@njit
def best(scratch):  # type: ignore[no-untyped-def]
    """Remove the best candidate, the newest among equals, or the oldest one if `old_first`. Returns its row and
    agreement."""
    value = pop(scratch.heap, scratch.candidates)
    scratch.candidates -= 1
    if scratch.old_first:
        return np.int64(_ROWS - (value >> _AGREEMENT_BITS)), np.int64(value & _AGREEMENTS)
    return np.int64(value & _ROWS), np.int64(value >> _ROW_BITS)


@njit
def push(heap, n, value):  # type: ignore[no-untyped-def]
    """Add a value to a heap of n."""
    at = n
    while at > 0 and heap[(at - 1) >> 1] < value:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = value


@njit
def pop(heap, n):  # type: ignore[no-untyped-def]
    """Remove the largest value from a heap of n."""
    first, value, at, last = heap[0], heap[n - 1], _FIRST, n - 1
    while 2 * at + 1 < last:
        child = 2 * at + 1
        if child + 1 < last and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = value
    return first
