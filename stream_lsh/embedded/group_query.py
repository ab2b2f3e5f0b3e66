"""What is asked of the table of groups, and a page of the answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stream_lsh.documents.fields import id_text
from stream_lsh.documents.times import seconds_of, time_of
from stream_lsh.embedded.group_store import most_similar, source_key
from stream_lsh.embedded.pending import Readable
from stream_lsh.errors import UsageError
from stream_lsh.judging.groups import LISTED, Group

Order = Literal["largest", "newest", "growing"]
_SOURCES = b',"sources":'
_LISTED = b',"first_sources":'  # in a JSON string the quotes would be escaped


class NoTimes(UsageError):
    """The documents have no event times, which a query needs."""


@dataclass(frozen=True, slots=True)
class Moment:
    """An event time in ms since 1970, or so many ms before the latest event time."""

    ms: int
    before_latest: bool = False

    @classmethod
    def of(cls, text: str) -> Moment:
        """The moment in a text: a duration such as `24h`, or a time as ISO 8601 or in seconds or ms since 1970.

        Raises:
            ValueError: it is neither.
        """
        try:
            return cls(time_of(text))
        except ValueError:
            pass
        try:
            return cls(1000 * seconds_of(text), before_latest=True)
        except ValueError:
            raise ValueError(
                f"{text[:40]!r} is neither a duration (24h), nor a time from 1970 to 2199: ISO 8601, or a number"
            ) from None

    def at(self, latest: int) -> int:
        """In ms since 1970."""
        return latest - self.ms if self.before_latest else self.ms


@dataclass(frozen=True, slots=True)
class Place:
    """A place between two groups of the table: after the one with this rank and number."""

    rank: int
    number: int


@dataclass(frozen=True, slots=True)
class SourceFilter:
    """Whether a document, or a group, has a source. texts: the source as JSON text, in all ways it may be meant."""

    texts: frozenset[bytes]

    @classmethod
    def of(cls, source: str) -> SourceFilter:
        """The filter by a source. One that is a number is also found by its digits.

        Raises:
            Refused: the source is too long.
        """
        texts = {id_text(source)}
        if source.removeprefix("-").isdecimal() and str(number := int(source[:20])) == source:
            texts.add(id_text(number))
        return cls(frozenset(texts))

    def is_of(self, source: bytes) -> bool:
        """Whether a document has the source. source: as JSON text, b"" without one."""
        return source in self.texts

    def in_group(self, view: Readable, number: int, row: bytes) -> bool:
        """Whether a group has a member of the source. row: as it is stored."""
        head, _, listed = row.rpartition(_LISTED)
        perhaps = any(text in listed for text in self.texts)  # which is cheaper
        if perhaps and any(id_text(source) in self.texts for source in json.loads(listed[:-1])):
            return True
        if int(head.rpartition(_SOURCES)[2]) <= LISTED:
            return False
        return any(view.value(source_key(number, text)) is not None for text in self.texts)


@dataclass(frozen=True, slots=True)
class GroupQuery:
    """A part of the table of groups.

    Attributes:
        order: by live members; by the number of the first member, the latest first; or by the members that joined in
            the time of `since` and `until`.
        since, until: only groups with a member from then on, and up to then; None = any. For "growing" `since` is by
            default a day before.
        source: only groups with a member of this source.
        min_total: only groups with at least so many members ever.
        min_similarity: only groups for which a document was dropped with at least this similarity.
        after: only groups behind this place.
        limit: most rows; None = all.
    """

    order: Order = "largest"
    since: Moment | None = None
    until: Moment | None = None
    source: SourceFilter | None = None
    min_total: int = 0
    min_similarity: float = 0.0
    after: Place | None = None
    limit: int | None = None

    @property
    def reads_groups(self) -> bool:
        """Whether each group is read, which has its price."""
        return self.source is not None or self.min_similarity > 0

    def passes(self, view: Readable, number: int, row: bytes) -> bool:
        """Whether a group has a member of the source, and one of the similarity. row: as it is stored."""
        if self.source is not None and not self.source.in_group(view, number, row):
            return False
        return self.min_similarity <= 0 or most_similar(view, number) >= self.min_similarity


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table.

    Attributes:
        stored: the row as a JSON object.
        joined_since: members that joined within the given time; None if no time was given.
    """

    stored: bytes
    joined_since: int | None

    @property
    def group(self) -> Group:
        return Group.of_json(self.stored)

    @property
    def json(self) -> bytes:
        """The row as a JSON object, with `joined_since`."""
        if self.joined_since is None:
            return self.stored
        return b'%b,"joined_since":%d}' % (self.stored[:-1], self.joined_since)


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of the table.

    Attributes:
        rows: fewer than asked for, also none, if too many others were read for them.
        next: the place behind them, None at the end of the table.
        since, until: the moments of the query, ms since 1970.
    """

    rows: Sequence[Row]
    next: Place | None = None
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class MemberQuery:
    """A part of the members of a group.

    Attributes:
        since, until: only members with an event time from then on, and up to then; None = all.
        source: only members of this source.
        min_similarity: only members that were dropped with at least this similarity.
        after: only members with larger numbers.
        limit: most members.
    """

    since: Moment | None = None
    until: Moment | None = None
    source: SourceFilter | None = None
    min_similarity: float | None = None
    after: int = -1
    limit: int = 1000
