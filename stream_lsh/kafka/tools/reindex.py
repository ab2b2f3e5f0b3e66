"""Rebuilding under another prefix, with other settings, from the documents topic: what to do, and how far it is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient
from pydantic import ValidationError

from stream_lsh.errors import FormatError, StoreError, UsageError
from stream_lsh.kafka.client.clients import waited
from stream_lsh.kafka.client.connection import admin, client_options
from stream_lsh.kafka.consumer.position import committed
from stream_lsh.kafka.names import Topics, largest_record
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.topics import create
from stream_lsh.wire.frames import Places

log = logging.getLogger("stream_lsh.kafka.tools.reindex")

LOOK = 1.0  # seconds between two looks at how far it is
STILL = 10  # looks without progress after which we look whether there is anything left at all
READ_MS = 10_000  # time for the next record to come, where there is one
SLICE_MS = 500  # between two looks at whether it is still wanted


@dataclass(frozen=True, slots=True)
class Goal:
    """What has to be done. begins, ends: by partition of the documents topic, the first offset and the one after the
    last when the work began."""

    begins: Mapping[int, int]
    ends: Mapping[int, int]

    @property
    def total(self) -> int:
        """Documents; more than there are if the topic has gaps."""
        return sum(self.ends[partition] - begin for partition, begin in self.begins.items())

    @property
    def deleted(self) -> int:
        """Documents that the topic once had, and has no more."""
        return sum(self.begins.values())

    def done(self, positions: Mapping[int, int]) -> int:
        """How many documents are done, given the positions reached."""
        return sum(
            max(0, min(positions.get(partition, 0), end) - self.begins[partition])
            for partition, end in self.ends.items()
        )

    def open(self, positions: Mapping[int, int]) -> dict[int, int]:
        """The partitions that are not done, each with the position to go on from."""
        return {
            partition: max(positions.get(partition, 0), begin)
            for partition, begin in self.begins.items()
            if max(positions.get(partition, 0), begin) < self.ends[partition]
        }


def target(settings: KafkaSettings, prefix: str, data_folder: Path | str | None = None) -> KafkaSettings:
    """The settings to rebuild with: another prefix, the same documents, a data folder of its own, no port.

    Args:
        settings: what the new index is to be like; its topic_prefix is that of the old one.
        data_folder: without it beside the old one, with its name and the prefix.

    Raises:
        UsageError: the prefix is that of the old one, or cannot be one.
    """
    if prefix == settings.topic_prefix:
        raise UsageError(f"--to-prefix {prefix} is the topic_prefix that there is already; give a new one")
    old = settings.data_folder.absolute()  # . has no name
    folder = data_folder or (old.with_name(f"{old.name}-{prefix}") if old.name else old / prefix)
    return changed(
        settings, f"--to-prefix {prefix}", topic_prefix=prefix, documents_topic=Topics.of(settings).documents,
        data_folder=folder, http_port=None,
    )  # fmt: skip


def changed(settings: KafkaSettings, what: str, **values: Any) -> KafkaSettings:
    """These settings with other values, for a reason that messages name.

    Raises:
        UsageError: they do not go together.
    """
    try:
        return KafkaSettings.model_validate(
            {name: getattr(settings, name) for name in KafkaSettings.model_fields} | values
        )
    except ValidationError as error:
        reasons = "; ".join(str(item["msg"]).removeprefix("Value error, ") for item in error.errors())
        raise UsageError(f"{what}: {reasons}") from None


async def prepare(settings: KafkaSettings) -> Goal:
    """Make the topics under the new prefix, and see what there is to do.

    Args:
        settings: see `target`.

    Raises:
        BrokerError, KafkaError, OSError: see `topics.create`.
        StoreError: the documents topic is not there, or the prefix holds the work of other settings.
    """
    topics = Topics.of(settings)
    async with admin(settings) as client:
        partitions = await partitions_of(client, topics.documents)
        if not partitions:
            raise StoreError(
                f"Kafka at {settings.bootstrap_servers} has no topic {topics.documents}; name the one with the "
                "documents by --documents-topic, or by the --topic-prefix it belongs to"
            )
        signatures = await partitions_of(client, topics.signatures)
    async with reading(settings) as consumer:
        for partition in signatures:
            await _refuse_others(consumer, settings, partition)
        await create(settings)
        begins = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
    return Goal({tp.partition: begins[tp] for tp in partitions}, {tp.partition: ends[tp] for tp in partitions})


async def partitions_of(client: AIOKafkaAdminClient, topic: str) -> list[TopicPartition]:
    """The partitions of a topic; none if it is not there."""
    if topic not in await client.list_topics():
        return []
    found = await client.describe_topics([topic])
    return sorted(TopicPartition(topic, entry["partition"]) for entry in found[0]["partitions"])


@asynccontextmanager
async def reading(settings: KafkaSettings, **options: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """A started consumer without a group. options: of AIOKafkaConsumer."""
    given = {"isolation_level": "read_committed", "max_partition_fetch_bytes": largest_record(settings), **options}
    consumer = AIOKafkaConsumer(
        **client_options(settings), **given, enable_auto_commit=False,
        auto_offset_reset="none",  # else what was deleted would look as if nothing had been there
    )  # fmt: skip
    try:
        await consumer.start()
        await asyncio.sleep(0)  # to stop it before its own task has begun would raise that task's cancellation
        yield consumer
    finally:
        await consumer.stop()


async def _refuse_others(consumer: AIOKafkaConsumer, settings: KafkaSettings, signatures: TopicPartition) -> None:
    """Whether what stands under the prefix, if anything, was made with these settings."""
    begin = (await consumer.beginning_offsets([signatures]))[signatures]
    end = (await consumer.end_offsets([signatures]))[signatures]
    if begin == end:
        return
    consumer.assign([signatures])
    consumer.seek(signatures, end - 1)
    found = (await consumer.getmany(signatures, timeout_ms=READ_MS)).get(signatures)
    if not found:
        raise errors.KafkaTimeoutError(f"the topic {signatures.topic} cannot be read")
    try:
        Places.of(found[0].value, settings)
    except FormatError as error:
        raise StoreError(
            f"the prefix {settings.topic_prefix} is in use: {error}. Give another --to-prefix, or delete the "
            f"topics whose names begin with {settings.topic_prefix}."
        ) from None


async def follow(
    settings: KafkaSettings, goal: Goal, stop: asyncio.Event, report: Callable[[int], object]
) -> bool:  # fmt: skip
    """Watch the workers until all documents of the goal are judged and passed on; False if `stop` came first.

    Args:
        report: told the number of documents done, again and again.
    """
    still, best = 0, -1
    while not stop.is_set():
        try:
            async with admin(settings) as client:
                while not stop.is_set():
                    # Who forwards a document has seen its verdict, committed before.
                    group = Topics.of(settings).group("forward")
                    found = await committed(client, group, Topics.of(settings).documents)
                    positions = {partition: offset for partition, (offset, _) in found.items()}
                    done, rest = goal.done(positions), goal.open(positions)
                    report(done)
                    still, best = (still + 1, best) if done <= best else (0, done)
                    if not rest or (still >= STILL and not await _anything(settings, goal, rest, stop)):
                        return True
                    still %= STILL
                    await waited(stop, LOOK)
        except (errors.KafkaError, OSError, TimeoutError) as error:
            # How long to wait for a broker that is away the workers decide.
            log.debug("how far it is cannot be told: %s", error)
            await waited(stop, LOOK)
    return False


async def _anything(
    settings: KafkaSettings, goal: Goal, positions: Mapping[int, int], stop: asyncio.Event
) -> bool:  # fmt: skip
    """Whether there are documents between these positions and the goal, or may be: a broker that is away does not tell.

    There may be none, because the markers of transactions take offsets, too.
    """
    topic = Topics.of(settings).documents
    try:
        async with reading(settings) as consumer:
            read_from(consumer, {TopicPartition(topic, partition): offset for partition, offset in positions.items()})
            for partition in positions:
                if not await passed(consumer, TopicPartition(topic, partition), goal.ends[partition], stop):
                    return True
    except errors.OffsetOutOfRangeError as error:
        # Not the end: documents may wait in the memory of the stages, and who still has to read deleted ones says so.
        log.warning(
            "what stood in %s at %s was deleted before it was known to be done; the stages go on with what they have "
            "read, or say that they cannot", topic,
            ", ".join(f"offset {offset} of partition {place.partition}" for place, offset in error.args[0].items()),
        )  # fmt: skip
        return True
    return False


def read_from(consumer: AIOKafkaConsumer, positions: Mapping[TopicPartition, int]) -> None:
    """Have a consumer without a group read partitions from these positions. Only once: where other ones are assigned
    shortly before, aiokafka's `stop` may wait for ever."""
    consumer.assign(list(positions))
    for place, offset in positions.items():
        consumer.seek(place, offset)


async def passed(
    consumer: AIOKafkaConsumer, here: TopicPartition, end: int, stop: asyncio.Event | None = None
) -> bool:  # fmt: skip
    """Whether the consumer gets to the end without meeting a record. Not by an answer without records: there is none
    either if nobody answers, and behind the last record there may be the mark of a transaction.

    Raises:
        OffsetOutOfRangeError: where it stands was deleted.
    """
    late = time.monotonic() + READ_MS / 1000
    while not (stop is not None and stop.is_set()) and time.monotonic() < late:
        found = (await consumer.getmany(here, timeout_ms=SLICE_MS, max_records=1)).get(here, ())
        if any(record.offset < end for record in found):
            return False
        if await consumer.position(here) >= end:
            return True
    return False
