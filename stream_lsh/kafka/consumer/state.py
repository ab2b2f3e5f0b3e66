"""What the roles know, as records of the compacted topic PREFIX.state.

Kafka deletes the commits of a consumer group `offsets.retention.minutes` after its last member has left, and with a
group that an operator deletes. So each commit has a record here, with the same positions and metadata. A role whose
group has no commit any more continues from its record, and commits it again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from aiokafka import TopicPartition

from stream_lsh.errors import StoreError
from stream_lsh.kafka.client.clients import producing
from stream_lsh.kafka.client.reading import between, reading
from stream_lsh.kafka.consumer.group_member import GroupMember
from stream_lsh.kafka.consumer.position import Reading, bounds_of, committed_at, offset_lost
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import SHARED, KafkaSettings

VERSION = 1
PLAIN = ("sign", "pause", "skip")
"""Their records are written without transactions: a reader need not wait for those of other roles."""
SETTINGS = "settings"
"""The key of the record with the pipeline's settings, which the sequencer writes."""

Commits = dict[str, dict[int, tuple[int, str]]]
"""Topic -> partition -> offset and metadata, as `position.all_committed`."""

log = logging.getLogger("stream_lsh.kafka.consumer.state")


def key_of(role: str, partition: int | None = None) -> bytes:
    """The key of a role's record. With `partition`: of its record for that source partition."""
    return (role if partition is None else f"{role}/{partition}").encode()


def encode(positions: Mapping[TopicPartition, tuple[int, str]]) -> bytes:
    """The value of a record with these positions and their metadata."""
    listed = [[*place, *found] for place, found in positions.items()]
    return orjson.dumps({"version": VERSION, "positions": listed})


async def read(settings: KafkaSettings, isolation: str = "read_committed") -> dict[str, dict[str, Any]]:
    """The latest records of the topic by key; none if there is no such topic.

    Args:
        isolation: `read_committed` waits for open transactions to end; `read_uncommitted` suffices for records that are
            written without one.

    Raises:
        StoreError: a newer version has written one.
        KafkaTimeoutError: the broker does not answer, or a transaction stays open.
        KafkaError, OSError: as `connection.admin`.
    """
    topic = Topics.of(settings).state
    place = TopicPartition(topic, 0)
    async with reading(settings, isolation_level="read_uncommitted") as consumer:
        if topic not in await consumer.topics():
            return {}
        end = (await consumer.end_offsets([place]))[place]  # includes what open transactions have written
    found: dict[str, dict[str, Any]] = {}
    async with reading(settings, isolation_level=isolation) as consumer:
        for record in await between(consumer, place, 0, end):
            try:
                fields = orjson.loads(record.value or b"")
                newer = fields["version"] > VERSION
            except (orjson.JSONDecodeError, KeyError, TypeError):
                log.warning("%s, offset %d, has no record of a role, and is passed over", topic, record.offset)
                continue
            if newer:
                raise StoreError(
                    f"{topic}, offset {record.offset}: it was written by version {fields['version']}, this is "
                    f"{VERSION}: upgrade this worker"
                )
            found[(record.key or b"").decode(errors="replace")] = fields
    return found


async def write(settings: KafkaSettings, role: str, positions: Mapping[TopicPartition, tuple[int, str]]) -> None:
    """Write the record of a role without members. Raises KafkaError, OSError: as `clients.producing`."""
    async with producing(settings, role) as producer:
        await producer.send_and_wait(Topics.of(settings).state, encode(positions), key_of(role), partition=0)


async def recorded(settings: KafkaSettings, role: str, isolation: str | None = None) -> Commits:
    """The positions in a role's records. isolation: as of `read`, by default what the role's records need. Raises as
    `read`."""
    found: Commits = {}
    isolation = isolation or ("read_uncommitted" if role in PLAIN else "read_committed")
    for key, fields in (await read(settings, isolation)).items():
        if key.partition("/")[0] == role:
            for topic, partition, offset, metadata in fields["positions"]:
                found.setdefault(topic, {})[partition] = offset, metadata
    return found


def encode_settings(settings: KafkaSettings) -> bytes:
    """The value of the record with the pipeline's settings: those of `SHARED` that were given. It does not say how
    values are encoded, which needs settings that are not shared."""
    given = settings.model_dump(mode="json", include=set(SHARED & settings.model_fields_set))
    for table in given.get("documents", {}).values():
        table.pop("document_format", None)
    return orjson.dumps({"version": VERSION, "settings": given})


async def with_recorded(settings: KafkaSettings) -> KafkaSettings:
    """These settings, and where they were not given those of the pipeline, as far as they are recorded.

    Raises:
        UsageError: they do not go together.
        StoreError, KafkaError, OSError: as `read`.
    """
    found = (await read(settings, "read_uncommitted")).get(SETTINGS, {}).get("settings", {})
    return settings.where_not_given(**{name: value for name, value in found.items() if name in SHARED})


async def known_at(settings: KafkaSettings, role: str, place: TopicPartition) -> tuple[int, str] | None:
    """What a role's group has committed for a partition, or where that is lost what the role's record has: offset and
    metadata. Raises as `position.committed_at` and `read`."""
    topics = Topics.of(settings)
    if (found := await committed_at(settings, topics.group(role), place)) is not None:
        return found
    if (found := (await recorded(settings, role)).get(place.topic, {}).get(place.partition)) is not None:
        log.warning(
            "the consumer group %s has no committed offset for %s, partition %d: %s has offset %d", topics.group(role),
            *place, topics.state, found[0],
        )  # fmt: skip
    return found


async def taken_over(
    member: GroupMember, settings: KafkaSettings, place: TopicPartition, reading: Reading,
    outputs: Sequence[TopicPartition], written: str, nothing: str,
) -> tuple[int, str]:  # fmt: skip
    """The position of the member before in the only partition of a topic, and its metadata.

    Args:
        member: of a role with a record.
        outputs: partitions that are empty at the very first start; written: what they have.
        nothing: the metadata of that start. They are to be committed, to distinguish it from a lost offset.

    Raises:
        Failed: another member has taken over, and has begun.
        StoreError: the position is uncertain.
    """
    consumer, found = member.consumer, await known_at(settings, member.role, place)
    if found is None:
        start = (await consumer.beginning_offsets([place]))[place]
        if start or any((await consumer.end_offsets(outputs)).values()):
            what = f"{place.topic} begins at offset {start}" if start else f"there are {written} already"
            again = f"repeat {written} or miss some"
            raise await offset_lost(settings, member.group, place, f", but {what}", again)
        found = 0, nothing
    reading.missing(place, found[0], (await bounds_of(consumer, {place: found[0]}))[place])
    return found
