"""Pairs over HTTP: the latest ones, the newest first, with filters."""

from __future__ import annotations

import json
from itertools import islice, pairwise
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from stream_lsh.documents.fields import id_text
from stream_lsh.embedded.group_query import GroupQuery, Moment, NoTimes, SourceFilter
from stream_lsh.serve import openapi
from stream_lsh.serve.cursors import next_cursor, read_cursor
from stream_lsh.serve.event_filter import EventFilter
from stream_lsh.serve.events import MOST_READ, Event
from stream_lsh.serve.filters import AT_ONCE, Budget, Cursor, Q, Source, Words, moment, shown, source_filter
from stream_lsh.serve.headline import UNKNOWN, Headline
from stream_lsh.serve.interface import Interface
from stream_lsh.serve.openapi import JSON
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.schemas import Pairs
from stream_lsh.serve.security import READ, Served

MOST_PAIRS = 1000
router = APIRouter(prefix="/v1", tags=["what there is"])
_TIME = "a duration before the latest event time (24h), or an event time"
Since = Annotated[str | None, Query(max_length=40, description=f"only newer documents from then on: {_TIME}")]
Until = Annotated[str | None, Query(max_length=40, description=f"only newer documents up to then: {_TIME}")]


@router.get("/pairs", dependencies=[READ], responses=openapi.answer(Pairs, "the latest pairs", 409, 422, 429))
async def get_pairs(
    service: Served,
    q: Q = None,
    source: Source = None,
    since: Since = None,
    until: Until = None,
    min_similarity: Annotated[float, Query(ge=0, le=1, description="only pairs with at least this similarity")] = 0.0,
    best: Annotated[bool, Query(description="only the best match of each newer document")] = False,
    limit: Annotated[int, Query(ge=1, le=MOST_PAIRS)] = 50,
    cursor: Cursor = None,
) -> Response:
    """The latest pairs, the newest first, as far back as events are kept. A source, and words, are those of either
    document. `next_cursor` is null where there are no older pairs. With filters, a page may have fewer pairs than
    `limit`, also none."""
    service.intake.admit_read()
    parameters = ["pairs", q, source, since, until, min_similarity, best]
    words, named, place = Words.of(q), source_filter(source), None
    if cursor is None:
        first, last = await _times(service, moment("since", since), moment("until", until))
    else:
        (first, last), (seq, n) = read_cursor(cursor, parameters, times=2, places=2)
        place = seq, n
    similar = EventFilter(frozenset({"pair"}), min_similarity=min_similarity)
    looks = bool(words.words) or (named, first, last) != (None, None, None)
    found: list[bytes] = []
    budget, read, more = Budget(), 0, True
    while more and len(found) < limit and read < MOST_READ and not budget.spent:
        some = list(islice(service.ring.backwards("pair", place), AT_ONCE + 1))
        more = len(some) > AT_ONCE
        # The best match of a document is the first event, so the next one here is of another document.
        is_best = [event.place[0] != older.place[0] for event, older in pairwise(some)] + [True]
        some = some[:AT_ONCE]
        read += len(some)
        chosen = [
            event
            for event, leads in zip(some, is_best, strict=False)
            if (leads or not best) and similar.passes("pair", event.data, b"")
        ]
        if looks:
            budget.spend(len(chosen))
            chosen = [
                event
                for event, pair, sides in await _headlines(service, chosen)
                if _passes(pair, *sides, words, named, first, last)
            ]
        left = limit - len(found)
        found += [event.data for event in chosen[:left]]
        if len(chosen) > left:
            more, place = True, chosen[left - 1].place
        elif some:
            place = some[-1].place
    following = next_cursor(parameters, (first, last, *place) if more and place is not None else None)
    return Response(b'{"pairs":[%b],"next_cursor":%b}' % (b",".join(found), following), media_type=JSON)


async def _times(service: Interface, since: Moment | None, until: Moment | None) -> tuple[int | None, int | None]:
    """The moments in ms since 1970. Those before the latest event time are known where there are groups."""
    if not any(time is not None and time.before_latest for time in (since, until)):
        return tuple(None if time is None else time.ms for time in (since, until))  # type: ignore[return-value]
    if not service.keeps_groups:
        raise Problem(409, "a duration needs an index with groups: give a time", field="since")
    try:
        page = await service.groups(GroupQuery("newest", since, until, limit=1))
    except NoTimes as error:
        raise Problem(409, str(error), field="since") from None
    return page.since, page.until


Sides = tuple[Headline, Headline]


async def _headlines(service: Interface, events: list[Event]) -> list[tuple[Event, dict[str, Any], Sides]]:
    """Pairs, and the headlines of their newer and older documents."""
    pairs = [json.loads(event.data) for event in events]
    ids = list({id for pair in pairs for id in (pair["newer"], pair["older"]) if id is not None})
    known = dict(zip(ids, await service.headlines(ids), strict=True))
    return [
        (event, pair, (known.get(pair["newer"], UNKNOWN), known.get(pair["older"], UNKNOWN)))
        for event, pair in zip(events, pairs, strict=True)
    ]


def _passes(
    pair: dict[str, Any], newer: Headline, older: Headline, words: Words, source: SourceFilter | None,
    since: int | None, until: int | None,
) -> bool:  # fmt: skip
    sources = (side.source for side in (newer, older) if side.source is not None)
    if source is not None and not any(source.is_of(id_text(each)) for each in sources):
        return False
    if since is not None and (newer.time is None or newer.time < since):
        return False
    if until is not None and (newer.time is None or newer.time > until):
        return False
    return words.are_in(*shown(pair["newer"], newer), *shown(pair["older"], older))
