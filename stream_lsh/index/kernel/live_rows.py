"""Reading the live rows of a bucket: deleted rows are skipped, and count towards no limit."""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.kernels import njit
from stream_lsh.index.kernel.row_access import row_met_at
from stream_lsh.index.kernel.work import NOTHING
from stream_lsh.index.postings.bucket import read_before
from stream_lsh.index.postings.memtable import BEHIND_ALL
from stream_lsh.index.rows.deleted_ranges import SHORTEST, pass_over, remember

_FIRST, _ONE = np.int64(0), np.int64(1)


@njit
def read_live(key, slot, hits, at, limit, work):  # type: ignore[no-untyped-def]
    """The newest live rows in the window under a key, at most `limit`, newest first, in `scratch.out`, which has room
    for one more. A representative row is read as the row of its representative. slot, hits[at]: as for `read`.

    Returns their number, and whether there are more.
    """
    rows, scratch = work.rows, work.scratch
    deleted_ranges, aside, out = rows.deleted_rows.deleted_ranges, rows.deleted_rows.aside, scratch.out
    n, below, most = _FIRST, BEHIND_ALL, limit + _ONE
    newest, oldest, passed = NOTHING, NOTHING, _FIRST  # deleted rows since the last live one
    more = True
    while more and below > rows.seen:
        room = out[n : n + most]
        there, more = read_before(
            key, slot, hits, at, work.runs, work.memory, rows.seen, below, np.int64(len(room)), scratch.room, room
        )  # fmt: skip
        last = room[there - 1] if there > 0 else _FIRST
        for k in range(n, n + there):
            row = out[k]
            if row >= below:
                continue
            met = row_met_at(rows, row)
            if met < 0:
                if passed == 0:
                    newest = row
                oldest = pass_over(deleted_ranges, key, row)
                passed += _ONE if oldest < 0 else SHORTEST
                oldest = below = row if oldest < 0 else oldest
                continue
            if passed >= SHORTEST:
                remember(deleted_ranges, key, newest, oldest)
            passed = _FIRST
            if met != aside:
                if n == limit:
                    return n, True
                out[n] = met
                n += 1
        below = min(below, last)
        most *= 2
    if passed >= SHORTEST:
        remember(deleted_ranges, key, newest, _FIRST)  # all older rows are deleted too
    return n, False
