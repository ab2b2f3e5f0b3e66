"""Groups over HTTP: pages of their table, and of the members of one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from stream_lsh.embedded.group_query import GroupQuery, MemberQuery, Moment, NoTimes, Order, Place
from stream_lsh.errors import UsageError
from stream_lsh.serve import openapi
from stream_lsh.serve.cursors import bad_cursor, cursor_of, read_cursor
from stream_lsh.serve.filters import MinTotal, Since, Source, Until, moment, source_filter
from stream_lsh.serve.interface import Interface
from stream_lsh.serve.openapi import JSON
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.schemas import Group, Groups
from stream_lsh.serve.security import READ, Served

MOST_ROWS = 10_000
router = APIRouter(prefix="/v1", tags=["what there is"])
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS)]
Cursor = Annotated[str | None, Query(description="continue behind a page: its `next_cursor`, with equal parameters")]


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
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """A page of the table of groups, at the last commit. `next_cursor` is null where the table ends. With `source`, a
    page may have fewer rows than `limit`, also none."""
    _check_groups(service)
    parameters = ["groups", order, since, until, source, min_total]
    first, last, after = moment("since", since), moment("until", until), None
    if cursor is not None:
        begin, end, rank, number = read_cursor(cursor, parameters, 4)
        if rank is None or number is None:
            raise bad_cursor("it is no cursor of this list")
        first, last = (None if time is None else Moment(time) for time in (begin, end))
        after = Place(rank, number)
    try:
        page = await service.groups(GroupQuery(order, first, last, source_filter(source), min_total, after, limit))
    except NoTimes as error:
        raise Problem(409, str(error), field="order" if since is None and until is None else "since") from None
    following = b"null"
    if page.next is not None:
        numbers = (page.since, page.until, page.next.rank, page.next.number)
        following = b'"%b"' % cursor_of(parameters, numbers).encode()
    rows = b",".join(row.json for row in page.rows)
    return Response(b'{"groups":[%b],"next_cursor":%b}' % (rows, following), media_type=JSON)


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
        (number,) = read_cursor(cursor, parameters, 1)
        if number is None or number < 0:
            raise bad_cursor("it is no cursor of this list")
        after = number
    times = moment("since", since), moment("until", until)
    query = MemberQuery(*times, source_filter(source), min_similarity, after, limit)
    try:
        found, last = await service.group(group, query)
    except NoTimes as error:
        raise Problem(409, str(error), field="since") from None
    except UsageError as error:
        raise Problem(404, str(error), code="unknown_group", field="group") from None
    following = b"null" if last is None else b'"%b"' % cursor_of(parameters, [last]).encode()
    return Response(b'%b,"next_cursor":%b}' % (found, following), media_type=JSON)
