"""Committed positions of consumer groups, and whether the topics still have them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import IllegalGenerationError, KafkaError, KafkaTimeoutError, UnknownMemberIdError, for_code
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest

from stream_lsh.errors import StoreError
from stream_lsh.kafka.client import private
from stream_lsh.kafka.client.clients import ANSWER_MS
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.envelope import OLDER

REBUILD = "Rebuild into a new topic_prefix with `stream-lsh kafka reindex`"
LOOKS, PAUSE = 5, 0.5  # number of requests for an end offset, and the seconds between them

Place = TypeVar("Place")
Answer = TypeVar("Answer")
Ask = Callable[[list[Place]], Awaitable[Mapping[Place, int]]]
Bounds = tuple[int, int]
"""The first offset of a partition, and its end offset."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The texts of errors about a position that is not in its topic.

    Attributes:
        records: what the topic contains.
        done: what the role does to them.
        anew: the remedy if the topic is another one, or has lost its end.
        deleted_remedy: the remedy if records were deleted, if it is another; {place} in it is the place of the loss.
    """

    records: str
    done: str
    anew: str
    deleted_remedy: str = ""

    def missing(
        self, partition: TopicPartition, position: int, bounds: Bounds, accepted: Collection[str] = ()
    ) -> int:  # fmt: skip
        """The number of records that were deleted before the role has read them.

        Args:
            accepted: places from which on missing records are accepted, see `place_of`.

        Raises:
            StoreError: the topic ends before the position, or records are missing and that is not accepted.
        """
        begin, end = bounds
        where = f"{partition.topic}, partition {partition.partition}"
        if position > end:
            raise StoreError(
                f"{where}, ends at offset {end}, but has been {self.done} up to {position}: the topic was deleted and "
                f"made again, or the brokers have lost its end. {self.anew}"
            )
        missing, place = max(0, begin - position), place_of(partition, position)
        if missing and place not in accepted:
            raise self.deleted(partition, f"{missing} {self.records} from offset {position} on", place)
        return missing

    def deleted(self, partition: TopicPartition, what: str, place: str) -> StoreError:
        """The error for deleted records. place: how the operator names them."""
        remedy = (self.deleted_remedy or self.anew).format(place=place)
        return StoreError(
            f"{partition.topic}, partition {partition.partition}: {what} were deleted before they were {self.done} "
            f"(retention). {remedy}"
        )


def place_of(partition: TopicPartition, offset: int) -> str:
    """A place as messages print it, and as the settings that accept a loss name it."""
    return f"{partition.topic}:{partition.partition}:{offset}"


def facts_of(text: str, group: str, version: int, *names: str) -> dict[str, Any]:
    """Parse what a role has committed with its position: JSON with a version (1 if absent) and the `last` frame.

    Args:
        names: further keys that must be there.

    Raises:
        StoreError: the commit is of another program or another version.
    """
    with suppress(orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        found: dict[str, Any] = orjson.loads(text)
        written = found.get("version", 1)
        if isinstance(found["last"], int) and isinstance(written, int):
            if written != version:
                raise StoreError(
                    f"the committed offset of the consumer group {group} was written by version {written}, this is "
                    f"{version}: {'upgrade this worker' if written > version else OLDER}"
                )
            if found.keys() >= {*names}:
                return found
    raise StoreError(
        f"the committed offset of the consumer group {group} has no frame in its metadata "
        f"({text[:80]!r}): it was set by hand. {REBUILD}"
    )


async def offset_lost(
    settings: KafkaSettings, group: str, place: TopicPartition, what: str, again: str
) -> Exception:  # fmt: skip
    """The error for a place without a committed offset that cannot be at its first start. It is looked up once more:
    another member that has taken over commits the offset before anything else. again: what a new beginning would do."""
    if await committed_at(settings, group, place) is not None:
        return Failed("another member has taken over, and has begun")
    return StoreError(
        f"the consumer group {group} has no committed offset{what}: the offset has expired or was deleted, and to "
        f"begin again would {again}. {REBUILD}"
    )


async def all_committed(client: AIOKafkaAdminClient, group: str) -> dict[str, dict[int, tuple[int, str]]]:
    """The commits of a group: topic -> partition -> offset and metadata. Partitions without a commit are left out.

    Raises:
        KafkaError: the request was refused, or not answered in time.
    """

    async def ask() -> dict[str, dict[int, tuple[int, str]]]:
        # Not the client's own list_consumer_group_offsets. While a coordinator loads or moves, the error is at the top
        # level of the response, which that method ignores. "Nothing committed" would then mean to begin again.
        response = await private.ask(client, OffsetFetchRequest(group, None), await client.find_coordinator(group))
        if response.error_code:
            raise for_code(response.error_code)(f"committed offsets of the group {group}")
        found: dict[str, dict[int, tuple[int, str]]] = {}
        for topic, partitions in response.topics:
            for partition, offset, metadata, code in partitions:
                if code:
                    raise for_code(code)(f"committed offset of the group {group} for {topic}, partition {partition}")
                if offset >= 0:
                    found.setdefault(topic, {})[partition] = (offset, metadata or "")
        return found

    return await patiently(ask, f"the committed offsets of the group {group} could not be read")


async def committed(client: AIOKafkaAdminClient, group: str, topic: str) -> dict[int, tuple[int, str]]:
    """What a group has committed for a topic: partition -> offset and metadata; see `all_committed`."""
    return (await all_committed(client, group)).get(topic, {})


async def committed_at(settings: KafkaSettings, group: str, place: TopicPartition) -> tuple[int, str] | None:
    """What a group has committed for a partition: offset and metadata; see `all_committed`."""
    async with admin(settings) as client:
        return (await committed(client, group, place.topic)).get(place.partition)


async def commit_alone(
    client: AIOKafkaAdminClient, group: str, positions: Mapping[TopicPartition, tuple[int, str]]
) -> None:
    """Commit positions with their metadata for a group without members.

    Raises:
        StoreError: the group has members.
        KafkaError: the request was refused, or not answered in time.
    """
    topics: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for place, position in positions.items():
        topics[place.topic].append((place.partition, *position))
    request = OffsetCommitRequest(group, -1, "", -1, [*topics.items()])

    async def ask() -> None:
        response = await private.ask(client, request, await client.find_coordinator(group))
        for topic, answers in response.topics:
            for partition, code in answers:
                if code:
                    raise for_code(code)(f"a commit of the group {group} for {topic}, partition {partition}")

    try:
        await patiently(ask, f"a commit of the group {group} was not answered")
    except (IllegalGenerationError, UnknownMemberIdError):
        raise StoreError(
            f"the consumer group {group} has members: stop the workers, and run the command again"
        ) from None


async def patiently(ask: Callable[[], Awaitable[Answer]], failed: str) -> Answer:
    """The result of `ask`. Errors of a coordinator that has just started or is moving are retried for a while."""
    try:
        async with asyncio.timeout(ANSWER_MS / 1000):
            while True:
                try:
                    return await ask()
                except KafkaError as error:
                    if not error.retriable:
                        raise
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise KafkaTimeoutError(f"{failed} within {ANSWER_MS // 1000} s") from None


async def bounds(begins: Ask[Place], ends: Ask[Place], positions: Mapping[Place, int]) -> dict[Place, Bounds]:
    """The first and the end offset of the places in `positions` (whose value is 0 where none is known).

    The offsets are read again while an end is before its position: a broker that has just become leader may not know
    its end yet. After two seconds the last answer counts.
    """
    places = list(positions)
    for look in range(LOOKS):
        if look:
            await asyncio.sleep(PAUSE)
        first, last = await begins(places), await ends(places)
        found = {place: (first[place], last[place]) for place in places}
        if all(positions[place] <= end for place, (_, end) in found.items()):
            break
    return found


async def bounds_of(
    consumer: AIOKafkaConsumer, positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Bounds]:
    """The same for partitions, by a consumer."""
    return await bounds(consumer.beginning_offsets, consumer.end_offsets, positions)
