"""Reading endpoints of an index and its service: groups, events, counts, health."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from stream_lsh.documents.times import seconds_of
from stream_lsh.embedded.group_ranking import Order
from stream_lsh.errors import UsageError
from stream_lsh.serve import openapi
from stream_lsh.serve.counts import SECONDS
from stream_lsh.serve.documents import json_response
from stream_lsh.serve.events import KINDS, place_of
from stream_lsh.serve.interface import Interface
from stream_lsh.serve.listening import EventsResponse
from stream_lsh.serve.openapi import JSON
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.schemas import Group, Groups, Live, Ready, Stats
from stream_lsh.serve.security import READ, Served
from stream_lsh.serve.starting import not_ready

MOST_ROWS = 10_000
MOST_LATEST = 1000
router = APIRouter(prefix="/v1", tags=["what there is"])
plain = APIRouter(tags=["health"])


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
    since: Annotated[
        str | None,
        Query(
            description="only groups that a member joined within 90m, 24h, 7d ... before the latest event time, or "
            "before stream time after it was set back"
        ),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50,
) -> Response:
    """The table of groups at the last commit."""
    _check_groups(service)
    try:
        within = None if since is None else 1000 * seconds_of(since)
        found = await service.groups(order, within, limit)
    except ValueError as error:
        raise Problem(422, f"since: {error}", field="since") from None
    except UsageError as error:
        raise Problem(409, str(error), field="since" if since is not None else "order") from None
    return Response(b'{"groups":[%b]}' % b",".join(row.json for row in found), media_type=JSON)


@router.get(
    "/groups/{group}", dependencies=[READ], responses=openapi.answer(Group, "the group and its members", 404, 409, 422)
)
async def get_group(
    group: Annotated[int, Path(ge=0, lt=2**63, description="number of its first member")],
    service: Served,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS, description="members, in the order of arrival")] = 1000,
) -> Response:
    """A group with its members, including deleted and replaced ones."""
    _check_groups(service)
    try:
        return Response(await service.group(group, limit), media_type=JSON)
    except UsageError as error:
        raise Problem(404, str(error), code="unknown_group", field="group") from None


@router.get(
    "/events", dependencies=[READ], response_class=Response,
    responses=openapi.text("text/event-stream", "server-sent events", 422, 429),
)  # fmt: skip
async def get_events(
    service: Served,
    kinds: Annotated[str, Query(description="verdict, pair, group, alert, separated by commas")] = "",
    last_event_id: Annotated[str | None, Header(description="continue after this place, seq.n")] = None,
    latest: Annotated[
        int, Query(ge=0, le=MOST_LATEST, description="without Last-Event-ID: first so many stored events of each kind")
    ] = 0,
) -> Response:
    """Events as they are committed. The stream continues after `Last-Event-ID`, as far back as events are kept. A `gap`
    event names the places from and to where events are missing."""
    service.intake.admit_read()
    names = set(filter(None, kinds.split(",")))
    if unknown := sorted(names.difference(KINDS)):
        raise Problem(422, f"kinds: {unknown[0][:60]!r} is none of {', '.join(KINDS)}", field="kinds")
    try:
        place = await service.place(None if last_event_id is None else place_of(last_event_id))
    except ValueError as error:
        raise Problem(422, str(error), field="Last-Event-ID") from None
    wanted = frozenset(kind for kind in KINDS if kind in names or not names)
    first = service.ring.latest(latest, wanted) if latest and last_event_id is None else b""
    return EventsResponse(service.ring, wanted, place, first, service.tokens)


@router.get("/stats", dependencies=[READ], responses=openapi.answer(Stats, "the counts", 422))
async def get_stats(
    service: Served,
    seconds: Annotated[int, Query(ge=0, le=SECONDS, description="seconds that are listed one by one")] = 60,
) -> Response:
    """What the index holds, the totals since the start of the service, and each of the last seconds."""
    return json_response(await service.stats(seconds))


@plain.get(
    "/metrics", dependencies=[READ], response_class=PlainTextResponse, responses=openapi.text("text/plain", "metrics")
)
async def get_metrics(service: Served) -> Response:
    """Get metrics for Prometheus."""
    return Response(await service.metrics(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


@plain.get("/health/live", responses=openapi.answer(Live, "the process runs"))
async def get_live(_: Served) -> Response:
    """Whether the process runs."""
    return JSONResponse({"status": "live"})


@plain.get("/health/ready", responses=openapi.answer(Ready, "documents are accepted"))
async def get_ready(service: Served) -> Response:
    """Whether documents are accepted."""
    if not service.intake.ready:
        raise not_ready(service.intake.why_not, service.intake.health, service.progress)
    return JSONResponse({"status": "ready"})
