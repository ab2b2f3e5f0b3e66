"""Where shards begin in frames: not after the first frame that the judge has not completed.

The brokers may have lost replies to frames before the committed position. These frames are read again, and get the
replies that are stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_lsh.errors import FormatError
from stream_lsh.kafka.client.reading import read_from, reading, records_to
from stream_lsh.kafka.consumer.decisions import Judged
from stream_lsh.kafka.consumer.position import committed_at
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.parts import Part, is_part
from stream_lsh.wire.sequenced import frame_of, split_frames


async def beginnings(settings: KafkaSettings, positions: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """The offset in frames at which each shard begins; and the last frame that the judge has completed, -1 if that is
    not known.

    Args:
        positions: the committed one of each shard, of which the topic has lost nothing.

    Raises:
        StoreError: as `Judged.of`.
        KafkaError, OSError: as `position.committed_at` and `reading.records_to`.
    """
    topics = Topics.of(settings)
    group = topics.group("judge")
    if not any(positions.values()):
        return dict(positions), -1
    if (found := await committed_at(settings, group, TopicPartition(topics.matches, 0))) is None:
        return dict(positions), -1  # no judge has begun: it will read all replies
    last = Judged.of(found[1], group).last
    places = {TopicPartition(topics.frames, shard): position for shard, position in positions.items()}
    async with reading(settings, isolation_level="read_uncommitted") as consumer:
        begins = await consumer.beginning_offsets([*places])
        read_from(consumer, places)
        consumer.pause(*places)
        found_at = {
            place.partition: await _after(settings, consumer, place, begins[place], position, last)
            for place, position in places.items()
        }
        return found_at, last


async def _after(
    settings: KafkaSettings, consumer: AIOKafkaConsumer, place: TopicPartition, begin: int, position: int, last: int
) -> int:  # fmt: skip
    """An offset at or before this position, before which are only frames up to `last`. This looks at the record before
    the position, then at records further and further back, up to the first one of the partition, at `begin`."""
    at, step = position, 1
    consumer.resume(place)
    while at > begin:
        at, step = max(begin, position - step), 2 * step
        consumer.seek(place, at)
        records = [record async for _, found in records_to(consumer, {place: at + 1}) for record in found]
        if records and _last_of(records[0].value or b"", settings) <= last:
            at += 1
            break
    consumer.pause(place)
    return at


def _last_of(record: bytes, settings: KafkaSettings) -> float:
    """The last frame of a record of frames; infinity if it cannot be read."""
    try:
        if is_part(record):
            return Part.decode(record, settings).place.offset
        return frame_of(split_frames(record, settings)[-1], settings)[0]
    except FormatError:
        return math.inf
