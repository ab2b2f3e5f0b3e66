"""What a role sends without transactions: as much at a time as brokers take, and done in the order of its input.

Several records are on their way at once. One that is not delivered ends the life, and the next one begins at the
committed positions; who reads the topic knows repeats and holes by what the records say themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from aiokafka import AIOKafkaProducer

from stream_lsh.kafka.client.clients import ANSWER_MS
from stream_lsh.kafka.run.lives import Failed, Unanswered

Record = tuple[str, int, bytes]
"""Topic, partition and value."""

MOST_BYTES = 32 << 20
"""On their way: a third of what brokers take by default in a request (socket.request.max.bytes, 100 MiB)."""
ANSWER_SECONDS = ANSWER_MS / 1000  # for an acknowledgement without a transaction

Item = TypeVar("Item")


class Underway:
    """Sends through a producer, a record waiting while there are too many bytes before it.

    aiokafka puts the records of all partitions of a broker into one request, however large that becomes. A broker that
    gets too much closes the connection, and aiokafka sends the same again for ever.
    """

    def __init__(self, producer: AIOKafkaProducer, most: int = MOST_BYTES) -> None:
        self.bytes = 0
        self._producer = producer
        self._most = most
        self._turn = asyncio.Lock()  # a large record's comes, however many small ones there are
        self._freed = asyncio.Event()

    async def send(self, topic: str, partition: int, value: bytes) -> asyncio.Future[Any]:
        """As `AIOKafkaProducer.send`; a record that is larger than what may be under way goes alone."""
        return await self._in_turn(len(value), lambda: self._producer.send(topic, value, partition=partition))

    async def send_batch(self, topic: str, partition: int, batch: Any) -> asyncio.Future[Any]:
        """As `AIOKafkaProducer.send_batch`, likewise."""
        return await self._in_turn(batch.size(), lambda: self._producer.send_batch(batch, topic, partition=partition))

    async def _in_turn(self, size: int, send: Callable[[], Awaitable[asyncio.Future[Any]]]) -> asyncio.Future[Any]:
        async with self._turn:
            while self.bytes and self.bytes + size > self._most:
                self._freed.clear()
                await self._freed.wait()
            self.bytes += size
        try:
            future = await send()
        except BaseException:
            self._done(size)
            raise
        future.add_done_callback(lambda _: self._done(size))
        return future

    def _done(self, size: int) -> None:
        self.bytes -= size
        self._freed.set()


class Send(Protocol):
    """Hands a record over; what the future holds has its offset once all copies are there."""

    async def __call__(self, topic: str, partition: int, value: bytes) -> asyncio.Future[Any]: ...


@dataclass(slots=True, eq=False)
class _Sent(Generic[Item]):
    """What came of an item. waiting: records that are not confirmed; since: when the last one was handed over, by the
    monotonic clock, if one was."""

    item: Item
    waiting: int
    size: int
    placed: list[Any]
    since: float | None = None


class InOrder(Generic[Item]):
    """Records on their way, several of an item, or none. An item is done when all of its records are confirmed, and all
    items before it are done.

    Faust commits past a head that was never acknowledged, as long as what follows it was (measured: committed 34,
    acknowledged 35, it commits 36). So nothing may be acknowledged out of order.

    Args:
        done: told each item, in the order of `send`, with what the futures of its records held. failed: told the error
        of a record that was not delivered; nothing is done after it.

    Attributes:
        bytes: of the records of all items that are not done.
    """

    def __init__(
        self, send: Send, done: Callable[[Item, list[Any]], object], failed: Callable[[BaseException], object]
    ) -> None:
        self.bytes = 0
        self._send = send
        self._done = done
        self._failed = failed
        self._sent: deque[_Sent[Item]] = deque()
        self._open = True
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        """Items that are not done."""
        return len(self._sent)

    async def send(self, item: Item, records: Sequence[Record]) -> None:
        """Hand the records of an item over, after those of all items before. Of no effect after `close`."""
        if not self._open:
            return
        # Counted before the first is sent: it may be confirmed before the second is on its way.
        size = sum([len(value) for _, _, value in records])
        sent: _Sent[Item] = _Sent(item, len(records), size, [None] * len(records))
        self._sent.append(sent)
        self.bytes += size
        self._empty.clear()
        try:
            for number, record in enumerate(records):
                future = await self._send(*record)
                sent.since = time.monotonic()  # not before: it may have had to wait until there was room for it
                future.add_done_callback(partial(self._arrived, sent, number))
        except BaseException:
            if sent in self._sent:  # what is not all handed over is never done; those before it may be
                self._sent.remove(sent)
                self.bytes -= size
                self._settle()
            raise
        self._settle()

    def _arrived(self, sent: _Sent[Item], number: int, future: asyncio.Future[Any]) -> None:
        error = Failed("a send was given up") if future.cancelled() else future.exception()
        if not self._open:
            return
        if error is not None:
            self.close()
            self._failed(error)
            return
        sent.placed[number] = future.result()
        sent.waiting -= 1
        self._settle()

    def _settle(self) -> None:
        while self._sent and not self._sent[0].waiting:
            sent = self._sent.popleft()
            self.bytes -= sent.size
            self._done(sent.item, sent.placed)
        if not self._sent:
            self._empty.set()

    def check(self) -> None:
        """Raises Unanswered if Kafka has not acknowledged for long what was sent, for which aiokafka would wait for
        ever."""
        first = self._sent[0] if self._sent else None
        if first is not None and first.since is not None and time.monotonic() > first.since + ANSWER_SECONDS:
            raise Unanswered(f"what was sent was not acknowledged within {ANSWER_SECONDS:.0f} s")

    def close(self) -> None:
        """Have nothing done any more: what is on its way belongs to a past that may be another's by now."""
        self._open = False
        self._sent.clear()
        self.bytes = 0
        self._empty.set()

    async def drained(self) -> None:
        """Wait until nothing is on its way."""
        await self._empty.wait()
