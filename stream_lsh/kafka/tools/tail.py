"""The outputs of the pipeline as lines: committed records in the order of arrival."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from aiokafka import AIOKafkaConsumer, errors
from aiokafka.structs import ConsumerRecord, TopicPartition

from stream_lsh.kafka.client.connection import admin, cause, explain
from stream_lsh.kafka.client.reading import existing, read_from, reading
from stream_lsh.kafka.consumer.output_values import OutputValues, check_decoded
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings

_WAIT_MS = 500
COPIES = ("unique", "dead-letters")
"""The outputs that have the documents' own values."""
FETCH_BYTES = 4 << 20


async def tail(
    settings: KafkaSettings, output: str, *, from_beginning: bool = False, follow: bool = True
) -> AsyncGenerator[bytes, None]:
    """The lines of an output, without newline, in the order of arrival.

    Args:
        output: pairs, verdicts, unique, dead-letters, groups or alerts.
        from_beginning: begin with existing records; otherwise only new ones.
        follow: continue for ever; otherwise end at the topic's end at the start.

    Raises:
        BrokerError: Kafka or the Schema Registry cannot be reached, or there is no such topic.
        StoreError: a value is Avro and cannot be decoded.
    """
    topic = getattr(Topics.of(settings), output.replace("-", "_"))
    values = None if output in COPIES else OutputValues(settings)
    try:
        async with admin(settings) as client:
            places = await existing(client, settings, topic)
        async with reading(settings, auto_offset_reset="earliest", max_partition_fetch_bytes=FETCH_BYTES) as consumer:
            async for record in _records(consumer, places, from_beginning, follow, values):
                if output == "groups" and record.value is None:
                    continue  # the tombstone of an ended group; the event before it says the same
                yield _line(record, output)
    except (errors.KafkaError, OSError, TimeoutError) as error:
        raise explain(await cause(error, settings), settings) from error


async def _records(
    consumer: AIOKafkaConsumer,
    partitions: list[TopicPartition],
    from_beginning: bool,
    follow: bool,
    values: OutputValues | None,
) -> AsyncIterator[ConsumerRecord]:
    ends = await consumer.end_offsets(partitions)
    begins = await consumer.beginning_offsets(partitions) if from_beginning else ends
    read_from(consumer, begins)
    open_ = {partition for partition in partitions if begins[partition] < ends[partition]}
    while follow or open_:
        for partition, records in (await consumer.getmany(timeout_ms=_WAIT_MS)).items():
            for record in records if values is None else await values.read_once(records):
                if values is not None:
                    check_decoded(record)
                if follow or record.offset < ends[partition]:
                    yield record
        for partition in list(open_):
            # The position counts, not the last record: transaction markers or aborted records may follow it.
            if await consumer.position(partition) >= ends[partition]:
                open_.discard(partition)


def _line(record: ConsumerRecord, output: str) -> bytes:
    if output == "dead-letters":
        return dead_letter(record)
    return tombstone(record) if record.value is None else bytes(record.value)


def tombstone(record: ConsumerRecord) -> bytes:
    """A tombstone of the topic unique as JSON: its id, and the new representative with its source position."""
    headers = {name: value or b"" for name, value in record.headers}
    id, representative, at = headers.get("id", b"null"), headers.get("new-representative", b"null"), b"null"
    if "new-representative" in headers:
        topic, partition, offset = (
            headers.get(name, b"")
            for name in ("new-representative-topic", "new-representative-partition", "new-representative-offset")
        )
        at = b'{"topic":"%b","partition":%b,"offset":%b}' % (topic, partition, offset)
    return b'{"id":%b,"deleted":true,"new_representative":%b,"at":%b}' % (id, representative, at)


def dead_letter(record: ConsumerRecord) -> bytes:
    """A dead letter as JSON: its headers, key, time and the original bytes (in base64 if they are not UTF-8)."""
    letter: dict[str, Any] = {"partition": record.partition, "offset": record.offset, "timestamp": record.timestamp}
    letter["headers"] = {name: _text(value) for name, value in record.headers}
    for name, content in (("key", record.key), ("original", record.value)):
        text = None if content is None else _text(content, strict=True)
        if content is not None and text is None:
            letter[f"{name}_base64"] = base64.b64encode(content).decode("ascii")
        else:
            letter[name] = text
    return json.dumps(letter, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _text(content: bytes | None, *, strict: bool = False) -> str | None:
    if content is None:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None if strict else content.decode("utf-8", "backslashreplace")
