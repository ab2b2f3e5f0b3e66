"""Texts of documents, read from the documents topic as long as it has them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiokafka import TopicPartition, errors

from stream_lsh.documents.fields import LINE_ID
from stream_lsh.documents.json_reader import read_object
from stream_lsh.documents.refused import Refused
from stream_lsh.errors import BrokerError
from stream_lsh.kafka.client.clients import consuming
from stream_lsh.kafka.client.connection import cause, explain
from stream_lsh.kafka.names import largest_record
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.records import columns_of
from stream_lsh.serve.problems import Problem
from stream_lsh.wire.source import Record

SECONDS = 10.0
AT_ONCE = 4  # limit of concurrent reads


class Original(NamedTuple):
    """What is read of a document. within: its values of `match_within`. source: as JSON text, b"" = none."""

    text: str
    within: bytes = b""
    source: bytes = b""


class Originals:
    """Reads documents by their source position.

    Attributes:
        waiting: number of reads without an answer.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._places = asyncio.Semaphore(AT_ONCE)
        self.waiting = 0

    async def of(self, source: Mapping[str, Any]) -> Original:
        """What the record of a document has.

        Args:
            source: topic, partition and offset.

        Raises:
            Problem: it is deleted.
            BrokerError: Kafka cannot be reached.
        """
        self.waiting += 1
        try:
            return await self._record(source["topic"], source["partition"], source["offset"])
        finally:
            self.waiting -= 1

    async def _record(self, topic: str, partition: int, offset: int) -> Original:
        place = TopicPartition(topic, partition)
        options = {"group_id": None, "max_partition_fetch_bytes": largest_record(self._settings)}
        try:
            async with (
                self._places, asyncio.timeout(SECONDS), consuming(self._settings, "serve", **options) as consumer
            ):  # fmt: skip
                consumer.assign([place])
                consumer.seek(place, offset)
                record = await consumer.getone(place)
        except errors.OffsetOutOfRangeError:
            raise _missing(place, offset) from None
        except TimeoutError:
            raise BrokerError(f"{topic}, partition {partition}, cannot be read: no answer in {SECONDS:g} s") from None
        except (errors.KafkaError, OSError) as error:
            raise explain(await cause(error, self._settings), self._settings) from error
        if record.offset != offset or record.value is None:
            raise _missing(place, offset)
        return self._read(record, record.value, self._settings.by_topic[topic])

    def _read(self, record: Record, value: bytes, settings: KafkaSettings) -> Original:
        if settings.document_format == "text":
            return Original(value.decode("utf-8", "replace"))
        if settings.document_format == "registry":
            raise Problem(409, "the text of a document that a schema encodes is not shown")
        if not settings.plain_documents:
            inside = columns_of([record], settings)
            if 0 in inside.rejected:
                raise Problem(409, f"the document has no text to be shown: {inside.rejected[0].detail}")
            text = inside.texts.decode("utf-8", "replace")
            return Original(text, b"".join(map(bytes, inside.scopes)), b"".join(inside.sources))
        try:
            known = b"null" if settings.id_field == LINE_ID else None
            found = settings.document_fields.extract(read_object(value), known)
        except Refused as refused:
            raise Problem(409, f"the document has no text to be shown: {refused.detail}") from None
        return Original(found.text, found.within, found.source)


def _missing(place: TopicPartition, offset: int) -> Problem:
    return Problem(
        410, f"the text is no longer available: {place.topic}, partition {place.partition}, has deleted offset "
        f"{offset} (retention or compaction)",
    )  # fmt: skip
