"""Sending without transactions: limited bytes in flight, and completion in the order of the input.

Several records are in flight at once. A record that is not delivered ends the run of the role, and the next run begins
at the committed positions. Readers of the topic detect repeats and gaps from the records themselves.
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
from stream_lsh.kafka.run.restarts import Failed, Unanswered

Record = tuple[str, int, bytes]
"""Topic, partition and value."""

MOST_BYTES = 32 << 20
"""Bytes in flight: a third of the default limit of a request (socket.request.max.bytes, 100 MiB)."""
ANSWER_SECONDS = ANSWER_MS / 1000  # time limit of an acknowledgement without a transaction

Item = TypeVar("Item")


class Underway:
    """Sends through a producer, and delays a record while too many bytes are in flight.

    aiokafka puts the records for all partitions of a broker into one request of any size. A broker closes the
    connection if a request is too large, and aiokafka then repeats that request for ever.
    """

    def __init__(self, producer: AIOKafkaProducer, most: int = MOST_BYTES) -> None:
        self.bytes = 0
        self._producer = producer
        self._most = most
        self._turn = asyncio.Lock()  # fair: small records cannot overtake a large one for ever
        self._freed = asyncio.Event()

    async def send(self, topic: str, partition: int, value: bytes) -> asyncio.Future[Any]:
        """As `AIOKafkaProducer.send`. A record larger than the limit is sent alone."""
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
    """Hands a record over. The future's result has the offset, once the record is acknowledged."""

    async def __call__(self, topic: str, partition: int, value: bytes) -> asyncio.Future[Any]: ...


@dataclass(slots=True, eq=False)
class _Sent(Generic[Item]):
    """The state of an item.

    Attributes:
        waiting: records that are not acknowledged.
        placed: results of the records' futures.
        since: when its last record was handed over, in seconds of the monotonic clock.
    """

    item: Item
    waiting: int
    size: int
    placed: list[Any]
    since: float | None = None


class InOrder(Generic[Item]):
    """Records in flight. An item has any number of records. It is done when all its records are acknowledged and all
    items before it are done.

    Faust commits past an offset that was never acknowledged if later offsets were (measured: committed 34, acknowledged
    35, it commits 36). So acknowledgements must be in order.

    Args:
        done: gets each item, in the order of `send`, with the results of its records' futures.
        failed: gets the error of a record that was not delivered. No item is done after it.

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
        """Number of items that are not done."""
        return len(self._sent)

    async def send(self, item: Item, records: Sequence[Record]) -> None:
        """Hand over the records of an item, after those of all items before. Has no effect after `close`."""
        if not self._open:
            return
        # Counted before the first send: a record may be acknowledged before the next one is sent.
        size = sum([len(value) for _, _, value in records])
        sent: _Sent[Item] = _Sent(item, len(records), size, [None] * len(records))
        self._sent.append(sent)
        self.bytes += size
        self._empty.clear()
        try:
            for number, record in enumerate(records):
                future = await self._send(*record)
                sent.since = time.monotonic()  # only now: the record may have waited for room
                future.add_done_callback(partial(self._arrived, sent, number))
        except BaseException:
            if sent in self._sent:  # an item that was handed over only in part is never done; those before it may be
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
        """Raises Unanswered if Kafka has not acknowledged a record in time. aiokafka would wait for ever."""
        first = self._sent[0] if self._sent else None
        if first is not None and first.since is not None and time.monotonic() > first.since + ANSWER_SECONDS:
            raise Unanswered(f"what was sent was not acknowledged within {ANSWER_SECONDS:.0f} s")

    def close(self) -> None:
        """End all items without calling `done`. Another member may already own what is in flight."""
        self._open = False
        self._sent.clear()
        self.bytes = 0
        self._empty.set()

    async def drained(self) -> None:
        """Wait until nothing is in flight."""
        await self._empty.wait()
