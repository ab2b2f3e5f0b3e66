"""One log line for each request that writes, and for each refusal: never with a token, a text or an id."""

from __future__ import annotations

import logging
import re
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADER = b"x-request-id"
LOG = logging.getLogger("stream_lsh.serve.requests")
_GIVEN = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_READ_PATHS = frozenset({"/v1/check", "/v1/headlines", "/v1/lookups"})  # of POST
_METHODS = frozenset({*_READS, "POST", "PUT", "PATCH", "DELETE"})
_MOST = 10_000  # lines that wait to be written
_GATHER_SECONDS = 0.05


class RequestLog:
    """Gives each request an id, which its response has in a header, and logs writes and refusals."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == _HEADER), b"")
        id = given if _GIVEN.fullmatch(given) else secrets.token_hex(8).encode()
        status, begun = 500, time.monotonic()  # an error without a response is a 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (_HEADER, id)]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            if _logged(scope, status) and LOG.isEnabledFor(logging.INFO):
                LOG.info("%s", _line(scope, id.decode(), status, time.monotonic() - begun))


def _logged(scope: Scope, status: int) -> bool:
    if scope["path"].startswith("/health/"):
        return False
    return status >= 400 or (scope["method"] not in _READS and scope["path"] not in _READ_PATHS)


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
    """Writes lines to standard error in a thread of its own, some at a time: no request waits for a slow reader."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._some = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="request log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._lines) >= _MOST:
            self._dropped += 1
            return
        self._lines.append(f"stream-lsh: {record.getMessage()}\n")
        if not self._some.is_set():
            self._some.set()

    def _run(self) -> None:
        while self._some.wait():
            self._closed.wait(_GATHER_SECONDS)
            self._some.clear()
            some = [self._lines.popleft() for _ in range(len(self._lines))]
            if dropped := self._dropped:
                self._dropped = 0
                some.append(f"stream-lsh: request log: {dropped} lines were dropped: standard error is too slow\n")
            with suppress(OSError, ValueError):
                sys.stderr.write("".join(some))
                sys.stderr.flush()
            if self._closed.is_set():
                return

    def close(self) -> None:
        self._closed.set()
        self._some.set()
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
