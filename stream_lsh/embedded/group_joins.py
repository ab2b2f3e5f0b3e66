"""The event times at which members joined groups: read from a store, and the latest of them in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence, Set
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.group_store import (
    MEMBER,
    group_of,
    member_removal_key,
    members_in,
    members_key,
    parse_member_removal,
)
from stream_lsh.embedded.pending import Readable
from stream_lsh.index.store.rocksdb import MEMBERS, REMOVED_MEMBERS

MOST_TAIL = 65_536  # joins that are not sorted in yet
_AT_ONCE = 65_536  # values that are decoded together
_PASSED = 16  # values of other groups, after which a seek is cheaper than reading on

Joined = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Groups, and event times."""


class Joins:
    """The latest joins by event time, at most `most`. 16 bytes each.

    Attributes:
        since: all joins from this time on are here, ms.
    """

    EARLIEST = NO_TIME + 1

    def __init__(self, most: int, since: int = EARLIEST) -> None:
        self.since = since
        self._most = most
        self._times = np.empty(0, np.int64)  # ascending
        self._slots = np.empty(0, np.int64)
        self._tail: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._waiting = 0

    def add(self, times: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        """Add joins: event times, and places of the groups."""
        late = times < self.since
        if late.any():
            times, slots = times[~late], slots[~late]
        self._tail.append((times, slots))
        self._waiting += len(times)
        if self._waiting > MOST_TAIL:
            self.sort()

    def sort(self) -> None:
        """Sort the tail in, and drop the oldest joins if there are too many."""
        times, slots = self._joined_tail()
        self._tail, self._waiting = [], 0
        order = np.argsort(times, kind="stable")
        at = np.searchsorted(self._times, times[order])
        self._times, self._slots = np.insert(self._times, at, times[order]), np.insert(self._slots, at, slots[order])
        if len(self._times) > self._most:
            self.since = int(self._times[len(self._times) - 1 - 3 * self._most // 4]) + 1
            first = int(np.searchsorted(self._times, self.since))
            self._times, self._slots = self._times[first:].copy(), self._slots[first:].copy()

    def _joined_tail(self) -> Joined:
        """The tail as one part."""
        if len(self._tail) != 1:
            empty = np.empty(0, np.int64)
            times = np.concatenate([empty, *(times for times, _ in self._tail)])
            slots = np.concatenate([empty, *(slots for _, slots in self._tail)])
            self._tail = [(times, slots)]
        return self._tail[0]

    def counts(self, since: int, until: int | None, size: int) -> NDArray[np.int64]:
        """The number of joins of each place, int64[size], from a time on that is not before `self.since`, and up to
        another one; None = all."""
        begin = int(np.searchsorted(self._times, since))
        end = len(self._times) if until is None else int(np.searchsorted(self._times, until, "right"))
        found = np.bincount(self._slots[begin:end], minlength=size)
        times, slots = self._joined_tail()
        counted = times >= since if until is None else (times >= since) & (times <= until)
        np.add.at(found, slots[counted], 1)
        return found

    def move(self, places: NDArray[np.int64]) -> None:
        """Take over new places of groups: by the old place the new one, -1 for none."""
        self.sort()
        slots = places[self._slots]
        there = slots >= 0
        self._times, self._slots = self._times[there], slots[there]


def joins_of(store: Readable, groups: NDArray[np.int64]) -> Iterator[Joined]:
    """The joins of these groups (int64[n], ascending), in parts."""
    wanted: list[int] = groups.tolist()
    values = _values(store, MEMBERS, wanted)
    while chunks := list(islice(values, _AT_ONCE)):
        theirs = sorted({group for group, _, _ in chunks})
        updates = {(group, updater(key, value)) for group, key, value in _values(store, REMOVED_MEMBERS, theirs)}
        yield decoded_joins([(group, value) for group, _, value in chunks], updates)


def _values(store: Readable, kind: bytes, wanted: Sequence[int]) -> Iterator[tuple[int, bytes, bytes]]:
    """Group, key and value of all values of a kind that these groups (ascending) have."""
    key_of = members_key if kind == MEMBERS else member_removal_key
    at = passed = 0
    while at < len(wanted):
        for key, value in store.scan(kind, key_of(wanted[at], 0)):
            group = group_of(key)
            if group != wanted[at]:
                at = bisect_left(wanted, group, at)
                if at == len(wanted):
                    return
            if group == wanted[at]:
                passed = 0
                yield group, key, value
            elif (passed := passed + 1) == _PASSED:
                passed = 0
                break
        else:
            return


def updater(key: bytes, value: bytes) -> int:
    """The number of the document that deleted or replaced a version that left."""
    return parse_member_removal(key, value)[1]


def decoded_joins(chunks: Sequence[tuple[int, bytes]], updates: Set[tuple[int, int]]) -> Joined:
    """The joins in values of members.

    Args:
        chunks: groups, and their values.
        updates: groups, and numbers of documents that replaced a version there: they did not join.
    """
    rows = [members_in(value) for _, value in chunks]
    members = np.frombuffer(b"".join(rows), MEMBER)
    counts = np.array([len(row) // MEMBER.itemsize for row in rows], np.int64)
    groups = np.repeat(np.array([group for group, _ in chunks], np.int64), counts)
    times, seqs = members["time"].astype(np.int64), members["seq"].astype(np.int64)
    counted = times != NO_TIME
    if updates:
        for i in np.flatnonzero(np.isin(seqs, np.array([seq for _, seq in updates], np.int64))).tolist():
            counted[i] &= (int(groups[i]), int(seqs[i])) not in updates
    return groups[counted], times[counted]
