"""The last frame that was sent to the shards, which an earlier sequencer may have sent after its last commit."""

from __future__ import annotations

from contextlib import suppress

from aiokafka import TopicPartition
from aiokafka.errors import TopicAuthorizationFailedError

from stream_lsh.errors import FormatError, StoreError
from stream_lsh.kafka.client.reading import between, reading
from stream_lsh.kafka.consumer.position import Reading, bounds_of
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.parts import Part, is_part
from stream_lsh.wire.sequenced import Sequenced, split_frames


async def check_last_sent(settings: KafkaSettings, position: int, wanted: Reading) -> None:
    """Check that `signatures` still has the last frame that was sent, if a sequencer at this position reads it again.
    Shards do not match a frame twice: they would ignore the documents of another one at its offset.

    Args:
        wanted: has the remedy.

    Raises:
        StoreError: the brokers have lost it.
        KafkaError, OSError: as `reading.between`.
    """
    topics = Topics.of(settings)
    source, target = TopicPartition(topics.signatures, 0), TopicPartition(topics.frames, 0)
    try:
        offset, frame = await _last_sent(settings, target)
    except TopicAuthorizationFailedError:  # a sequencer needs no permission to read frames
        return
    if offset < position:
        return
    async with reading(settings) as consumer:
        end = (await bounds_of(consumer, {source: offset + 1}))[source][1]
        wanted.missing(source, offset + 1, (0, end))
        found = [record.value for record in await between(consumer, source, offset, offset + 1)]
    if frame is not None and found and found != [frame]:
        raise StoreError(
            f"{source.topic}, partition 0, has another frame at offset {offset} than the one that was sequenced: the "
            f"brokers have lost its end, and it has new records since. {wanted.anew}"
        )


async def _last_sent(settings: KafkaSettings, target: TopicPartition) -> tuple[int, bytes | None]:
    """Offset in `signatures` of the last frame, -1 if there is none; and the frame, None if its record is a part."""
    async with reading(settings, isolation_level="read_uncommitted") as consumer:
        begin, end = (await bounds_of(consumer, {target: 0}))[target]
        records = await between(consumer, target, max(begin, end - 1), end)
    with suppress(FormatError):  # all readers pass over it
        for record in records:
            data = record.value or b""
            if is_part(data):
                return Part.decode(data, settings).place.offset, None
            found = Sequenced.decode(split_frames(data, settings)[-1], settings)
            return found.offset, bytes(found.frame)
    return -1, None
