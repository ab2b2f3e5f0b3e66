"""Access control of every request: tokens, allowed origins, and security headers."""

from __future__ import annotations

import logging
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stream_lsh.serve.address import is_loopback
from stream_lsh.serve.interface import Interface
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.tokens import Permission, Token
from stream_lsh.settings.errors import near

_LOG = logging.getLogger("stream_lsh.serve")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
_EXPOSED = "ETag, Location, Retry-After, WWW-Authenticate, X-Request-Id"  # headers that pages of other sites may read


async def service_of(request: Request) -> Interface:  # async, because FastAPI runs other functions in a thread
    service: Interface = request.app.state.service
    return service


Served = Annotated[Interface, Depends(service_of)]


class _Needs(HTTPBearer):
    """Requires a token with a permission, if the service has tokens, and of a write that its parameters are known. A
    single dependency: each one costs time."""

    def __init__(self, permission: Permission) -> None:
        about = "a token of the tokens file; not needed if the service has no such file"
        super().__init__(scheme_name="HTTPBearer", description=about, auto_error=False)
        self._permission = permission

    async def __call__(self, request: Request) -> None:  # type: ignore[override]
        await self._check_token(request)
        if self._permission != "read" and request.scope["query_string"]:
            _check_parameters(request)

    async def _check_token(self, request: Request) -> None:
        service = await service_of(request)
        if service.tokens is None or request.scope.get("state", {}).get("local"):
            return
        given = await super().__call__(request)
        token = service.tokens.find(given.credentials) if given is not None else None
        if token is None:
            said = 'Bearer error="invalid_token"' if given is not None else "Bearer"
            raise Problem(
                401, "a bearer token of the tokens file is needed", field="Authorization",
                headers={"WWW-Authenticate": said},
            )  # fmt: skip
        request.state.token = token
        if self._permission not in token.permissions:
            raise _lacking(self._permission)


READ, WRITE, DELETE = Security(_Needs("read")), Security(_Needs("write")), Security(_Needs("delete"))


def _check_parameters(request: Request) -> None:
    """Raise Problem for a query parameter that a write does not have, or that it is given twice."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known, seen = [field.alias for field in route.dependant.query_params], set[str]()
    for name, _ in request.query_params.multi_items():
        shown = name[:60]
        if name not in known:
            found = near(name, known)
            meant = "leave it out" if found is None else f"did you mean {found}?"
            raise Problem(422, f"{shown}: there is no such parameter; {meant}", field=shown)
        if name in seen:
            raise Problem(422, f"{shown}: give it once", field=shown)
        seen.add(name)


def _lacking(permission: Permission) -> Problem:
    return Problem(
        403, f"the token does not have the permission {permission!r}", field="Authorization",
        headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{permission}"'},
    )  # fmt: skip


def check_permission(request: Request, permission: Permission) -> None:
    """Raise Problem if a request has a token without this permission."""
    token: Token | None = getattr(request.state, "token", None)
    if token is not None and permission not in token.permissions:
        raise _lacking(permission)


class Guard:
    """Adds headers to every response, and answers unexpected errors. Without tokens it refuses pages of other sites: a
    browser on this machine can connect to loopback addresses.

    Args:
        hosts: names that Host headers may have, beside those of loopback; None = any. Health has no such limit: load
            balancers ask for it by address.
    """

    def __init__(self, app: ASGIApp, origins: tuple[str, ...], hosts: frozenset[str] | None) -> None:
        self._app = app
        self._origins = origins
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, origin, begun = Headers(scope=scope), None, False
        free = scope.get("state", {}).get("local") or scope["path"].startswith("/health/")
        problem = _not_understood(headers) or (None if free else self._problem(headers))

        if (found := headers.get("origin")) in self._origins:
            origin = found

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                said = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    said.setdefault(name, value)
                said.setdefault("cache-control", "no-store")
                if origin is not None:
                    said["access-control-allow-origin"] = origin
                    said["access-control-expose-headers"] = _EXPOSED
                    said["vary"] = "Origin"
                    said["cross-origin-resource-policy"] = "cross-origin"
            await send(message)

        if problem is not None:
            await problem.response()(scope, receive, guarded)
        elif origin is not None and scope["method"] == "OPTIONS":
            await self._preflight(guarded)
        else:
            try:
                await self._app(scope, receive, guarded)
            except Exception as error:
                if begun:
                    raise
                _LOG.exception("unexpected error")
                problem = Problem(500, f"unexpected error ({type(error).__name__}); see the log")
                await problem.response()(scope, receive, guarded)

    def _problem(self, headers: Headers) -> Problem | None:
        host = headers.get("host", "")
        if self._hosts is not None and not (is_loopback(name := _name(host)) or name in self._hosts):
            return Problem(
                403, f"the Host header is {host[:100]!r}, but the service only answers to "
                f"{', '.join(('localhost', *sorted(self._hosts)))} (--allow-host)",
                field="Host",
            )  # fmt: skip
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins and _host(origin) != host:
            return Problem(403, f"pages of {origin[:100]!r} may not use this service (--allow-origin)", field="Origin")
        return None

    async def _preflight(self, send: Send) -> None:
        allowed = [
            (b"access-control-allow-methods", b"GET, HEAD, POST, DELETE"),
            (
                b"access-control-allow-headers",
                b"authorization, content-encoding, content-type, idempotency-key, if-match, if-none-match, "
                b"last-event-id, x-request-id",
            ),
            (b"access-control-max-age", b"600"),
        ]
        await send({"type": "http.response.start", "status": 204, "headers": allowed})
        await send({"type": "http.response.body", "body": b""})


def _not_understood(headers: Headers) -> Problem | None:
    """The problem for a request that RFC 9112 refuses, and the parser accepts."""
    if len(headers.getlist("host")) > 1:
        return Problem(400, "the request has several Host headers", field="Host", close=True)
    coding = ",".join(headers.getlist("transfer-encoding")).strip().lower()
    if coding not in ("", "chunked"):
        return Problem(
            501, f"the transfer coding has to be chunked, not {coding[:60]!r}", field="Transfer-Encoding", close=True
        )  # fmt: skip
    return None


def _host(origin: str) -> str | None:
    """The host and port of an origin, None if it has none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""
