"""Costly reads of one kind: one at a time, in a thread of their own, and only so many wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from stream_lsh.serve.problems import Problem

P = ParamSpec("P")
T = TypeVar("T")


class Turns:
    """The turns of one kind of work. Used in the event loop.

    Args:
        what: the work, for messages: a plural.
        most: requests that may wait, the one in progress included.
        refused: called for each request above that.
    """

    def __init__(self, what: str, most: int, refused: Callable[[], None]) -> None:
        self._what = what
        self._most = most
        self._refused = refused
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, what)

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place among those that wait, for one request. Raises Problem if there is none."""
        if self._waiting >= self._most:
            self._refused()
            raise Problem(
                429, f"{self._waiting:,} {self._what} wait already, and one is made at a time; try again in a second",
                headers={"Retry-After": "1"},
            )  # fmt: skip
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def run(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """The result of some work, in its turn."""
        return await asyncio.wrap_future(self.submit(work, *args, **named))

    def submit(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> Future[T]:
        """Work in its turn, for which no request waits."""
        return self._thread.submit(work, *args, **named)

    def close(self) -> None:
        """End the thread, after the work in progress."""
        self._thread.shutdown(wait=False, cancel_futures=True)
