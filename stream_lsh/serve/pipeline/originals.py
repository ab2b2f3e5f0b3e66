"""Texts and headlines of documents, read from the documents topic as long as it has them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka import TopicPartition, errors

from stream_lsh.documents.fields import LINE_ID
from stream_lsh.documents.json_reader import read_object
from stream_lsh.documents.refused import Refused
from stream_lsh.errors import BrokerError, StreamLshError
from stream_lsh.kafka.client.clients import consuming
from stream_lsh.kafka.client.connection import cause, explain
from stream_lsh.kafka.names import largest_record
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.records import columns_of
from stream_lsh.serve.headline import UNKNOWN, Headline, has_headlines, headline
from stream_lsh.serve.problems import Problem
from stream_lsh.wire.source import Record

SECONDS = 10.0
AT_ONCE = 4  # limit of concurrent reads
LIST_SECONDS = 10.0  # time limit of a list of headlines
MOST_HEADLINES = 400  # that wait, of all requests


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


class Headlines:
    """Reads headlines, a few at a time. Other reads of records do not wait for them. Used in the event loop.

    Args:
        known: what is known of a document. It raises Problem if nothing is.
        crowded: the problem for a request that is refused because others wait.
    """

    def __init__(
        self, settings: KafkaSettings, known: Callable[[str | int], dict[str, Any]], crowded: Callable[[str], Problem]
    ) -> None:
        self._settings = settings
        self._known = known
        self._crowded = crowded
        self._originals = Originals(settings)
        self._waiting = 0

    async def read(self, ids: Sequence[str | int]) -> list[Headline]:
        """The headlines of documents, in this order. `UNKNOWN` if a document is not there, or not read in time.

        Raises:
            Problem: too many headlines wait.
        """
        if self._waiting + len(ids) > MOST_HEADLINES:
            raise self._crowded(f"{self._waiting:,} headlines wait already")
        self._waiting += len(ids)
        reads = [asyncio.create_task(self._one(id)) for id in ids]
        try:
            if reads:
                await asyncio.wait(reads, timeout=LIST_SECONDS)
            return [read.result() if read.done() else UNKNOWN for read in reads]
        finally:
            self._waiting -= len(ids)
            for read in reads:
                read.cancel()

    async def _one(self, id: str | int) -> Headline:
        try:
            found = self._known(id)
            original = await self._originals.of(found["source"])
        except (Problem, StreamLshError):
            return UNKNOWN
        text = original.text if has_headlines(self._settings) else ""
        source = json.loads(original.source) if original.source else None
        return Headline(headline(text), source, found["time"])


def _missing(place: TopicPartition, offset: int) -> Problem:
    return Problem(
        410, f"the text is no longer available: {place.topic}, partition {place.partition}, has deleted offset "
        f"{offset} (retention or compaction)",
    )  # fmt: skip
