"""Alerts over HTTP: the latest ones, and their receivers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from stream_lsh.serve import openapi
from stream_lsh.serve.cursors import bad_cursor
from stream_lsh.serve.documents import json_response
from stream_lsh.serve.interface import Interface
from stream_lsh.serve.openapi import JSON
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.schemas import Alerts, Resent, TestedWebhooks
from stream_lsh.serve.schemas import Webhooks as WebhookList
from stream_lsh.serve.security import READ, WRITE, Served
from stream_lsh.serve.webhooks import Webhooks

MOST_ALERTS = 1000
router = APIRouter(prefix="/v1", tags=["alerts"])


@router.get("/alerts", dependencies=[READ], responses=openapi.answer(Alerts, "the latest alerts", 422))
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
        raise bad_cursor(str(error)) from None
    shown, last = found[:limit], b"null" if len(found) <= limit else b'"%b"' % found[limit - 1].cursor.encode()
    return Response(
        b'{"alerts":[%b],"next_cursor":%b}' % (b",".join(alert.json for alert in shown), last), media_type=JSON
    )


def _webhooks(service: Interface) -> Webhooks:
    if service.webhooks is None:
        raise Problem(409, "this service has no webhooks: start it with --webhooks FILE", field="webhooks")
    return service.webhooks


@router.get("/webhooks", dependencies=[READ], responses=openapi.answer(WebhookList, "the receivers"))
async def get_webhooks(service: Served) -> Response:
    """The receivers of alerts: what waits for them, their last answer, and their dead letters."""
    return json_response({"webhooks": [] if service.webhooks is None else service.webhooks.described})


@router.post(
    "/alerts/test",
    dependencies=[WRITE],
    responses=openapi.answer(TestedWebhooks, "what the receivers said", 404, 409, 422),
)
async def test_alert(
    service: Served,
    webhook: Annotated[str | None, Query(max_length=40, description="only to the receiver with this name")] = None,
) -> Response:
    """Send a test alert to the receivers, once, and answer what they said. Its rule is `test`."""
    return json_response({"webhooks": await _webhooks(service).test(webhook)})


@router.post(
    "/webhooks/{name}/resend",
    dependencies=[WRITE],
    responses=openapi.answer(Resent, "they are sent again", 404, 409, 422),
)
async def resend_alerts(
    name: Annotated[str, Path(max_length=40, description="name of the receiver")], service: Served
) -> Response:
    """Send the dead letters of a receiver again, with the same keys. `resent` says how many they are."""
    return json_response({"resent": await _webhooks(service).resend(name)})
