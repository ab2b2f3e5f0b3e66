"""Delivery of records and of the input positions that they cover, in one transaction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import ProducerFenced, UnknownTopicOrPartitionError

from stream_lsh.kafka.client import private
from stream_lsh.kafka.client.clients import producing, seen
from stream_lsh.kafka.consumer import state
from stream_lsh.kafka.consumer.group_member import Positions
from stream_lsh.kafka.consumer.output import Underway
from stream_lsh.kafka.names import NEEDS, Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Failed, Unanswered
from stream_lsh.kafka.settings import KafkaSettings

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int | None]
"""Key, value, headers, timestamp in ms (None: the time of sending)."""
Outputs = Mapping[tuple[str, int], Sequence[Row]]
"""Records in order, by topic and partition."""

BATCH_BYTES = 1_000_000  # below Kafka's default limit


class Placed(NamedTuple):
    """Where and when a batch was written. time: ms since 1970 by the broker's clock; by this machine's, where a topic
    keeps the producer's timestamps."""

    offset: int
    time: int


@asynccontextmanager
async def delivering(
    settings: KafkaSettings, probe: Probe, partition: int | None = None, batch_bytes: int = BATCH_BYTES
) -> AsyncIterator[Delivery]:
    """A `Delivery` for a role. With `partition`: for one source partition. Its producer fences an earlier one, and ends
    the open transaction of that one before this returns.

    Raises:
        KafkaError, OSError: the producer cannot be started.
    """
    topics = Topics.of(settings)
    options: dict[str, Any] = {
        "max_batch_size": batch_bytes, "retry_backoff_ms": private.RETRY_MS,
        "transactional_id": topics.transactional_id(probe.role, partition),
        "transaction_timeout_ms": settings.transaction_timeout_ms,
    }  # fmt: skip
    async with producing(settings, probe.role, **options) as producer:
        key = state.key_of(probe.role, partition) if "state" in NEEDS.get(probe.role, ()) else None
        yield Delivery(settings, probe, producer, topics.group(probe.role), key)


class Delivery:
    """Delivers records, and commits input positions of a consumer group, through one producer.

    Args:
        key: of the record in the topic `state` that has the same positions; None: there is none.
    """

    def __init__(
        self, settings: KafkaSettings, probe: Probe, producer: AIOKafkaProducer, group: str, key: bytes | None
    ) -> None:
        self._probe = probe
        self._producer = producer
        self._underway = Underway(producer)
        self._group = group
        self._key, self._state = key, (Topics.of(settings).state, 0)
        # The broker aborts the transaction after that time, so a longer wait is useless.
        self._seconds = settings.transaction_timeout_ms / 1000

    async def __call__(
        self, outputs: Outputs, positions: Positions, *, commit: bool = True
    ) -> dict[tuple[str, int], Placed]:
        """Return when everything is committed. After an error this producer can deliver nothing more.

        Args:
            commit: whether the group commits the positions. Otherwise only the record in `state` has them.

        Returns:
            The place of the last batch sent, by topic and partition.

        Raises:
            UnknownTopicOrPartitionError: an output has too few partitions.
            Failed, KafkaError: the transaction may or may not be committed. Ask the broker.
        """
        if self._key is not None:
            outputs = {**outputs, self._state: [(self._key, state.encode(positions), [], None)]}
        await self._have_partitions(outputs)
        batches = self._batches(outputs)
        try:
            async with asyncio.timeout(self._seconds):
                with self._probe.transaction():
                    await self._producer.begin_transaction()
                    send = self._producer.send_offsets_to_transaction
                    committing = [send(dict(positions), self._group)] if commit else []
                    # If a record is refused, aiokafka still commits the others: check each one first.
                    placed = await self._acknowledged(batches, committing)
                    await self._producer.commit_transaction()
                return placed
        except TimeoutError as error:
            raise Unanswered(f"the outputs of a round were not acknowledged within {self._seconds:.0f} s") from error
        except ProducerFenced as error:
            raise Failed("another member has taken over; its producer has fenced this one") from error
        except AssertionError as error:  # raised by aiokafka if the producer has failed meanwhile
            raise Failed("the producer has failed") from error

    def _batches(self, outputs: Outputs) -> list[tuple[str, int, Any]]:
        """Topic, partition and batch. A partition has one batch in flight, so the first batch of each is sent first."""
        first: list[tuple[str, int, Any]] = []
        later: list[tuple[str, int, Any]] = []
        for (topic, partition), rows in outputs.items():
            for number, batch in enumerate(_batches(self._producer, rows)):
                (later if number else first).append((topic, partition, batch))
        return first + later

    async def _acknowledged(
        self, batches: Sequence[tuple[str, int, Any]], committing: Sequence[Awaitable[None]]
    ) -> dict[tuple[str, int], Placed]:
        """Send everything, and wait until the broker has acknowledged it and the positions. Returns the place of each
        partition's last batch."""
        waiting: list[asyncio.Future[Any]] = [*map(asyncio.ensure_future, committing)]
        try:
            for topic, partition, batch in batches:
                waiting.append(await self._underway.send_batch(topic, partition, batch))
            found = (await asyncio.gather(*waiting))[len(committing) :]
            now = round(1000 * time.time())
            return {
                (topic, partition): Placed(sent.offset, sent.timestamp if sent.timestamp > 0 else now)
                for (topic, partition, _), sent in zip(batches, found, strict=True)
            }
        finally:
            for future in waiting:
                future.cancel()  # has no effect on a finished future
                future.add_done_callback(seen)

    async def partitions(self, topic: str) -> frozenset[int]:
        """The partitions of a topic."""
        return frozenset(await self._producer.partitions_for(topic))

    async def _have_partitions(self, outputs: Outputs) -> None:
        for topic, partition in outputs:
            if partition in await self.partitions(topic):
                continue
            await self._producer.client.force_metadata_update()
            found = len(await self.partitions(topic))
            if partition >= found:
                raise UnknownTopicOrPartitionError(
                    f"{topic} has {found} partitions, and none for source partition {partition}"
                )


def _batches(producer: AIOKafkaProducer, rows: Sequence[Row]) -> Iterator[Any]:
    batch = None
    for key, value, headers, timestamp in rows:
        if batch is not None and batch.append(key=key, value=value, headers=headers, timestamp=timestamp) is None:
            yield batch
            batch = None
        if batch is None:
            batch = producer.create_batch()
            batch.append(key=key, value=value, headers=headers, timestamp=timestamp)
    if batch is not None:
        yield batch
