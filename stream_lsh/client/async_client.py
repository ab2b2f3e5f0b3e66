"""The client for asyncio: the methods of `Client`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Literal, Self, TypeVar

import httpx

from stream_lsh.client import calls
from stream_lsh.client.calls import Call, Id, Part
from stream_lsh.client.errors import RequestError
from stream_lsh.client.events import PATH, SILENT_SECONDS, Event, Feed
from stream_lsh.client.retries import Retries
from stream_lsh.serve.schemas import (
    Backup,
    Comparison,
    Document,
    Group,
    GroupRow,
    Member,
    Pair,
    RaisedAlert,
    Stats,
    Verdict,
)

T = TypeVar("T")
Order = Literal["largest", "newest", "growing"]


class AsyncClient:
    """`Client` for asyncio. Its methods have the same arguments, results and errors."""

    def __init__(
        self, url: str, *, token: str | None = None, attempts: int = 6, timeout: float = 60.0, verify: Any = True
    ) -> None:
        headers = calls.authorization(token)
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout, verify=verify)
        self._attempts = attempts

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- documents --------------------------------------------------------------------------------------------------

    async def add(
        self, document: Mapping[str, Any], *, durable: bool = True, version: int | None = None, new: bool = False,
        key: str | None = None,
    ) -> Verdict:  # fmt: skip
        """Check a document and add it."""
        return await self._result(calls.add(document, durable, version, new, key))

    def add_many(self, documents: Iterable[Mapping[str, Any]], *, durable: bool = True) -> AsyncIterator[Verdict]:
        """Check documents and add them, in requests of 1,000 lines. A rejected one has a verdict with its reason."""
        return self._each(calls.add_many(documents, durable))

    async def check(self, document: Mapping[str, Any]) -> Verdict:
        """The verdict that a document would get as the next one."""
        return await self._result(calls.check(document))

    def check_many(self, documents: Iterable[Mapping[str, Any]]) -> AsyncIterator[Verdict]:
        """The verdicts that documents would get, each as the next one."""
        return self._each(calls.check_many(documents))

    async def delete(
        self, id: Id, *, durable: bool = True, version: int | None = None, key: str | None = None
    ) -> Verdict:  # fmt: skip
        """Delete a document; `deleted` says whether it was there. The arguments are those of `add`."""
        return await self._result(calls.delete(id, durable, version, key))

    def delete_many(self, ids: Iterable[Id], *, durable: bool = True) -> AsyncIterator[Verdict]:
        """Delete documents."""
        return self._each(calls.delete_many(ids, durable))

    async def get(self, id: Id, *, text: bool = False) -> Document | None:
        """A document, on request with its text; None if there is none. `seq` is its version."""
        return await self._result(calls.get(id, text))

    def get_many(self, ids: Iterable[Id], *, text: bool = False) -> AsyncIterator[Document | None]:
        """Documents in the order of their ids."""
        return self._each(calls.get_many(ids, text))

    async def compare(self, a: Id, b: Id) -> Comparison:
        """Two documents side by side."""
        return await self._result(calls.compare(a, b))

    # -- groups, events and the service -----------------------------------------------------------------------------

    def groups(
        self, *, order: Order = "largest", since: str | None = None, until: str | None = None, source: Id | None = None,
        min_total: int = 0, min_similarity: float = 0.0, q: str | None = None, limit: int | None = None,
    ) -> AsyncIterator[GroupRow]:  # fmt: skip
        """Rows of the table of groups, page after page."""
        return self._parts(calls.groups(order, since, until, source, min_total, min_similarity, q, limit))

    async def group(self, number: int, *, limit: int = 1000) -> Group:
        """A group with its first members."""
        return await self._result(calls.group(number, limit))

    def members(
        self, number: int, *, since: str | None = None, until: str | None = None, source: Id | None = None,
        min_similarity: float | None = None,
    ) -> AsyncIterator[Member]:  # fmt: skip
        """The members of a group in the order of arrival, page after page."""
        return self._parts(calls.members(number, since, until, source, min_similarity))

    def pairs(
        self, *, q: str | None = None, since: str | None = None, until: str | None = None, source: Id | None = None,
        min_similarity: float = 0.0, best: bool = False,
    ) -> AsyncIterator[Pair]:  # fmt: skip
        """The latest pairs, the newest first, as far back as the service has them in memory."""
        return self._parts(calls.pairs(q, since, until, source, min_similarity, best))

    def alerts(self, *, rule: str | None = None) -> AsyncIterator[RaisedAlert]:
        """The alerts that the service has stored, the newest first, page after page. rule: only those of this rule."""
        return self._parts(calls.alerts(rule))

    async def events(
        self, *kinds: str, after: str | None = None, source: Id | None = None, min_similarity: float = 0.0,
        min_total: int = 0,
    ) -> AsyncIterator[Event]:  # fmt: skip
        """Events as they are committed, without an end."""
        feed, params = Feed(after, self._attempts), calls.events(kinds, source, min_similarity, min_total)
        silent = httpx.Timeout(self._http.timeout.connect, read=SILENT_SECONDS)
        while True:
            lost: RequestError | httpx.TransportError | None = None
            try:
                async with self._http.stream("GET", PATH, params=params, headers=feed.headers, timeout=silent) as said:
                    if not said.is_success:
                        await said.aread()
                        raise calls.problem_of(said)
                    async for block in said.aiter_bytes():
                        for event in feed.events(block):
                            yield event
            except (httpx.TransportError, RequestError) as error:
                lost = error
            await asyncio.sleep(feed.retries.pause(lost))

    async def stats(self, seconds: int = 0) -> Stats:
        """The index, the service and its counts. seconds: how many of the last seconds are listed."""
        return await self._result(calls.stats(seconds))

    async def backup(self, name: str | None = None) -> Backup:
        """Make a backup of the index, in the service's folder of backups. The default name is the time."""
        return await self._result(calls.backup(name))

    async def _each(self, parts: Iterable[Call[list[T]]]) -> AsyncIterator[T]:
        for call in parts:
            for found in await self._result(call):
                yield found

    async def _parts(self, call: Call[Part[T]] | None) -> AsyncIterator[T]:
        while call is not None:
            part = await self._result(call)
            for found in part.results:
                yield found
            call = part.following

    async def _result(self, call: Call[T]) -> T:
        retries = Retries(f"{call.method} {call.path}", self._attempts)
        while True:
            try:
                said = await self._http.request(
                    call.method, call.path, params=call.params, headers=call.headers, content=call.content
                )
                return call.read(said)
            except (httpx.TransportError, RequestError) as error:
                await asyncio.sleep(retries.pause(error))
