"""The producer of the match role: idempotent, pipelined, and closed for good by the first send that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaProducer
from mode import Service

from stream_lsh.kafka.client.clients import drop_producer, stop_producer
from stream_lsh.kafka.group.underway import Underway


class Sender(Service):
    """A service of the Faust app. Faust's own producer is not idempotent, and of a send that fails it only logs a line.

    Args:
        options: of aiokafka clients. request_timeout_ms: how long a record may take to be accepted by the broker.
    """

    def __init__(self, options: Mapping[str, Any], largest: int, request_timeout_ms: int, **kwargs: Any) -> None:
        self._options = {
            **options,
            "acks": "all",
            "enable_idempotence": True,
            "linger_ms": 0,
            # One batch of a partition is under way at a time: what waits meanwhile goes with the next one.
            "max_batch_size": 1 << 20,
            "max_request_size": largest,
            "request_timeout_ms": request_timeout_ms,
        }
        self._producer: AIOKafkaProducer | None = None
        self._underway: Underway | None = None
        super().__init__(**kwargs)

    async def on_start(self) -> None:
        producer = AIOKafkaProducer(**self._options)
        try:
            await producer.start()
        except BaseException:
            await drop_producer(producer)
            raise
        self._producer, self._underway = producer, Underway(producer)

    async def send(self, topic: str, partition: int, value: bytes) -> asyncio.Future[Any]:
        """Hand a record over, in order of the calls for a partition; the future has its metadata once all copies are
        there.

        Raises:
            ConnectionError: the sender is closed. KafkaError: the record cannot be sent.
        """
        if self._underway is None:
            raise ConnectionError("the producer of the match role is closed")
        return await self._underway.send(topic, partition, value)

    async def close(self, *, now: bool = False) -> None:
        """End the producer; with `now` what is not sent yet is not sent any more."""
        producer, self._producer, self._underway = self._producer, None, None
        if producer is None:
            return
        await (drop_producer if now else stop_producer)(producer)

    async def on_stop(self) -> None:
        await self.close(now=self.crashed)
