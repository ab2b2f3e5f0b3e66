"""Documents whose fate is not known yet: with several shards under `kept`, whether one is kept is decided from the
answers of all of them, and a shard learns it later.

The log is cut into blocks of documents. Whoever arrives in a block meets what was kept of all blocks but the last two
in the buckets of the index, and everybody of the last two here, where each block has a segment of its own. When the
next block begins, the older of the two is decided, and its segment begins again.
"""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.kernels import njit
from stream_lsh.index.postings.memtable import append, find, newest, oldest, posted, since
from stream_lsh.index.rows.layout import CERTAIN, DELETED, REPRESENTATIVE


@njit
def post_provisional(segment, key, row):  # type: ignore[no-untyped-def]
    """Post a row (not before any posted earlier) under a key."""
    append(segment, np.int64(key >> segment.shift), key, row - segment.first)


@njit
def post_again(segment, keys, starts, bands, row, flags):  # type: ignore[no-untyped-def]
    """Post rows from `row` on again, whose keys are given as those of a batch; bands: of each. flags: int64[n]. Who is
    certain to be dropped and what was deleted are posted under their ids only, representatives not under theirs."""
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
    """The rows of both blocks under a key from `row` on, in `out`, the oldest first; if they are more than `limit`,
    half of them the oldest, half the newest. Returns their number, and whether there are more."""
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
