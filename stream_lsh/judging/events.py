"""Group events. Each has the whole row of the group after it: the last events of all groups are the table of groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.times import NO_TIME
from stream_lsh.judging.groups import ROW, Group, time_text

# Lines per piece: for larger pieces the system allocates fresh memory each time, which is half of the cost.
_AT_ONCE = 256
_EVENT = '{"event":"%s","seq":%s,"id":%s,' + ROW + "}\n"


class Change(IntEnum):
    """What a document, or the window, does to a group.

    Attributes:
        CREATED: it has its second member, and a row.
        JOINED: it has another member.
        UPDATED: the new version of a member is a member.
        LEFT: a member was deleted, or its new version is in another group.
        REPRESENTATIVE_CHANGED: the same of the representative, and there is a new one; or the new representative is
            decided now, where it is decided later.
        ENDED: the last member left, or the window has left the group behind.
    """

    CREATED = 0
    JOINED = 1
    UPDATED = 2
    LEFT = 3
    REPRESENTATIVE_CHANGED = 4
    ENDED = 5

    @property
    def label(self) -> str:
        return self.name.lower()


_LABELS = [change.label for change in Change]


@dataclass(frozen=True, slots=True)
class Events:
    """What a batch did to groups: m events in the order of the log, with the row after each, in columns.

    Attributes:
        places: int64[m], places of the documents in the batch. A document that leaves a group and joins another has two
            events, in this order.
        changes: uint8[m] of `Change`.
        of: int64[m], places of the groups in `groups`, whose rows are those after the batch (without live members: no
            row).
        heads: int64[m], places in `representatives`, which have group, id as JSON text, and number.
        said: the sources that the row lists.
        ended: groups that the window ends, with the place of the document before which it does; in order.
    """

    places: NDArray[np.int64]
    changes: NDArray[np.uint8]
    of: NDArray[np.int64]
    groups: list[Group]
    heads: NDArray[np.int64]
    representatives: list[tuple[int, bytes, int]]
    versions: NDArray[np.int64]
    sizes: NDArray[np.int64]
    live: NDArray[np.int64]
    firsts: NDArray[np.int64]
    lasts: NDArray[np.int64]
    sources: NDArray[np.int64]
    said: list[str]
    ended: Sequence[tuple[int, Group]] = ()

    @property
    def arrivals(self) -> NDArray[np.int64]:
        """The places of the documents that joined a group, ascending."""
        return self.places[self.changes <= Change.JOINED]

    def arrival(self, place: int) -> Group:
        """The row after the event of a document that joined a group. The sources that it lists are one text."""
        event = int(np.searchsorted(self.places, place, "right")) - 1  # the last one of the document
        version, size, live, first, last, sources = (
            int(column[event])
            for column in (self.versions, self.sizes, self.live, self.firsts, self.lasts, self.sources)
        )
        said = [self.said[event].encode()]
        group, id, seq = self.representatives[self.heads[event]]
        return Group(group, id, seq, version, size, live, first, last, sources, said)

    def lines(self, ids: Sequence[bytes], seqs: NDArray[np.int64]) -> Iterator[bytes]:
        """The events as JSON lines, in pieces. ids, seqs: of the batch."""
        # As text, with all ids joined: formatting bytes takes twice the time.
        places, heads = self.places.tolist(), [Group(*row).head.decode() for row in self.representatives]
        texts = b"\0".join([ids[i] for i in places]).decode().split("\0") if places else []
        rows = zip(
            map(_LABELS.__getitem__, self.changes.tolist()), seqs[self.places].tolist(), texts,
            map(heads.__getitem__, self.heads.tolist()), self.versions.tolist(), self.sizes.tolist(),
            self.live.tolist(), _times(self.firsts), _times(self.lasts), self.sources.tolist(), self.said,
            strict=True,
        )  # fmt: skip
        lines = map(_EVENT.__mod__, rows)
        if self.ended:
            places = [place for place, _ in self.ended] + places
            ends = (_last_line(group, int(seqs[place]), ids[place].decode()) for place, group in self.ended)
            all_lines = [*ends, *lines]
            lines = map(all_lines.__getitem__, np.argsort(places, kind="stable").tolist())
        while block := "".join(islice(lines, _AT_ONCE)):
            yield block.encode()


_NOTHING = np.empty(0, np.int64)
NO_EVENTS = Events(
    _NOTHING, np.empty(0, np.uint8), _NOTHING, [], _NOTHING, [], _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING,
    _NOTHING, [],
)  # fmt: skip


def _last_line(group: Group, seq: int, id: str) -> str:
    """The event that the window has ended a group, as a line. seq, id: of the document before which it did."""
    return _EVENT % (
        Change.ENDED.label, seq, id, group.head.decode(), group.version + 1, group.total_members, 0,
        time_text(group.first),
        time_text(group.last), group.sources, group.said.decode(),
    )  # fmt: skip


def _times(times: NDArray[np.int64]) -> list[int] | list[str]:
    found: list[int] = times.tolist()
    return [time_text(time) for time in found] if NO_TIME in found else found
