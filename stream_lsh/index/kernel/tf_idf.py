"""Stories (`measure = "tf-idf"`): which story a document belongs to, one that reports the same event in other words.

1. A term's weight is its weight in the text (tf) times its weight by its document frequency so far (idf). The heaviest
   terms are stored in the row; the heaviest of these are its keys.
2. Of the bucket of each key the newest rows are read, the rarest key first; what it leaves of the limit is for the
   others. The rows that share the weightiest keys are compared: by the cosine of all terms and the cosine of names,
   combined.
3. The similarity to a story is the mean of the similarities to its three most similar members, near-duplicates counted
   once. It is reduced for a story without recent members. The document joins the most similar story, or becomes the
   first member of a new one. Each document is posted.

A row stores the weights of its terms in the text. The document frequencies are those of now, for all rows. They count
stories more than documents: members of a large story are not counted any more.
"""

from __future__ import annotations

import numpy as np
from numba import types

from stream_lsh.families.measure import STORY_KEYS, STORY_TERMS
from stream_lsh.families.terms import NAME_BIT, TERM_SHIFT, UNIT, WEIGHT_MASK, key_of_term
from stream_lsh.hashing.bits import popcount
from stream_lsh.hashing.kernels import far, njit
from stream_lsh.index.kernel.candidates import pop, push
from stream_lsh.index.kernel.containment import share
from stream_lsh.index.kernel.document_frequency import BITMAP, OWN_SLOTS, count, idf_of, most_rare, slot_of, weigh_among
from stream_lsh.index.kernel.live_rows import read_live
from stream_lsh.index.kernel.replace import NO_TIME, time_of
from stream_lsh.index.kernel.row_access import copy_words, in_ring, same_hash, word
from stream_lsh.index.kernel.verify import emit
from stream_lsh.index.kernel.work import (
    CODE,
    CODE_AND_ROW,
    DONE,
    FULL,
    NO_LOG,
    NO_OWN_SET,
    NO_ROOM,
    NOTHING,
    NUMBER,
    WORK,
)
from stream_lsh.index.postings.bucket import empty, nowhere, probe, read
from stream_lsh.index.rows.deleted_rows import any_deleted
from stream_lsh.index.rows.keys import posting_key
from stream_lsh.index.rows.layout import (
    DROPS,
    EXACT,
    GROUP,
    KIND,
    NEAR,
    NOT_COMPARED,
    OLDEST,
    OLDEST_SEQ,
    SEQ,
    TEXT,
    TIME,
    VALID,
)

MEMBERS = 3
"""Members of a story that a document is compared with, the most similar ones."""
PAD = 12.0
"""Terms of its own that each text is assumed to have besides the stored ones, as rare as possible. Without them a few
words would suffice for two short texts to be one story."""
TELLERS = np.int64(8)
"""Members of its story among the candidates from which on a document is not counted. Otherwise the terms of a large
story would become frequent, and the story would fall apart."""
QUIET, LOST = np.int64(7 * 24 * 3600 * 1000), 0.5
"""After this time (ms) without a member, half of LOST of a story's similarity is lost: the same people in the same
place after weeks are usually another event."""
_SAME = 0.6  # share of terms in common from which two texts are near-duplicates
_ROW_BITS, _ROWS = np.uint64(40), np.uint64((1 << 40) - 1)
_FIXED = 65536.0  # scale of weights as integers, for their order
_GRID = 2.0**30  # grid of similarities: the same in whatever order terms are added up
_ENTRY = np.uint64(0xFFFFFFFF)
_HALF, _ONE = np.uint64(32), np.uint64(1)
_FEW = np.int64(4)
_FIRST, _MASK = np.int64(0), np.uint64(OWN_SLOTS - 1)


@far(CODE(NUMBER, WORK))
def weigh(i, work):  # type: ignore[no-untyped-def]
    """Compute signature and keys of document i by the documents before it. Returns DONE, or what is missing."""
    batch, sets, frequencies, limits = work.batch, work.sets, work.frequencies, work.limits
    if not batch.what[i] & VALID:
        return DONE
    if not sets.have[i]:
        work.scratch.wanted[0] = i
        return NO_OWN_SET
    first, last = sets.offsets[i], sets.offsets[i + 1]
    if frequencies.logged + last - first > len(frequencies.log):
        return NO_LOG
    weigh_among(frequencies, sets.shingles[last - 1] >> TERM_SHIFT)
    n, heaviest = _heaviest(sets.shingles, first, last, frequencies)
    at = i * limits.signature
    for k in range(limits.signature):
        batch.signatures[at + k] = np.uint64(0)
    for k in range(OWN_SLOTS):
        frequencies.own[k] = np.uint64(0)
    frequencies.norm, frequencies.names = 0.0, 0.0
    whole = most_rare(frequencies)
    frequencies.pad = PAD * whole * whole
    frequencies.keys = min(n, np.int64(STORY_KEYS))
    begin = batch.starts[i]
    for k in range(n):
        entry = heaviest[k] & _ENTRY
        batch.signatures[at + (k >> 1)] |= entry << (_HALF * np.uint64(k & 1))
        weight = np.float64(entry & WEIGHT_MASK) / UNIT * idf_of(frequencies, entry >> TERM_SHIFT, 1.0)
        slot = _slot(frequencies.own, entry >> TERM_SHIFT)
        frequencies.own[slot] = entry
        frequencies.own_weights[slot] = weight
        frequencies.norm += weight * weight
        if entry & NAME_BIT:
            frequencies.names += weight * weight
        if k < frequencies.keys:
            batch.keys[begin + k] = posting_key(key_of_term(entry >> TERM_SHIFT, limits.secret))
            frequencies.key_weights[k] = np.int64(min(weight * weight * 8.0, 262143.0))
            probe(batch.keys[begin + k], work.runs, work.hits[begin + k : begin + k + 1])
            _sort_in(k, frequencies)
    return DONE


@njit
def _sort_in(k, frequencies):  # type: ignore[no-untyped-def]
    """Insert the k-th heaviest term into the order of the terms before it by document frequency."""
    rarest, at = frequencies.rarest, k
    mine = _times(k, frequencies)
    while at > 0 and _times(rarest[at - 1], frequencies) > mine:
        rarest[at] = rarest[at - 1]
        at -= 1
    rarest[at] = k


@njit(forceinline=True)
def _times(k, frequencies):  # type: ignore[no-untyped-def]
    """The count of the k-th heaviest term."""
    return frequencies.counts[slot_of((frequencies.heaviest[k] & _ENTRY) >> TERM_SHIFT)]


@njit
def _heaviest(terms, first, last, frequencies):  # type: ignore[no-untyped-def]
    """The heaviest of terms[first:last], the heaviest first, as weight and entry. Returns their number and the heap.

    Terms of equal weight are in the order of their numbers without the scope, whose hash has the index's key."""
    heap, n, scope = frequencies.heaviest, _FIRST, terms[last - 1] & _ENTRY
    for k in range(first, last):
        entry = terms[k] & _ENTRY
        if entry & WEIGHT_MASK == 0:
            continue
        weight = np.float64(entry & WEIGHT_MASK) / UNIT * idf_of(frequencies, entry >> TERM_SHIFT, 1.0)
        value = ~(np.uint64(weight * _FIXED) << _HALF | entry ^ scope)  # the lightest is the largest
        if n < STORY_TERMS:
            push(heap, n, value)
            n += 1
        elif value < heap[0]:
            pop(heap, n)
            push(heap, n - 1, value)
    for k in range(n - 1, -1, -1):
        lightest = pop(heap, k + 1)
        heap[k] = ~lightest ^ scope
    return n, heap


@njit(forceinline=True)
def _slot(own, term):  # type: ignore[no-untyped-def]
    """Where a term of the document is, or belongs."""
    slot = term & _MASK
    while own[slot] != 0 and own[slot] >> TERM_SHIFT != term:
        slot = (slot + _ONE) & _MASK
    return slot


@far(types.none(NUMBER, WORK))
def counted(i, work):  # type: ignore[no-untyped-def]
    """Count the terms of document i, which was stored, unless its story has many members."""
    sets = work.sets
    if work.frequencies.tellers < TELLERS:
        count(work.frequencies, sets.shingles, sets.offsets[i], sets.offsets[i + 1], TERM_SHIFT)


@far(CODE_AND_ROW(NUMBER, WORK))
def compare(i, work):  # type: ignore[no-untyped-def]
    """Find the story of a document, as `compare.compare` finds matches. Returns DONE or what is missing, and the row
    that it is dropped for, the most similar member, or -1."""
    rows, frequencies, limits, columns = work.rows, work.frequencies, work.limits, work.results.columns
    if work.results.found + MEMBERS > len(work.results.similarities):
        return FULL, NOTHING
    same = _with_text(i, work)
    if same >= 0 and _is_open(rows, np.int64(word(rows, same, GROUP))):
        frequencies.tellers = TELLERS
        _joins(i, same, 1.0, EXACT, work)
        emit(i, same, 1.0, True, DROPS, work)
        return DONE, same
    frequencies.tellers = 0
    cut = _meet(i, work)
    if cut < 0:
        return NO_ROOM, NOTHING
    n, met = _candidates(work)
    columns[i, NOT_COMPARED] = cut + met - n
    for k in range(n):
        _load(frequencies.found[k], k, work)
        frequencies.groups[k] = np.int64(word(rows, frequencies.found[k], GROUP))
        frequencies.cosines[k] = _similarity(frequencies, frequencies.near[k])
        frequencies.apart[k] = _apart(np.int64(work.batch.words[i, TIME]), time_of(rows, frequencies.found[k]))
    best, mean = _best_story(n, rows, frequencies)
    if best < 0 or mean < limits.threshold:
        return DONE, NOTHING
    group, listed, first = frequencies.groups[best], _FIRST, frequencies.found[best]
    _joins(i, first, mean, NEAR, work)
    for k in range(n):
        c = frequencies.order[k]
        frequencies.tellers += np.int64(frequencies.groups[c] == group)
        if frequencies.groups[c] == group and frequencies.chosen[c] and listed < MEMBERS:
            row = frequencies.found[c]
            emit(i, row, frequencies.cosines[c], same_hash(rows, row, TEXT, work.batch, i), DROPS, work)
            listed += 1
    return DONE, first


@njit
def _with_text(i, work):  # type: ignore[no-untyped-def]
    """The newest row with the text of document i, or -1; among the newest few under its key, which other texts have by
    chance only."""
    place = work.batch.starts[i + 1] - work.batch.starts[i] - 2
    slot, at = work.scratch.slots[place], work.batch.starts[i] + place
    if empty(work.memory, slot) and nowhere(work.hits, at):
        return NOTHING
    n, _ = read_live(work.batch.keys[at], slot, work.hits, at, _FEW, work)
    for k in range(n):
        if same_hash(work.rows, work.scratch.out[k], TEXT, work.batch, i):
            return work.scratch.out[k]
    return NOTHING


@far(types.boolean(NUMBER, WORK))
def is_similar(row, work):  # type: ignore[no-untyped-def]
    """Whether the document that was weighed is similar enough to one row."""
    return _similarity_to(row, work) >= work.limits.threshold


@njit
def _similarity_to(row, work):  # type: ignore[no-untyped-def]
    """Similarity of the document that was weighed to one row."""
    frequencies = work.frequencies
    _load(row, _FIRST, work)
    return _similarity(frequencies, frequencies.near[0])


@njit
def similarities_to(n, row, work):  # type: ignore[no-untyped-def]
    """Similarity of the first n documents of a batch to one row by the current document frequencies, in
    `results.similarity`. Returns DONE, or what is missing."""
    for i in range(n):
        code = weigh(i, work)
        if code != DONE:
            return code
        if work.batch.what[i] & VALID:
            work.results.similarity[i] = _similarity_to(row, work)
    return DONE


@njit
def _is_open(rows, group):  # type: ignore[no-untyped-def]
    """Whether a story can be joined: it ends when its first member leaves the window."""
    return rows.seen >= rows.total or group >= np.int64(word(rows, rows.seen, SEQ))


@njit
def _meet(i, work):  # type: ignore[no-untyped-def]
    """Meet the rows in the buckets of document i, with the weights of the keys that they share with it. Returns how
    many buckets were not read to the end, or -1 if there is no room."""
    batch, limits, scratch, frequencies = work.batch, work.limits, work.scratch, work.frequencies
    cut, left, deleted_rows = _FIRST, limits.bucket * STORY_KEYS, any_deleted(work.rows.deleted_rows)
    for j in range(frequencies.keys):
        k, part = frequencies.rarest[j], left // (frequencies.keys - j)
        slot, at = scratch.slots[k], batch.starts[i] + k
        if empty(work.memory, slot) and nowhere(work.hits, at):
            continue
        most = min(part, len(scratch.met) - scratch.met_count - 1)
        if deleted_rows:
            n, more = read_live(batch.keys[at], slot, work.hits, at, most, work)
        else:
            n, more = read(
                batch.keys[at], slot, work.hits, at, work.runs, work.memory, work.rows.seen, most, scratch.room,
                scratch.out,
            )  # fmt: skip
        if more and most < part:
            return NOTHING
        cut += more
        left -= n
        share(n, frequencies.key_weights[k], work)
    return cut


@njit
def _candidates(work):  # type: ignore[no-untyped-def]
    """The rows met that share the weightiest keys, the newest first among equals, in `frequencies.found`. Returns their
    number, and how many were met."""
    scratch, frequencies, n = work.scratch, work.frequencies, _FIRST
    met, heap = scratch.met, scratch.heap
    for m in range(scratch.met_count):
        push(heap, m, np.uint64(met[m, 1]) << _ROW_BITS | np.uint64(met[m, 0]))
        met[m, 1] = 0  # reset for `forget`
    while n < scratch.met_count and n < len(frequencies.found):
        frequencies.found[n] = np.int64(pop(heap, scratch.met_count - n) & _ROWS)
        n += 1
    return n, scratch.met_count


@njit
def _load(row, k, work):  # type: ignore[no-untyped-def]
    """Read the signature of a row, and the bitmap of its terms, into place k."""
    rows, limits, near, bitmap = work.rows, work.limits, work.frequencies.near[k], work.frequencies.bitmaps[k]
    if row >= in_ring(rows):
        at = (row & np.int64(len(rows.notes) - 1)) * limits.head
        for w in range(limits.signature):
            near[w] = rows.ring[at + w]
    else:
        copy_words(rows, row, rows.signature_at, near)
    for w in range(BITMAP):
        bitmap[w] = np.uint64(0)
    for w in range(2 * len(near)):
        entry = near[w >> 1] >> (_HALF * np.uint64(w & 1)) & _ENTRY
        if entry != 0:
            bit = entry >> TERM_SHIFT & np.uint64(64 * BITMAP - 1)
            bitmap[np.int64(bit >> np.uint64(6))] |= _ONE << (bit & np.uint64(63))


@njit
def _similarity(frequencies, near):  # type: ignore[no-untyped-def]
    """Similarity of the document that was weighed to a row: the weighted geometric mean of the cosine of all terms
    (3/4) and the cosine of names (1/4), both padded."""
    norm = names = shared = shared_names = 0.0
    own, weights = frequencies.own, frequencies.own_weights
    for w in range(2 * len(near)):
        entry = near[w >> 1] >> (_HALF * np.uint64(w & 1)) & _ENTRY
        if entry == 0:
            break
        term = entry >> TERM_SHIFT
        slot = _slot(own, term)
        mine = own[slot]
        weight = np.float64(entry & WEIGHT_MASK) / UNIT * idf_of(frequencies, term, 1.0 if mine != 0 else 0.0)
        norm += weight * weight
        if entry & NAME_BIT:
            names += weight * weight
        if mine != 0:
            shared += weight * weights[slot]
            if entry & mine & NAME_BIT:
                shared_names += weight * weights[slot]
    pad = frequencies.pad
    cosine = shared / np.sqrt((frequencies.norm + pad) * (norm + pad))
    if frequencies.names > 0.0 and names > 0.0:
        of_names = shared_names / np.sqrt((frequencies.names + pad) * (names + pad))
        cosine = np.sqrt(cosine * np.sqrt(cosine * of_names))
    return np.floor(cosine * _GRID + 0.5) / _GRID


@njit(forceinline=True)
def _apart(one, other):  # type: ignore[no-untyped-def]
    """Milliseconds between two event times, 0.0 if one is missing."""
    return abs(np.float64(one) - np.float64(other)) if one != NO_TIME and other != NO_TIME else 0.0


@njit
def _best_story(n, rows, frequencies):  # type: ignore[no-untyped-def]
    """The most similar member of the most similar story, the older story among equals, as a place in `found`, or -1;
    and the story's similarity. chosen[c]: 1, 2 or 3 for the members that count, in order; 0 for others."""
    order, chosen, cosines, groups, bitmaps = (
        frequencies.order,
        frequencies.chosen,
        frequencies.cosines,
        frequencies.groups,
        frequencies.bitmaps,
    )
    apart = frequencies.apart
    for k in range(n):
        at = k
        while at > 0 and _before(k, order[at - 1], cosines, frequencies.found):
            order[at] = order[at - 1]
            at -= 1
        order[at] = k
    best, highest = NOTHING, -1.0
    for k in range(n):
        c = order[k]
        chosen[c], taken = 0, _FIRST
        if not _is_open(rows, groups[c]):
            continue
        again = False
        for j in range(k):
            d = order[j]
            if groups[d] == groups[c] and chosen[d]:
                taken += 1
                if taken == MEMBERS or _near_duplicates(bitmaps[c], bitmaps[d]):
                    again = True
                    break
        if not again:
            chosen[c] = taken + 1
    for k in range(n):
        c = order[k]
        if chosen[c] == 1:
            total, number, gap = cosines[c], 1, apart[c]
            for j in range(n):
                d = order[j]
                if groups[d] == groups[c]:
                    gap = min(gap, apart[d])
                    if j > k and chosen[d]:
                        total += cosines[d]
                        number += 1
            mean = total / number * (1.0 - LOST * gap / (gap + QUIET))
            if mean > highest or (mean == highest and groups[c] < groups[best]):
                best, highest = c, mean
    return best, highest


@njit
def _before(one, other, cosines, found):  # type: ignore[no-untyped-def]
    return cosines[one] > cosines[other] or (cosines[one] == cosines[other] and found[one] < found[other])


@njit
def _near_duplicates(one, other):  # type: ignore[no-untyped-def]
    """Whether two documents are near-duplicates, by their bitmaps."""
    both = either = np.uint64(0)
    for w in range(BITMAP):
        both += popcount(one[w] & other[w])
        either += popcount(one[w] | other[w])
    return np.float64(both) >= _SAME * np.float64(either)


@njit
def _joins(i, row, similarity, kind, work):  # type: ignore[no-untyped-def]
    columns = work.results.columns
    columns[i, KIND], columns[i, OLDEST] = kind, row
    columns[i, OLDEST_SEQ] = np.int64(word(work.rows, row, SEQ))
    work.results.similarity[i] = similarity
