"""Sends the lines of files to the documents topic: keyed by id, in order within a partition, each acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson
from aiokafka import AIOKafkaProducer, errors

from stream_lsh.documents.columns import Position, Rejection
from stream_lsh.documents.engine_errors import rejection_of
from stream_lsh.documents.fields import LINE_ID, Fields, key_json, key_text
from stream_lsh.documents.json_reader import read_object
from stream_lsh.documents.refused import Refused
from stream_lsh.embedded.feed import file_input, total_bytes
from stream_lsh.embedded.inputs import Input
from stream_lsh.embedded.lines import Lines
from stream_lsh.embedded.pipeline import Stage
from stream_lsh.embedded.report import Progress
from stream_lsh.errors import BrokerError
from stream_lsh.kafka.client.clients import producing
from stream_lsh.kafka.client.connection import admin, cause, explain
from stream_lsh.kafka.client.reading import existing
from stream_lsh.kafka.names import ENVELOPE, Topics
from stream_lsh.kafka.partitioner import partition_of
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.position import check_partitioner
from stream_lsh.kafka.topics import batch_limit

Item = TypeVar("Item")

BATCH_BYTES = 512 * 2**10  # at most, and no more than the topic takes
WAITING_BYTES = 32 * 2**20
REPORT_SECONDS = 0.25
_CATCH_UP_SECONDS = 0.1
_START = Position()


@dataclass
class UnsentLines:
    """Lines that cannot be sent, the first few with the reason."""

    SHOWN = 5
    count: int = 0
    messages: list[str] = field(default_factory=list)

    def add(self, source: str, line: int, why: str) -> None:
        """Count a line."""
        self.count += 1
        if self.count <= self.SHOWN:
            self.messages.append(f"{source}, line {line}: {why}")


@dataclass(frozen=True, slots=True)
class Line:
    """A record to be sent, and its source line. value: None = a tombstone."""

    key: bytes | None
    value: bytes | None
    source: str
    line: int


class Reader:
    """Records from files: whole lines, or with document_format = text the contents of the text field."""

    def __init__(self, settings: KafkaSettings, key_field: str | None, excluded: UnsentLines) -> None:
        self._text = settings.document_format == "text"
        self._fields = Fields(
            settings.id_field, settings.text_field, max_document_bytes=settings.max_document_bytes
        )  # fmt: skip
        self._key_field = key_field or settings.id_field
        self._key_is_json = settings.key_is_id == "json" and key_field is None
        self._excluded = excluded

    def open(self, name: str) -> Input:
        """An input: a file, perhaps compressed, a table, a crawl, or - for standard input. Raises InputError if it is
        unreadable."""
        found = file_input(name, self._fields)
        found.check(columns=False)
        return found

    def records(self, source: Input, begin: Position = _START) -> Iterator[list[Line]]:
        """The records of an input from a position on, as they are read. Raises InputError."""
        title = "standard input" if source.name == "-" else source.name
        for lines in (some.plain() for some in source.lines(begin)):
            found = []
            for number, record in zip(lines.numbers.tolist(), self.each(lines, title), strict=True):
                if isinstance(record, Line):
                    found.append(record)
                else:
                    self._excluded.add(title, number, record.detail)
            yield found

    def each(self, lines: Lines, title: str) -> Iterator[Line | Rejection]:
        """The record of each line, or why it cannot be sent. title: of their source."""
        spans = zip(lines.starts.tolist(), lines.ends.tolist(), lines.numbers.tolist(), strict=True)
        for place, (start, end, number) in enumerate(spans):
            if place in lines.rejected:
                yield lines.rejected[place]
                continue
            try:
                yield Line(*self.record(lines.data[start:end]), title, number)
            except Exception as error:
                yield rejection_of(error)

    def record(self, value: bytes) -> tuple[bytes | None, bytes]:
        """Key and value of the record for a line. Raises Refused if the line cannot be sent."""
        if not self._text:
            return self._key(value), value
        document = read_object(value)
        return key_text(document, self._key_field), self._fields.extract(document).text.encode("utf-8", "surrogatepass")

    def _key(self, value: bytes) -> bytes | None:
        """The key of a line. All documents of an id have one key, and so one partition and their order. A line without
        an id is sent too: the pipeline makes it a dead letter, with the reason.

        The fast parser turns numbers beyond 64 bits into fractions, and rejects some lines that the engine accepts.
        """
        try:
            document = orjson.loads(value)
        except orjson.JSONDecodeError:
            document = None
        found = self._key_of(document) if isinstance(document, dict) else None
        if found is None:
            with suppress(Refused):
                found = self._key_of(read_object(value))
        return found

    def _key_of(self, document: dict[str, object]) -> bytes | None:
        return (key_json if self._key_is_json else key_text)(document, self._key_field)


class _PartitionSender:
    """Records for one partition, and the task that sends them: one batch at a time, so that the order is kept."""

    def __init__(self, producer: AIOKafkaProducer, topic: str, partition: int) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._waiting: deque[Line] = deque()
        self._wake = asyncio.Event()
        self._ended = False
        self.under_way = False
        self.sent = 0
        self.sent_bytes = 0

    def add(self, record: Line) -> None:
        self._waiting.append(record)
        self._wake.set()

    def end(self) -> None:
        """No more records will be added."""
        self._ended = True
        self._wake.set()

    async def run(self, settings: KafkaSettings, progress: asyncio.Event) -> None:
        """Send until `end` was called and nothing is left. Raises BrokerError."""
        while True:
            while not self._waiting:
                if self._ended:
                    return
                self._wake.clear()
                await self._wake.wait()
            batch = self._producer.create_batch()
            records = []
            while self._waiting:
                record = self._waiting[0]
                if batch.append(key=record.key, value=record.value, timestamp=None) is None:
                    break
                records.append(self._waiting.popleft())
            self.under_way = True
            try:
                await (await self._producer.send_batch(batch, self._topic, partition=self._partition))
            except (errors.KafkaError, OSError, TimeoutError) as error:
                raise BrokerError(f"{_lines(records)} not accepted: {explain(error, settings)}") from error
            self.under_way = False
            self.sent += len(records)
            self.sent_bytes += sum(len(record.value or b"") for record in records)
            progress.set()


def _lines(records: Sequence[Line]) -> str:
    first, last = records[0], records[-1]
    if len(records) == 1:
        return f"{first.source}, line {first.line}, was"
    if first.source == last.source:
        return f"{first.source}, lines {first.line} to {last.line} (of one partition), were"
    return f"{first.source}, line {first.line}, to {last.source}, line {last.line} (of one partition), were"


class Feeder:
    """Sends inputs to the documents topic. `sent` counts acknowledged documents, also after an error."""

    def __init__(
        self,
        settings: KafkaSettings,
        names: Sequence[str],
        *,
        key_field: str | None = None,
        rate: float | None = None,
        report: Callable[[Progress], None] = lambda sent: None,
        lines: Iterator[list[Line]] | None = None,
        begin: Position = _START,
    ) -> None:
        """
        Args:
            names: files, or - for standard input. lines: sent instead of the files' lines. begin: position in each file
                from which it is sent.
            key_field: the field of the key, by default that of the id.
            rate: documents a second; None = as fast as the broker takes them.

        Raises:
            InputError: one of them cannot be read.
            UsageError: as `KafkaSettings.one_topic`.
        """
        self.settings = settings = settings.one_topic
        self.topic = Topics.of(settings).documents
        self.excluded = UnsentLines()
        self.partitions = 0
        self._reader = Reader(settings, None if key_field == LINE_ID else key_field, self.excluded)
        self._sources = [self._reader.open(name) for name in names]
        self._lines = lines or (found for source in self._sources for found in self._reader.records(source, begin))
        self._rate = rate
        self._report = report
        self._senders: list[_PartitionSender] = []
        self._began = time.monotonic()

    @property
    def sent(self) -> int:
        """Documents that the broker has acknowledged."""
        return sum(sender.sent for sender in self._senders)

    async def run(self) -> Progress:
        """Send all inputs. Returns how many documents were acknowledged.

        Raises:
            BrokerError: Kafka cannot be reached, has no such topic, or did not accept lines, which are named.
            StoreError: the pipeline has another partitioner.
            InputError: a file is damaged or cannot be read to its end.
        """
        self._began = time.monotonic()
        try:
            async with admin(self.settings) as client:
                await existing(client, self.settings, self.topic)
                await check_partitioner(client, self.settings)
                batch_bytes = await batch_limit(client, self.settings, BATCH_BYTES)
            most = self.settings.max_document_bytes + ENVELOPE
            # At its end everything is acknowledged, or waiting is useless.
            async with producing(
                self.settings, "produce", max_batch_size=batch_bytes, max_request_size=most
            ) as producer:
                partitions = sorted(await producer.partitions_for(self.topic))
                self.partitions = len(partitions)
                self._senders = [_PartitionSender(producer, self.topic, partition) for partition in partitions]
                await self._send()
        except (errors.KafkaError, OSError, TimeoutError) as error:
            raise explain(await cause(error, self.settings), self.settings) from error
        return self._state()

    async def _send(self) -> None:
        progress = asyncio.Event()
        tasks = [asyncio.create_task(sender.run(self.settings, progress)) for sender in self._senders]
        reading = asyncio.create_task(self._read(progress))
        reporting = asyncio.create_task(self._report_on())
        # The first error ends all tasks.
        ends: list[asyncio.Future[Any]] = [asyncio.gather(reading, *tasks), reporting]
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in done:
                end.result()
        finally:
            for task in (reading, reporting, *tasks):
                task.cancel()
            await asyncio.gather(*ends, *tasks, reading, return_exceptions=True)
            self._show()

    async def _read(self, progress: asyncio.Event) -> None:
        total = 0
        allowed = _Allowance(self._rate)
        async for found in _in_thread(self._lines):
            at = 0
            while at < len(found):
                step = await allowed.take(len(found) - at)
                for record in found[at : at + step]:
                    self._sender_of(record).add(record)
                    total += len(record.value or b"")
                at += step
                while total - sum(sender.sent_bytes for sender in self._senders) > WAITING_BYTES:
                    progress.clear()
                    await progress.wait()
        for sender in self._senders:
            sender.end()

    def _sender_of(self, record: Line) -> _PartitionSender:
        """By the hash of the key (`partitioner`); without a key by the line number."""
        if record.key is None:
            return self._senders[record.line % len(self._senders)]
        return self._senders[partition_of(self.settings.partitioner, record.key, len(self._senders))]

    async def _report_on(self) -> None:
        """Report regularly.

        Raises:
            BrokerError: nothing was acknowledged for `give_up_seconds`; an idempotent producer would try for ever.
        """
        sent, since = self.sent, time.monotonic()
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            self._show()
            if self.sent > sent or not any(sender.under_way for sender in self._senders):
                sent, since = self.sent, time.monotonic()
            elif time.monotonic() - since >= self.settings.give_up_seconds:
                raise BrokerError(
                    f"Kafka at {self.settings.bootstrap_servers} has acknowledged nothing for "
                    f"{self.settings.give_up_seconds:g} s (give_up_seconds)."
                )

    def _show(self) -> None:
        with suppress(Exception):  # a failed report must not end the work
            self._report(self._state())

    def _state(self) -> Progress:
        total, read = total_bytes(self._sources), sum(source.raw_position for source in self._sources)
        return Progress(self.sent, 0, 0, 0, 0, read, total, time.monotonic() - self._began)


class _Allowance:
    """Limits the rate to `rate` documents per second. Idle time is made up for at most a tenth of a second."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._next = time.monotonic()

    async def take(self, most: int) -> int:
        """Wait until at least one document may be sent. Returns how many, at most `most`."""
        if self._rate is None:
            return most
        now = time.monotonic()
        self._next = max(self._next, now - _CATCH_UP_SECONDS)
        if self._next > now:
            await asyncio.sleep(max(self._next - now, 0.002))
            now = time.monotonic()
        count = min(most, 1 + int(max(0.0, now - self._next) * self._rate))
        self._next += count / self._rate
        return count


async def _in_thread(items: Iterator[Item]) -> AsyncIterator[Item]:
    """The items of an iterator that may block (on a pipe), read in a thread, at most one item ahead."""
    stage = Stage(items, "stream-lsh-reader", 1)
    try:
        while found := await asyncio.to_thread(stage.take, 1):
            yield found[0]
    finally:
        stage.stop()
