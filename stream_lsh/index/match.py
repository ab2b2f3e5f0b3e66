"""The kernel of the index: documents in the order of the log against the buckets of one shard.

Each document sees all rows before it, those of its own batch included, so that the answers do not depend on how the
log was cut into batches. The rules that keep buckets small and lose nobody (docs/architecture.md, "Buckets"):

- Copies: a document with the fingerprint of an earlier row is posted under its fingerprint only; whoever meets that
row meets its copies.
- Followers: a document is not posted in a bucket where an earlier row (the leader) agrees with it on at least
`Limits.follow` components;
  it is posted under the leader's link key instead. Whoever would have met the follower meets the leader.
- A bucket is read as its oldest and its newest half, up to `bucket_size` rows; followers likewise.
"""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.kernels import njit, read_at
from stream_lsh.index.buckets import gather, link_key, probe_filters
from stream_lsh.index.layout import (
    AGREEMENT,
    ASK,
    COPY,
    COPY_OF,
    DOCUMENT,
    DUPLICATE,
    EVERYTHING,
    FLAGS,
    ID,
    ID_REUSED,
    INVALID,
    KIND,
    MASK,
    MORE,
    NEW,
    OF,
    REDELIVERED,
    ROW,
    SAME_TEXT,
    SEQ,
    TEXT,
    TIME,
    UNIQUE,
    VERIFY,
)
from stream_lsh.index.memory import EMPTY, append, find, not_empty

# One type for all callers of a kernel's helpers, or numba compiles each several times.
_VERIFY, _SAME_TEXT, _COPY_OF, _NONE = np.int64(VERIFY), np.int64(SAME_TEXT), np.int64(COPY_OF), np.int64(-1)


@njit
def _read(rows, row):  # type: ignore[no-untyped-def]
    """Read a row of the file into `rows.line`."""
    size = 8 * len(rows.line)
    read_at(rows.file, rows.line.ctypes.data, size, rows.start + row * size)


@njit
def _word(rows, row, column):  # type: ignore[no-untyped-def]
    if row >= rows.base:
        return rows.recent[row - rows.base, column]
    _read(rows, row)
    return rows.line[column]


@njit
def _agreement(rows, row, signature):  # type: ignore[no-untyped-def]
    """Number of components in which the row's signature equals the given one."""
    at, size = rows.components_at, len(signature)
    if row < rows.base:
        _read(rows, row)
        other = rows.line_components[at : at + size]
    else:
        other = rows.recent_components[row - rows.base, at : at + size]
    equal = np.int64(0)
    for i in range(size):
        equal += other[i] == signature[i]
    return equal


@njit
def _seen(table, row):  # type: ignore[no-untyped-def]
    """The row's slot in the table of rows met by this document (values are row + 1), or the empty slot where it
    belongs."""
    mask = np.int64(len(table) - 1)
    slot = (np.int64(row) * np.int64(0x9E3779B1)) >> np.int64(7) & mask
    while table[slot] != 0 and table[slot] != row + 1:
        slot = (slot + 1) & mask
    return slot


@njit
def _meet(rows, row, signature, table, agreements, met, n_met):  # type: ignore[no-untyped-def]
    """The row's agreement with the document, computed once a document; grows the table of rows met.

    Returns agreement, whether the row is new, the arrays and the number of rows met.
    """
    slot = _seen(table, row)
    if table[slot] != 0:
        return agreements[slot], False, table, agreements, met, n_met
    if 2 * (n_met + 1) > len(table):
        old, old_agreements = table, agreements
        table = np.zeros(4 * len(old), np.int64)
        agreements = np.empty(4 * len(old), np.int64)
        grown = np.empty(4 * len(met), np.int64)
        for i in range(n_met):
            grown[i] = met[i]
        met = grown
        for i in range(n_met):
            slot = _seen(table, met[i])
            table[slot] = met[i] + 1
            agreements[slot] = old_agreements[_seen(old, met[i])]
        slot = _seen(table, row)
    agreement = _agreement(rows, row, signature)
    table[slot] = row + 1
    agreements[slot] = agreement
    met[n_met] = row
    return agreement, True, table, agreements, met, n_met + 1


@njit
def _emit(found, n, document, row, agreement, kind, of):  # type: ignore[no-untyped-def]
    """Append a candidate, growing the array when it is full."""
    found = _with_room(found, n)
    found[n, DOCUMENT] = document
    found[n, ROW] = row
    found[n, AGREEMENT] = agreement
    found[n, KIND] = kind
    found[n, OF] = of
    found[n, MORE] = 0
    return found


@njit
def _with_room(lines, n):  # type: ignore[no-untyped-def]
    """The array, or a copy of twice its length if line n does not fit. (Loops: slices would triple the time to
    compile.)"""
    if n < len(lines):
        return lines
    grown = np.empty((2 * n, lines.shape[1]), np.int64)
    for i in range(n):
        for k in range(lines.shape[1]):
            grown[i, k] = lines[i, k]
    return grown


@njit
def _clear(mask):  # type: ignore[no-untyped-def]
    for k in range(len(mask)):
        mask[k] = np.uint64(0)


@njit
def insert(rows, count, row, memory, limits, documents, i, flags, mask, links, n_links, slots):  # type: ignore[no-untyped-def]
    """Store document i of the batch as the next row and post it."""
    b = documents.keys.shape[1] - 2
    words = rows.recent[row - rows.base]
    words[SEQ] = np.uint64(documents.seqs[i])
    words[TIME] = np.uint64(documents.times[i])
    for k in range(2):
        words[ID + k] = documents.ids[i, k]
        words[TEXT + k] = documents.texts[i, k]
    words[FLAGS] = np.uint64(flags) | (np.uint64(documents.sizes[i]) << np.uint64(32))
    for k in range(len(mask)):
        words[MASK + k] = mask[k]
    for k in range(documents.signatures.shape[1]):
        rows.recent_components[row - rows.base, rows.components_at + k] = documents.signatures[i, k]
    count[0] = row + 1
    post(memory, limits, documents.keys[i], b, np.uint32(row), flags, mask, links, n_links, slots)


@njit
def post(memory, limits, keys, b, row, flags, mask, links, n_links, slots):  # type: ignore[no-untyped-def]
    """Post a row under its id, its text, the bands of its mask, and its leaders' link keys.

    slots int64[b + 2]: where the keys were found, or where they belong unless another key has come there since.
    """
    _append(memory, slots[b], keys[b], row, EVERYTHING)
    if flags & DUPLICATE:
        return
    _append(memory, slots[b + 1], keys[b + 1], row, EVERYTHING)
    half = np.int64(limits.bucket_half)
    for j in range(b):
        if mask[j >> 6] & (np.uint64(1) << np.uint64(j & 63)):
            _append(memory, slots[j], keys[j], row, half)
    for k in range(n_links):
        key = link_key(links[k])
        _append(memory, np.int64(key >> memory.shift), key, row, np.int64(limits.followers_half))


@njit
def _append(m, slot, key, row, half):  # type: ignore[no-untyped-def]
    append(m.keys, m.entries, m.rows, m.following, m.used, slot, key, row, half)


@njit
def replay(rows, memory, limits, keys, first, last, links):  # type: ignore[no-untyped-def]
    """Post the rows [first, last) again, whose words are in `rows.recent`, with links int64[m, 2] (row, leader) in
    order of rows."""
    b = keys.shape[1] - 2
    mask_words = (b + 63) >> 6
    leaders = np.empty(b, np.int64)
    slots = np.empty(b + 2, np.int64)
    at = 0
    for row in range(first, last):
        n = 0
        while at < len(links) and links[at, 0] == row:
            leaders[n] = links[at, 1]
            n += 1
            at += 1
        words = rows.recent[row - rows.base]
        flags = np.int64(words[FLAGS] & np.uint64(0xFFFFFFFF))
        mask = words[MASK : MASK + mask_words]
        for j in range(b + 2):
            slots[j] = find(memory.keys, memory.shift, keys[row - first, j])
        post(memory, limits, keys[row - first], b, np.uint32(row), flags, mask, leaders, n, slots)


@njit
def match(start, stop, decision, documents, masks, rows, count, memory, runs, limits, status, row_of, unread):  # type: ignore[no-untyped-def]
    """Match and store the documents [start, stop) of a batch.

    decision: under `limits.unique_only` the verdict on document `start`, if it is known: UNIQUE or NOT_UNIQUE; else
    OPEN
        (stop where there are candidates) or ASK (stop at the first new document in any case).
    runs int64[k, 8]: the table of runs, oldest first. masks: `passing` of the documents' keys.
    count int64[1]: number of rows, advanced. status uint8[n], row_of int64[n] (-1: not stored here): filled.
    unread int64[2]: advanced by the numbers of bucket entries and followers that were not read.

    Returns the position reached (smaller than `stop` where a decision is needed), the candidates int64[m, 6] (columns
    as `Candidates`), and the links int64[l, 2] made (row, leader).
    """
    b = documents.keys.shape[1] - 2
    ranges = np.zeros((max(1, len(runs)), 2), np.int64)
    room = np.empty(512, np.uint64)
    out = np.empty(1024, np.uint32)
    table = np.zeros(1024, np.int64)
    agreements = np.empty(1024, np.int64)
    met = np.empty(1024, np.int64)
    expanded = np.empty(1 + b * 2 * limits.bucket_half, np.int64)
    mask = np.zeros((b + 63) >> 6, np.uint64)
    leaders = np.empty(b, np.int64)
    slots = np.empty(b + 2, np.int64)
    found = np.empty((256, 6), np.int64)
    n_found = 0
    links = np.empty((256, 2), np.int64)
    n_links = 0
    for i in range(start, stop):
        row_of[i] = -1
        if not documents.valid[i]:
            status[i] = INVALID
            continue
        status[i] = NEW
        # All look-ups first: they do not depend on each other, so that the waits for memory overlap.
        for j in range(b + 2):
            slots[j] = find(memory.keys, memory.shift, documents.keys[i, j])
        if documents.owned[i] and (masks[i, b] != 0 or memory.keys[slots[b]] != EMPTY):
            n, out, _ = gather(
                documents.keys[i, b], masks[i, b], runs, memory, EVERYTHING, np.int64(0), ranges, room, out
            )
            for k in range(n):
                row = np.int64(out[k])
                if _word(rows, row, ID) == documents.ids[i, 0] and _word(rows, row, ID + 1) == documents.ids[i, 1]:
                    same = (
                        _word(rows, row, TEXT) == documents.texts[i, 0]
                        and _word(rows, row, TEXT + 1) == documents.texts[i, 1]
                    )
                    status[i] = REDELIVERED if same else ID_REUSED
                    row_of[i] = row
                    break
            if status[i] != NEW:
                continue
        first = n_found
        n_met = 0
        n_expanded = 0
        copies = 0
        n = total = np.int64(0)
        if masks[i, b + 1] != 0 or memory.keys[slots[b + 1]] != EMPTY:
            n, out, total = gather(
                documents.keys[i, b + 1],
                masks[i, b + 1],
                runs,
                memory,
                np.int64(limits.copies),
                np.int64(0),
                ranges,
                room,
                out,
            )
        for k in range(n):
            row = np.int64(out[k])
            if _word(rows, row, TEXT) == documents.texts[i, 0] and _word(rows, row, TEXT + 1) == documents.texts[i, 1]:
                _, new, table, agreements, met, n_met = _meet(
                    rows, row, documents.signatures[i], table, agreements, met, n_met
                )
                found = _emit(found, n_found, i, row, np.int64(documents.signatures.shape[1]), _SAME_TEXT, _NONE)
                n_found += 1
                if copies == 0:  # only the first of the copies is posted in bands and has followers
                    expanded[0] = row
                    n_expanded = 1
                copies += 1
        if copies > 0:
            found[n_found - 1, MORE] = total - n
        _clear(mask)
        n_leaders = 0
        for j in range(b):
            if masks[i, j] == 0 and memory.keys[slots[j]] == EMPTY:  # nobody was ever here: nearly all buckets
                mask[j >> 6] |= np.uint64(1) << np.uint64(j & 63)
                continue
            n, out, total = gather(
                documents.keys[i, j], masks[i, j], runs, memory,
                np.int64(limits.bucket_half), np.int64(limits.bucket_half), ranges, room, out,
            )  # fmt: skip
            unread[0] += total - n
            leader = np.int64(-1)
            for k in range(n):
                row = np.int64(out[k])
                agreement, new, table, agreements, met, n_met = _meet(
                    rows, row, documents.signatures[i], table, agreements, met, n_met
                )
                if new:
                    if agreement >= limits.floor:
                        found = _emit(found, n_found, i, row, agreement, _VERIFY, _NONE)
                        n_found += 1
                    if agreement >= limits.expand:
                        expanded[n_expanded] = row
                        n_expanded += 1
                if leader < 0 and agreement >= limits.follow:
                    leader = row
            if leader < 0:
                mask[j >> 6] |= np.uint64(1) << np.uint64(j & 63)
            else:
                known = False
                for k in range(n_leaders):
                    known = known or leaders[k] == leader
                if not known:
                    leaders[n_leaders] = leader
                    n_leaders += 1
        for e in range(n_expanded):
            key = link_key(expanded[e])
            bits = probe_filters(key, runs) if expanded[e] < rows.base else np.uint32(0)
            n, out, total = gather(
                key,
                bits,
                runs,
                memory,
                np.int64(limits.followers_half),
                np.int64(limits.followers_half),
                ranges,
                room,
                out,
            )
            unread[1] += total - n
            for k in range(n):
                row = np.int64(out[k])
                agreement, new, table, agreements, met, n_met = _meet(
                    rows, row, documents.signatures[i], table, agreements, met, n_met
                )
                if new and agreement >= limits.floor:
                    found = _emit(found, n_found, i, row, agreement, _VERIFY, _NONE)
                    n_found += 1
        for c in range(first, n_found):
            if found[c, KIND] != VERIFY:
                continue
            leading = found[c, ROW]
            key = not_empty(_word(rows, leading, TEXT))
            bits = probe_filters(key, runs) if leading < rows.base else np.uint32(0)
            n, out, total = gather(key, bits, runs, memory, np.int64(limits.copies), np.int64(0), ranges, room, out)
            found[c, MORE] = total - n
            for k in range(n):
                row = np.int64(out[k])
                if row != leading and _word(rows, row, TEXT + 1) == _word(rows, leading, TEXT + 1):
                    found = _emit(found, n_found, i, row, found[c, AGREEMENT], _COPY_OF, np.int64(c))
                    n_found += 1
        for k in range(n_met):  # emptying from the last slot filled keeps the probe chains whole
            table[_seen(table, met[n_met - 1 - k])] = 0
        flags = COPY if copies > 0 else 0
        if limits.unique_only:
            decided = decision >= 0 and i == start
            if not decided and (n_found > first or decision == ASK):
                return i, found[:n_found], links[:n_links]
            if decided:
                n_found = first
                flags = 0 if decision == UNIQUE else DUPLICATE
        if documents.owned[i]:
            if flags != 0:
                _clear(mask)
                n_leaders = 0
            row = count[0]
            row_of[i] = row
            insert(rows, count, row, memory, limits, documents, i, flags, mask, leaders, n_leaders, slots)
            for k in range(n_leaders):
                links = _with_room(links, n_links)
                links[n_links, 0] = row
                links[n_links, 1] = leaders[k]
                n_links += 1
    return stop, found[:n_found], links[:n_links]
