"""The values of outputs on Kafka: JSON, or Avro with a schema of the registry. Those that read them read both."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import orjson
from aiokafka import ConsumerRecord

from stream_lsh.errors import BrokerError, StoreError, StreamLshError
from stream_lsh.kafka.client.clients import Stopped, waited
from stream_lsh.kafka.consumer.absence import Absence
from stream_lsh.kafka.consumer.delivery import Outputs, Row
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.registry.decoding import Absent, Refused, Unknown, UnknownSchemas
from stream_lsh.kafka.registry.encoding import HEAD, OUTPUTS, Decoder, Encoder, avro_schema
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wording import missing_package

if TYPE_CHECKING:
    from stream_lsh.kafka.registry.client import Client

T = TypeVar("T")

log = logging.getLogger("stream_lsh.kafka.output_values")

BLOCKING_BYTES = 64 << 10  # bytes of values that are converted in the event loop, in some 4 ms; more in a thread
LATER_SECONDS = 0.2, 1.0  # after which a schema that the registry does not have is asked for again


class OutputValues:
    """Converts values of the topics verdicts, pairs, groups and alerts.

    Args:
        probe: of a role; while the registry is absent it says what the role waits for.
    """

    def __init__(self, settings: KafkaSettings, probe: Probe | None = None) -> None:
        self._settings = settings
        self._client: Client | None = None
        self._encoders: dict[str, Encoder] = {}  # by topic
        self._decoders: dict[bytes, Decoder | None] = {}  # by the head of a value; None: the schema cannot be used
        self._unknown = UnknownSchemas()
        self._absence = Absence(log, probe)

    # -- writing ----------------------------------------------------------------------------------------------------

    async def register(self, outputs: Iterable[str], stop: asyncio.Event) -> None:
        """Register the schemas of outputs, where values are Avro. While the registry is absent this waits.

        Raises:
            Stopped: asked to stop meanwhile.
            StreamLshError: the registry refuses a schema, or the extra `registry` is not installed.
        """
        if self._settings.output_format != "avro":
            return
        client = self._registry("output_format = avro")
        for output in outputs:
            topic, schema = topic_of(self._settings, output), orjson.dumps(avro_schema(output)).decode()
            try:
                id = await self._waiting(partial(client.register, f"{topic}-value", schema), stop)
            except Refused as error:
                raise StreamLshError(
                    f"{error}. Outputs in Avro need their schemas registered: look at the subject {topic}-value, its "
                    "compatibility, and the permissions of registry_username"
                ) from None
            self._encoders[topic] = Encoder(output, id)

    async def encoded(self, outputs: Outputs) -> Outputs:
        """The outputs with their values as they are written."""
        if not self._encoders:
            return outputs
        values = (row[1] for (topic, _), rows in outputs.items() if topic in self._encoders for row in rows)
        if _few(values):
            return self._encoded(outputs)
        return await asyncio.to_thread(self._encoded, outputs)

    def _encoded(self, outputs: Outputs) -> Outputs:
        return {
            (topic, partition): rows if (encoder := self._encoders.get(topic)) is None else in_avro(rows, encoder)
            for (topic, partition), rows in outputs.items()
        }

    # -- reading ----------------------------------------------------------------------------------------------------

    async def read(
        self, records: Sequence[ConsumerRecord], stop: asyncio.Event | None = None
    ) -> Sequence[ConsumerRecord]:
        """The records with their values as JSON. A value that cannot be decoded stays as it is; see `undecoded`.

        Args:
            stop: wait while the registry is absent, until this is set.

        Raises:
            Stopped: asked to stop meanwhile.
            Failed: the registry is absent, and `stop` is not given.
            StreamLshError: the extra `registry` is not installed.
        """
        heads = {r.value[:HEAD] for r in records if r.value is not None and len(r.value) > HEAD and r.value[0] == 0}
        if not heads or self._settings.registry_url is None:
            return records
        client = self._registry("an output in Avro")
        for head in sorted(head for head in heads - self._decoders.keys() if head not in self._unknown):
            await self._learn(head, client, stop)
        if _few(record.value for record in records):
            return [self._read(record) for record in records]
        return await asyncio.to_thread(lambda: [self._read(record) for record in records])

    async def _learn(self, head: bytes, client: Client, stop: asyncio.Event | None) -> None:
        """Get the schema of values with this head. A registry of several nodes may have it a moment later."""
        for pause in (*LATER_SECONDS, None):
            try:
                found = await self._waiting(partial(client.schema, int.from_bytes(head)), stop)
                break
            except Unknown:
                if pause is None:
                    self._unknown.add(head)
                    return
                await asyncio.sleep(pause)
        self._decoders[head] = None
        if found.get("schemaType", "AVRO") == "AVRO":
            try:
                self._decoders[head] = Decoder(found["schema"])
            except ValueError as error:
                log.warning("schema %d: %s", int.from_bytes(head), error)

    async def read_once(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        """As `read`, for a command.

        Raises:
            BrokerError: the registry is absent.
            StreamLshError: as `read`.
        """
        try:
            return await self.read(records)
        except Failed as error:
            raise BrokerError(str(error)) from None

    def _read(self, record: ConsumerRecord) -> ConsumerRecord:
        value = record.value
        decoder = None if value is None else self._decoders.get(value[:HEAD])
        if value is None or decoder is None:
            return record
        try:
            return replace(record, value=decoder(value))
        except ValueError:
            return record

    # -- the registry -----------------------------------------------------------------------------------------------

    def _registry(self, what: str) -> Client:
        if self._client is None:
            try:
                import fastavro  # noqa: F401

                from stream_lsh.kafka.registry.client import Client
            except ModuleNotFoundError as error:
                raise StreamLshError(missing_package(what, error.name, "registry")) from None
            self._client = Client(self._settings)
        return self._client

    async def _waiting(self, ask: Callable[[], T], stop: asyncio.Event | None) -> T:
        """The registry's answer, in a thread."""
        if stop is None:
            try:
                return await asyncio.to_thread(ask)
            except Absent as error:
                raise Failed(str(error)) from None
        found = await self._absence.answered(partial(asyncio.to_thread, ask), partial(waited, stop))
        if found is None:
            raise Stopped
        return found


def _few(values: Iterable[bytes | None]) -> bool:
    """Whether values may be converted in the event loop: sizes of verdicts differ a thousandfold."""
    return sum(len(value) for value in values if value is not None) <= BLOCKING_BYTES


def in_avro(rows: Iterable[Row], encoder: Encoder) -> list[Row]:
    """Rows with JSON as values, as rows with Avro. Tombstones stay."""
    return [(key, None if value is None else encoder(value), *rest) for key, value, *rest in rows]  # type: ignore[misc]


def undecoded(value: bytes | None) -> str | None:
    """Why a value that `read` has left as it is cannot be used; None if it may be JSON."""
    if value is None or len(value) <= HEAD or value[0]:
        return None
    return (
        f"its value is Avro with schema {int.from_bytes(value[1:HEAD])} and cannot be decoded: set registry_url to the "
        "Schema Registry that has the schema"
    )


def check_decoded(record: ConsumerRecord) -> None:
    """Refuse a value that `read` has left as it is.

    Raises:
        StoreError: it cannot be decoded.
    """
    if (why := undecoded(record.value)) is not None:
        raise StoreError(f"{record.topic}, partition {record.partition}, offset {record.offset}: {why}")


def topic_of(settings: KafkaSettings, output: str) -> str:
    """The topic of an output, which `encoding.OUTPUTS` has."""
    assert output in OUTPUTS
    topics = Topics.of(settings)
    return {"verdict": topics.verdicts, "pair": topics.pairs, "group": topics.groups, "alert": topics.alerts}[output]
