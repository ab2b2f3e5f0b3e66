"""One log line for each request that writes, and for each refusal: never with a token, a text or an id."""

from __future__ import annotations

import logging
import queue
import re
import secrets
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID = "X-Request-Id"
LOG = logging.getLogger("stream_lsh.serve.requests")
_GIVEN = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS = frozenset({*_READS, "POST", "PUT", "PATCH", "DELETE"})
_MOST = 10_000  # lines that wait to be written


class RequestLog:
    """Gives each request an id, which its response has in a header, and logs writes and refusals."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        id = given if _GIVEN.fullmatch(given) else secrets.token_hex(8)
        status, begun = 500, time.monotonic()  # an error without a response is a 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = id
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            if _logged(scope, status) and LOG.isEnabledFor(logging.INFO):
                LOG.info("%s", _line(scope, id, status, time.monotonic() - begun))


def _logged(scope: Scope, status: int) -> bool:
    if scope["path"].startswith("/health/"):
        return False
    return status >= 400 or (scope["method"] not in _READS and scope["path"] != "/v1/check")


def _line(scope: Scope, id: str, status: int, seconds: float) -> str:
    """The line, as logfmt. The route is written instead of the path, which may have the id of a document."""
    token = scope.get("state", {}).get("token")
    client = "socket" if scope.get("state", {}).get("local") else (scope.get("client") or ("-",))[0]
    method = scope["method"] if scope["method"] in _METHODS else "-"
    return (
        f"time={datetime.now(UTC).isoformat(timespec='milliseconds')} request={id} "
        f"token={'-' if token is None else token.name} client={client} method={method} "
        f"route={getattr(scope.get('route'), 'path', '-')} status={status} seconds={seconds:.3f}"
    )


class _Writer(logging.Handler):
    """Writes lines to standard error in a thread of its own, so that no request waits for a slow reader of it."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: queue.Queue[str | None] = queue.Queue(_MOST)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="request log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._dropped += 1

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            if dropped := self._dropped:
                self._dropped = 0
                line = (
                    f"request log: {dropped} lines were dropped, because standard error is too slow\nstream-lsh: {line}"
                )
            with suppress(OSError, ValueError):
                sys.stderr.write(f"stream-lsh: {line}\n")
                sys.stderr.flush()

    def close(self) -> None:
        with suppress(queue.Full):
            self._lines.put(None, timeout=1)
        self._thread.join(timeout=1)
        super().close()


@contextmanager
def written() -> Iterator[None]:
    """The request log is written to standard error inside."""
    writer = _Writer()
    LOG.addHandler(writer)
    LOG.propagate = False
    try:
        yield
    finally:
        LOG.removeHandler(writer)
        LOG.propagate = True
        writer.close()
