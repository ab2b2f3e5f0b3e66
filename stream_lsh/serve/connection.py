"""Connections of clients: their number, the size of their headers, their time limits, and refusals before any app.

This is the only module that overrides parts of uvicorn. `tests/serve/test_connection.py` compares these parts with the
installed version.
"""

from __future__ import annotations

import asyncio
import http
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from stream_lsh.embedded.often import Often
from stream_lsh.serve.problems import MEDIA_TYPE, Problem
from stream_lsh.serve.request_log import LOG

HEADER_BYTES = 64 << 10  # limit of the request line, headers and trailers together
_TOO_LARGE = f"the request line, headers and trailers have more than {HEADER_BYTES >> 10} KiB together"
HEADER_SECONDS = 10.0  # time limit for the request line and headers
SILENT_SECONDS = 60.0  # time limit for the next part of a body or of a response
LINGER_SECONDS = 2.0  # time limit for a client to read a refusal, while it may still be sending
PART_BYTES = 64 << 10  # size of such a part of a body; its end is one too
CONNECTIONS = 2000
HEALTH_CONNECTIONS = 50  # above that limit, for health only
PIPELINED = 32  # limit of requests that wait for an earlier one of their connection
HEALTH = ("/health/live", "/health/ready")
_FIELD_BYTES = 4  # colon, space and line end of a header
_KEY = "connection"
_CROWDED = f"the service has {CONNECTIONS:,} requests in progress; try again in a second"


LOG_SECONDS = 10.0  # between two lines about refusals with the same status


class Refusals:
    """The refusals of a server.

    Attributes:
        count: called for each refusal; None until there is a service.
    """

    def __init__(self) -> None:
        self.count: Callable[[], None] | None = None
        self._often = Often(LOG_SECONDS)
        self._unsaid: Counter[int] = Counter()

    def add(self, status: int, client: str) -> None:
        """Count a refusal. client: its address, for the log."""
        if self.count is not None:
            self.count()
        self._unsaid[status] += 1
        if self._often.due(status):
            LOG.info(
                "time=%s request=- token=- client=%s method=- route=- status=%d requests=%d",
                datetime.now(UTC).isoformat(timespec="milliseconds"), client, status, self._unsaid.pop(status),
            )  # fmt: skip


class Connections:
    """The open connections of a server. Above the limit, the one without a request for the longest time is closed.

    Args:
        most: limit of connections. `HEALTH_CONNECTIONS` more get answers about health.
        refusals: of the server.
        local: whether they come from the socket in the index folder.
    """

    def __init__(self, most: int, refusals: Refusals, *, local: bool = False) -> None:
        self.local = local
        self.refusals = refusals
        self._most = most
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # the one that has been idle for the longest time first

    def __len__(self) -> int:
        return len(self._open)

    def protocol(self, config: uvicorn.Config, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> Any:
        """A new connection. uvicorn calls this like its own class."""
        return Connection(self, config, server_state, app_state, _loop)

    def add(self, connection: Connection) -> bool:
        """Add an idle connection. Returns whether it may be used for everything."""
        self._open.add(connection)
        if len(self._open) > self._most and self._idle:
            self.close(next(iter(self._idle)))
        self._idle[connection] = None
        if len(self._open) > self._most + HEALTH_CONNECTIONS:
            self.close(connection)
        return len(self._open) <= self._most

    def close(self, connection: Connection) -> None:
        self.remove(connection)
        connection.transport.abort()

    def remove(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def used(self, connection: Connection, busy: bool) -> None:
        """A request begins, or the last one ends."""
        if busy:
            self._idle.pop(connection, None)
        elif connection in self._open:
            self._idle[connection] = None


class Connection(HttpToolsProtocol):
    """A connection of a client. It is closed if the client is too slow: before its headers are complete, within the
    body, or when it does not read the response."""

    def __init__(
        self, connections: Connections, config: uvicorn.Config, server_state: Any, app_state: dict[str, Any], loop: Any
    ) -> None:
        self._state = {**app_state, _KEY: self, "local": connections.local}
        super().__init__(config, server_state, self._state, loop)
        self._connections = connections
        self._header_timer: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._strikes = 0
        self._unread = 0  # bytes since the last complete part of a request
        self._fields = 0  # bytes of the request line, headers and trailers
        self._part = 0  # bytes of the body's current part
        self._body_due = self._write_paused = self._too_large = self._answering = False
        self._ended = False  # what comes now is not read
        self._last: Problem | None = None  # sent behind the answers to the requests before it
        self._requests = 0  # in progress
        self.limited = False  # to health

    # -- asyncio.Protocol -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.limited = not self._connections.add(self)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        self._have_headers()
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)
        self._state.clear()  # it refers to this connection

    def data_received(self, data: bytes) -> None:
        if self._ended or self.transport.is_closing():
            return
        self._unread += len(data)
        super().data_received(data)
        if self._unread > HEADER_BYTES and not (self._ended or self.transport.is_closing()):
            self._too_large = True
            self.send_400_response("")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_paused = True
        self._move()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_paused = False
        self._move()

    # -- the callbacks of httptools' parser -------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._fields = 0
        self._expect_headers()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + _FIELD_BYTES)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._have_headers()
        if self._requests > PIPELINED:
            self._last = Problem(429, f"more than {PIPELINED} requests wait in this connection", field="connection")
            raise ValueError("too many requests are pipelined")
        self._requests += 1
        self._connections.used(self, True)
        super().on_headers_complete()
        self._unread = self._part = 0
        self._body_due = True
        self._move()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._unread = 0
        self._part += len(body)
        if self._part >= PART_BYTES:
            self._part = 0
            self._move()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._unread = 0
        self._body_due = False
        self._move()

    # -- uvicorn ----------------------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """Answer with a problem, as for all other errors, behind the answers to earlier requests. Then close the
        connection."""
        if self._last is None:
            self._last = (
                Problem(431, _TOO_LARGE) if self._too_large else Problem(400, "this is not a valid HTTP request")
            )
        self.refuse(self._last.status)
        self._ended = True
        self._have_headers()
        if not self._complete:
            self._leave()

    @property
    def _complete(self) -> int:
        """Requests in progress that have arrived completely."""
        return self._requests - self._body_due

    def _leave(self) -> None:
        """Send the problem, and close the connection."""
        assert self._last is not None
        if self._answering:  # the request that is wrong: its answer has begun
            self.transport.abort()
            return
        self.transport.write(_written(self._last))
        if self._requests or not self.transport.can_write_eof():
            self.transport.close()
            return
        # The client may still be sending. If it is not read, the client gets a reset instead of the answer.
        self.transport.write_eof()
        self._header_timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    # -- the app ----------------------------------------------------------------------------------------------------

    def refuse(self, status: int) -> None:
        """A request is refused before the app."""
        peer = self.transport.get_extra_info("peername")
        self._connections.refusals.add(status, str(peer[0]) if isinstance(peer, tuple) else "socket")

    def answering(self) -> None:
        """A response begins."""
        self._answering = True

    def answered(self) -> None:
        """A request in progress ends."""
        self._answering = False
        self._requests -= 1
        if not self._requests:
            self._connections.used(self, False)
        if self._ended and not self._complete and not self.transport.is_closing():
            self._leave()

    # -- limits -----------------------------------------------------------------------------------------------------

    def _count(self, size: int) -> None:
        """Count bytes of headers. The parser ends with an exception."""
        self._fields += size
        if self._fields > HEADER_BYTES:
            self._too_large = True
            raise ValueError("the headers are too large")

    def _expect_headers(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _have_headers(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _move(self, strikes: int = 0) -> None:
        """Restart the timer after a part. A client that sends everything before it reads may take longer."""
        self._strikes = strikes
        if self._timer is not None:
            self._timer.cancel()
        due = self._body_due or self._write_paused
        self._timer = self.loop.call_later(SILENT_SECONDS / 2, self._silent) if due else None

    def _silent(self) -> None:
        if not self._write_paused and not self.transport.is_reading():  # the server itself does not read
            self._move()
        elif not self._strikes:
            self._move(1)
        else:
            self.transport.abort()


class Server(uvicorn.Server):
    """A server that does not handle signals."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


class Limited:
    """An app, for `Connections`: it tells them about its requests, and refuses those above the limit except health."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection = scope["state"].pop(_KEY)

        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            connection.answering()
            await send(message)

        try:
            if connection.limited and scope["path"] not in HEALTH:
                connection.refuse(503)
                problem = Problem(503, _CROWDED, after=1, close=True)
                await problem.response()(scope, receive, sending)
            else:
                await self._app(scope, receive, sending)
        except asyncio.CancelledError:  # the server stops, and the request has taken too long
            if begun:
                raise
            problem = Problem(503, "the service is stopping", after=5, close=True)
            await problem.response()(scope, receive, sending)
        finally:
            connection.answered()


def _written(problem: Problem) -> bytes:
    """A response with a problem, after which the connection is closed."""
    response = problem.response()
    body = bytes(response.body)
    lines = [f"HTTP/1.1 {problem.status} {http.HTTPStatus(problem.status).phrase}", f"content-type: {MEDIA_TYPE}"]
    head = "\r\n".join([*lines, f"content-length: {len(body)}", "connection: close", "", ""])
    return head.encode() + body
