"""Naming an unreadable record, so that its reader skips it: the record, and what skipping it loses."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
from aiokafka import ConsumerRecord, TopicPartition

from stream_lsh.errors import ForeignError, StoreError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.client.reading import between, partitions_of, reading
from stream_lsh.kafka.consumer import state
from stream_lsh.kafka.consumer.output_values import OutputValues
from stream_lsh.kafka.consumer.position import committed, committed_at
from stream_lsh.kafka.consumer.unreadable import SKIPPABLE, SKIPPED, named
from stream_lsh.kafka.forward.partition import read_verdict
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.envelope import kind_of
from stream_lsh.wire.frames import Places
from stream_lsh.wire.parts import Part, is_part
from stream_lsh.wire.replies import head
from stream_lsh.wire.sequenced import Sequenced, split_frames
from stream_lsh.wire.set_back import KIND as SET_BACK
from stream_lsh.wire.set_back import SetBack

LOST = {
    "signatures": "nothing; the signers sign its documents again, as far as retention has not deleted them.",
    "frames": "nothing, unless the sequencer of this pipeline has sent it: then the shard waits for it for ever, and "
    "only `stream-lsh kafka reindex` into a new prefix helps.",
    "matches": "nothing, unless a shard of this pipeline has sent it: then judge waits until you restart match, which "
    "sends it again.",
    "verdicts": "nothing, unless the judge of this pipeline has written it: then its document is neither in unique nor "
    "in dead-letters.",
}
"""What skipping a record loses, by topic."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A record that stops its reader. topic: an attribute of `Topics`. why: the reason why it is unreadable."""

    topic: str
    place: TopicPartition
    offset: int
    size: int
    timestamp: int
    why: str

    @property
    def lost(self) -> str:
        """What skipping it loses."""
        return LOST[self.topic]


async def look(settings: KafkaSettings, topic: str, partition: int, offset: int) -> Unread:
    """The record at an offset, which must be one that stops its reader.

    Raises:
        StoreError: there is no record, or it is readable, or the reader is past it.
        KafkaError, OSError: see `connection.explained`.
    """
    topics = Topics.of(settings)
    place = TopicPartition(getattr(topics, topic), partition)
    where = f"{place.topic}, partition {partition}, offset {offset}"
    role = SKIPPABLE[topic]
    async with admin(settings) as client:
        if not (places := await partitions_of(client, place.topic)):
            raise StoreError(f"Kafka at {settings.bootstrap_servers} does not have the topic {place.topic}")
        if place not in places:
            raise StoreError(f"the topic {place.topic} has no partition {partition}")
        found = (await committed(client, topics.group(role), place.topic)).get(partition)
    if found is not None and found[0] > offset:
        raise StoreError(f"{where} was passed by {role}, which continues at {found[0]}: there is nothing to skip")
    record = await _read(settings, place, offset)
    if record is None:
        raise StoreError(f"{where} has no record")
    try:
        _decode(topic, record, settings)
    except ForeignError as error:
        raise StoreError(f"{where} needs no skip ({error}): {role} skips such records by itself") from None
    except StoreError as error:
        return Unread(topic, place, offset, len(record.value or b""), record.timestamp, str(error))
    raise StoreError(
        f"{where} can be read with these settings: if {role} stops at it, its settings are not the ones given here"
    )


def _decode(topic: str, record: ConsumerRecord, settings: KafkaSettings) -> object:
    """Decode a record as the reader of its topic does."""
    value = record.value or b""
    if topic in ("frames", "matches") and is_part(value):
        return Part.decode(value, settings)
    match topic:
        case "signatures":
            return SetBack.decode(value) if kind_of(value) == SET_BACK else Places.of(value, settings)
        case "frames":
            return [Sequenced.decode(frame, settings) for frame in split_frames(value, settings)]
        case "matches":
            return head(value, settings)
    return read_verdict(record, *settings.by_topic)


async def _read(settings: KafkaSettings, place: TopicPartition, offset: int) -> ConsumerRecord | None:
    async with reading(settings) as consumer:
        end = (await consumer.end_offsets([place]))[place]
        found = await between(consumer, place, offset, min(offset + 1, end))
    if found and place.topic == Topics.of(settings).verdicts:
        found = [*await OutputValues(settings).read_once(found)]
    return found[0] if found else None


async def skip(settings: KafkaSettings, unread: Unread) -> None:
    """Mark a record to be skipped, from the reader's next start on.

    Raises:
        KafkaError, OSError: see `connection.explained`.
    """
    place, marks = unread.place, await state.recorded(settings, SKIPPED)
    found = await committed_at(settings, Topics.of(settings).group(SKIPPABLE[unread.topic]), place)
    position = 0 if found is None else found[0]
    before = named(marks, *place)
    offsets = sorted({unread.offset, *(offset for offset in before if offset >= position)})
    kept = {TopicPartition(topic, number): at for topic, of in marks.items() for number, at in of.items()}
    await state.write(settings, SKIPPED, {**kept, place: (unread.offset, orjson.dumps(offsets).decode())})
