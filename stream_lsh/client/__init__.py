"""A client of the HTTP API of `stream-lsh serve`, with and without asyncio. It needs the extra `client`."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("httpx") is None:
    raise ModuleNotFoundError(
        "stream_lsh.client needs the package httpx, which is not installed: pip install 'stream-lsh[client]'"
    )

from stream_lsh.client.client import AsyncClient, Client
from stream_lsh.client.errors import RequestError, Unreachable, VerdictPending
from stream_lsh.client.events import Event

__all__ = ["AsyncClient", "Client", "Event", "RequestError", "Unreachable", "VerdictPending"]
