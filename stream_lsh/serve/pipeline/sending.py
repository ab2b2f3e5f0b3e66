"""Sends documents of the service to the documents topic, each acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from aiokafka import AIOKafkaProducer, errors

from stream_lsh.kafka.client.clients import producing, seen
from stream_lsh.kafka.client.connection import admin, explain
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.partitioner import partition_of
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.produce import Line
from stream_lsh.kafka.topics import batch_limit
from stream_lsh.serve.pipeline.verdicts import Place
from stream_lsh.serve.problems import Problem
from stream_lsh.wire.source import Headers

AGAIN = "it is unknown whether they were accepted; it is safe to send them again: the same id and text is redelivered"


class Sending:
    """A producer, replaced after an error: failed requests may leave it unusable."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._topic = Topics.of(settings).documents
        self._producer: AIOKafkaProducer | None = None
        self._open = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._without_key = 0

    async def send(self, records: Sequence[Line], seconds: float, headers: Headers) -> list[Place]:
        """Send records in order, each with these headers, and wait until all are acknowledged. Returns their source
        positions.

        Raises:
            Problem: they were refused, or not acknowledged in time.
        """
        producer: AIOKafkaProducer | None = None
        try:
            async with asyncio.timeout(seconds):
                producer = await self._ready()
                count = len(await producer.partitions_for(self._topic))
                acknowledged = [
                    await producer.send(
                        self._topic, record.value, record.key, partition=self._partition(record, count),
                        headers=headers,
                    )
                    for record in records
                ]  # fmt: skip
                for future in acknowledged:
                    future.add_done_callback(seen)
                found = [await asyncio.shield(future) for future in acknowledged]
        except TimeoutError:
            said = f"Kafka has not acknowledged the documents within {seconds:g} s: {AGAIN}"
            raise Problem(503, said, after=5) from None
        except (errors.MessageSizeTooLargeError, errors.RecordTooLargeError) as error:
            raise Problem(413, str(explain(error, self._settings)), field="body") from None
        except (errors.KafkaError, errors.ProducerClosed, OSError) as error:
            await self._drop(producer)
            said = f"{explain(error, self._settings)} As for the documents, {AGAIN}"
            raise Problem(503, said, after=5) from None
        return [(place.partition, place.offset) for place in found]

    def _partition(self, record: Line, count: int) -> int:
        """By the hash of the key (`partitioner`); without a key in turn."""
        if record.key is not None:
            return partition_of(self._settings.partitioner, record.key, count)
        self._without_key += 1
        return self._without_key % count

    async def _ready(self) -> AIOKafkaProducer:
        async with self._opening:
            if self._producer is None:
                async with admin(self._settings) as client:
                    batch_bytes = await batch_limit(client, self._settings)
                self._producer = await self._open.enter_async_context(
                    producing(self._settings, "serve", max_batch_size=batch_bytes)
                )
            return self._producer

    async def _drop(self, producer: AIOKafkaProducer | None) -> None:
        async with self._opening:
            if producer is not None and self._producer is producer:
                self._producer = None
                await self._open.aclose()

    async def close(self) -> None:
        """Close, and drop what is not acknowledged."""
        await self._drop(self._producer)
