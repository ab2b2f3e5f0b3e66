"""What was handed to a producer and is not acknowledged yet, kept below what a broker takes in one request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaProducer

MOST_BYTES = 32 << 20
"""A third of what brokers take by default (socket.request.max.bytes, 100 MiB)."""


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
