"""Admission of requests: whether documents are accepted, requests in progress, and the end of both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from stream_lsh.serve.counts import Tally
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.starting import STOP_SECONDS

MOST_READS = 1000  # without an answer


class Holding:
    """The bytes that one request has in memory: its body until it is judged, and answers until they are sent."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self.bytes = 0

    def fits(self, size: int) -> bool:
        """Whether more fits into the limit of all requests together. A request alone may hold any size."""
        return self._intake.bytes + size <= self._intake.most_bytes or self._intake.bytes == self.bytes

    def take(self, size: int) -> None:
        """Hold more of the body. Raises Problem if it does not fit."""
        if not self.fits(size):
            raise self._intake.crowded(f"requests in progress have {self._intake.bytes:,} bytes in memory", close=True)
        self.add(size)

    def add(self, size: int) -> None:
        """Hold more that cannot be refused."""
        self.bytes += size
        self._intake.bytes += size

    def release(self, size: int) -> None:
        """Hold less."""
        self.add(-min(size, self.bytes))


class Intake:
    """The admission of a service. Used in its event loop.

    Args:
        tally: counts refused requests.
        waiting: number of documents that wait for verdicts.
        most: limit of these, above which requests are refused.
        most_bytes: limit of the bytes that requests in progress have in memory.
        closed: why no documents are accepted. Called only in that case.

    Attributes:
        ready: whether documents are accepted.
        began: whether they ever were.
        stopping: whether the service is stopping.
        taken: number of requests in progress that bring documents.
        bytes: what they have in memory, as far as it is counted: bodies, and answers that are not sent.
        reading: number of reads without an answer.
    """

    def __init__(
        self, tally: Tally, waiting: Callable[[], int], most: int, most_bytes: int, closed: Callable[[], str]
    ) -> None:
        self.began = False
        self.stopping = False
        self.taken = 0
        self.bytes = 0
        self.most_bytes = most_bytes
        self.reading: Callable[[], int] = lambda: 0
        self._ready = False
        self._tally = tally
        self._waiting = waiting
        self._most = most
        self._closed = closed

    @property
    def ready(self) -> bool:
        return self._ready

    @ready.setter
    def ready(self, value: bool) -> None:
        self._ready = value
        self.began |= value

    @property
    def health(self) -> Literal["starting", "ready", "not_ready", "stopping"]:
        """The state, as one word."""
        if self.stopping:
            return "stopping"
        return "ready" if self.ready else "not_ready" if self.began else "starting"

    @property
    def why_not(self) -> str:
        """Why the service is not ready."""
        return "the service is stopping" if self.stopping else self._closed()

    def admit(self) -> None:
        """Raise Problem if no documents are accepted now."""
        self._check_ready()
        if (waiting := self._waiting()) >= self._most:
            raise self.crowded(f"{waiting:,} documents wait for their verdicts already")

    def crowded(self, why: str, *, close: bool = False) -> Problem:
        """The problem for a request that is refused because others wait; it is counted. close: as for `Problem`."""
        self._tally.refuse()
        return Problem(429, f"{why}; try again in a second", after=1, close=close)

    def admit_read(self) -> None:
        """Raise Problem if no reads are accepted now. Documents that wait do not matter: reads do not wait for them."""
        self._check_ready()
        if (reading := self.reading()) >= MOST_READS:
            raise self.crowded(f"{reading:,} reads wait for their answers already")

    def _check_ready(self) -> None:
        if not self.ready:
            raise Problem(503, self.why_not, after=5, close=self.stopping)

    @contextmanager
    def taking(self) -> Iterator[Holding]:
        """Counts a request in progress that brings documents, and what it has in memory."""
        self.taken += 1
        holding = Holding(self)
        try:
            yield holding
        finally:
            holding.release(holding.bytes)
            self.taken -= 1

    def close(self) -> None:
        """Accept no new requests."""
        self.stopping, self.ready = True, False

    async def finish(self) -> None:
        """Wait for the requests in progress, up to their time limit."""
        patience = time.monotonic() + STOP_SECONDS
        while self.taken and time.monotonic() < patience:
            await asyncio.sleep(0.02)
