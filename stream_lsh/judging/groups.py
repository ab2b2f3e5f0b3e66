"""A group: a kept document and the documents dropped for it, as the row of a table."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Self

from stream_lsh.documents.fields import id_text
from stream_lsh.documents.times import NO_TIME

NO_ID = b"null"  # the id of a representative that left without a new one, and of an erased member
LISTED = 16  # sources that a row lists, in the order of arrival


@dataclass(slots=True)
class Group:
    """The row of a group.

    Attributes:
        group: number of its first member.
        id, seq: of its representative; the id as JSON text.
        version: of the row: 1 with the second member; 0 while the first member is alone, which is no row yet.
        total_members: members ever.
        live_members: members that were neither deleted nor replaced by a version in another group.
        first, last: earliest and latest event time of its members ever in ms, NO_TIME without one.
        sources: how many sources they have.
        first_sources: the first LISTED of these as JSON text, in the order of arrival.
    """

    group: int
    id: bytes
    seq: int
    version: int = 0
    total_members: int = 1
    live_members: int = 1
    first: int = NO_TIME
    last: int = NO_TIME
    sources: int = 0
    first_sources: list[bytes] = field(default_factory=list)

    def take_in(self, time: int, source: bytes) -> None:
        """Count event time and source of the first member."""
        if time != NO_TIME:
            self.first = time if self.first == NO_TIME else min(self.first, time)
            self.last = max(self.last, time)
        if source and source not in self.first_sources:
            self.first_sources.append(source)
            self.sources += 1

    @classmethod
    def of_json(cls, row: bytes) -> Self:
        """Parse a row of `json`."""
        value = json.loads(row)  # orjson refuses lone surrogates, which ids may have
        kept = value["representative"]
        id = NO_ID if kept["id"] is None else id_text(kept["id"])
        first, last = (NO_TIME if value[name] is None else value[name] for name in ("first", "last"))
        return cls(
            value["group"], id, kept["seq"], value["version"], value["total_members"], value["live_members"],
            first, last, value["sources"], [id_text(source) for source in value["first_sources"]],
        )  # fmt: skip

    @property
    def json(self) -> bytes:
        """The row as a JSON object."""
        row = ROW % (
            self.head.decode(), self.version, self.total_members, self.live_members, time_text(self.first),
            time_text(self.last),
            self.sources, self.said.decode(),
        )  # fmt: skip
        return b"{%b}" % row.encode()

    @property
    def head(self) -> bytes:
        """The part of the row that changes only with the representative."""
        return b'"group":%d,"representative":{"id":%b,"seq":%d}' % (self.group, self.id, self.seq)

    @property
    def said(self) -> bytes:
        """The listed sources, as the inside of a JSON list."""
        return b",".join(self.first_sources)


ROW = '%s,"version":%s,"total_members":%s,"live_members":%s,"first":%s,"last":%s,"sources":%s,"first_sources":[%s]'


def time_text(time: int) -> str:
    """A time as JSON."""
    return "null" if time == NO_TIME else str(time)
