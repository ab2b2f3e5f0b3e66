"""A group: a kept document with what was dropped for it, as the row of a table."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Self

from stream_lsh.documents.fields import id_text
from stream_lsh.documents.times import NO_TIME

NO_ID = b"null"  # of who stood for a group and went without a new representative; of a member that was erased
LISTED = 16  # sources that a row names, in the order in which they came


@dataclass(slots=True)
class Group:
    """The row of a group.

    group: number of its first member. id, seq: of its representative, whom newcomers are compared with; the id as JSON
    text.
    version: of the row, 1 with the second member, 0 while the first member is alone, which is no row yet. size: members
    that it has had; live_members: those that were neither deleted nor left it as another version. first, last: earliest
    and latest event time of the members it has had, NO_TIME without one. sources: how many they have; first_sources:
    the first LISTED of them as JSON text, in the order in which they came.
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
        """Count event time and source of who founds it."""
        if time != NO_TIME:
            self.first = time if self.first == NO_TIME else min(self.first, time)
            self.last = max(self.last, time)
        if source and source not in self.first_sources:
            self.first_sources.append(source)
            self.sources += 1

    @classmethod
    def of_json(cls, row: bytes) -> Self:
        """The row that `json` has written."""
        value = json.loads(row)  # orjson refuses the lone surrogates that ids may have
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
        """The part of the row that stays as long as the representative does."""
        return b'"group":%d,"representative":{"id":%b,"seq":%d}' % (self.group, self.id, self.seq)

    @property
    def said(self) -> bytes:
        """The sources that are named, as the inside of a JSON list."""
        return b",".join(self.first_sources)


ROW = '%s,"version":%s,"total_members":%s,"live_members":%s,"first":%s,"last":%s,"sources":%s,"first_sources":[%s]'


def time_text(time: int) -> str:
    """A time as JSON."""
    return "null" if time == NO_TIME else str(time)
