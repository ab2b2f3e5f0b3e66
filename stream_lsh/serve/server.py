"""The server process: its sockets, time limits for clients, and its shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
import uvloop

from stream_lsh import tracing
from stream_lsh.embedded.signals import Signals
from stream_lsh.errors import StreamLshError
from stream_lsh.index.store.files import open_files, raise_limit
from stream_lsh.serve.address import Address, Certificate
from stream_lsh.serve.connection import CONNECTIONS, Connections, Limited, Refusals, Server
from stream_lsh.serve.starting import STOP_SECONDS, Starting

if TYPE_CHECKING:
    from stream_lsh.serve.interface import Interface
    from stream_lsh.serve.tokens import Tokens

KEEP_ALIVE_SECONDS = 75  # without a request; more than the 60 of load balancers, which would send into a closed one
REFRESH_SECONDS = 1.0  # until changed files of tokens and certificates are read
_LONGEST_PATH = 100  # bytes of a socket's path; the system allows slightly more
_LOG = logging.getLogger("stream_lsh.serve")


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
        tracing.close()


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

    app, refusals = Starting(), Refusals()
    raise_limit()
    server = Server(_config(app, refusals))
    servers = [server]
    certificate = None
    if address.certificate is not None:
        server.config.load()
        certificate = Certificate(address)
        server.config.ssl = certificate.context
    serving = asyncio.create_task(server.serve([listening]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    try:
        service = await asyncio.to_thread(_opened, service_of, failed, app)
    except BaseException:
        server.should_exit = True
        await serving
        raise
    refusals.count = service.tally.refuse
    path = _reachable(service.socket)
    endings = [serving]
    if path is not None and (local_socket := _local_socket(path)) is not None:
        servers.append(local := Server(_config(app, refusals, local=True)))
        endings.append(asyncio.create_task(local.serve([local_socket])))
    refreshing = asyncio.create_task(_refresh(service.tokens, certificate))
    stopping = asyncio.create_task(stop.wait())
    starting = asyncio.create_task(service.start())
    await asyncio.wait({starting, serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if starting.done() and starting.exception() is None and not service.intake.stopping:
        started(address.url)
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    for server in servers:
        server.should_exit = True
    for ending in (service.stop(), starting, *endings):
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
    app.open(make_app(service))
    return service


def _config(app: Starting, refusals: Refusals, *, local: bool = False) -> uvicorn.Config:
    """What uvicorn is to do. local: for the socket in the index folder."""
    most = min(CONNECTIONS, open_files() // 2)  # the index needs files too
    return uvicorn.Config(
        Limited(app), http=Connections(most, refusals, local=local).protocol,  # type: ignore[arg-type]
        ws="none", lifespan="off", log_config=None, log_level="error", access_log=False,
        server_header=False, proxy_headers=False, backlog=min(1024, most),
        timeout_keep_alive=KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=int(STOP_SECONDS) + 5,
    )  # fmt: skip


def _local_socket(path: Path) -> socket.socket | None:
    """A socket in the index folder, after this process has opened the index. None if there can be none."""
    with suppress(FileNotFoundError):  # a leftover of an ended process: the index is ours
        path.unlink()
    before = os.umask(0o177)
    try:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(path))
    except OSError as error:  # the disk is full
        _LOG.warning("%s: %s: the command line cannot reach this service", path, error.strerror or error)
        return None
    finally:
        os.umask(before)
    return listening


def _reachable(path: Path | None) -> Path | None:
    """The socket's path for the command line, None if it is too long."""
    if path is None or len(os.fsencode(path)) <= _LONGEST_PATH:
        return path
    _LOG.warning("the path of %s is too long for a socket: the command line cannot reach this service", path)
    return None


async def _refresh(tokens: Tokens | None, certificate: Certificate | None) -> None:
    """Keep tokens and certificate up to date with their files."""
    while tokens is not None or certificate is not None:
        await asyncio.sleep(REFRESH_SECONDS)
        if tokens is not None:
            await asyncio.to_thread(tokens.refresh)
            tokens.end_streams()
        if certificate is not None:
            await asyncio.to_thread(certificate.refresh)
