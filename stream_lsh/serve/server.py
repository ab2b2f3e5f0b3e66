"""The server process: its sockets, time limits for clients, and its shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from stream_lsh.embedded.signals import Signals
from stream_lsh.errors import StreamLshError
from stream_lsh.serve.address import Address, tls
from stream_lsh.serve.problems import MEDIA_TYPE, Problem
from stream_lsh.serve.starting import STOP_SECONDS, Starting

if TYPE_CHECKING:
    from stream_lsh.serve.interface import Interface

HEADER_SECONDS = 10.0  # time limit for the request line and headers
SILENT_SECONDS = 60.0  # time limit without progress in reading the body, or in sending the response
CONNECTIONS = 2000
TOKEN_SECONDS = 1.0
_LONGEST_PATH = 100  # bytes of a socket's path; the system allows slightly more
_LOG = logging.getLogger("stream_lsh.serve")


class Connection(HttpToolsProtocol):
    """A connection that is closed if the client is too slow: before its headers are complete, within the body, or when
    it does not read the response."""

    _header_timer: asyncio.TimerHandle | None = None
    _timer: asyncio.TimerHandle | None = None
    _body_due = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        found = transport.get_extra_info("socket")
        if found is not None and found.family == socket.AF_UNIX:
            self.app_state = {**self.app_state, "local": True}
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_headers()
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_headers()

    def on_headers_complete(self) -> None:
        self._have_headers()
        super().on_headers_complete()
        self._body_due = True
        self._move()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._move()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._body_due = False
        self._move()

    def send_400_response(self, msg: str) -> None:
        """Answer with a problem, as for all other errors."""
        body = Problem(400, "this is no HTTP request, or its address is longer than 64 KiB").json
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (MEDIA_TYPE.encode(), len(body)) + body)
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._move()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._move()

    def _expect_headers(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _have_headers(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _move(self) -> None:
        """Restart the timer after progress. A client that sends everything before it reads may take longer."""
        if self._timer is not None:
            self._timer.cancel()
        due = self._body_due or self.flow.write_paused
        self._timer = self.loop.call_later(SILENT_SECONDS, self._silent) if due else None

    def _silent(self) -> None:
        if self.flow.write_paused or not self.flow.read_paused:
            self.transport.abort()
        else:  # the server itself does not read
            self._move()


class _Server(uvicorn.Server):
    """Listens also on a socket in the index folder, without TLS. Does not handle signals."""

    def capture_signals(self) -> Any:
        return nullcontext()

    async def listen_locally(self, path: Path) -> None:
        """Listen on a socket in the index folder, after this process has opened the index."""
        with suppress(FileNotFoundError):  # a leftover of an ended process: the index is ours
            path.unlink()
        before = os.umask(0o177)
        try:
            loop = asyncio.get_running_loop()
            server = await loop.create_unix_server(
                lambda: Connection(self.config, self.server_state, self.lifespan.state), str(path)
            )
        finally:
            os.umask(before)
        self.servers.append(server)


def serve(
    service_of: Callable[[Callable[[BaseException], None]], Interface],
    address: Address,
    listening: socket.socket,
    *,
    started: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until a signal arrives, on a listening socket, which is closed at the end.

    Args:
        service_of: creates the service, given a function to be called when it cannot continue. Runs in a thread.
        started: called with the URL once documents are accepted; until then requests are answered with 503.

    Raises:
        StreamLshError: the service cannot start, or the index cannot be written any more. What was answered before is
            stored.
        KeyboardInterrupt: a second signal arrived.
    """
    try:
        with Signals(_second) as signals:
            signals.run(
                lambda stop, _: run(service_of, address, listening, stop, started),
                uvloop.new_event_loop,  # cheaper than asyncio's own
            )
    finally:
        listening.close()


def _second(number: int) -> None:
    os._exit(128 + number)  # everything committed stays


async def run(
    service_of: Callable[[Callable[[BaseException], None]], Interface],
    address: Address,
    listening: socket.socket,
    stop: asyncio.Event,
    started: Callable[[str], None],
) -> None:
    """Serve until `stop` is set, in the running loop; see `serve`."""
    errors: list[BaseException] = []

    def failed(error: BaseException) -> None:
        errors.append(error)
        stop.set()

    app = Starting()
    config = uvicorn.Config(
        app, http=Connection, ws="none", lifespan="off", log_config=None,
        log_level="error", access_log=False,
        server_header=False, proxy_headers=False, backlog=1024, limit_concurrency=CONNECTIONS,
        timeout_keep_alive=30, timeout_graceful_shutdown=int(STOP_SECONDS) + 5,
    )  # fmt: skip
    if address.certificate is not None:
        config.load()
        config.ssl = tls(address)
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listening]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    try:
        service = await asyncio.to_thread(_opened, service_of, failed, app)
    except BaseException:
        server.should_exit = True
        await serving
        raise
    path = _reachable(service.socket)
    if path is not None:
        await server.listen_locally(path)
    refreshing = asyncio.create_task(_refresh(service))
    stopping = asyncio.create_task(stop.wait())
    starting = asyncio.create_task(service.start())
    await asyncio.wait({starting, serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if starting.done() and starting.exception() is None and not service.intake.stopping:
        started(address.url)
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    for ending in (service.stop(), starting, serving):
        try:
            await ending
        except StreamLshError as error:
            errors.append(error)
    refreshing.cancel()
    stopping.cancel()
    if path is not None:
        with suppress(OSError):
            path.unlink()
    if errors:
        raise errors[0]


def _opened(
    service_of: Callable[[Callable[[BaseException], None]], Interface],
    failed: Callable[[BaseException], None],
    app: Starting,
) -> Interface:
    """The service, connected to the server."""
    from stream_lsh.serve.app import make_app  # only here: it imports numba and RocksDB

    service = service_of(failed)
    app.open(make_app(service, ["localhost", "127.0.0.1", "::1"] if service.tokens is None else None))
    return service


def _reachable(path: Path | None) -> Path | None:
    """The socket's path for the command line, None if it is too long."""
    if path is None or len(os.fsencode(path)) <= _LONGEST_PATH:
        return path
    _LOG.warning("the path of %s is too long for a socket: the command line cannot reach this service", path)
    return None


async def _refresh(service: Interface) -> None:
    """Keep the tokens up to date with their file."""
    while service.tokens is not None:
        await asyncio.sleep(TOKEN_SECONDS)
        await asyncio.to_thread(service.tokens.refresh)
