"""A role that reads topics and writes another without transactions: its clients and one run of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient

from stream_lsh.kafka.client.clients import consuming, producing, seen, switch, unless
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.consumer.group_member import Expelled, GroupMember
from stream_lsh.kafka.consumer.output import MOST_BYTES, InOrder, Underway
from stream_lsh.kafka.consumer.position import Bounds, bounds_of
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Failed, Unanswered
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.parts import adjoin
from stream_lsh.wire.source import TOPIC_BITS, output_of, place_of, source_of

POLL_SECONDS = 0.2
COMMIT_SECONDS, LOOK_SECONDS = 0.5, 1.0  # between two commits, and between two measurements of the lag
MOST_FRAMES = 256  # in flight, as MOST_BYTES


class Noted(Protocol):
    """The metadata of a committed position."""

    def metadata(self) -> str: ...


Marks = Mapping[int, tuple[int, Noted]]
"""Positions to commit, by source partition."""


class Relay:
    """Reads partitions of a source, sends to a target in the order of reading, and commits what is delivered.

    A partition of one of several sources has a number (`TOPIC_BITS`).

    Args:
        begin: takes over partitions. It must `seek` each to its position.
        forget: drops what was not sent yet, because other members now own the partitions.
        further: is called with the positions just committed, and may store more about them.
        placed: is called with the offset of each record that is delivered, in the order of sending.

    Attributes:
        positions: the source partitions of this member, each with the position up to which it has read.
        epoch: counts how often partitions were revoked. Results from records of an earlier epoch must not be sent.
        room: is set while more may be sent.
        busy: whether the role works on what it has read. It is not idle then, so that a hang is noticed.
        producer: for records that belong to no mark.
    """

    admin: AIOKafkaAdminClient
    producer: AIOKafkaProducer

    def __init__(
        self,
        settings: KafkaSettings,
        probe: Probe,
        sources: Sequence[str],
        target: str,
        begin: Callable[[list[int]], Awaitable[None]],
        forget: Callable[[], None],
        further: Callable[[Marks], Awaitable[None]] | None = None,
        placed: Callable[[int], object] | None = None,
    ) -> None:
        self.positions: dict[int, int] = {}
        self.epoch = 0
        self.busy = False
        self.room = asyncio.Event()
        self.room.set()
        self._settings = settings
        self._probe = probe
        self._sources, self._target = sources, target
        self.member = GroupMember(settings, probe.role, sources, self._take_over, self._give_up)
        self._begin = begin
        self._forget = forget
        self._further = further
        self._placed = placed
        self._underway: Underway
        self._order: InOrder[tuple[Marks, int, list[int]]]
        self._delivered: dict[int, tuple[int, Noted]] = {}  # but not committed yet
        self._committing = asyncio.Lock()
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._refused.add_done_callback(seen)  # another error may be raised first

    async def run(
        self,
        stop: asyncio.Event,
        *parts: Callable[[], Awaitable[None]],
        prepare: Callable[[], Coroutine[Any, Any, None]] | None = None,
        isolation: str = "read_uncommitted",
    ) -> None:
        """One run of the role: see `Stage.run`.

        Args:
            parts: endless loops that read and send, run concurrently.
            prepare: waits, without a limit, for what must exist before the first partition is taken over.
        """
        asked = asyncio.create_task(stop.wait())
        try:
            async with AsyncExitStack() as stack:
                await unless(self._open(stack, isolation), asked)
                if prepare is not None:
                    await unless(prepare(), asked)
                async with self.member:
                    await self._work(asked, [*parts, self._keep_time, self._tell])
        finally:
            asked.cancel()
            self._refused.cancel()

    async def _open(self, stack: AsyncExitStack, isolation: str) -> None:
        settings, role = self._settings, self._probe.role
        self.admin = await stack.enter_async_context(admin(settings))
        there = await self.admin.list_topics()
        for topic in (*self._sources, self._target):
            if topic not in there:
                raise errors.UnknownTopicOrPartitionError(topic)
        self.producer = await stack.enter_async_context(producing(settings, role))
        self._underway = Underway(self.producer)
        self._order = InOrder(self._underway.send, self._done, self._fail)
        self.member.consumer = await stack.enter_async_context(consuming(settings, role, isolation_level=isolation))

    async def _work(self, asked: asyncio.Task[bool], parts: Sequence[Callable[[], Awaitable[None]]]) -> None:
        tasks = [asyncio.ensure_future(part()) for part in parts]
        ends: list[asyncio.Future[Any]] = [self._refused, *tasks]
        try:
            await asyncio.wait([*ends, asked], return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                if end.done():
                    end.result()
        except BaseException:
            self._order.close()  # after an error nothing more is awaited or committed
            self._delivered.clear()
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- taking over and revoking partitions ------------------------------------------------------------------------

    async def _take_over(self, assigned: frozenset[TopicPartition]) -> None:
        partitions = sorted(map(self.number, assigned))
        self._probe.assigned(set(map(self.label, partitions)))
        if not partitions:
            self.member.log.info("standing by: no partition of %s for this member", ", ".join(self._sources))
            return
        await self._begin(partitions)
        self.member.log.info("reading %s", self._listed(self.positions))

    def seek(self, positions: Mapping[int, int]) -> None:
        """Continue reading at these positions."""
        for partition, position in positions.items():
            self.member.consumer.seek(self.place(partition), position)
        self.positions = dict(positions)

    async def _give_up(self) -> None:
        """Stop sending, wait a limited time for what is in flight, commit."""
        given, self.positions = self.positions, {}
        self.epoch += 1
        self._forget()
        try:
            async with asyncio.timeout(self._settings.session_timeout_ms / 2000):
                await self._order.drained()
                await self.commit()
        except Expelled as error:
            self._delivered.clear()
            self.member.log.warning("%s", error)
        except TimeoutError:
            n = len(self._order)
            raise Unanswered(f"{n} frames were not delivered in time before giving up partitions") from None
        if given:
            self.member.log.info("gave up %s", self._listed(given))

    # -- reading ----------------------------------------------------------------------------------------------------

    def place(self, partition: int) -> TopicPartition:
        """The partition with a number."""
        return TopicPartition(*place_of(self._sources, partition))

    def number(self, place: TopicPartition) -> int:
        """The number of a partition."""
        return source_of(self._sources, *place)

    def label(self, partition: int) -> int | str:
        """A partition as metrics name it: of several sources with its topic."""
        return partition if len(self._sources) == 1 else "{}:{}".format(*self.place(partition))

    def _listed(self, partitions: Mapping[int, int]) -> str:
        numbered = groupby(sorted(partitions.items()), lambda found: self._sources[found[0] >> TOPIC_BITS])
        return "; ".join(
            f"{topic}, partition {', '.join(f'{output_of(p)} from {position}' for p, position in found)}"
            for topic, found in numbered
        )

    async def bounds(self, positions: Mapping[int, int]) -> dict[int, Bounds]:
        """The first and the end offset of source partitions; see `position.bounds_of`."""
        places = {self.place(partition): position for partition, position in positions.items()}
        return {self.number(at): found for at, found in (await bounds_of(self.member.consumer, places)).items()}

    async def poll(self, partitions: Iterable[int] = ()) -> dict[int, list[ConsumerRecord]]:
        """New records of these partitions, or of all in `positions`. Does not change `positions`."""
        found = await self.member.poll(POLL_SECONDS, places=[self.place(partition) for partition in partitions])
        if found is not None and not found:
            self.idle()
        return {self.number(place): records for place, records in (found or {}).items()}

    async def position(self, partition: int) -> int:
        """The offset after the last record from `poll`, transaction markers and gaps included. Does not suspend."""
        position: int = await self.member.consumer.position(self.place(partition))
        return position

    @property
    def at_rest(self) -> bool:
        """Whether nothing is in flight."""
        return not (self._order or self._underway.bytes)

    def idle(self) -> None:
        """Report that Kafka has just answered and nothing is to do, unless something is in flight or uncommitted."""
        if self.at_rest and not (self._delivered or self.busy):
            self._probe.idle()

    # -- sending ----------------------------------------------------------------------------------------------------

    async def send(self, records: Sequence[tuple[int, bytes]], marks: Marks, documents: int) -> None:
        """Send records, each to a partition of the target. The caller holds `member.working`. `marks` may be committed
        once all of them are delivered. The records for a partition are the parts of one: they must follow each
        other there."""
        item = marks, documents, [partition for partition, _ in records]
        await self._order.send(item, [(self._target, partition, value) for partition, value in records])
        self._look()

    def _done(self, item: tuple[Marks, int, list[int]], placed: list[Any]) -> None:
        marks, documents, partitions = item
        if self._refused.done():
            return
        for partition, parts in groupby(zip(partitions, placed, strict=True), key=itemgetter(0)):
            if not adjoin(offsets := [sent.offset for _, sent in parts]):
                where = f"{self._target}, partition {partition}, offset {offsets[0]}"
                self._fail(Failed(f"{where}: another worker has written between the parts of a record"))
                return
        self._delivered.update(marks)
        if self._placed is not None:
            for record in placed:
                if record.offset >= 0:  # -1: the broker had it already
                    self._placed(record.offset)
        if documents:
            self._probe.documents.inc(documents)
        self._look()

    def _look(self) -> None:
        switch(self.room, len(self._order) < MOST_FRAMES and self._order.bytes < MOST_BYTES)

    def _fail(self, error: BaseException) -> None:
        if not self._refused.done():
            self._refused.set_exception(error)

    # -- committing, and other periodic work ------------------------------------------------------------------------

    def reached(self, marks: Marks) -> None:
        """Allow committing these positions. Nothing has to be delivered for them."""
        self._delivered.update(marks)

    async def record(self, marks: Marks) -> None:
        """Commit these positions. Raises as `GroupMember.commit`."""
        await self.member.commit({self.place(p): (at, note.metadata()) for p, (at, note) in marks.items()})
        if self._further is not None:
            await self._further(marks)

    async def set_back(self, marks: Marks) -> None:
        """Commit earlier positions. This run sends and commits nothing after that: it must end."""
        self._order.close()
        async with self._committing:
            self._delivered.clear()
            await self.record(marks)

    async def commit(self) -> None:
        """Commit what is delivered. Raises as `GroupMember.commit`."""
        async with self._committing:
            marks, self._delivered = self._delivered, {}
            if not marks:
                return
            try:
                await self.record(marks)
            except BaseException:
                self._delivered = {**marks, **self._delivered}  # committed when the run ends
                raise
            self._probe.committed()

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_SECONDS)
            await self.commit()
            self._order.check()

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for partition, position in self.positions.items():
                self._probe.lag(self.label(partition), self.member.lag(self.place(partition), position))
