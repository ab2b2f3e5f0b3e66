"""Parameters of requests that filter lists."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from stream_lsh.documents.fields import MAX_ID_BYTES
from stream_lsh.documents.refused import Refused
from stream_lsh.embedded.group_query import Moment, SourceFilter
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
