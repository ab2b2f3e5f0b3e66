"""Progress of the judge. With several shards and `compare_with = "kept"` also its decisions, and when shards get them.

The judge writes the decisions in the transaction of its verdicts. The sequencer reads them and sends them to shards. A
new judge reads those that are not sent yet. The topic is state, not a queue: no retention time applies to it. The
sequencer deletes what no reader can need any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import orjson
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import TopicPartition

from stream_lsh.errors import FormatError, StoreError
from stream_lsh.kafka.client.clients import Deletion, consuming
from stream_lsh.kafka.consumer.group_member import check_reading
from stream_lsh.kafka.consumer.position import REBUILD, committed, facts_of
from stream_lsh.kafka.consumer.state import known_at
from stream_lsh.kafka.consumer.unreadable import Unreadable
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.settings.model import Settings
from stream_lsh.wire.decisions import Decisions, decisions_of_shard
from stream_lsh.wire.parts import Adjacent

VERSION = 2
POLL_MS = 200
BEHIND = 4  # times `decision_lag` documents are kept: a new judge needs two blocks before the last round of the judge


@dataclass(frozen=True, slots=True)
class Judged:
    """What the judge commits with its position.

    Attributes:
        last: offset of the last complete frame, -1 before the first.
        topic: the documents topic; several with commas, in their order.
        documents: number of documents that have a verdict.
    """

    last: int
    topic: str
    documents: int

    def metadata(self) -> str:
        """The text for an offset commit."""
        facts = {"version": VERSION, "last": self.last, "documents": self.topic, "decided": self.documents}
        return orjson.dumps(facts).decode()

    @classmethod
    def of(cls, text: str, group: str, topic: str | None = None) -> Judged:
        """Parse a text of `metadata`.

        Args:
            group: the judge's consumer group.
            topic: the documents topics that the verdicts must be about, as `Topics.listed`.

        Raises:
            StoreError: the commit is of another program, another version or another documents topic.
        """
        found = facts_of(text, group, VERSION, "documents", "decided")
        before = found["documents"]
        if topic and before != topic and not topic.startswith(f"{before},"):
            several = "," in before + topic
            raise StoreError(
                f"the group {group} has judged {before} so far, and documents_topic is {topic} now: "
                + ("keep the order of the tables [documents.TOPIC], and add new ones behind them" if several
                   else "use one topic_prefix for one documents topic")
            )  # fmt: skip
        return cls(found["last"], found["documents"], found["decided"])


async def judged_by(client: AIOKafkaAdminClient, topics: Topics) -> Judged:
    """What the judge has committed. Raises as `position.committed` and `Judged.of`."""
    return _judged(topics, (await committed(client, topics.group("judge"), topics.matches)).get(0))


async def judged_so_far(settings: KafkaSettings) -> Judged:
    """The same, or what the judge's record has where the commit is lost. Raises as `state.known_at` and `Judged.of`."""
    topics = Topics.of(settings)
    return _judged(topics, await known_at(settings, "judge", TopicPartition(topics.matches, 0)))


def _judged(topics: Topics, found: tuple[int, str] | None) -> Judged:
    return Judged(-1, topics.listed, 0) if found is None else Judged.of(found[1], topics.group("judge"))


def decisions_due(first: int, documents: int, block: int) -> tuple[int, int] | None:
    """The range of documents whose decisions are sent with a frame of `documents` documents (at most a block) after
    `first` documents; None if there are none.

    The log is cut into blocks of documents. The frame in which a block begins carries the decisions on the block before
    the last, so that each shard learns which of its rows were dropped. The frame waits until all these are decided. So
    at most two blocks wait for decisions.
    """
    number = -(-first // block)
    if number < 2 or number * block >= first + documents:
        return None
    return (number - 2) * block, (number - 1) * block


class KnownDecisions:
    """The decisions on each frame once, in the order of the log. Repeated records are ignored (the chain rule).

    Attributes:
        last: offset of the last frame that is decided, -1 if none is.
        documents: number of documents in all frames so far.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._kept: deque[tuple[int, Decisions]] = deque()  # with their offsets
        self.last, self.documents = -1, 0

    def add(self, offset: int, found: Decisions) -> None:
        """Add the record at this offset. The first record may be any: earlier ones are not needed."""
        if found.predecessor == self.last or not self._kept:
            self._kept.append((offset, found))
            self.last, self.documents = found.offset, found.documents

    def since(self, place: int, last: int | None = None) -> list[Decisions]:
        """The decisions on all documents from position `place` of the log on, up to the frame at the offset `last`.

        Raises:
            StoreError: some are missing.
        """
        found = [decisions for _, decisions in self._kept if last is None or decisions.offset <= last]
        if found and found[0].documents > place and found[0].predecessor >= 0:
            raise self.missing(f"on documents from number {place} on")
        return [decisions for decisions in found if decisions.documents > place]

    def records(self, begin: int, end: int, settings: Settings) -> list[bytes]:
        """The records that send each shard the decisions on the documents [begin, end), which are all decided.

        Raises:
            StoreError: decisions are missing.
        """
        known = self.since(begin)
        return [decisions_of_shard(known, shard, begin, end).encode(settings) for shard in range(settings.shards)]

    def trim(self, documents: int) -> int:
        """Drop decisions more than `documents` documents before the last. Returns the offset of the first one kept."""
        while self._kept and self._kept[0][1].documents <= self.documents - documents:
            self._kept.popleft()
        return self._kept[0][0] if self._kept else 0

    def missing(self, what: str) -> StoreError:
        """The error for missing decisions."""
        return StoreError(
            f"{self._topic} does not have the decisions {what}: they were deleted, or the topic was created again. "
            f"{REBUILD}"
        )


class DecisionLog:
    """The topic `decisions`, read from its beginning into `known`."""

    def __init__(self, settings: KafkaSettings, consumer: AIOKafkaConsumer, probe: Probe) -> None:
        self._settings = settings
        self._place = TopicPartition(Topics.of(settings).decisions, 0)
        self._consumer = consumer
        self._unreadable = Unreadable(settings, probe)
        self._adjacent = Adjacent(settings)
        self._trimmed = 0
        self._deletion = Deletion()
        self.known = KnownDecisions(self._place.topic)

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: KafkaSettings, probe: Probe) -> AsyncIterator[DecisionLog]:
        """A log positioned at the beginning of its topic.

        Raises:
            KafkaError, OSError: as `connection.admin`.
        """
        options = {"group_id": None, "isolation_level": "read_committed"}
        async with consuming(settings, probe.role, **options) as consumer:
            found = cls(settings, consumer, probe)
            consumer.assign([found._place])
            await consumer.seek_to_beginning(found._place)
            yield found

    async def read(self) -> None:
        """Take new records, or wait a moment for some.

        Raises:
            StoreError: a record is unreadable.
            Failed: aiokafka has stopped reading.
        """
        check_reading(self._consumer, self._place.topic)
        for record in (await self._consumer.getmany(self._place, timeout_ms=POLL_MS)).get(self._place, ()):
            try:
                found = self._adjacent.read(record.offset, record.value or b"", Decisions.decode)
            except FormatError as error:
                await self._unreadable.pass_over(record.topic, record.partition, record.offset, error)
                continue
            if found is not None:
                self.known.add(*found)

    async def read_to(self, last: int) -> None:
        """Read up to the decisions on the frame at this offset.

        Raises:
            StoreError: they are missing.
            Failed: as `read`.
        """
        end = (await self._consumer.end_offsets([self._place]))[self._place]
        while self.known.last < last:
            if await self._consumer.position(self._place) >= end:
                raise self.known.missing(f"on the frame at offset {last} of signatures, which was judged")
            await self.read()

    def forget(self) -> int:
        """Drop what no reader can need any more. Returns the offset of the first record that is still needed."""
        return self.known.trim(BEHIND * self._settings.decision_lag)

    async def trim(self, client: AIOKafkaAdminClient) -> None:
        """Drop that, and delete it from the topic."""
        first = self.forget()
        if first > self._trimmed and await self._deletion.before(client, {self._place: first}):
            self._trimmed = first
