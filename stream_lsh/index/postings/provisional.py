"""Postings of provisional rows: with several shards and `compare_with = kept`, a shard learns later whether a row was
kept.

The log is cut into blocks of documents. A document is looked up in two places: in the buckets of the index, which have
the kept rows of all blocks before the last two; and here, where each of the last two blocks has a memtable of its own
with all its rows. When the next block begins, the older of the two is resolved, and its memtable is emptied.
"""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.kernels import njit
from stream_lsh.index.postings.memtable import append, find, newest, oldest, posted, since
from stream_lsh.index.rows.layout import CERTAIN, DELETED, REPRESENTATIVE


@njit
def post_provisional(segment, key, row):  # type: ignore[no-untyped-def]
    """Post a row, not before any posted earlier, under a key."""
    append(segment, np.int64(key >> segment.shift), key, row - segment.first)


@njit
def post_again(segment, keys, starts, bands, row, flags):  # type: ignore[no-untyped-def]
    """Post the rows from `row` on again. Rows that are certainly dropped and deletions are posted only under their ids,
    representative rows under all other keys.

    keys, starts: as of a batch. bands: bands of each. flags: int64[n].
    """
    for i in range(len(flags)):
        id_at = starts[i + 1] - 1
        if not flags[i] & (CERTAIN | DELETED):
            for k in range(starts[i], starts[i] + bands):
                post_provisional(segment, keys[k], row + i)
            post_provisional(segment, keys[id_at - 1], row + i)
        if not flags[i] & REPRESENTATIVE:
            post_provisional(segment, keys[id_at], row + i)


@njit
def read_provisional(older, newer, key, row, limit, out):  # type: ignore[no-untyped-def]
    """The rows of both blocks under a key from `row` on, oldest first, in `out`. If they are more than `limit`: half of
    it the oldest, half the newest. Returns their number, and whether there are more."""
    before, after = find(older, key), find(newer, key)
    first, second = since(older, before, key, row), since(newer, after, key, row)
    there = first + second
    most = there if there <= limit else (limit + 1) >> 1
    n = oldest(older, before, key, posted(older, before, key) - first, min(most, first), out)
    n += oldest(newer, after, key, posted(newer, after, key) - second, most - n, out[n:])
    if there <= limit:
        return n, False
    m = newest(newer, after, key, min(limit - n, second), out[n:])
    m += newest(older, before, key, limit - n - m, out[n + m :])
    for k in range(m >> 1):
        out[n + k], out[n + m - 1 - k] = out[n + m - 1 - k], out[n + k]
    return n + m, True
