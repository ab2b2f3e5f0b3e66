"""The client for asyncio: the methods of `Client`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self, TypeVar

import httpx

from stream_lsh.client.calls import Call, Id, authorization, given, problem_of
from stream_lsh.client.errors import RequestError
from stream_lsh.client.events import PATH, SILENT_SECONDS, Event, Feed
from stream_lsh.client.operations import Calls, Operations
from stream_lsh.client.retries import Retries

T = TypeVar("T")


class AsyncClient(Operations):
    """`Client` for asyncio. Its methods have the same arguments, results and errors."""

    def __init__(
        self, url: str, *, token: str | None = None, attempts: int = 6, timeout: float = 60.0, verify: Any = True
    ) -> None:
        self._http = httpx.AsyncClient(base_url=url, headers=authorization(token), timeout=timeout, verify=verify)
        self._attempts = attempts

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def events(
        self, *kinds: str, after: str | None = None, source: Id | None = None, min_similarity: float = 0.0,
        min_total: int = 0,
    ) -> AsyncIterator[Event]:  # fmt: skip
        """Events as they are committed, without an end."""
        feed = Feed(after, self._attempts)
        params = given(kinds=",".join(kinds), source=source, min_similarity=min_similarity, min_total=min_total)
        silent = httpx.Timeout(self._http.timeout.connect, read=SILENT_SECONDS)
        while True:
            lost: RequestError | httpx.TransportError | None = None
            try:
                async with self._http.stream("GET", PATH, params=params, headers=feed.headers, timeout=silent) as said:
                    if not said.is_success:
                        await said.aread()
                        raise problem_of(said)
                    async for block in said.aiter_bytes():
                        for event in feed.events(block):
                            yield event
            except (httpx.TransportError, RequestError) as error:
                lost = error
            await asyncio.sleep(feed.retries.pause(lost))

    async def _each(self, calls: Calls[T]) -> AsyncIterator[T]:
        """As in `Client`."""
        for call in calls:
            for found in await self._result(call):
                yield found

    async def _result(self, call: Call[T]) -> T:
        """As in `Client`."""
        retries = Retries(f"{call.method} {call.path}", self._attempts)
        while True:
            try:
                said = await self._http.request(
                    call.method, call.path, params=call.params, headers=call.headers, content=call.content
                )
                return call.read(said)
            except (httpx.TransportError, RequestError) as error:
                await asyncio.sleep(retries.pause(error))
