"""What is noted of each request: an id, counts by route and status, a span below the one that its header `traceparent`
names, and a log line if it writes or is refused. No label, name or line has a token, a text or the id of a document."""

from __future__ import annotations

import logging
import re
import secrets
import time
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stream_lsh.serve.request_log import LOG
from stream_lsh.tracing import Tracer
from stream_lsh.wire.trace_context import trace_of

if TYPE_CHECKING:
    from opentelemetry.trace import Span

METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS"})
OTHER = "other"
PAGE = "/page"
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_HEADER = b"x-request-id"
_GIVEN = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_READ_PATHS = frozenset({"/v1/check", "/v1/headlines", "/v1/lookups"})  # of POST
_LOGGED_METHODS = METHODS | {"PUT", "PATCH"}
_STREAM = "/v1/events"  # ends with its client, and has no span


class Counts:
    """Counts of requests. The labels are bounded: an unknown address or method is `other`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "stream_lsh_serve_requests", "Requests by route and status.", ("method", "route", "status"),
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "stream_lsh_serve_request_seconds", "Time from a request's headers to the first byte of its response.",
            ("route",), buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        labels = (method if method in METHODS else OTHER, route, status)
        if (found := self._known.get(labels)) is None:
            found = self._requests.labels(*map(str, labels)), self._seconds.labels(route)
            self._known[labels] = found
        requests, latency = found
        requests.inc()
        latency.observe(seconds)


class Requests:
    """Notes each request when its response begins, or fails before. The response has the id in a header."""

    def __init__(self, app: ASGIApp, counts: Counts, tracer: Tracer | None) -> None:
        self._app = app
        self._counts = counts
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = next((value for name, value in scope["headers"] if name == _HEADER), b"")
        id = given if _GIVEN.fullmatch(given) else secrets.token_hex(8).encode()
        status, begun = 0, time.monotonic()

        def note(found: int) -> None:
            nonlocal status
            status = found
            self._counts.add(scope["method"], _route(scope), status, time.monotonic() - begun)

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                note(message["status"])
                message["headers"] = [*message.get("headers", ()), (_HEADER, id)]
            await send(message)

        with nullcontext() if self._tracer is None else _span(self._tracer, scope) as span:
            try:
                await self._app(scope, receive, noted)
            except Exception:
                if not status:
                    note(500)
                raise
            finally:
                if span is not None:
                    _describe(span, scope, status)
                if _logged(scope, status or 500) and LOG.isEnabledFor(logging.INFO):
                    LOG.info("%s", _line(scope, id.decode(), status or 500, time.monotonic() - begun))


def _route(scope: Scope) -> str:
    """The path of the route as the API describes it."""
    path: str | None = getattr(scope.get("route"), "path_format", None)
    if path is not None:
        return path
    return PAGE if scope["path"].startswith(f"{PAGE}/") else OTHER


def _span(tracer: Tracer, scope: Scope) -> AbstractContextManager[Span | None]:
    if not scope["path"].startswith("/v1/") or scope["path"] == _STREAM:
        return nullcontext()
    trace = trace_of((name.decode("latin-1"), value) for name, value in scope["headers"])
    return tracer.span(scope["method"], trace, "SERVER")


def _describe(span: Span, scope: Scope, status: int) -> None:
    """What is known at the end. The name of a span has the route, and no id of a document."""
    span.set_attribute("http.request.method", scope["method"])
    if status:
        span.set_attribute("http.response.status_code", status)
    if route := getattr(scope.get("route"), "path", None):
        span.update_name(f"{scope['method']} {route}")
        span.set_attribute("http.route", route)


def _logged(scope: Scope, status: int) -> bool:
    if scope["path"].startswith("/health/"):
        return False
    return status >= 400 or (scope["method"] not in _READS and scope["path"] not in _READ_PATHS)


def _line(scope: Scope, id: str, status: int, seconds: float) -> str:
    """The line, as logfmt. The route is written instead of the path, which may have the id of a document."""
    token = scope.get("state", {}).get("token")
    client = "socket" if scope.get("state", {}).get("local") else (scope.get("client") or ("-",))[0]
    method = scope["method"] if scope["method"] in _LOGGED_METHODS else "-"
    return (
        f"time={datetime.now(UTC).isoformat(timespec='milliseconds')} request={id} "
        f"token={'-' if token is None else token.name} client={client} method={method} "
        f"route={getattr(scope.get('route'), 'path', '-')} status={status} seconds={seconds:.3f}"
    )
