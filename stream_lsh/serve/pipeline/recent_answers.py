"""Answers under idempotency keys, in memory: a pipeline on Kafka has no store for them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from stream_lsh.serve.retries import MOST_BYTES, Retry
from stream_lsh.serve.work import Answers

MOST_ANSWERS = 10_000
_Key = tuple[str, int]


class RecentAnswers:
    """The last 10,000 answers under keys, with at most 64 MiB. Used in the event loop."""

    def __init__(self) -> None:
        self._known: OrderedDict[_Key, tuple[str, asyncio.Task[Answers]]] = OrderedDict()
        self._sizes: dict[_Key, int] = {}
        self._bytes = 0

    async def answer(self, retry: Retry, send: Callable[[], Coroutine[Any, Any, Answers]]) -> Answers:
        """The answer of the first request with this key. A request that failed is sent again.

        Raises:
            Problem: the key was used with another request, or the request fails.
        """
        key = (retry.name, retry.part)
        if (known := self._known.get(key)) is not None:
            retry.check(known[0])
            return replace(await asyncio.shield(known[1]), repeated=True)
        task = asyncio.create_task(send())
        self._known[key] = mine = retry.request, task
        try:
            found = await asyncio.shield(task)
        except BaseException:
            if self._known.get(key) is mine:
                self._drop(key)
            raise
        if self._known.get(key) is mine:  # it may be dropped while it is under way
            self._sizes[key] = size = sum(map(len, found.lines))
            self._bytes += size
        while self._known and (len(self._known) > MOST_ANSWERS or self._bytes > MOST_BYTES):
            self._drop(next(iter(self._known)))
        return found

    def _drop(self, key: _Key) -> None:
        self._known.pop(key, None)
        self._bytes -= self._sizes.pop(key, 0)
