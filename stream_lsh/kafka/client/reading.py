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
from stream_lsh.kafka.client.clients import consuming
from stream_lsh.kafka.names import largest_record
from stream_lsh.kafka.settings import KafkaSettings

FETCH_BYTES = 50 << 20  # limit of one fetch response, all partitions together
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
    given = {
        "isolation_level": "read_committed",
        "fetch_max_bytes": FETCH_BYTES,
        "max_partition_fetch_bytes": largest_record(settings),
        **options,
    }
    async with consuming(settings, "reading", group_id=None, **given) as consumer:
        yield consumer


def read_from(consumer: AIOKafkaConsumer, positions: Mapping[TopicPartition, int]) -> None:
    """Make a consumer without a group read from these positions. Call it only once: after a recent assignment of other
    partitions aiokafka's `stop` may wait for ever."""
    consumer.assign(list(positions))
    for place, offset in positions.items():
        consumer.seek(place, offset)


async def records_to(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int], *, first: bool = False
) -> AsyncIterator[tuple[TopicPartition, list[ConsumerRecord]]]:
    """The records from the consumer's positions to before these ends, as fetches return them. The positions count, not
    the last record: transaction markers may follow it.

    Args:
        first: only what the first fetch with records returns of each partition.

    Raises:
        KafkaTimeoutError: the broker does not answer.
    """
    places, late = set(ends), time.monotonic() + READ_MS / 1000
    while places := {place for place in places if await consumer.position(place) < ends[place]}:
        found = await consumer.getmany(*places, timeout_ms=SLICE_MS)
        for place, records in found.items():
            yield place, [record for record in records if record.offset < ends[place]]
        if found:
            late = time.monotonic() + READ_MS / 1000
        elif time.monotonic() > late:
            where = "; ".join(f"{topic}, partition {number}" for topic, number in sorted(places))
            raise KafkaTimeoutError(f"no answer for {where}")
        if first:
            places -= found.keys()


async def between(
    consumer: AIOKafkaConsumer, here: TopicPartition, first: int, end: int
) -> list[ConsumerRecord]:  # fmt: skip
    """All records of a partition from offset `first` to before `end`, without deleted ones. Raises as `records_to`."""
    begins = await consumer.beginning_offsets([here])
    read_from(consumer, {here: max(first, begins[here])})
    return [record async for _, records in records_to(consumer, {here: end}) for record in records]


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
