"""Reading endpoints of an index and its service: events as a stream, counts, health."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.types import Receive, Scope, Send

from stream_lsh.serve import openapi
from stream_lsh.serve.counts import SECONDS
from stream_lsh.serve.documents import json_response
from stream_lsh.serve.event_filter import KINDS, EventFilter
from stream_lsh.serve.events import Place, Ring, place_of
from stream_lsh.serve.filters import MinTotal, Source, source_filter
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.schemas import Live, Ready, Stats
from stream_lsh.serve.security import READ, Served
from stream_lsh.serve.starting import not_ready
from stream_lsh.serve.tokens import Tokens

MOST_LATEST = 1000
router = APIRouter(prefix="/v1", tags=["what there is"])
plain = APIRouter(tags=["health"])


@router.get(
    "/events", dependencies=[READ], response_class=Response,
    responses=openapi.text("text/event-stream", "server-sent events", 409, 422, 429),
)  # fmt: skip
async def get_events(
    service: Served,
    kinds: Annotated[str, Query(description="verdict, pair, group, alert, separated by commas")] = "",
    last_event_id: Annotated[str | None, Header(description="continue after this place, seq.n")] = None,
    latest: Annotated[
        int, Query(ge=0, le=MOST_LATEST, description="without Last-Event-ID: first so many stored events of each kind")
    ] = 0,
    source: Source = None,
    min_similarity: Annotated[
        float, Query(ge=0, le=1, description="only verdicts and pairs with at least this similarity")
    ] = 0.0,
    min_total: MinTotal = 0,
) -> Response:
    """Events as they are committed. The stream continues after `Last-Event-ID`, as far back as events are kept. A `gap`
    event names the places from and to where events are missing. `source` is that of the document that caused an event;
    the other filters concern the kinds that they name."""
    service.intake.admit_read()
    names = set(filter(None, kinds.split(",")))
    if unknown := sorted(names.difference(KINDS)):
        raise Problem(422, f"kinds: {unknown[0][:60]!r} is none of {', '.join(KINDS)}", field="kinds")
    try:
        place = await service.place(None if last_event_id is None else place_of(last_event_id))
    except ValueError as error:
        raise Problem(422, str(error), field="Last-Event-ID") from None
    chosen = frozenset(kind for kind in KINDS if kind in names or not names)
    if source is not None and not service.event_sources:
        raise Problem(
            409, "the events of this service have no sources: that needs --index, groups, and a source_field",
            field="source_field",
        )  # fmt: skip
    wanted = EventFilter(chosen, source_filter(source), min_similarity, min_total)
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


BEAT_SECONDS = 15.0  # of silence, after which a comment keeps the connection open
GATHER_SECONDS = 0.05  # during which events are gathered: each document would wake hundreds of listeners
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class EventsResponse(Response):
    """Events from a place on, until the client disconnects, the stream ends, or its token can no longer read. first:
    events that are sent before."""

    def __init__(
        self, ring: Ring, wanted: EventFilter, place: Place, first: bytes = b"", tokens: Tokens | None = None
    ) -> None:  # fmt: skip
        super().__init__()
        self._ring = ring
        self._wanted = wanted
        self._place = place
        self._first = first
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ring, changed, closed = self._ring, self._ring.listen(), asyncio.Event()

        def close() -> None:
            closed.set()
            changed.set()

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            close()

        watching = asyncio.create_task(watch())
        token = scope.get("state", {}).get("token")
        held = self._tokens.stream(token, "read", close) if self._tokens is not None and token else nullcontext()
        try:
            with held:
                await self._send(send, changed, closed)
        finally:
            ring.leave(changed)
            watching.cancel()

    async def _send(self, send: Send, changed: asyncio.Event, closed: asyncio.Event) -> None:
        ring = self._ring
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        # First the place: a client that is disconnected before the first event can resume there.
        text = b"retry: 1000\nid: %d.%d\n\n%b" % (*self._place, self._first)
        while not closed.is_set():
            await send({"type": "http.response.body", "body": text, "more_body": True})
            changed.clear()
            text, self._place = ring.after(self._place, self._wanted)
            if text:
                continue
            if ring.ended or closed.is_set():
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS):
                    await changed.wait()
                    await asyncio.sleep(GATHER_SECONDS)
            text, self._place = ring.after(self._place, self._wanted)
            text = text or b":\n\n"
        await send({"type": "http.response.body", "body": b""})
