"""Consumers without a group, and the partitions that they read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaTimeoutError

from stream_lsh.errors import BrokerError
from stream_lsh.kafka.client import private
from stream_lsh.kafka.client.clients import Throttle
from stream_lsh.kafka.client.connection import client_options
from stream_lsh.kafka.names import largest_record
from stream_lsh.kafka.settings import KafkaSettings

READ_MS = 10_000  # time limit for the next record
SLICE_MS = 500  # between two checks for a stop


async def partitions_of(client: AIOKafkaAdminClient, topic: str) -> list[TopicPartition]:
    """The partitions of a topic; none if it does not exist."""
    if topic not in await client.list_topics():
        return []
    found = await client.describe_topics([topic])
    return sorted(TopicPartition(topic, entry["partition"]) for entry in found[0]["partitions"])


async def existing(
    client: AIOKafkaAdminClient, settings: KafkaSettings, topic: str, hint: str = ""
) -> list[TopicPartition]:
    """The partitions of a topic.

    Raises:
        BrokerError: it does not exist; see `missing`.
    """
    if not (found := await partitions_of(client, topic)):
        raise missing(settings, [topic], hint)
    return found


def missing(settings: KafkaSettings, topics: list[str], hint: str = "") -> BrokerError:
    """The error for topics that do not exist. hint: what else to say about the command that makes them."""
    plural, them = ("s", "them") if len(topics) > 1 else ("", "it")
    return BrokerError(
        f"Kafka at {settings.bootstrap_servers} does not have the topic{plural} {', '.join(topics)}. "
        f"`stream-lsh kafka topics create` makes {them}{hint}."
    )


@asynccontextmanager
async def reading(settings: KafkaSettings, **options: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """A started consumer without a group. options: of AIOKafkaConsumer."""
    name = f"{settings.topic_prefix}.reading"
    given = {
        "client_id": name,
        "isolation_level": "read_committed",
        "max_partition_fetch_bytes": largest_record(settings),
        "auto_offset_reset": "none",  # otherwise a deletion would go unnoticed
        **options,
    }
    consumer = AIOKafkaConsumer(**client_options(settings), **given, enable_auto_commit=False)
    private.watch_throttle(consumer, Throttle(settings, name))
    try:
        await consumer.start()
        await asyncio.sleep(0)  # a stop before its task has begun would raise that task's cancellation
        yield consumer
    finally:
        await consumer.stop()


def read_from(consumer: AIOKafkaConsumer, positions: Mapping[TopicPartition, int]) -> None:
    """Make a consumer without a group read from these positions. Call it only once: after a recent assignment of other
    partitions aiokafka's `stop` may wait for ever."""
    consumer.assign(list(positions))
    for place, offset in positions.items():
        consumer.seek(place, offset)


async def between(
    consumer: AIOKafkaConsumer, here: TopicPartition, first: int, end: int
) -> list[ConsumerRecord[bytes, bytes]]:  # fmt: skip
    """All records of a partition from offset `first` to before `end`, without deleted ones.

    Raises:
        KafkaTimeoutError: the broker does not answer.
    """
    begins = await consumer.beginning_offsets([here])
    read_from(consumer, {here: max(first, begins[here])})
    return await read_to(consumer, here, end)


async def read_to(consumer: AIOKafkaConsumer, here: TopicPartition, end: int) -> list[ConsumerRecord[bytes, bytes]]:
    """All records of a partition from the consumer's position to before `end`.

    Raises:
        KafkaTimeoutError: the broker does not answer.
    """
    found: list[ConsumerRecord[bytes, bytes]] = []
    late = time.monotonic() + READ_MS / 1000
    while await consumer.position(here) < end:
        got = (await consumer.getmany(here, timeout_ms=SLICE_MS)).get(here, ())
        found += got
        if got:
            late = time.monotonic() + READ_MS / 1000
        elif time.monotonic() > late:
            raise KafkaTimeoutError(f"no answer for {here.topic}, partition {here.partition}")
    return [record for record in found if record.offset < end]


async def passed(
    consumer: AIOKafkaConsumer, here: TopicPartition, end: int, stop: asyncio.Event | None = None
) -> bool:  # fmt: skip
    """Whether the consumer reaches `end` without a record. A poll without records is no proof: it is the same without
    an answer, and transaction markers may follow the last record.

    Raises:
        OffsetOutOfRangeError: the record at its position was deleted.
    """
    late = time.monotonic() + READ_MS / 1000
    while not (stop is not None and stop.is_set()) and time.monotonic() < late:
        found = (await consumer.getmany(here, timeout_ms=SLICE_MS, max_records=1)).get(here, ())
        if any(record.offset < end for record in found):
            return False
        if await consumer.position(here) >= end:
            return True
    return False
