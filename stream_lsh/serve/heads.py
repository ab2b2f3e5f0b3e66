"""HEAD: the headers of the response to GET. And the methods of an address."""

from __future__ import annotations

from starlette.requests import Request
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_METHODS = ("DELETE", "GET", "POST")


class Heads:
    """Passes a HEAD request to the app as GET, and sends only the headers of its response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})  # which the request log reads
        ended, asked = False, {**scope, "method": "GET"}

        async def headers(message: Message) -> None:
            nonlocal ended
            if message["type"] == "http.response.start":
                scope["route"] = asked.get("route")  # for the counts
                await send(message)
            elif not ended:
                ended = True
                await send({"type": "http.response.body", "body": b""})

        async def nothing() -> Message:
            if ended:  # so that a stream of events ends
                return {"type": "http.disconnect"}
            return await receive()

        await self._app(asked, nothing, headers)


def allowed(request: Request) -> str:
    """The methods of a request's address, for the header `Allow`."""
    scope = request.scope
    found = {
        method
        for method in _METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in request.app.routes)
    }
    return ", ".join(sorted(found | ({"HEAD"} if "GET" in found else set())))
