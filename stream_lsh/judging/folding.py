"""Verdicts folded into groups: their rows, and the events.

Pure: a `GroupCache` has the state before a batch. A kept document is the first member of a group, which has a row
from its second member on. Rows count all members ever, so that a deletion requires no recount.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.times import LAST_TIME, NO_TIME
from stream_lsh.judging.events import NO_EVENTS, Change, Events
from stream_lsh.judging.groups import LISTED, NO_ID, Group
from stream_lsh.judging.verdicts import Judgement, Kind

_TIME_BITS = 44  # bits of a time in ms
# As numbers: numpy takes long to compare with an enumeration.
_CREATED, _JOINED, _UPDATED, _LEFT, _CHANGED, _ENDED = (np.uint8(change) for change in Change)
_TRUE = np.ones(1, np.bool_)
_NEAR, _EXACT, _DELETED = (np.uint8(kind) for kind in (Kind.NEAR_DUPLICATE, Kind.EXACT_DUPLICATE, Kind.DELETED))


class GroupCache(Protocol):
    """The state of the groups before a batch."""

    def rows(self, groups: Sequence[int]) -> Mapping[int, Group]:
        """The rows of those of these groups that have one. The caller changes them."""

    def first_member(self, seq: int) -> tuple[int, bytes]:
        """Event time and source of a kept document."""

    def has_source(self, group: int, source: bytes) -> bool:
        """Whether a group had a source that its row does not list. From then on it has."""


@dataclass(frozen=True, slots=True)
class _Moves:
    """What documents do to groups: m places of documents, changes (LEFT, REPRESENTATIVE_CHANGED, JOINED or UPDATED),
    and group numbers."""

    places: NDArray[np.int64]
    changes: NDArray[np.uint8]
    groups: NDArray[np.int64]

    def at(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> _Moves:
        """Some of them."""
        return _Moves(self.places[which], self.changes[which], self.groups[which])


def fold(
    judgement: Judgement,
    times: NDArray[np.int64],
    sources: Sequence[bytes],
    cache: GroupCache,
    reached: NDArray[np.int64] | None = None,
) -> Events:
    """Fold the verdicts on a batch into the groups, whose rows are changed.

    Args:
        times: int64[n], event times in ms.
        sources: of the n documents, or empty.
        cache: must have the batch's kept documents.
        reached: int64[n], groups with a smaller number have ended before a document, and are not changed by it.
    """
    if _is_still(judgement):
        return NO_EVENTS
    moves = _moves(judgement)
    if reached is not None:
        moves = moves.at(moves.groups >= reached[moves.places])
    moves, known = _of_rows(moves, cache) if len(moves.places) else (moves, {})
    if not len(moves.places):
        return NO_EVENTS
    numbers, of = np.unique(moves.groups, return_inverse=True)
    # By group, within each in the order of the log; at the end all in the order of the log again.
    order = np.argsort(of, kind="stable")
    places, changes, of = moves.places[order], moves.changes[order], of[order]
    begins = np.flatnonzero(np.concatenate((_TRUE, of[1:] != of[:-1])))
    groups = [
        known.get(number) or _new_group(judgement, number, place, cache)
        for number, place in zip(numbers.tolist(), places[begins].tolist(), strict=True)
    ]
    joins, others = (changes == _JOINED).astype(np.int64), changes >= _LEFT
    # The others left before.
    leaving = (changes == _LEFT) | (others & (judgement.representative_seqs[places] >= 0))

    def before(name: str) -> NDArray[np.int64]:
        return np.array([getattr(group, name) for group in groups], np.int64)[of]

    versions = before("version") + np.arange(1, len(of) + 1) - begins[of]
    sizes = before("total_members") + _summed(joins, of, begins)
    live = before("live_members") + _summed(joins - leaving, of, begins)
    arrived = np.where(others, NO_TIME, times[places])
    firsts, lasts = _earliest(before("first"), of, arrived), _latest(before("last"), of, arrived)
    counted = before("sources")
    theirs = [sources[i] for i in places.tolist()] if sources else []
    for event in np.flatnonzero(others).tolist() if sources else ():
        theirs[event] = b""
    new, said = _new_sources(groups, of, begins, theirs, cache)
    counted += _summed(new, of, begins)
    heads, representatives = _representatives(judgement, groups, places, changes, of, begins)
    changes = np.where(versions == 1, _CREATED, np.where(live == 0, _ENDED, changes)).astype(np.uint8)

    ends = np.concatenate((begins[1:], [len(of)])) - 1
    columns = (versions, sizes, live, firsts, lasts, counted)
    for group, *row in zip(groups, *(column[ends].tolist() for column in columns), strict=True):
        group.version, group.total_members, group.live_members, group.first, group.last, group.sources = row
    back = np.argsort(order)
    versions, sizes, live, firsts, lasts, counted = (column[back] for column in columns)
    named = [said[event] for event in back.tolist()]
    return Events(
        places[back], changes[back], of[back], groups, heads[back], representatives, versions, sizes, live, firsts,
        lasts, counted, named,
    )  # fmt: skip


def _is_still(judgement: Judgement) -> bool:
    """Whether no document of a batch does anything to a group, as most single ones."""
    if len(judgement.of_kind(Kind.NEAR_DUPLICATE)) or len(judgement.of_kind(Kind.EXACT_DUPLICATE)):
        return False
    if len(judgement.superseding):
        return False
    replaces = judgement.replaces.tolist()
    return replaces.count(-1) == len(replaces) and not len(judgement.later)


def _moves(judgement: Judgement) -> _Moves:
    """What the documents of a batch do to groups, in the order of the log. Representatives that are decided later are
    first."""
    kinds, left, later = judgement.kinds, judgement.left, judgement.later
    dropped = (kinds == _NEAR) | (kinds == _EXACT)
    dropped[judgement.superseding] = True  # they join a group too, as its representatives
    removed = judgement.replaces >= 0
    if not removed.any() and not len(later):
        places = dropped.nonzero()[0]
        return _Moves(places, np.full(len(places), _JOINED, np.uint8), judgement.groups[places])
    updated = removed & (kinds != _DELETED) & (left == judgement.groups)
    left_places, joined_places = np.flatnonzero(removed & ~updated), np.flatnonzero(dropped | updated)
    moves = _Moves(
        np.concatenate((later[:, 0], left_places, joined_places)),
        np.concatenate((
            np.full(len(later), _CHANGED),
            np.where(judgement.representative_seqs[left_places] >= 0, _CHANGED, _LEFT),
            np.where(updated[joined_places], _UPDATED, _JOINED),
        )).astype(np.uint8),
        np.concatenate((later[:, 1], left[left_places], judgement.groups[joined_places])),
    )  # fmt: skip
    return moves.at(np.argsort(moves.places, kind="stable"))


def _of_rows(moves: _Moves, cache: GroupCache) -> tuple[_Moves, Mapping[int, Group]]:
    """The moves that make events, and the existing rows. A document that is alone makes no event until another one
    joins it."""
    numbers, of = np.unique(moves.groups, return_inverse=True)
    known = cache.rows(numbers.tolist())
    joins = np.flatnonzero(moves.changes == _JOINED)
    if len(joins) == len(of):
        return moves, known
    begins = np.full(len(numbers), len(of))
    np.minimum.at(begins, of[joins], joins)
    begins[np.isin(numbers, np.fromiter(known, np.int64, len(known)))] = 0
    return moves.at(np.arange(len(of)) >= begins[of]), known


def _new_group(judgement: Judgement, number: int, place: int, cache: GroupCache) -> Group:
    """The group that a document joins as its second member: with the first member as it arrived, and as it is now."""
    seq = int(judgement.of_seqs[place])
    group = Group(number, judgement.oldest(place), seq)
    for version in sorted({number, seq}):
        group.take_in(*cache.first_member(version))
    return group


def _representatives(
    judgement: Judgement, groups: list[Group], places: NDArray[np.int64], changes: NDArray[np.uint8],
    of: NDArray[np.int64], begins: NDArray[np.int64],
) -> tuple[NDArray[np.int64], list[tuple[int, bytes, int]]]:  # fmt: skip
    """The representative of its group after each event, and the list of these. The groups get the last one.

    of: groups of the events, ascending. begins: where the events of each begin.
    """
    found = [(group.group, group.id, group.seq) for group in groups]
    updated = (changes == _UPDATED) & judgement.was_representative[places]
    leaving = (changes == _LEFT) & judgement.was_representative[places]
    superseding = ((changes == _JOINED) | (changes == _UPDATED)) & np.isin(places, judgement.superseding)
    turns = np.flatnonzero(updated | leaving | superseding | (changes == _CHANGED))
    if not len(turns):
        return of, found
    heads = np.full(len(of), -1)
    heads[begins] = np.arange(len(groups))
    for event in turns.tolist():
        group, i = groups[of[event]], int(places[event])
        if leaving[event]:  # there is no new representative, or not yet, and this id will be erased
            group.id = NO_ID
        elif superseding[event]:
            group.id, group.seq = judgement.ids[i], int(judgement.seqs[i])
        elif judgement.representative_seqs[i] >= 0:
            group.id, group.seq = judgement.representative(i), int(judgement.representative_seqs[i])
        elif changes[event] == _CHANGED:
            group.id, group.seq = judgement.later_representative(i, group.group)
        else:  # the new version of the representative
            group.id, group.seq = judgement.ids[i], int(judgement.seqs[i])
        heads[event] = len(found)
        found.append((group.group, group.id, group.seq))
    latest = np.maximum.accumulate(np.where(heads >= 0, np.arange(len(of)), 0))
    return heads[latest], found


def _new_sources(
    groups: list[Group], of: NDArray[np.int64], begins: NDArray[np.int64], sources: list[bytes], cache: GroupCache
) -> tuple[NDArray[np.int64], list[str]]:
    """For each event whether its document's source is new to the group, and the sources listed after it.

    of: groups of the events, ascending. begins: where the events of each begin.
    """
    new, texts = np.zeros(len(of), np.int64), {e: group.said for e, group in zip(begins.tolist(), groups, strict=True)}
    if sources:
        numbers: dict[bytes, int] = {b"": 0}
        codes = np.array([numbers.setdefault(source, len(numbers)) for source in sources], np.int64)
        _, firsts = np.unique(of * len(numbers) + codes, return_index=True)
        for event in np.sort(firsts[codes[firsts] > 0]).tolist():
            group, source = groups[of[event]], sources[event]
            listed = group.first_sources
            if source in listed:
                continue
            if len(listed) < LISTED:
                listed.append(source)
                texts[event] = group.said
                new[event] = 1
            elif not cache.has_source(group.group, source):
                new[event] = 1
    # A text is valid until the next one, and each group begins with its own.
    changes = sorted(texts)
    which = np.zeros(len(of), np.int64)
    which[changes] = np.arange(len(changes))
    said = [texts[event].decode() for event in changes]
    return new, [said[k] for k in np.maximum.accumulate(which).tolist()]


def _summed(values: NDArray[np.int64], of: NDArray[np.int64], begins: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of the values of each group up to each event."""
    sums = np.cumsum(values)
    return sums - (sums - values)[begins][of]


def _latest(before: NDArray[np.int64], of: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """The latest time of each group (`of`, ascending) up to each event, NO_TIME until there is one."""
    found = np.maximum(_above_none(before), _running(of, _above_none(times)))
    return np.where(found, found - 1, NO_TIME)


def _earliest(before: NDArray[np.int64], of: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same of the earliest time."""
    found = _latest(_mirrored(before), of, _mirrored(times))
    return _mirrored(found)


def _above_none(times: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(times == NO_TIME, 0, times + 1)


def _mirrored(times: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(times == NO_TIME, NO_TIME, LAST_TIME - times)


def _running(of: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The largest value so far within each group. values: from 0 to 2^44, exclusive."""
    return np.maximum.accumulate(of << _TIME_BITS | values) & ((1 << _TIME_BITS) - 1)
