"""Counts of requests by route and status. The labels are bounded: an unknown address or method is `other`."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS"})
OTHER = "other"
PAGE = "/page"
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


class Requests:
    """The counts of a service."""

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


class Counting:
    """Counts each request when its response begins, or fails before."""

    def __init__(self, app: ASGIApp, requests: Requests) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, started = time.monotonic(), False

        def count(status: int) -> None:
            nonlocal started
            started = True
            self._requests.add(scope["method"], _route(scope), status, time.monotonic() - begun)

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                count(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, counted)
        except Exception:
            if not started:
                count(500)
            raise


def _route(scope: Scope) -> str:
    """The path of the route as the API describes it."""
    path: str | None = getattr(scope.get("route"), "path_format", None)
    if path is not None:
        return path
    return PAGE if scope["path"].startswith(f"{PAGE}/") else OTHER
