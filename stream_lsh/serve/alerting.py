"""Alerts over HTTP: the latest ones."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from stream_lsh.serve.documents import JSON
from stream_lsh.serve.problems import Problem, responses
from stream_lsh.serve.security import READ, Served

MOST_ALERTS = 1000
router = APIRouter(prefix="/v1", tags=["alerts"])


@router.get("/alerts", dependencies=[READ], responses=responses(422))
async def get_alerts(
    service: Served,
    rule: Annotated[str | None, Query(max_length=200, description="only alerts of the rule with this name")] = None,
    cursor: Annotated[
        str | None, Query(max_length=40, description="only older alerts: `next_cursor` of the answer before")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ALERTS)] = 50,
) -> Response:
    """The latest alerts, the newest first. `next_cursor` is null where there are no older ones."""
    try:
        found = await service.alerts(cursor, limit + 1, rule)
    except ValueError as error:
        raise Problem(422, f"cursor: {error}", field="cursor") from None
    shown, last = found[:limit], b"null" if len(found) <= limit else b'"%b"' % found[limit - 1].cursor.encode()
    return Response(
        b'{"alerts":[%b],"next_cursor":%b}' % (b",".join(alert.json for alert in shown), last), media_type=JSON
    )
