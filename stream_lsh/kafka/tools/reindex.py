"""Rebuilding under another prefix, with other settings, from the documents topic: the goal and the progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition, errors

from stream_lsh.errors import FormatError, StoreError, UsageError
from stream_lsh.kafka.client.clients import waited
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.client.reading import between, partitions_of, passed, read_from, reading
from stream_lsh.kafka.consumer.position import all_committed
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.topics import create
from stream_lsh.wire.envelope import kind_of
from stream_lsh.wire.frames import Places
from stream_lsh.wire.set_back import KIND as SET_BACK

log = logging.getLogger("stream_lsh.kafka.tools.reindex")

LOOK = 1.0  # seconds between two checks of the progress
STILL = 10  # checks without progress after which the topic is searched for remaining documents


@dataclass(frozen=True, slots=True)
class Goal:
    """The work to be done. begins, ends: first and end offsets at the start, by source partition."""

    begins: Mapping[int, int]
    ends: Mapping[int, int]

    @property
    def total(self) -> int:
        """Number of documents; too high if the topic has gaps."""
        return sum(self.ends[partition] - begin for partition, begin in self.begins.items())

    @property
    def deleted(self) -> int:
        """Number of documents that were deleted from the topic."""
        return sum(self.begins.values())

    def done(self, positions: Mapping[int, int]) -> int:
        """Number of documents before these positions."""
        return sum(
            max(0, min(positions.get(partition, 0), end) - self.begins[partition])
            for partition, end in self.ends.items()
        )

    def open(self, positions: Mapping[int, int]) -> dict[int, int]:
        """The unfinished partitions, each with its next position."""
        return {
            partition: max(positions.get(partition, 0), begin)
            for partition, begin in self.begins.items()
            if max(positions.get(partition, 0), begin) < self.ends[partition]
        }


def target(settings: KafkaSettings, prefix: str, data_folder: Path | str | None = None) -> KafkaSettings:
    """The settings for a rebuild: another prefix, the same documents, another data folder, no port.

    Args:
        settings: those of the new index, with the topic_prefix of the old one.
        data_folder: by default next to the old one, with its name and the prefix.

    Raises:
        UsageError: the prefix is that of the old index, or invalid.
    """
    if prefix == settings.topic_prefix:
        raise UsageError(f"--to-prefix {prefix} is the topic_prefix of the existing index; give a new one")
    old = settings.data_folder.absolute()  # . has no name
    folder = data_folder or (old.with_name(f"{old.name}-{prefix}") if old.name else old / prefix)
    return changed(
        settings, f"--to-prefix {prefix}", topic_prefix=prefix,
        documents_topic=None if settings.documents else Topics.of(settings).documents, data_folder=folder,
        http_port=None,
    )  # fmt: skip


def changed(settings: KafkaSettings, what: str, **values: Any) -> KafkaSettings:
    """These settings with other values. what: the reason, for messages.

    Raises:
        UsageError: they contradict each other.
    """
    try:
        return KafkaSettings.model_validate(
            {name: getattr(settings, name) for name in settings.model_fields_set} | values
        )
    except UsageError as error:
        raise UsageError(f"{what}: {error}") from None


async def prepare(settings: KafkaSettings) -> Goal:
    """Create the topics of the new prefix, and measure the work.

    Args:
        settings: see `target`.

    Raises:
        BrokerError, KafkaError, OSError: see `topics.create`.
        StoreError: the documents topic is missing, or the prefix is in use with other settings.
    """
    topics = Topics.of(settings)
    async with admin(settings) as client:
        partitions = list[TopicPartition]()
        for topic in topics.sources:
            partitions += (found := await partitions_of(client, topic))
            if not found:
                raise StoreError(
                    f"Kafka at {settings.bootstrap_servers} has no topic {topic}; name the one with the documents by "
                    "--documents-topic, or by the --topic-prefix it belongs to"
                )
        signatures = await partitions_of(client, topics.signatures)
    async with reading(settings) as consumer:
        for partition in signatures:
            await _refuse_others(consumer, settings, partition)
        await create(settings)
        begins = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
    numbers = {place: topics.number(*place) for place in partitions}
    return Goal({n: begins[place] for place, n in numbers.items()}, {n: ends[place] for place, n in numbers.items()})


async def _refuse_others(consumer: AIOKafkaConsumer, settings: KafkaSettings, signatures: TopicPartition) -> None:
    """Check that existing frames under the prefix, if any, have these settings."""
    end = (await consumer.end_offsets([signatures]))[signatures]
    found = await between(consumer, signatures, end - 1, end)
    try:
        if found and kind_of(found[0].value) != SET_BACK:  # which has no settings
            Places.of(found[0].value, settings)
    except FormatError as error:
        raise StoreError(
            f"the prefix {settings.topic_prefix} is in use: {error}. Give another --to-prefix, or delete the "
            f"topics whose names begin with {settings.topic_prefix}."
        ) from None


async def follow(
    settings: KafkaSettings, goal: Goal, stop: asyncio.Event, report: Callable[[int], object]
) -> bool:  # fmt: skip
    """Wait until all documents of the goal are judged and forwarded. Returns False if `stop` is set first.

    Args:
        report: called regularly with the number of documents done.
    """
    still, best = 0, -1
    while not stop.is_set():
        try:
            async with admin(settings) as client:
                while not stop.is_set():
                    # A forwarded document has a committed verdict.
                    topics = Topics.of(settings)
                    found = topics.numbered(await all_committed(client, topics.group("forward")))
                    positions = {partition: offset for partition, (offset, _) in found.items()}
                    done, rest = goal.done(positions), goal.open(positions)
                    report(done)
                    still, best = (still + 1, best) if done <= best else (0, done)
                    if not rest or (still >= STILL and not await _anything(settings, goal, rest, stop)):
                        return True
                    still %= STILL
                    await waited(stop, LOOK)
        except (errors.KafkaError, OSError, TimeoutError) as error:
            # The workers decide how long to wait for a broker that is down.
            log.debug("the progress is unknown: %s", error)
            await waited(stop, LOOK)
    return False


async def _anything(
    settings: KafkaSettings, goal: Goal, positions: Mapping[int, int], stop: asyncio.Event
) -> bool:  # fmt: skip
    """Whether documents may be left between these positions and the goal. True also if a broker does not answer.

    There may be none, because transaction markers take offsets, too.
    """
    topics = Topics.of(settings)
    places = {partition: TopicPartition(*topics.place(partition)) for partition in positions}
    try:
        async with reading(settings) as consumer:
            read_from(consumer, {places[partition]: offset for partition, offset in positions.items()})
            for partition, place in places.items():
                if not await passed(consumer, place, goal.ends[partition], stop):
                    return True
    except errors.OffsetOutOfRangeError as error:
        # Not an error here: the stages may have the documents in memory. A stage that still must read them reports it.
        log.warning(
            "records of %s at %s were deleted before they were known to be done; the workers continue with what they "
            "have read, or report an error", topics.listed,
            ", ".join(f"offset {offset} of partition {place.partition}" for place, offset in error.args[0].items()),
        )  # fmt: skip
        return True
    return False
