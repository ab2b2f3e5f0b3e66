"""Storing: a document becomes the next row of its shard and is posted."""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.bits import bits_of
from stream_lsh.hashing.kernels import njit
from stream_lsh.index.kernel.row_access import in_ring, name_of
from stream_lsh.index.kernel.shingle_sets import keep
from stream_lsh.index.kernel.work import NOTHING
from stream_lsh.index.postings.bucket import COPIES, FOLLOWERS, REPRESENTATIVES, key_behind
from stream_lsh.index.postings.memtable import append, find
from stream_lsh.index.postings.provisional import post_provisional
from stream_lsh.index.rows.layout import (
    CERTAIN,
    COPY,
    DELETED,
    DROPPED,
    ERASED,
    FLAGS,
    FOLLOWED,
    FOLLOWER,
    FOLLOWS,
    GROUP,
    GROUP_OF,
    GROUPED,
    KIND,
    KIND_BITS,
    MASK,
    MEMBER,
    OF,
    REPRESENTATIVE,
    ROW_OF,
    SEQ,
    SIMILARITY,
    SUPERSEDED,
    SUPERSEDES,
    UNKNOWN,
)

_ONE, _ALL = np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)
_FIRST = np.int64(0)


@njit
def store(i, original, leader, work):  # type: ignore[no-untyped-def]
    """Make document i the next row.

    original: the row that it is dropped for or a copy of, -1 = none. leader: the place among the rows met of the row
    that it follows, -1 = none.
    """
    batch, rows, memory, limits, sets = work.batch, work.rows, work.memory, work.limits, work.sets
    row, columns, scratch = rows.total, work.results.columns, work.scratch
    columns[i, ROW_OF] = row
    flags, behind = _FIRST, NOTHING
    if limits.late:
        flags = CERTAIN if original >= 0 else GROUPED if limits.keep else _FIRST
    elif limits.unique:
        if original >= 0:
            flags, behind = DROPPED, original
        elif columns[i, SUPERSEDED] >= 0:
            flags = SUPERSEDES
    elif original >= 0:
        flags, behind = COPY, original
    elif leader >= 0:
        flags, behind = FOLLOWER, scratch.met[leader, 0]
    of, link, ring_mask = np.uint64(0), np.uint64(columns[i, GROUP_OF]), np.int64(len(rows.notes) - 1)
    if behind >= 0:
        of = name_of(rows, behind, limits)
        if behind >= in_ring(rows):
            rows.notes[behind & ring_mask] |= np.uint8(FOLLOWED)
    elif flags & SUPERSEDES:
        of = np.uint64(columns[i, SUPERSEDED])
    rows.total = row + 1
    new = rows.recent[row - rows.base]
    for k in range(MASK):
        new[k] = batch.words[i, k]
    if limits.stories:
        flags |= MEMBER
    kind = columns[i, KIND] if limits.alone else UNKNOWN
    new[FLAGS] |= np.uint64(flags) | np.uint64(kind) << KIND_BITS
    new[OF] = of
    if limits.late:  # nothing is decided yet; all shards write the same later
        new[SIMILARITY] = np.uint64(0)
        new[GROUP] = batch.words[i, SEQ]
    else:
        new[SIMILARITY] = bits_of(work.results.similarity[i]) if not flags & SUPERSEDES else np.uint64(0)
        new[GROUP] = np.uint64(columns[i, GROUP_OF])
    if limits.window:
        new[rows.log_at] = np.uint64(batch.log[i])
    mask_words = rows.log_at - MASK
    for w in range(mask_words):
        new[MASK + w] = ~scratch.bands[leader, w] if flags & FOLLOWER else _ALL
    signatures, begin = batch.signatures, i * limits.signature
    for k in range(limits.signature):
        new[rows.signature_at + k] = signatures[begin + k]
    if limits.rank_at:
        new[limits.rank_at] = bits_of(batch.ranks[i])
    if limits.source_at:
        new[limits.source_at] = batch.sources[i]
    ring, at = rows.ring, row & ring_mask
    for k in range(limits.head):
        ring[at * limits.head + k] = signatures[begin + k]
    rows.notes[at] = FOLLOWS if flags else 0
    first, id_at = batch.starts[i], batch.starts[i + 1] - 1
    if limits.late:
        if not flags & CERTAIN:
            for k in range(first, first + limits.bands):
                post_provisional(work.newer, batch.keys[k], row)
            post_provisional(work.newer, batch.keys[id_at - 1], row)
        post_provisional(work.newer, batch.keys[id_at], row)
    else:
        mine = row - memory.first
        if not flags & (DROPPED | SUPERSEDES):
            link = of
        text = id_at - 1 - first
        post(
            memory, batch.keys, first, limits.bands, text, scratch.slots, mine, flags, link, new, MASK, mask_words,
        )  # fmt: skip
    if limits.exact and not limits.stories:
        sets.documents[row - sets.first] = i
        if sets.have[i] and not flags & (DROPPED | COPY | CERTAIN):
            keep(sets, row, sets.shingles, sets.offsets[i], sets.offsets[i + 1])


@njit
def post(memory, keys, first, bands, text, slots, row, flags, link, masks, mask_at, mask_words):  # type: ignore[no-untyped-def]
    """Post a row of the newest segment (counted from its first) under its id and, as its flags say, under its text, the
    bands of its mask, and behind the row with the hash `link` or the group with this number.

    keys: from `first` on those of its bands; at `text` behind it that of its text, then that of its id. slots: where
    they were found or belong, unless another key was entered since. masks: the mask begins at `mask_at`; no words = all
    bands.
    """
    if flags & DELETED or not flags & (REPRESENTATIVE | ERASED):
        append(memory, slots[text + 1], keys[first + text + 1], row)
    if flags & DELETED and not flags & REPRESENTATIVE:
        return
    if flags & (DROPPED | FOLLOWER | COPY | REPRESENTATIVE | SUPERSEDES | GROUPED):
        key = key_behind(link, COPIES if flags & COPY else REPRESENTATIVES if flags & REPRESENTATIVE else FOLLOWERS)
        append(memory, np.int64(key >> memory.shift), key, row)
        if not flags & MEMBER and (flags & DROPPED or not flags & (FOLLOWER | REPRESENTATIVE | SUPERSEDES | GROUPED)):
            return
        if flags & (MEMBER | ERASED) and flags & (REPRESENTATIVE | SUPERSEDES):
            return
    append(memory, slots[text], keys[first + text], row)
    for j in range(min(bands, text)):
        if mask_words == 0 or masks[mask_at + (j >> 6)] >> np.uint64(j & 63) & _ONE:
            append(memory, slots[j], keys[first + j], row)


@njit(allocates=True)
def replay(block, first, mask_words, keys, starts, bands, memory):  # type: ignore[no-untyped-def]
    """Post rows uint64[n, width] of the newest segment again, the first of which is `first` in it. keys, starts: as of
    a batch; bands: of each row, if it has as many.

    An erased row is posted only where it is found by what it still has: a deletion under its id, a representative row
    or one that supersedes another behind its group.
    """
    most = np.int64(0)
    for i in range(len(starts) - 1):
        most = max(most, starts[i + 1] - starts[i])
    slots = np.empty(most, np.int64)
    flat, width = block.reshape(-1), block.shape[1]
    for i in range(len(block)):
        text = starts[i + 1] - starts[i] - 2
        for k in range(text + 2):
            slots[k] = find(memory, keys[starts[i] + k])
        flags = np.int64(block[i, FLAGS] & np.uint64(0xFFFF))
        if flags & ERASED and not flags & (DELETED | REPRESENTATIVE | SUPERSEDES):
            continue
        grouped = flags & (DROPPED | DELETED | REPRESENTATIVE | SUPERSEDES | GROUPED)
        link = block[i, GROUP] if grouped else block[i, OF]
        post(memory, keys, starts[i], bands, text, slots, first + i, flags, link, flat, i * width + MASK, mask_words)


@njit
def restore_heads(block, first, rows, size):  # type: ignore[no-untyped-def]
    """Keep the heads of rows again, which are those from `first` on of the shard; size: words of a head."""
    for i in range(len(block)):
        at = (first + i) & (len(rows.notes) - 1)
        for k in range(size):
            rows.ring[at * size + k] = block[i, rows.signature_at + k]
        rows.notes[at] = FOLLOWED | (FOLLOWS if block[i, FLAGS] & np.uint64(FOLLOWER | COPY | DROPPED) else 0)
