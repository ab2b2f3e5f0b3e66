"""Documents whose fate is not known yet: with several shards under `unique`, whether one is kept is decided from the
answers of all of them, and a shard learns it later.

The log is cut into blocks of documents. Whoever arrives in a block meets what was kept of all blocks but the last two
in the buckets of the index, and everybody of the last two here, the oldest first: of a family of copies the oldest is
the one that is kept. When the next block begins, the older of the two is decided, and this table forgets it.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.structs import Halves, Number, Struct, Unsigned, Words


class Undecided(Struct):
    """The postings of one block, in chains by key, the oldest first.

    ends: uint32[2c], of each chain its first and its last posting, counted from 1; 0 = it is empty. keys: of the
    postings; links: uint32[2p], of each its row, counted from `first`, and the posting after it in its chain. used:
    their number. shift: chain of a key = key >> shift.
    """

    ends: Halves
    keys: Words
    links: Halves
    used: Number
    first: Number
    shift: Unsigned

    @classmethod
    def of(cls, postings: int) -> Self:
        """An empty table for so many postings."""
        bits = max(1, int(postings).bit_length())
        return cls(
            ends=np.zeros(2 << bits, np.uint32), keys=np.empty(postings, np.uint64),
            links=np.empty(2 * postings, np.uint32), used=0, first=0, shift=np.uint64(64 - bits),
        )  # fmt: skip

    def begin(self, first: int) -> None:
        """Empty it, for the rows from `first` on."""
        self.ends.fill(0)
        self.used, self.first = 0, first


@njit
def post_undecided(table, key, row):  # type: ignore[no-untyped-def]
    """Post a row (not before any posted earlier) under a key."""
    ends, links, chain, at = table.ends, table.links, 2 * np.int64(key >> table.shift), table.used
    table.used = at + 1
    table.keys[at] = key
    links[2 * at] = np.uint32(row - table.first)
    links[2 * at + 1] = np.uint32(0)
    last = np.int64(ends[chain + 1])
    if last:
        links[2 * last - 1] = np.uint32(at + 1)
    else:
        ends[chain] = np.uint32(at + 1)
    ends[chain + 1] = np.uint32(at + 1)


@njit
def oldest(table, key, n, limit, out):  # type: ignore[no-untyped-def]
    """Append the oldest rows under a key to the n in `out`, which are at most `limit` then. Returns their number, and
    whether there are more."""
    at = np.int64(table.ends[2 * np.int64(key >> table.shift)])
    while at:
        if table.keys[at - 1] == key:
            if n == limit:
                return n, True
            out[n] = table.first + np.int64(table.links[2 * at - 2])
            n += 1
        at = np.int64(table.links[2 * at - 1])
    return n, False


@njit
def post_again(table, keys, starts, row, certain):  # type: ignore[no-untyped-def]
    """Post rows from `row` on again, whose keys are given as those of a batch; certain: uint8[n], only under the id."""
    for i in range(len(certain)):
        for k in range(starts[i + 1] - 1 if certain[i] else starts[i], starts[i + 1]):
            post_undecided(table, keys[k], row + i)
