"""What superseded each document of an index (`keep`), by the groups of the index."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_lsh.embedded.group_store import MEMBER, SUPERSEDED, group_of, members_in, parse_member_removal
from stream_lsh.index.store.rocksdb import MEMBERS, REMOVED_MEMBERS, Store
from stream_lsh.judging.verdicts import Kind

PAIR = np.dtype([("seq", "<i8"), ("group", "<i8"), ("by", "<i8"), ("similarity", "<f8")])
"""A superseded document, its group, the document that superseded it, and their similarity."""


def read_superseded(store: Store) -> NDArray[np.void]:
    """Rows of PAIR by `seq`; none if the index keeps no groups. Those that represent their groups again are there too.

    In memory: 32 bytes for each.
    """
    pairs = [
        (seq, group_of(key), superseding)
        for key, value in store.scan(REMOVED_MEMBERS)
        for seq, removed_by, superseding, _ in [parse_member_removal(key, value)]
        if removed_by == SUPERSEDED
    ]
    found = np.zeros(len(pairs), PAIR)
    found["seq"], found["group"], found["by"] = np.array(pairs, np.int64).reshape(-1, 3).T
    found.sort(order="by")
    for _, value in store.scan(MEMBERS) if pairs else ():
        members = np.frombuffer(members_in(value), MEMBER)
        members = members[members["kind"] == np.uint8(Kind.UNIQUE)]
        at = np.minimum(np.searchsorted(found["by"], members["seq"]), len(found) - 1)
        there = found["by"][at] == members["seq"]
        found["similarity"][at[there]] = members["similarity"][there]
    found.sort(order="seq")
    return found


def pairs_of(superseded: NDArray[np.void], seqs: NDArray[np.int64]) -> NDArray[np.void]:
    """The rows of PAIR of these documents; `by` is -1 where there is none."""
    found = np.zeros(len(seqs), PAIR)
    found["by"] = -1
    if len(superseded):
        at = np.minimum(np.searchsorted(superseded["seq"], seqs), len(superseded) - 1)
        there = superseded["seq"][at] == seqs
        found[there] = superseded[at[there]]
    return found
