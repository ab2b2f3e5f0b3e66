"""The clients of the HTTP API, without and with asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self, TypeVar

import httpx

from stream_lsh.client.calls import Call, Id, authorization, given, problem_of
from stream_lsh.client.errors import RequestError
from stream_lsh.client.events import PATH, SILENT_SECONDS, Event, Feed
from stream_lsh.client.operations import Calls, Operations
from stream_lsh.client.retries import Retries

T = TypeVar("T")


class Client(Operations):
    """A client of `stream-lsh serve`.

    A request that fails for a while (no connection, 429, 502, 503, 504) is sent again, after a pause that doubles, and
    not before `Retry-After`. A request that writes has an idempotency key, so it counts once. All methods raise
    RequestError if the service refuses a request, and Unreachable if there is no answer.

    Args:
        url: of the service, such as http://127.0.0.1:8765.
        token: bearer token.
        attempts: most times that a request is sent.
        timeout: seconds without an answer.
        verify: whether certificates are checked, or an SSLContext with the accepted ones.
    """

    def __init__(
        self, url: str, *, token: str | None = None, attempts: int = 6, timeout: float = 60.0, verify: Any = True
    ) -> None:
        self._http = httpx.Client(base_url=url, headers=authorization(token), timeout=timeout, verify=verify)
        self._attempts = attempts

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def events(
        self, *kinds: str, after: str | None = None, source: Id | None = None, min_similarity: float = 0.0,
        min_total: int = 0,
    ) -> Iterator[Event]:  # fmt: skip
        """Events as they are committed, without an end. A lost connection is made again, and continues behind the last
        event.

        Args:
            kinds: verdict, pair, group, alert; all by default.
            after: place of the last event that is known; None = from now on.
            source: only what documents of this source cause.
            min_similarity: only verdicts and pairs with at least this similarity.
            min_total: only groups, and alerts about groups, with at least so many members ever.
        """
        feed = Feed(after, self._attempts)
        params = given(kinds=",".join(kinds), source=source, min_similarity=min_similarity, min_total=min_total)
        silent = httpx.Timeout(self._http.timeout.connect, read=SILENT_SECONDS)
        while True:
            lost: RequestError | httpx.TransportError | None = None
            try:
                with self._http.stream("GET", PATH, params=params, headers=feed.headers, timeout=silent) as said:
                    if not said.is_success:
                        said.read()
                        raise problem_of(said)
                    for block in said.iter_bytes():
                        yield from feed.events(block)
            except (httpx.TransportError, RequestError) as error:
                lost = error
            time.sleep(feed.retries.pause(lost))

    def _each(self, calls: Calls[T]) -> Iterator[T]:
        """The results of requests that are made one after the other."""
        for call in calls:
            yield from self._result(call)

    def _result(self, call: Call[T]) -> T:
        """The result of a request, which may need several attempts."""
        retries = Retries(f"{call.method} {call.path}", self._attempts)
        while True:
            try:
                return call.read(self._http.request(**call.request))
            except (httpx.TransportError, RequestError) as error:
                time.sleep(retries.pause(error))


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
                return call.read(await self._http.request(**call.request))
            except (httpx.TransportError, RequestError) as error:
                await asyncio.sleep(retries.pause(error))
