"""The application of the server: until the service is ready it answers that the service is starting."""

from __future__ import annotations

from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from stream_lsh import progress
from stream_lsh.progress import Step
from stream_lsh.serve.problems import Problem

STOP_SECONDS = 10.0  # time limit of requests with documents when the service stops
WAITS = "the service is starting: {}"
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
        return HTMLResponse(_PAGE, 503, {"Retry-After": "1", "Refresh": "1"})
    return not_ready(WAITS.format(progress.now()), "starting", progress.now()).response()


def not_ready(why: str, health: str, step: Step | None) -> Problem:
    """The problem for a service that is not ready. step: of its start."""
    more = {} if step is None else {"progress": step._asdict()}
    return Problem(503, why, after=1, more={"health": health, **more})
