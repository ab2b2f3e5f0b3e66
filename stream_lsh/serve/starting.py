"""The application of the server: until the service is ready it answers that the service is starting."""

from __future__ import annotations

from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from stream_lsh.serve.problems import Problem

STOP_SECONDS = 10.0  # time limit of requests with documents when the service stops
WAITS = "the service is starting: it opens its index, or connects to Kafka"
STARTING = {"Retry-After": "1"}
_PAGE = "<!doctype html><html lang=en><title>stream_lsh</title><p>The service is starting.</p></html>"


class Starting:
    """Answers by itself until `open` is called, then passes requests to the app."""

    def __init__(self) -> None:
        self._app: ASGIApp | None = None

    def open(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._app or _answer(scope["path"]))(scope, receive, send)


def _answer(path: str) -> Response:
    if path == "/health/live":
        return JSONResponse({"status": "live"})
    if path == "/":  # the browser reloads it
        return HTMLResponse(_PAGE, 503, {**STARTING, "Refresh": "1"})
    return Problem(503, WAITS, headers=STARTING, more={"health": "starting"}).response()
