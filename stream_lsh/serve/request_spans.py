"""A span for each request to the API, below the span that its header `traceparent` names."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stream_lsh.tracing import Tracer
from stream_lsh.wire.trace_context import trace_of

_STREAM = "/v1/events"  # ends with its client


class RequestSpans:
    """Makes the spans. The name of a span has the route, and no id of a document."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or not path.startswith("/v1/") or path == _STREAM:
            await self._app(scope, receive, send)
            return
        trace, method = trace_of((name.decode("latin-1"), value) for name, value in scope["headers"]), scope["method"]
        with self._tracer.span(method, trace, "SERVER") as span:
            span.set_attribute("http.request.method", method)

            async def noted(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                await send(message)

            try:
                await self._app(scope, receive, noted)
            finally:
                if route := getattr(scope.get("route"), "path", None):
                    span.update_name(f"{method} {route}")
                    span.set_attribute("http.route", route)
