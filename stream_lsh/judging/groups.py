"""Verdicts folded into groups: a kept document with what was dropped for it, as rows and as the events that make them.

Pure: what was known before a batch comes from a `Shelf`. A document that is kept founds a group, which has a row from
its second member on. Every event is the whole row, so the last event of each group is the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.fields import id_text
from stream_lsh.documents.times import LAST_TIME, NO_TIME
from stream_lsh.judging.verdicts import Judgement, Kind

LISTED = 16  # sources that a row names, in the order in which they came
CREATED, JOINED, ENDED = "created", "joined", "ended"
_AT_ONCE = 256  # lines: for larger pieces the system gives fresh memory each time, which is half of the price
_TIME_BITS = 44  # of a time in ms


@dataclass(slots=True)
class Group:
    """The row of a group.

    group: number of its founder. id, seq: of its representative, the kept document; the id as JSON text. version: of
    the row, 1 with the second member. size: members that it has had; living: those that it has. first, last: earliest
    and latest event time of its members, NO_TIME without one. sources: how many there are; first_sources: the first
    LISTED of them as JSON text, in the order in which they came.
    """

    group: int
    id: bytes
    seq: int
    version: int = 0
    size: int = 1
    living: int = 1
    first: int = NO_TIME
    last: int = NO_TIME
    sources: int = 0
    first_sources: list[bytes] = field(default_factory=list)

    @classmethod
    def founded(cls, group: int, id: bytes, time: int, source: bytes) -> Self:
        """That of a kept document alone, which is no row yet."""
        named = [source] if source else []
        return cls(group, id, group, first=time, last=time, sources=len(named), first_sources=named)

    @classmethod
    def of_json(cls, row: bytes) -> Self:
        """The row that `json` has written."""
        value = json.loads(row)  # orjson refuses the lone surrogates that ids may have
        kept = value["representative"]
        first, last = (NO_TIME if value[name] is None else value[name] for name in ("first", "last"))
        return cls(
            value["group"], id_text(kept["id"]), kept["seq"], value["version"], value["size"], value["living"],
            first, last, value["sources"], [id_text(source) for source in value["first_sources"]],
        )  # fmt: skip

    @property
    def json(self) -> bytes:
        """The row as a JSON object."""
        row = _ROW % (
            self.head.decode(), self.version, self.size, self.living, time_text(self.first), time_text(self.last),
            self.sources, self.said.decode(),
        )  # fmt: skip
        return b"{%b}" % row.encode()

    @property
    def head(self) -> bytes:
        """The part of the row that stays as long as the representative does."""
        return b'"group":%d,"representative":{"id":%b,"seq":%d}' % (self.group, self.id, self.seq)

    @property
    def said(self) -> bytes:
        """The sources that are named, as the inside of a JSON list."""
        return b",".join(self.first_sources)


_ROW = '%s,"version":%s,"size":%s,"living":%s,"first":%s,"last":%s,"sources":%s,"first_sources":[%s]'
_EVENT = '{"event":"%s","seq":%s,"id":%s,' + _ROW + "}\n"


class Shelf(Protocol):
    """What is known of the groups before a batch."""

    def rows(self, groups: Sequence[int]) -> Mapping[int, Group]:
        """The rows of those of these groups that have one; who asks for them changes them."""

    def founder(self, seq: int) -> tuple[int, bytes]:
        """Event time and source of a kept document."""

    def has_source(self, group: int, source: bytes) -> bool:
        """Whether a group has had a source that its row does not name; from now on it has."""


@dataclass(frozen=True, slots=True)
class Events:
    """What a batch did to groups: m events in the order of the log, the row after each in columns.

    places: int64[m] of the documents in the batch. of: int64[m] place of the group in `groups`, whose rows are those
    behind the batch. said: the sources that are named. ended: groups that end, each before what its document does, with
    the place of that one; in order.
    """

    places: NDArray[np.int64]
    of: NDArray[np.int64]
    groups: list[Group]
    versions: NDArray[np.int64]
    sizes: NDArray[np.int64]
    living: NDArray[np.int64]
    firsts: NDArray[np.int64]
    lasts: NDArray[np.int64]
    sources: NDArray[np.int64]
    said: list[str]
    ended: Sequence[tuple[int, Group]] = ()

    def row(self, event: int) -> Group:
        """The row after an event; the sources that it names are one text."""
        group = self.groups[self.of[event]]
        version, size, living, first, last, sources = (
            int(column[event])
            for column in (self.versions, self.sizes, self.living, self.firsts, self.lasts, self.sources)
        )
        said = [self.said[event].encode()]
        return Group(group.group, group.id, group.seq, version, size, living, first, last, sources, said)

    def lines(self, ids: Sequence[bytes], seqs: NDArray[np.int64]) -> Iterator[bytes]:
        """The events as JSON lines, some at a time; ids, seqs: those of the batch."""
        # As text, and all ids in one piece: bytes take twice the time to be put together.
        places, heads = self.places.tolist(), [group.head.decode() for group in self.groups]
        texts = b"\0".join([ids[i] for i in places]).decode().split("\0") if places else []
        rows = zip(
            [CREATED if version == 1 else JOINED for version in self.versions.tolist()],
            seqs[self.places].tolist(), texts, [heads[g] for g in self.of.tolist()], self.versions.tolist(),
            self.sizes.tolist(), self.living.tolist(), _times(self.firsts), _times(self.lasts), self.sources.tolist(),
            self.said, strict=True,
        )  # fmt: skip
        lines = map(_EVENT.__mod__, rows)
        if self.ended:
            places = [place for place, _ in self.ended] + places
            ends = (_last_line(group, int(seqs[place]), ids[place].decode()) for place, group in self.ended)
            all_lines = [*ends, *lines]
            lines = map(all_lines.__getitem__, np.argsort(places, kind="stable").tolist())
        while block := "".join(islice(lines, _AT_ONCE)):
            yield block.encode()


def _last_line(group: Group, seq: int, id: str) -> str:
    """That a group has ended, as a line; seq, id: of the document before which it did."""
    return _EVENT % (
        ENDED, seq, id, group.head.decode(), group.version + 1, group.size, 0, time_text(group.first),
        time_text(group.last), group.sources, group.said.decode(),
    )  # fmt: skip


def dropped(judgement: Judgement) -> NDArray[np.int64]:
    """The places of the documents that join a group."""
    kinds = judgement.kinds
    return np.flatnonzero((kinds == Kind.NEAR_DUPLICATE) | (kinds == Kind.EXACT_DUPLICATE))


def fold(judgement: Judgement, times: NDArray[np.int64], sources: Sequence[bytes], shelf: Shelf) -> Events:
    """Fold the verdicts on a batch into the groups, whose rows are changed.

    times: int64[n], event times. sources: of the n documents, or nothing. The shelf knows the batch's kept documents.
    """
    places = dropped(judgement)
    numbers, of = np.unique(judgement.groups[places], return_inverse=True)
    # Group by group, each in the order of the log; in the end all in that order again.
    order = np.argsort(of, kind="stable")
    places, of = places[order], of[order]
    begins = np.flatnonzero(np.diff(of, prepend=-1))
    ranks = np.arange(1, len(of) + 1) - begins[of]
    groups = _groups(judgement, numbers.tolist(), places[begins].tolist(), shelf)

    versions, sizes, living = (
        np.array([getattr(group, name) for group in groups], np.int64)[of] + ranks
        for name in ("version", "size", "living")
    )
    joined = times[places]
    firsts = _earliest(np.array([group.first for group in groups], np.int64)[of], of, joined)
    lasts = _latest(np.array([group.last for group in groups], np.int64)[of], of, joined)
    before = np.array([group.sources for group in groups], np.int64)[of]
    theirs = [sources[i] for i in places.tolist()] if sources else []
    new, said = _new_sources(groups, of, begins, theirs, shelf)
    counted = np.cumsum(new)
    counted = before + counted - (counted - new)[begins][of]

    ends = np.append(begins, len(of))[1:] - 1
    columns = (versions, sizes, living, firsts, lasts, counted)
    for group, *row in zip(groups, *(column[ends].tolist() for column in columns), strict=True):
        group.version, group.size, group.living, group.first, group.last, group.sources = row
    back = np.argsort(order)
    versions, sizes, living, firsts, lasts, counted = (column[back] for column in columns)
    named = [said[event] for event in back.tolist()]
    return Events(places[back], of[back], groups, versions, sizes, living, firsts, lasts, counted, named)


def _groups(judgement: Judgement, numbers: list[int], firsts: list[int], shelf: Shelf) -> list[Group]:
    """The rows of these groups; firsts: place of the first document of each."""
    known = shelf.rows(numbers)
    groups = []
    for number, place in zip(numbers, firsts, strict=True):
        group = known.get(number)
        groups.append(group or Group.founded(number, judgement.oldest(place), *shelf.founder(number)))
    return groups


def _new_sources(
    groups: list[Group], of: NDArray[np.int64], begins: NDArray[np.int64], sources: list[bytes], shelf: Shelf
) -> tuple[NDArray[np.int64], list[str]]:
    """For each event whether its document's source is new to the group, and the sources named after it.

    of: the groups of the events, ascending; begins: where those of each begin.
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
            elif not shelf.has_source(group.group, source):
                new[event] = 1
    # A text holds until the next one, and each group begins with its own.
    changes = sorted(texts)
    which = np.zeros(len(of), np.int64)
    which[changes] = np.arange(len(changes))
    said = [texts[event].decode() for event in changes]
    return new, [said[k] for k in np.maximum.accumulate(which).tolist()]


def _latest(before: NDArray[np.int64], of: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """The latest time of each group (`of`, ascending) up to each event, NO_TIME as long as there is none."""
    found = np.maximum(_above_none(before), _running(of, _above_none(times)))
    return np.where(found, found - 1, NO_TIME)


def _earliest(before: NDArray[np.int64], of: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """The earliest time, likewise."""
    found = _latest(_mirrored(before), of, _mirrored(times))
    return _mirrored(found)


def _above_none(times: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(times == NO_TIME, 0, times + 1)


def _mirrored(times: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(times == NO_TIME, NO_TIME, LAST_TIME - times)


def _running(of: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The largest value so far within each group; values: from 0 on, and below 2^44."""
    return np.maximum.accumulate(of << _TIME_BITS | values) & ((1 << _TIME_BITS) - 1)


def time_text(time: int) -> str:
    """A time as JSON."""
    return "null" if time == NO_TIME else str(time)


def _times(times: NDArray[np.int64]) -> list[int] | list[str]:
    found: list[int] = times.tolist()
    return [time_text(time) for time in found] if NO_TIME in found else found
