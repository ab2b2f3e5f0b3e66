"""A role that reads one topic and writes another without transactions: its clients, and one life of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol

from aiokafka import ConsumerRecord, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient

from stream_lsh.kafka.client.clients import consuming, producing, seen, unless
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.consumer.group_member import Expelled, GroupMember
from stream_lsh.kafka.consumer.output import MOST_BYTES, InOrder, Underway
from stream_lsh.kafka.consumer.position import Bounds, bounds_of
from stream_lsh.kafka.run.lives import Unanswered
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.settings import KafkaSettings

POLL_SECONDS = 0.2
COMMIT_SECONDS, LOOK_SECONDS = 0.5, 1.0  # between two commits, and two looks at the lag
MOST_FRAMES = 256  # on their way, as MOST_BYTES


class Noted(Protocol):
    """What stands beside a position."""

    def metadata(self) -> str: ...


Marks = Mapping[int, tuple[int, Noted]]
"""Positions to commit, by source partition."""


class Relay:
    """Between two topics: read by partition, sent in the order of reading, committed when all of it is delivered.

    Args:
        begin: takes partitions over: it has to `seek` to where each begins. forget: drops what was not sent yet, for
        the partitions are another member's. further: told what was just committed, to write down more of it.

    Attributes:
        positions: the source partitions that this member works on, each with the position up to which it has read.
        epoch: counts how often they were given up: what was made of records of an earlier one is not to be sent.
        room: set while more may be sent.
    """

    admin: AIOKafkaAdminClient

    def __init__(
        self,
        settings: KafkaSettings,
        watch: Probe,
        source: str,
        target: str,
        begin: Callable[[list[int]], Awaitable[None]],
        forget: Callable[[], None],
        further: Callable[[Marks], Awaitable[None]] | None = None,
    ) -> None:
        self.positions: dict[int, int] = {}
        self.epoch = 0
        self.room = asyncio.Event()
        self.room.set()
        self._settings = settings
        self._watch = watch
        self._source, self._target = source, target
        self.member = GroupMember(settings, watch.role, [source], self._take_over, self._give_up)
        self._begin = begin
        self._forget = forget
        self._further = further
        self._underway: Underway
        self._order: InOrder[tuple[Marks, int]]
        self._delivered: dict[int, tuple[int, Noted]] = {}  # and not committed yet
        self._committing = asyncio.Lock()
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._refused.add_done_callback(seen)  # another error may have come first

    async def run(
        self,
        stop: asyncio.Event,
        *parts: Callable[[], Awaitable[None]],
        prepare: Callable[[], Coroutine[Any, Any, None]] | None = None,
        isolation: str = "read_uncommitted",
    ) -> None:
        """A life: see `Stage.run`.

        Args:
            parts: read and send, for ever, side by side.
            prepare: waits for what must be there before the first partition is taken over, for as long as it takes.
        """
        asked = asyncio.create_task(stop.wait())
        try:
            async with AsyncExitStack() as stack:
                await unless(self._open(stack, isolation), asked)
                if prepare is not None:
                    await unless(prepare(), asked)
                async with self.member:
                    await self._live(asked, [*parts, self._keep_time, self._tell])
        finally:
            asked.cancel()
            self._refused.cancel()

    async def _open(self, stack: AsyncExitStack, isolation: str) -> None:
        settings, role = self._settings, self._watch.role
        self.admin = await stack.enter_async_context(admin(settings))
        there = await self.admin.list_topics()
        for topic in (self._source, self._target):
            if topic not in there:
                raise errors.UnknownTopicOrPartitionError(topic)
        self._underway = Underway(await stack.enter_async_context(producing(settings, role)))
        self._order = InOrder(self._underway.send, self._done, self._fail)
        self.member.consumer = await stack.enter_async_context(consuming(settings, role, isolation_level=isolation))

    async def _live(self, asked: asyncio.Task[bool], parts: Sequence[Callable[[], Awaitable[None]]]) -> None:
        tasks = [asyncio.ensure_future(part()) for part in parts]
        ends: list[asyncio.Future[Any]] = [self._refused, *tasks]
        try:
            await asyncio.wait([*ends, asked], return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                if end.done():
                    end.result()
        except BaseException:
            self._order.close()  # nothing is worth waiting for any more, or committed
            self._delivered.clear()
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- taking over and giving up ----------------------------------------------------------------------------------

    async def _take_over(self, assigned: frozenset[TopicPartition]) -> None:
        partitions = sorted(place.partition for place in assigned)
        self._watch.assigned(set(partitions))
        if not partitions:
            self.member.log.info("standing by: no partition of %s for this member", self._source)
            return
        await self._begin(partitions)
        self.member.log.info("reading %s, partition %s", self._source, _listed(self.positions))

    def seek(self, positions: Mapping[int, int]) -> None:
        """Read on from these positions."""
        for partition, position in positions.items():
            self.member.consumer.seek(self.place(partition), position)
        self.positions = dict(positions)

    async def _give_up(self) -> None:
        """Send nothing more, wait a while for what is under way, commit."""
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
            self.member.log.info("gave up %s, partition %s", self._source, _listed(given))

    # -- reading ----------------------------------------------------------------------------------------------------

    def place(self, partition: int) -> TopicPartition:
        """A partition of the source."""
        return TopicPartition(self._source, partition)

    async def bounds(self, positions: Mapping[int, int]) -> dict[int, Bounds]:
        """Of source partitions: where they begin and end; see `position.bounds_of`."""
        places = {self.place(partition): position for partition, position in positions.items()}
        return {at.partition: found for at, found in (await bounds_of(self.member.consumer, places)).items()}

    async def poll(self) -> dict[int, list[ConsumerRecord]]:
        """New records of `positions`, which is not changed."""
        found = await self.member.poll(POLL_SECONDS)
        if found is not None and not found:
            self.idle()
        return {place.partition: records for place, records in (found or {}).items()}

    async def position(self, partition: int) -> int:
        """Behind the last record that `poll` gave, and what of transactions and holes follows. Does not suspend."""
        position: int = await self.member.consumer.position(self.place(partition))
        return position

    @property
    def at_rest(self) -> bool:
        """Whether nothing is on its way."""
        return not (self._order or self._underway.bytes)

    def idle(self) -> None:
        """Kafka has just answered, and there is nothing to do; unless something is on its way, or not committed."""
        if self.at_rest and not self._delivered:
            self._watch.idle()

    # -- sending ----------------------------------------------------------------------------------------------------

    async def send(self, records: Sequence[tuple[int, bytes]], marks: Marks, documents: int) -> None:
        """Hand records over, each for a partition of the target, `member.working` being held. `marks` may be committed
        when all are delivered."""
        await self._order.send((marks, documents), [(self._target, partition, value) for partition, value in records])
        self._look()

    def _done(self, item: tuple[Marks, int], _: list[Any]) -> None:
        marks, documents = item
        self._delivered.update(marks)
        if documents:
            self._watch.documents(documents)
        self._look()

    def _look(self) -> None:
        if len(self._order) < MOST_FRAMES and self._order.bytes < MOST_BYTES:
            self.room.set()
        else:
            self.room.clear()

    def _fail(self, error: BaseException) -> None:
        if not self._refused.done():
            self._refused.set_exception(error)

    # -- committing, and what else happens by the clock --------------------------------------------------------------

    def reached(self, marks: Marks) -> None:
        """These may be committed: nothing has to be delivered before."""
        self._delivered.update(marks)

    async def commit(self) -> None:
        """Commit what is delivered. Raises as `Member.commit`."""
        async with self._committing:
            marks, self._delivered = self._delivered, {}
            if not marks:
                return
            try:
                await self.member.commit({self.place(p): (at, note.metadata()) for p, (at, note) in marks.items()})
                if self._further is not None:
                    await self._further(marks)
            except BaseException:
                self._delivered = {**marks, **self._delivered}  # a stop, which comes in between, commits them
                raise
            self._watch.committed()

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_SECONDS)
            await self.commit()
            self._order.check()

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for partition, position in self.positions.items():
                self._watch.lag(partition, self.member.lag(self.place(partition), position))


def _listed(partitions: Mapping[int, int]) -> str:
    return ", ".join(f"{partition} from {position}" for partition, position in sorted(partitions.items()))
