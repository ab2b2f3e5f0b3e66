"""Parameters of requests that filter lists, and the search by words in headline, source and id."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

from stream_lsh.documents.fields import MAX_ID_BYTES
from stream_lsh.documents.refused import Refused
from stream_lsh.embedded.group_query import Moment, SourceFilter
from stream_lsh.serve.headline import Headline
from stream_lsh.serve.problems import Problem

_TIME = "a duration before the latest event time (90m, 24h, 7d), or an event time (ISO 8601, or a number)"
Since = Annotated[str | None, Query(max_length=40, description=f"only with a member from then on: {_TIME}")]
Until = Annotated[str | None, Query(max_length=40, description=f"only with a member up to then: {_TIME}")]
Source = Annotated[
    str | None, Query(max_length=MAX_ID_BYTES, description="only what is of this source, a text or a number")
]
Cursor = Annotated[str | None, Query(description="continue behind a page: its `next_cursor`, with equal parameters")]
MinTotal = Annotated[
    int, Query(ge=0, lt=2**63, description="only groups, and alerts about groups, with at least so many members ever")
]


def source_filter(source: str | None) -> SourceFilter | None:
    """The filter by a source. Raises Problem: the source is too long."""
    try:
        return None if source is None else SourceFilter.of(source)
    except Refused:
        raise Problem(422, f"source: give at most {MAX_ID_BYTES} bytes as JSON", field="source") from None


def moment(name: str, text: str | None) -> Moment | None:
    """The moment that the parameter with this name gives. Raises Problem: it is none."""
    try:
        return None if text is None else Moment.of(text)
    except ValueError as error:
        raise Problem(422, f"{name}: {error}", field=name) from None


AT_ONCE = 50  # rows whose headlines are read at once
MOST_SEARCHED = 1000  # rows whose headlines are read for a page
SECONDS = 2.0  # after which a page ends
Q = Annotated[
    str | None,
    Query(max_length=200, description="only with all of these words, or their parts, in headlines, sources and ids"),
]


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a search, in any case; none are in every row."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, q: str | None) -> Words:
        return cls(() if q is None else tuple(q.casefold().split()))

    def are_in(self, *parts: object) -> bool:
        """Whether each word is in one of these parts of a row."""
        text = "\n".join(str(part) for part in parts if part is not None).casefold()
        return all(word in text for word in self.words)


def shown(id: object, of: Headline) -> tuple[object, ...]:
    """What a list shows of a document."""
    return id, of.headline, of.source


class Budget:
    """What a search may still read for its page."""

    def __init__(self) -> None:
        self._left = MOST_SEARCHED
        self._end = time.monotonic() + SECONDS

    def spend(self, rows: int) -> None:
        self._left -= rows

    @property
    def spent(self) -> bool:
        return self._left <= 0 or time.monotonic() > self._end
