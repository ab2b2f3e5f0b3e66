"""Verification: which candidates match, exactly or by the whole signature (MMDS 3.4.1, last step)."""

from __future__ import annotations

import numpy as np
from numba import types

from stream_lsh.hashing.kernels import far, njit
from stream_lsh.index.kernel.candidates import best, copies, oldest_copy
from stream_lsh.index.kernel.row_access import (
    agreement_with,
    is_copy,
    name_of,
    note_of,
    of_another_source,
    outranks,
    same_hash,
    visible,
    word,
)
from stream_lsh.index.kernel.shingle_sets import (
    BELOW,
    CONTAINS,
    containment_in,
    hopeless,
    is_cached,
    place_of,
    similarity,
)
from stream_lsh.index.kernel.work import (
    CODE_AND_TWO,
    DONE,
    EVERYTHING,
    FULL,
    NO_OWN_SET,
    NO_ROOM,
    NO_SETS,
    NOTHING,
    WORK,
)
from stream_lsh.index.rows.layout import (
    DOCUMENT,
    DROPS,
    EFFECT,
    ELSEWHERE,
    EXACT,
    FLAGS,
    FOLLOWED,
    GROUP,
    KIND,
    MORE,
    NEAR,
    NUMBER,
    OF_GROUP,
    OLDEST,
    OLDEST_SEQ,
    OUTRANKED,
    ROW,
    SAME,
    SEQ,
    SIZE_BITS,
    SUPERSEDED,
    TEXT,
)

_FIRST = np.int64(0)
_ENOUGH = np.int64(1 << 20)  # elements of the sets that are read at a time


@far(CODE_AND_TWO(types.int64, WORK))
def verify(i, work):  # type: ignore[no-untyped-def]
    """Verify the candidates, the best first, until enough match; with `keep_per`, in the own source and in others.
    Returns DONE or what is missing, how many were verified, and the row of the same text in this segment, or -1."""
    rows, limits, scratch = work.rows, work.limits, work.scratch
    compared, matched, elsewhere, original = _FIRST, _FIRST, _FIRST, NOTHING
    # With `keep`, later rows may have superseded the provisional ones that match: these are never enough.
    enough = EVERYTHING if limits.keep and scratch.old_first else limits.matches
    while scratch.candidates > 0 and compared < limits.max_candidates and matched < enough:
        row, agreement = best(scratch)
        other = of_another_source(i, row, work)
        if other and elsewhere == enough:
            continue
        same = agreement == limits.full and same_hash(rows, row, TEXT, work.batch, i)
        if limits.exact:
            similar, code = _exact(i, row, agreement >= limits.likely, work)
            if code == NO_SETS:
                _want(row, work)
            if code != DONE:
                return code, compared, original
            same = same and similar == 1.0  # equal hashes of other texts: possible only with knowledge of the key
        else:
            similar = 1.0 if same else _estimate(i, row, work)
        compared += 1
        if similar == BELOW:
            continue
        if other:
            elsewhere += 1
        else:
            matched += 1
        if same and row >= max(work.memory.first, rows.seen):
            original = row
        code = _matched(i, row, similar, same, other, work)
        if code != DONE:
            return code, compared, original
    return DONE, compared, original


@njit
def _exact(i, row, likely, work):  # type: ignore[no-untyped-def]
    """Exact similarity of a document to a row, or BELOW; and DONE or what is missing, with the document in `wanted` for
    NO_OWN_SET. likely: they probably match."""
    sets, limits, wanted, threshold = work.sets, work.limits, work.scratch.wanted, work.limits.threshold
    if not sets.have[i]:
        wanted[0] = i
        return BELOW, NO_OWN_SET
    shingles, offsets = sets.shingles, sets.offsets
    if not likely and ruled_out(i, row, work):
        return BELOW, DONE
    if limits.samples:
        start, stop, size = place_of(sets.large, sets.large_slots, sets.large_kept, row)
        if start >= 0:
            return containment_in(sets, i, start, stop, size, threshold), DONE
    if row >= sets.first:
        other = sets.documents[row - sets.first]
        if not sets.have[other]:
            wanted[0] = other
            return BELOW, NO_OWN_SET
        return similarity(sets, i, shingles, offsets[other], offsets[other + 1], threshold), DONE
    if sets.document == i:
        loaded, at, end = sets.loaded, np.int64(0), np.int64(len(sets.loaded))
        while at < end:  # np.searchsorted takes as long to compile as ten of these functions
            middle = (at + end) >> 1
            if loaded[middle] < row:
                at = middle + 1
            else:
                end = middle
        if at < len(loaded) and loaded[at] == row:
            return sets.similarity[at], DONE
    start, stop, _ = place_of(sets.ring, sets.slots, sets.kept, row)
    if start < 0:
        return BELOW, NO_SETS
    return similarity(sets, i, sets.ring, start, stop, threshold), DONE


@njit
def ruled_out(i, row, work):  # type: ignore[no-untyped-def]
    """Whether the bitmap of a row's set shows that it shares too little with the set of document i, which is in
    memory."""
    sets, threshold = work.sets, work.limits.threshold
    start, stop, size = place_of(sets.bits, sets.bit_slots, sets.marked, row)
    begin, end = sets.offsets[i], sets.offsets[i + 1]
    return start >= 0 and hopeless(sets.bits, start, stop, size, sets.shingles, begin, end, threshold)


@njit
def _want(row, work):  # type: ignore[no-untyped-def]
    """Write into `wanted` the rows whose sets are missing: this row, and further candidates that may be verified
    next."""
    sets, scratch, n = work.sets, work.scratch, np.int64(1)
    scratch.wanted[0] = row
    elements = _ENOUGH if work.limits.samples else np.int64(EVERYTHING)  # each may be the set of a book
    while scratch.candidates > 0 and n < work.limits.max_candidates and elements > 0:
        row, _ = best(scratch)
        if row < sets.first and not is_cached(sets, row):
            scratch.wanted[n] = row
            n += 1
            if work.limits.samples:
                elements -= np.int64(word(work.rows, row, FLAGS) >> SIZE_BITS)
    scratch.wanted_count = n


@njit
def _estimate(i, row, work):  # type: ignore[no-untyped-def]
    """Similarity of a document to a row by their whole signatures, corrected for components that are equal by chance;
    BELOW if it is under the threshold."""
    limits, size = work.limits, work.limits.signature
    equal = agreement_with(work.rows, row, work.batch.signatures, i * size, size, limits.tops) - limits.padding
    similar = max(0.0, (equal / limits.components - limits.accident) / (1.0 - limits.accident))
    return similar if similar >= limits.threshold else BELOW


@njit
def _matched(i, row, similar, same, other, work):  # type: ignore[no-untyped-def]
    """Add a verified match; with `compare_with = all` also the newest of its copies, as many as are listed, and the
    number of the others. A row outside the window is there for its copies only. Returns DONE or what there is no room
    for."""
    results, limits, out, rows = work.results, work.limits, work.scratch.out, work.rows
    columns, room, oldest = results.columns, len(results.similarities), row
    if results.found == room:
        return FULL
    larger = similar < BELOW  # the document contains the row, and is not contained in it
    if larger:
        similar /= CONTAINS
    if other or (larger and limits.unique):  # that does not drop the document
        emit(i, row, similar, same, ELSEWHERE, work)
        return DONE
    if limits.keep and outranks(i, row, work):  # nor does that
        emit(i, row, similar, same, OUTRANKED, work)
        if columns[i, SUPERSEDED] < 0 or row < columns[i, SUPERSEDED]:
            columns[i, SUPERSEDED] = row
        return DONE
    if limits.unique or visible(rows, row):  # for a version that is being replaced, only its similarity is wanted
        emit(i, row, similar, same, DROPS, work)
        number = results.matches[results.found - 1, NUMBER]
    else:
        oldest = oldest_copy(row, work)
        number = np.int64(word(rows, oldest, SEQ))
    columns[i, KIND] = max(columns[i, KIND], EXACT if same else NEAR)
    if columns[i, OLDEST] < 0 or oldest < columns[i, OLDEST]:  # copies are younger
        columns[i, OLDEST], columns[i, OLDEST_SEQ] = oldest, number
        results.similarity[i] = similar
    if limits.unique or not note_of(rows, row) & FOLLOWED:
        return DONE
    n, more = copies(row, work)
    if n < 0:
        return NO_ROOM
    if results.found + n > room:
        return FULL
    name = name_of(rows, row, limits)
    for k in range(n):
        if is_copy(rows, out[k], name):
            emit(i, out[k], similar, same, DROPS, work)
    columns[i, MORE] += more
    return DONE


@njit
def emit(i, row, similar, same, effect, work):  # type: ignore[no-untyped-def]
    """Add a match. There must be room."""
    results, at = work.results, work.results.found
    results.found = at + 1
    results.matches[at, DOCUMENT] = i
    results.matches[at, ROW] = row
    results.matches[at, NUMBER] = np.int64(word(work.rows, row, SEQ))
    results.matches[at, SAME] = same
    results.matches[at, EFFECT], results.matches[at, OF_GROUP] = effect, np.int64(word(work.rows, row, GROUP))
    results.similarities[at] = similar
