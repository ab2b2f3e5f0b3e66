"""Matching of a document against rows: candidates, then verification. For all measures but `tf-idf`."""

from __future__ import annotations

from stream_lsh.hashing.kernels import far, njit
from stream_lsh.index.kernel.candidates import gather, gather_provisional, leader, nominate, rank
from stream_lsh.index.kernel.containment import gather_containment
from stream_lsh.index.kernel.known import with_text
from stream_lsh.index.kernel.row_access import agreement_with, of_another_source, word
from stream_lsh.index.kernel.verify import verify
from stream_lsh.index.kernel.work import CODE_AND_TWO, DONE, NO_ROOM, NOTHING, NUMBER, WORK
from stream_lsh.index.rows.layout import EXACT, KIND, MORE, NOT_COMPARED, OLDEST, OLDEST_SEQ, ROW, SUPERSEDED, UNIQUE


@njit
def begin(i, found, work):  # type: ignore[no-untyped-def]
    """Reset the results of document i; found: number of matches of the documents before it."""
    columns = work.results.columns
    columns[i, KIND], columns[i, OLDEST], columns[i, MORE], columns[i, NOT_COMPARED] = UNIQUE, -1, 0, 0
    columns[i, SUPERSEDED] = -1
    work.results.similarity[i] = 0.0
    work.results.found = found
    work.scratch.candidates = 0
    work.scratch.old_first = False


@far(CODE_AND_TWO(NUMBER, WORK))
def compare(i, work):  # type: ignore[no-untyped-def]
    """Find the matches of a document. Returns DONE or what is missing; the row that it is certainly dropped for (with
    `compare_with = all`, the row of the same text in this segment); and the place of its leader among the rows met.
    Both may be -1."""
    limits, scratch, columns, before = work.limits, work.scratch, work.results.columns, work.results.found
    outranked, uncertain = NOTHING, limits.late and limits.keep
    begin(i, before, work)
    if limits.unique and not uncertain:
        row = with_text(i, work)
        if row >= 0:  # the only candidate, unless two texts were made with the same hash by knowledge of the key
            nominate(row, limits.full, scratch)
            code, _, _ = verify(i, work)
            if code != DONE or columns[i, KIND] == EXACT or (limits.newest and columns[i, SUPERSEDED] >= 0):
                return code, columns[i, OLDEST], NOTHING
            outranked = columns[i, SUPERSEDED]  # others may rank higher
            begin(i, before, work)
    cut = gather_containment(i, work) if limits.samples else gather(i, work)
    if cut < 0:
        return NO_ROOM, NOTHING, NOTHING
    there = rank(limits, scratch)
    code, compared, original = verify(i, work)
    columns[i, NOT_COMPARED] = cut + there - compared
    if not limits.unique:
        return code, original, leader(work)
    if outranked >= 0 and code == DONE:
        if not is_listed(outranked, before, work.results):
            scratch.candidates = 0
            nominate(outranked, limits.full, scratch)
            code, _, _ = verify(i, work)
        columns[i, SUPERSEDED] = outranked
    kept = columns[i, OLDEST]
    if uncertain:  # a provisional row may have superseded it
        kept = NOTHING
    if limits.late and code == DONE and kept < 0:
        there = gather_provisional(i, work)
        if there < 0:
            return NO_ROOM, NOTHING, NOTHING
        code, compared, _ = verify(i, work)
        columns[i, MORE] = there - compared
    return code, kept, NOTHING


@njit
def is_listed(row, first, results):  # type: ignore[no-untyped-def]
    """Whether a row is among the matches from the place `first` on."""
    for m in range(first, results.found):  # noqa: SIM110  # kernels have no generators
        if results.matches[m, ROW] == row:
            return True
    return False


@njit
def is_similar(i, old, work):  # type: ignore[no-untyped-def]
    """Whether document i is similar to a row. Returns DONE or what is missing, and the row or -1. The results of i are
    not changed."""
    limits, signatures, results = work.limits, work.batch.signatures, work.results
    if of_another_source(i, old, work):
        return DONE, NOTHING
    if limits.samples:
        if word(work.rows, old, work.rows.signature_at) != signatures[i * limits.signature]:
            return DONE, NOTHING
    elif agreement_with(work.rows, old, signatures, i * limits.signature, limits.head, limits.tops) < limits.floor:
        return DONE, NOTHING  # documents of another scope end here too
    columns, found, similarity = results.columns, results.found, results.similarity[i]
    kind, oldest, number, more = columns[i, KIND], columns[i, OLDEST], columns[i, OLDEST_SEQ], columns[i, MORE]
    outranked = columns[i, SUPERSEDED]
    work.scratch.candidates, work.scratch.old_first = 0, False
    nominate(old, limits.likely, work.scratch)
    code, _, _ = verify(i, work)
    similar = results.found > found
    columns[i, KIND], columns[i, OLDEST], columns[i, OLDEST_SEQ], columns[i, MORE] = kind, oldest, number, more
    columns[i, SUPERSEDED], results.found, results.similarity[i] = outranked, found, similarity
    return code, old if similar else NOTHING
