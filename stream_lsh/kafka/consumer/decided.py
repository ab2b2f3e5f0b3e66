"""How far the judge is; and where several shards have to say what is kept, what was decided, and when they are told.

The judge writes the log of the decisions in the transaction of his verdicts, the sequencer follows it and tells the
shards, and a judge that takes over reads what is not told yet. It is state, no queue: never deleted by time, but by the
sequencer, once nobody can need it any more.
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
from stream_lsh.kafka.client.clients import consuming, shorten
from stream_lsh.kafka.consumer.position import REBUILD, facts_of
from stream_lsh.kafka.consumer.unreadable import Unreadable
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.settings.model import Settings
from stream_lsh.wire.decisions import Decisions, told_of

VERSION = 2
POLL_MS = 200
BEHIND = 4  # times `decision_lag` documents stay: who takes over asks for two blocks, behind a round of the judge


@dataclass(frozen=True, slots=True)
class Judged:
    """What the judge commits beside its position.

    last: offset of the last complete frame, -1 before the first. topic: the documents topic. documents: how many have
    their verdict; None where a judge before this version has committed.
    """

    last: int
    topic: str | None = None
    documents: int | None = None

    def metadata(self) -> str:
        """As text for an offset commit; without what is not known."""
        facts = {"documents": self.topic, "decided": self.documents}
        known = {name: value for name, value in facts.items() if value is not None}
        return orjson.dumps({"version": VERSION, "last": self.last} | known).decode()

    @classmethod
    def of(cls, text: str, group: str, topic: str | None = None) -> Judged:
        """What `metadata` has given.

        Args:
            group: the judge's. topic: that the verdicts are to be about.

        Raises:
            StoreError: somebody else has committed, or another version, or a judge of another documents topic.
        """
        found = facts_of(text, group, VERSION)
        if topic and found.get("documents", topic) != topic:
            raise StoreError(
                f"the group {group} has judged {found['documents']} so far, and documents_topic is {topic} now: use "
                "one topic_prefix for one documents topic"
            )
        decided = found.get("decided")
        return cls(found["last"], found.get("documents"), decided if isinstance(decided, int) else None)


def told_with(first: int, documents: int, block: int) -> tuple[int, int] | None:
    """The places of the log whose fate is told with a frame of so many documents (at most a block), which come after
    `first` others; None: nothing is.

    The log is cut into blocks of documents. With the frame with which a block begins, each shard learns what was
    dropped of its rows of the block before the last. So a frame waits until all before the last block are decided, and
    at most two blocks are under way.
    """
    number = -(-first // block)
    if number < 2 or number * block >= first + documents:
        return None
    return (number - 2) * block, (number - 1) * block


class Decided:
    """The decisions on each frame once, in the order of the log, whoever has written them again (the chain rule).

    Attributes:
        last: offset of the last frame that is decided, -1 if none is. documents: how many are in all frames so far.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._kept: deque[tuple[int, Decisions]] = deque()  # with their offsets
        self.last, self.documents = -1, 0

    def add(self, offset: int, found: Decisions) -> None:
        """Take the next record, which stands at this offset. The first one may be any: those before are not needed."""
        if found.predecessor == self.last or not self._kept:
            self._kept.append((offset, found))
            self.last, self.documents = found.offset, found.documents

    def since(self, place: int, last: int | None = None) -> list[Decisions]:
        """The decisions on all documents from this place of the log on, up to the frame at the offset `last`.

        Raises:
            StoreError: some are missing.
        """
        found = [decisions for _, decisions in self._kept if last is None or decisions.offset <= last]
        if found and found[0].documents > place and found[0].predecessor >= 0:
            raise self.missing(f"on documents from number {place} on")
        return [decisions for decisions in found if decisions.documents > place]

    def told(self, begin: int, end: int, settings: Settings) -> list[bytes]:
        """What a frame tells each shard of the documents at the places [begin, end), which are decided.

        Raises:
            StoreError: decisions are missing.
        """
        known = self.since(begin)
        return [told_of(known, shard, begin, end).encode(settings) for shard in range(settings.shards)]

    def trim(self, documents: int) -> int:
        """Forget what is so many documents behind the last one; the offset of the first record that stays."""
        while self._kept and self._kept[0][1].documents <= self.documents - documents:
            self._kept.popleft()
        return self._kept[0][0] if self._kept else 0

    def missing(self, what: str) -> StoreError:
        """That decisions on something are missing."""
        return StoreError(
            f"{self._topic} does not have the decisions {what}: they were deleted, or the topic was made anew. "
            f"{REBUILD}"
        )


class DecisionLog:
    """The topic, read from its beginning into `decided`."""

    def __init__(self, settings: KafkaSettings, consumer: AIOKafkaConsumer, watch: Probe) -> None:
        self._settings = settings
        self._place = TopicPartition(Topics.of(settings).decisions, 0)
        self._consumer = consumer
        self._unreadable = Unreadable(settings, watch)
        self._trimmed = 0
        self.decided = Decided(self._place.topic)

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: KafkaSettings, watch: Probe) -> AsyncIterator[DecisionLog]:
        """At its beginning.

        Raises:
            KafkaError, OSError: as `connection.admin`.
        """
        options = {"group_id": None, "isolation_level": "read_committed"}
        async with consuming(settings, watch.role, **options) as consumer:
            found = cls(settings, consumer, watch)
            consumer.assign([found._place])
            await consumer.seek_to_beginning(found._place)
            yield found

    async def read(self) -> None:
        """Take what has come, or wait a moment for it.

        Raises:
            StoreError: there is what cannot be read.
        """
        for record in (await self._consumer.getmany(self._place, timeout_ms=POLL_MS)).get(self._place, ()):
            try:
                found = Decisions.decode(record.value or b"", self._settings)
            except FormatError as error:
                await self._unreadable.pass_over(record.topic, record.partition, record.offset, error)
                continue
            self.decided.add(record.offset, found)

    async def read_to(self, last: int) -> None:
        """Read up to the decisions on the frame at this offset.

        Raises:
            StoreError: they are missing.
        """
        end = (await self._consumer.end_offsets([self._place]))[self._place]
        while self.decided.last < last:
            if await self._consumer.position(self._place) >= end:
                raise self.decided.missing(f"on the frame at offset {last} of signatures, which was judged")
            await self.read()

    def forget(self) -> int:
        """Forget what nobody can need any more; the offset of the first record that somebody can."""
        return self.decided.trim(BEHIND * self._settings.decision_lag)

    async def trim(self, client: AIOKafkaAdminClient) -> None:
        """Forget that, and delete it."""
        first = self.forget()
        if first <= self._trimmed:
            return
        self._trimmed = first
        await shorten(client, {self._place: first})
