"""The rows that were dropped for deleted versions, and with which erasing removes the versions' ids."""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.kernels import njit
from stream_lsh.index.kernel.row_access import word
from stream_lsh.index.kernel.work import NOTHING
from stream_lsh.index.postings.bucket import FOLLOWERS, REPRESENTATIVES, earliest, key_behind, probe
from stream_lsh.index.postings.memtable import find
from stream_lsh.index.rows.layout import DROPPED, FLAGS, GROUP, ID, OF, REPRESENTATIVE, SIMILARITY, SUPERSEDES

_ONE = np.int64(1)
_FEW = np.int64(16)  # members to read at first: few are dropped for most versions


@njit(allocates=True)
def dropped_for(versions, groups, begins, ends, most, rows, runs, memory):  # type: ignore[no-untyped-def]
    """The rows that were dropped for some of these versions and have their ids, and how many versions have no others.

    A version that was superseded was the representative once or several times. Members that were dropped in between are
    not read: all deletions of a group together read each member once.

    versions, groups, begins, ends: int64[n], each version's row and group, and where such rows are; a negative begin =
    nowhere. A begin moves behind the rows that were read. most: rows to read, at least this many.
    """
    hits, room, found = (
        np.zeros((1, (len(runs) + 63) >> 6), np.uint64),
        np.empty(512, np.uint64),
        np.empty(most, np.int64),
    )
    out, n, looked = np.empty(2 * most, np.int64), 0, 0
    for k in range(len(versions)):
        if begins[k] < 0:
            continue
        version, group, few = versions[k], np.uint64(groups[k]), _FEW
        hashed, key = word(rows, version, ID), key_behind(group, FOLLOWERS)
        slot = find(memory, key)
        if begins[k] == version + 1 and np.int64(word(rows, version, FLAGS)) & DROPPED:  # superseded after that
            begins[k], steps = _next_begin(version, group, ends[k], rows, runs, memory, hits, room, found)
            looked += steps
        while begins[k] >= 0:
            if looked >= most:
                return out[:n], k
            limit = min(few, most, ends[k] - begins[k])  # there are no more rows before the end
            probe(key, runs, hits)
            members = earliest(key, slot, hits, runs, memory, begins[k], limit, room, found) if limit > 0 else 0
            begins[k] = found[members - 1] + 1 if members and members == limit else NOTHING
            few *= 2
            for m in range(members):
                member = found[m]
                if member >= ends[k]:
                    break
                looked += 1
                flags, of = np.int64(word(rows, member, FLAGS)), word(rows, member, OF)
                if flags & SUPERSEDES and np.int64(of) == version:
                    begins[k], steps = _next_begin(member, group, ends[k], rows, runs, memory, hits, room, found)
                    looked, few = looked + steps, _FEW
                    break
                if flags & DROPPED and of == hashed:
                    out[n] = member
                    n += 1
    return out[:n], len(versions)


@njit
def _next_begin(dropped_at, group, end, rows, runs, memory, hits, room, found):  # type: ignore[no-untyped-def]
    """The row behind the representative row of the member that a group dropped at this row, -1 if there is none before
    `end`; and how many rows were read. By bisection: each representative was dropped later than the one before it."""
    key, low, high, steps = key_behind(group, REPRESENTATIVES), dropped_at + _ONE, end, 0
    probe(key, runs, hits)
    slot, middle = find(memory, key), low  # mostly there is none from here on
    while low < high:
        there = earliest(key, slot, hits, runs, memory, middle, _ONE, room, found)
        while there and found[0] < high and word(rows, found[0], GROUP) != group:  # it has the same key by chance
            there = earliest(key, slot, hits, runs, memory, found[0] + _ONE, _ONE, room, found)
        steps += 1
        at = np.int64(word(rows, found[0], SIMILARITY)) if there and found[0] < high else high
        if at == dropped_at:
            return found[0] + _ONE, steps
        if at < dropped_at:
            low = found[0] + _ONE
        else:
            high = middle
        middle = (low + high) >> 1
    return NOTHING, steps


@njit(allocates=True)
def represented_since(members, groups, rows, runs, memory):  # type: ignore[no-untyped-def]
    """Whether the groups of these rows have newer representative rows: bool[n]. members, groups: int64[n]."""
    hits, room, found = (
        np.zeros((1, (len(runs) + 63) >> 6), np.uint64),
        np.empty(512, np.uint64),
        np.empty(1, np.int64),
    )
    out = np.zeros(len(members), np.bool_)
    for k in range(len(members)):
        group, row, there = np.uint64(groups[k]), members[k], _ONE
        key = key_behind(group, REPRESENTATIVES)
        probe(key, runs, hits)
        slot = find(memory, key)
        while there and not out[k]:  # more than once if another group has the same key by chance
            there = earliest(key, slot, hits, runs, memory, row + _ONE, _ONE, room, found)
            if there:
                row = found[0]
                out[k] = word(rows, row, GROUP) == group and word(rows, row, FLAGS) & np.uint64(REPRESENTATIVE)
    return out
