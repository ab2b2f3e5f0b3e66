"""Where a group has read to, and whether that is still there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, KafkaTimeoutError, for_code
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest

from stream_lsh.errors import StoreError
from stream_lsh.kafka.client import private
from stream_lsh.kafka.client.clients import ANSWER_MS
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.envelope import OLDER

REBUILD = "Rebuild into a new topic_prefix with `stream-lsh kafka reindex`"
LOOKS, PAUSE = 5, 0.5  # how often it is looked for an end, and the seconds in between

Place = TypeVar("Place")
Answer = TypeVar("Answer")
Ask = Callable[[list[Place]], Awaitable[Mapping[Place, int]]]
Bounds = tuple[int, int]
"""Offset of the first record that is there, and behind the last."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is said where a role's position is not in its topic.

    records: what the topic has. done: what the role does to them. anew: what helps where it is another topic, or has
    lost its end. gone: what helps where records are deleted, if it is something else.
    """

    records: str
    done: str
    anew: str
    gone: str = ""

    def missing(self, where: str, position: int, bounds: Bounds, *, accept_loss: bool = False) -> int:
        """How many records were deleted before the role had them.

        Args:
            where: the partition, for messages. accept_loss: whether the role goes on without them.

        Raises:
            StoreError: the topic ends before the position; or some are missing, and that was not accepted.
        """
        begin, end = bounds
        if position > end:
            raise StoreError(
                f"{where}, ends at offset {end}, but has been {self.done} up to {position}: the topic was deleted and "
                f"made again, or the brokers have lost its end. {self.anew}"
            )
        missing = max(0, begin - position)
        if missing and not accept_loss:
            raise self.deleted(where, f"{missing} {self.records} from offset {position} on")
        return missing

    def deleted(self, where: str, what: str) -> StoreError:
        """Records are missing."""
        return StoreError(
            f"{where}: {what} were deleted before they were {self.done} (retention). {self.gone or self.anew}"
        )


def facts_of(text: str, group: str, version: int, *names: str) -> dict[str, Any]:
    """What a role has committed beside its position, as JSON with a version (1 if there is none), the `last` frame, and
    what these names stand for.

    Raises:
        StoreError: somebody else has committed, or another version.
    """
    with suppress(orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        found: dict[str, Any] = orjson.loads(text)
        written = found.get("version", 1)
        if isinstance(found["last"], int) and isinstance(written, int) and found.keys() >= {*names}:
            if written == version:
                return found
            raise StoreError(
                f"the committed offset of the consumer group {group} was written by version {written}, this is "
                f"{version}: {'upgrade this worker' if written > version else OLDER}"
            )
    raise StoreError(
        f"the committed offset of the consumer group {group} does not say after which frame it stands "
        f"({text[:80]!r}): it was set by hand. {REBUILD}"
    )


def offset_lost(group: str, what: str, again: str) -> StoreError:
    """A group has no committed offset, though it is not the first start. again: what to begin again would do."""
    return StoreError(
        f"the consumer group {group} has no committed offset{what}: the offset has expired or was deleted, and to "
        f"begin again would {again}. {REBUILD}"
    )


async def all_committed(client: AIOKafkaAdminClient, group: str) -> dict[str, dict[int, tuple[int, str]]]:
    """What a group has committed: topic -> partition -> offset and metadata; others are left out.

    Raises:
        KafkaError: it is refused, or not answered in time.
    """

    async def ask() -> dict[str, dict[int, tuple[int, str]]]:
        # Not the client's own list_consumer_group_offsets: while a coordinator is loading or moving, the error stands
        # at the top of the answer, where that does not look, and "nothing committed" would mean to begin again.
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

    return await _patiently(ask, f"the committed offsets of the group {group} could not be read")


async def committed(client: AIOKafkaAdminClient, group: str, topic: str) -> dict[int, tuple[int, str]]:
    """What a group has committed for a topic: partition -> offset and metadata; see `all_committed`."""
    return (await all_committed(client, group)).get(topic, {})


async def committed_at(settings: KafkaSettings, group: str, place: TopicPartition) -> tuple[int, str] | None:
    """What a group has committed for a partition: offset and metadata; see `all_committed`."""
    async with admin(settings) as client:
        return (await committed(client, group, place.topic)).get(place.partition)


async def commit_alone(
    client: AIOKafkaAdminClient, group: str, topic: str, positions: Mapping[int, tuple[int, str]]
) -> None:
    """Commit positions with their metadata for a group that nobody is a member of.

    Raises:
        KafkaError: it is refused, or not answered in time.
    """
    partitions = [(partition, at, metadata) for partition, (at, metadata) in positions.items()]
    request = OffsetCommitRequest(group, -1, "", -1, [(topic, partitions)])

    async def ask() -> None:
        response = await private.ask(client, request, await client.find_coordinator(group))
        for _, answers in response.topics:
            for partition, code in answers:
                if code:
                    raise for_code(code)(f"a commit of the group {group} for {topic}, partition {partition}")

    await _patiently(ask, f"a commit of the group {group} was not answered")


async def _patiently(ask: Callable[[], Awaitable[Answer]], failed: str) -> Answer:
    """An answer; a coordinator that has only just started, or is moving, is asked again for a while."""
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
    """Where the places of these positions (0 where none is known) begin and end, once no end is before one of them any
    more: a broker that has just taken over may not know its end yet. What stays before it for two seconds is what there
    is."""
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
    """The same of partitions, as a consumer hears of them."""
    return await bounds(consumer.beginning_offsets, consumer.end_offsets, positions)
