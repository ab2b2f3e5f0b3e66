"""Proxies in front of the service, whose headers say the client's address and the scheme and host of its request."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from stream_lsh.errors import UsageError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_ADDRESS, _SCHEME, _HOST = "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"
_LONGEST = 300  # bytes of a header that are used, its last ones


def network_of(text: str) -> Network:
    """The addresses of a proxy: one address, or a network such as 10.0.0.0/8.

    Raises:
        UsageError: it is neither.
    """
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageError(f"--trusted-proxy {text}: {error}; give an address or a network such as 10.0.0.0/8") from None


class Proxies:
    """Believes the headers X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host of trusted proxies only.

    The client is the last address in X-Forwarded-For that is no trusted proxy: a client can write all before it.
    """

    def __init__(self, app: ASGIApp, trusted: Sequence[Network]) -> None:
        self._app = app
        self._trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("client") and self._trusts(scope["client"][0]):
            self._believe(scope)
        await self._app(scope, receive, send)

    def _trusts(self, text: str) -> bool:
        address = _address(text)
        return address is not None and any(address in network for network in self._trusted)

    def _believe(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        client = next((text for text in reversed(_values(headers, _ADDRESS)) if not self._trusts(text)), "")
        if (address := _address(client)) is not None:
            scope["client"] = (str(address), 0)
        scheme = _values(headers, _SCHEME)[-1:]
        if scheme in (["http"], ["https"]):
            scope["scheme"] = scheme[0]
        if host := _values(headers, _HOST)[-1:]:
            others = [(name, value) for name, value in scope["headers"] if name != b"host"]
            scope["headers"] = [(b"host", host[0].encode("latin-1")), *others]


def _values(headers: Headers, name: str) -> list[str]:
    """The values of a header, each proxy's behind the others; of a long one the last that are whole."""
    text = ",".join(headers.getlist(name))
    if len(text) > _LONGEST:
        text = text[-_LONGEST - 1 :].partition(",")[2]
    return [value.strip() for value in text.split(",") if value.strip()]


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address without its port and zone; an IPv4 address that IPv6 maps is itself."""
    text = text.partition("%")[0]
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
