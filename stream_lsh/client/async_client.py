"""The client for asyncio: the methods of `Client`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import httpx

from stream_lsh.client import calls
from stream_lsh.client.calls import Call, Id
from stream_lsh.client.errors import RequestError, Unreachable
from stream_lsh.client.events import SILENT_SECONDS, Event, Feed
from stream_lsh.client.exchange import RETRIED, Outcome, exchange, pause
from stream_lsh.serve.schemas import Backup, Comparison, Document, Group, GroupRow, Stats, Verdict

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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- documents --------------------------------------------------------------------------------------------------

    async def add(
        self, document: Mapping[str, Any], *, durable: bool = True, version: int | None = None, new: bool = False,
        key: str | None = None,
    ) -> Verdict:  # fmt: skip
        """Check a document and add it."""
        return await self._result(calls.add(document, durable, version, new, key))

    async def add_many(self, documents: Iterable[Mapping[str, Any]], *, durable: bool = True) -> AsyncIterator[Verdict]:
        """Check documents and add them, in requests of 1,000 lines. A rejected one has a verdict with its reason."""
        for lines in calls.batches(documents):
            for found in await self._result(calls.add_lines(lines, durable)):
                yield found

    async def check(self, document: Mapping[str, Any]) -> Verdict:
        """The verdict that a document would get as the next one."""
        return await self._result(calls.check(document))

    async def check_many(self, documents: Iterable[Mapping[str, Any]]) -> AsyncIterator[Verdict]:
        """The verdicts that documents would get, each as the next one."""
        for lines in calls.batches(documents):
            for found in await self._result(calls.check_lines(lines)):
                yield found

    async def delete(
        self, id: Id, *, durable: bool = True, version: int | None = None, key: str | None = None
    ) -> Verdict:  # fmt: skip
        """Delete a document; `deleted` says whether it was there. The arguments are those of `add`."""
        return await self._result(calls.delete(id, durable, version, key))

    async def delete_many(self, ids: Iterable[Id], *, durable: bool = True) -> AsyncIterator[Verdict]:
        """Delete documents."""
        for lines in calls.batches(ids):
            for found in await self._result(calls.delete_lines(lines, durable)):
                yield found

    async def get(self, id: Id, *, text: bool = False) -> Document | None:
        """A document, on request with its text; None if there is none. `seq` is its version."""
        return await self._result(calls.get(id, text))

    async def get_many(self, ids: Iterable[Id], *, text: bool = False) -> AsyncIterator[Document | None]:
        """Documents in the order of their ids."""
        for lines in calls.batches(ids):
            for found in await self._result(calls.get_lines(lines, text)):
                yield found

    async def compare(self, a: Id, b: Id) -> Comparison:
        """Two documents side by side."""
        return await self._result(calls.compare(a, b))

    # -- groups, events and the service -----------------------------------------------------------------------------

    async def groups(self, *, order: Order = "largest", since: str | None = None, limit: int = 50) -> list[GroupRow]:
        """Rows of the table of groups. since: only groups that a member joined within `90m`, `24h`, `7d`."""
        return await self._result(calls.groups(order, since, limit))

    async def group(self, number: int, *, limit: int = 1000) -> Group:
        """A group with its first members."""
        return await self._result(calls.group(number, limit))

    async def events(self, *kinds: str, after: str | None = None) -> AsyncIterator[Event]:
        """Events as they are committed, without an end."""
        feed, failures = Feed(after), 0
        params, silent = {"kinds": ",".join(kinds)}, httpx.Timeout(self._http.timeout.connect, read=SILENT_SECONDS)

        while True:
            error: RequestError | Unreachable = Unreachable("GET /v1/events: the stream ended")
            try:
                async with self._http.stream(
                    "GET", "/v1/events", params=params, headers=feed.headers, timeout=silent
                ) as said:
                    if not said.is_success:
                        await said.aread()
                        raise calls.problem_of(said)
                    async for block in said.aiter_bytes():
                        failures = 0
                        for event in feed.events(block):
                            yield event
            except httpx.TransportError as lost:
                error = Unreachable(f"GET /v1/events: {lost!r}")
            except RequestError as refused:
                error = refused
            failures += 1
            if failures >= self._attempts or (isinstance(error, RequestError) and error.status not in RETRIED):
                raise error
            await asyncio.sleep(pause(failures, error, random.random))

    async def stats(self, seconds: int = 0) -> Stats:
        """The index, the service and its counts. seconds: how many of the last seconds are listed."""
        return await self._result(calls.stats(seconds))

    async def backup(self, name: str | None = None) -> Backup:
        """Make a backup of the index, in the service's folder of backups. The default name is the time."""
        return await self._result(calls.backup(name))

    async def _result(self, call: Call[T]) -> T:
        steps = exchange(call, self._attempts, random.random)
        outcome: Outcome = None
        seconds = next(steps)
        while True:
            if seconds is None:
                outcome = await self._sent(call)
            else:
                await asyncio.sleep(seconds)
            try:
                seconds = steps.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result

    async def _sent(self, call: Call[T]) -> Outcome:
        try:
            return await self._http.request(
                call.method, call.path, params=call.params, headers=call.headers, content=call.content
            )
        except httpx.TransportError as error:
            return error
