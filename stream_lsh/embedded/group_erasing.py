"""Removes the ids of deleted and replaced versions from the stored groups. Numbers, times and sources stay."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from stream_lsh.embedded.group_store import (
    MEMBER,
    decoded,
    encoded,
    group_of,
    member_removal,
    member_removal_key,
    members_key,
    parse_member_removal,
    row_key,
)
from stream_lsh.index.erasure.queue import Version
from stream_lsh.index.store.rocksdb import MEMBERS, Range, Store
from stream_lsh.judging.groups import NO_ID


def without_ids(store: Store, versions: Sequence[Version]) -> tuple[dict[bytes, bytes], list[Range]]:
    """The values with ids of these versions, each id replaced by null, and the key ranges of all values that have or
    had them, rows included.

    A version costs two look-ups, independent of the size of the group: the removal of a member is found by its number,
    a member in the value that begins before it.
    """
    values: dict[bytes, bytes] = {}
    spans: list[Range] = []
    for group, theirs in groupby(sorted(versions), key=lambda version: version[0]):
        seqs = [seq for _, seq in theirs]
        for seq in seqs:
            key = member_removal_key(group, seq)
            if (value := store.value(key)) is not None and parse_member_removal(key, value)[3]:
                values[key] = member_removal(*parse_member_removal(key, value)[1:3], NO_ID)
        members = _members(store, group, seqs)
        values |= members
        first, last = min(members, default=members_key(group, 0)), members_key(group, seqs[-1])
        spans += [
            (row_key(group), _behind(row_key(group))), (first, _behind(last)),
            (member_removal_key(group, seqs[0]), _behind(member_removal_key(group, seqs[-1]))),
        ]  # fmt: skip
    return values, spans


def still_named(store: Store, versions: Sequence[Version]) -> bool:
    """Whether there is an id of these versions, which were erased."""
    values, _ = without_ids(store, versions)
    return any(store.value(key) != value for key, value in values.items())


def _behind(key: bytes) -> bytes:
    """The next key."""
    return key + b"\0"


def _members(store: Store, group: int, seqs: Sequence[int]) -> dict[bytes, bytes]:
    """The values of a group's members without the ids of those with these numbers, ascending."""
    values, at = dict[bytes, bytes](), 0
    while at < len(seqs):
        found, stop = store.last(members_key(group, seqs[at])), at + 1
        if found is not None and found[0][:1] == MEMBERS and group_of(found[0]) == group:
            members, ids, sources = decoded(found[1], MEMBER, "id", "source")
            stop = max(stop, bisect_right(seqs, members["seq"][-1], at))
            places = np.flatnonzero(np.isin(members["seq"], seqs[at:stop]))
            if len(places):
                members = members.copy()
                members["id"][places] = len(NO_ID)
                for place in places.tolist():
                    ids[place] = NO_ID
                values[found[0]] = encoded(members, [*ids, *sources])
        at = stop
    return values
