"""What was decided, where several shards have to say what is kept: the log of the decisions, read from its beginning.

The judge writes it in the transaction of his verdicts, the sequencer follows it and tells the shards, and a judge that
takes over reads what is not told yet. It is state, no queue: never deleted by time, but by the sequencer, once nobody
can need it any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from stream_lsh.errors import FormatError, StateError
from stream_lsh.kafka.client.clients import ANSWER_MS, consuming
from stream_lsh.kafka.group.unreadable import Unreadable
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Watch
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.decisions import Decisions

POLL_MS = 200
BEHIND = 4  # times `decided_after` documents stay: who takes over asks for two blocks, behind a round of the judge
log = logging.getLogger("stream_lsh.kafka.group")


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
            StateError: some are missing.
        """
        found = [decisions for _, decisions in self._kept if last is None or decisions.offset <= last]
        if found and found[0].documents > place and found[0].predecessor >= 0:
            raise self.missing(f"on documents from number {place} on")
        return [decisions for decisions in found if decisions.documents > place]

    def trim(self, documents: int) -> int:
        """Forget what is so many documents behind the last one; the offset of the first record that stays."""
        while self._kept and self._kept[0][1].documents <= self.documents - documents:
            self._kept.popleft()
        return self._kept[0][0] if self._kept else 0

    def missing(self, what: str) -> StateError:
        """That decisions on something are missing."""
        return StateError(
            f"{self._topic} does not have the decisions {what}: they were deleted, or the topic was made anew. "
            "Rebuild into a new topic_prefix with `stream-lsh reindex`"
        )


class DecisionLog:
    """The topic, read from its beginning into `decided`."""

    def __init__(self, settings: KafkaSettings, consumer: AIOKafkaConsumer, watch: Watch) -> None:
        self._settings = settings
        self._place = TopicPartition(Topics.of(settings).decisions, 0)
        self._consumer = consumer
        self._unreadable = Unreadable(settings, watch)
        self._trimmed = 0
        self.decided = Decided(self._place.topic)

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: KafkaSettings, watch: Watch) -> AsyncIterator[DecisionLog]:
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
            StateError: there is what cannot be read.
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
            StateError: they are missing.
        """
        end = (await self._consumer.end_offsets([self._place]))[self._place]
        while self.decided.last < last:
            if await self._consumer.position(self._place) >= end:
                raise self.decided.missing(f"on the frame at offset {last} of signatures, which was judged")
            await self.read()

    def forget(self) -> int:
        """Forget what nobody can need any more; the offset of the first record that somebody can."""
        return self.decided.trim(BEHIND * self._settings.decided_after)

    async def trim(self, client: AIOKafkaAdminClient) -> None:
        """Forget that, and delete it."""
        first = self.forget()
        if first <= self._trimmed:
            return
        self._trimmed = first
        try:
            async with asyncio.timeout(ANSWER_MS / 1000):
                await client.delete_records({self._place: RecordsToDelete(first)})
        except (KafkaError, TimeoutError) as error:
            log.warning(
                "%s could not be shortened, and goes on growing (%s): allow `delete` on it", self._place.topic, error
            )
