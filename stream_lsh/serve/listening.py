"""Server-sent events, for as long as the client is connected."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stream_lsh.serve.event_filter import EventFilter
from stream_lsh.serve.events import Place, Ring
from stream_lsh.serve.tokens import Tokens

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
