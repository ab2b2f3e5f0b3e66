"""Groups over HTTP: pages of their table, and of the members of one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from stream_lsh.embedded.group_query import GroupQuery, MemberQuery, Moment, NoTimes, Order, Page, Place, Row
from stream_lsh.errors import UsageError
from stream_lsh.serve import openapi
from stream_lsh.serve.cursors import next_cursor, read_cursor
from stream_lsh.serve.filters import (
    AT_ONCE,
    Budget,
    Cursor,
    MinTotal,
    Q,
    Since,
    Source,
    Until,
    Words,
    moment,
    shown,
    source_filter,
)
from stream_lsh.serve.headline import UNKNOWN
from stream_lsh.serve.interface import Interface
from stream_lsh.serve.openapi import JSON
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.schemas import Group, Groups
from stream_lsh.serve.security import READ, Served

MOST_ROWS = 10_000
router = APIRouter(prefix="/v1", tags=["what there is"])
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS)]


def _check_groups(service: Interface) -> None:
    if not service.keeps_groups:
        raise Problem(
            409, "this index has no groups: they need compare_with = kept, and must be on from its beginning",
            field="compare_with",
        )  # fmt: skip


@router.get("/groups", dependencies=[READ], responses=openapi.answer(Groups, "rows of the table", 409, 422, 429))
async def get_groups(
    service: Served,
    order: Annotated[
        Order,
        Query(description="by members; by first member, the latest first; or by members that joined within `since`"),
    ] = "largest",
    since: Since = None,
    until: Until = None,
    source: Source = None,
    min_total: MinTotal = 0,
    min_similarity: Annotated[
        float,
        Query(ge=0, le=1, description="only groups with a document that was dropped with at least this similarity"),
    ] = 0.0,
    q: Q = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """A page of the table of groups, at the last commit. `q` searches the headline and id of the representative, and
    the listed sources. `next_cursor` is null where the table ends. With `source`, `min_similarity` and `q`, a page may
    have fewer rows than `limit`, also none."""
    _check_groups(service)
    parameters = ["groups", order, since, until, source, min_total, min_similarity, q]
    first, last, after = moment("since", since), moment("until", until), None
    if cursor is not None:
        times, place = read_cursor(cursor, parameters, times=2, places=2)
        first, last = (None if time is None else Moment(time) for time in times)
        after = Place(*place)
    query = GroupQuery(order, first, last, source_filter(source), min_total, min_similarity, after, limit)
    words = Words.of(q)
    try:
        page = await (_searched(service, query, words) if words.words else service.groups(query))
    except NoTimes as error:
        raise Problem(409, str(error), field="order" if since is None and until is None else "since") from None
    numbers = None if page.next is None else (page.since, page.until, page.next.rank, page.next.number)
    rows = b",".join(row.json for row in page.rows)
    return Response(b'{"groups":[%b],"next_cursor":%b}' % (rows, next_cursor(parameters, numbers)), media_type=JSON)


async def _searched(service: Interface, query: GroupQuery, words: Words) -> Page:
    """Rows of the table with words in what is shown of a group. The time of the request is limited."""
    service.intake.admit_read()
    assert query.limit is not None
    found, budget = list[Row](), Budget()
    while True:
        page = await service.groups(replace(query, limit=AT_ONCE))
        groups = [row.group for row in page.rows]
        ids = [json.loads(group.id) for group in groups]
        headlines = iter(await service.headlines([id for id in ids if id is not None]))
        for row, group, id in zip(page.rows, groups, ids, strict=True):
            headline = UNKNOWN if id is None else next(headlines)
            if words.are_in(*shown(id, headline), *map(json.loads, group.first_sources)):
                found.append(row)
                if len(found) == query.limit:
                    ranks = {"largest": group.live_members, "newest": group.group, "growing": row.joined_since or 0}
                    return Page(found, Place(ranks[query.order], group.group), page.since, page.until)
        budget.spend(len(groups))
        if page.next is None or budget.spent:
            return Page(found, page.next, page.since, page.until)
        since, until = (None if time is None else Moment(time) for time in (page.since, page.until))
        query = replace(query, since=since, until=until, after=page.next)


@router.get(
    "/groups/{group}", dependencies=[READ], responses=openapi.answer(Group, "the group and its members", 404, 409, 422)
)
async def get_group(
    group: Annotated[int, Path(ge=0, lt=2**63, description="number of its first member")],
    service: Served,
    since: Since = None,
    until: Until = None,
    source: Source = None,
    min_similarity: Annotated[
        float | None, Query(ge=0, le=1, description="only members that were dropped with at least this similarity")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS, description="members, in the order of arrival")] = 1000,
    cursor: Cursor = None,
) -> Response:
    """A group with a page of its members, including deleted and replaced ones. `next_cursor` is null where there are no
    more. With filters, a page may have fewer members than `limit`, also none."""
    _check_groups(service)
    parameters = ["group", group, since, until, source, min_similarity]
    after = -1
    if cursor is not None:
        _, [after] = read_cursor(cursor, parameters, times=0, places=1)
    times = moment("since", since), moment("until", until)
    query = MemberQuery(*times, source_filter(source), min_similarity, after, limit)
    try:
        found, last = await service.group(group, query)
    except NoTimes as error:
        raise Problem(409, str(error), field="since") from None
    except UsageError as error:
        raise Problem(404, str(error), code="unknown_group", field="group") from None
    following = next_cursor(parameters, None if last is None else [last])
    return Response(b'%b,"next_cursor":%b}' % (found, following), media_type=JSON)
