"""A role that reads one topic and writes another: in the order of reading, committed only when all of it is delivered.

Several records are on their way at once. One that is not delivered ends the life, and the next one begins at the
committed positions; who reads the topic knows repeats and holes by what the records say themselves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

from aiokafka import AIOKafkaConsumer, ConsumerRecord, errors
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from stream_lsh.errors import StateError
from stream_lsh.kafka.client.clients import ANSWER_MS, consuming, producing, seen, unless
from stream_lsh.kafka.client.connection import admin, all_committed
from stream_lsh.kafka.group.hearing import Hearing
from stream_lsh.kafka.group.membership import RECENT
from stream_lsh.kafka.group.position import Bounds, bounds
from stream_lsh.kafka.group.underway import MOST_BYTES, Underway
from stream_lsh.kafka.run.lives import Failed, Stage, Unanswered
from stream_lsh.kafka.run.metrics import Watch
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.topics import Topics

COMMIT_SECONDS = 0.2
LOOK_SECONDS = 1.0  # between two looks at lag and idleness
ANSWER_SECONDS = ANSWER_MS / 1000
OPEN_SECONDS = 2 * ANSWER_SECONDS
MOST_FRAMES = 256  # on their way, as MOST_BYTES; then none is begun
NOT_ACKNOWLEDGED = f"a frame for %s was not acknowledged within {ANSWER_SECONDS:.0f} s"

Mark = tuple[int, Any]
"""Of a source partition: the position to commit, and what `Relay._note` makes its metadata of."""


class Expelled(Failed):
    """The group took this member for dead."""

    def __init__(self) -> None:
        super().__init__("the group has gone on without this member; others do again what it did last")


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """What has to be delivered before the marks may be committed."""

    futures: Sequence[asyncio.Future[Any]]
    marks: Mapping[int, Mark]
    documents: int
    size: int
    began: float


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """aiokafka only logs what a listener raises; the relay hears of it."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._relay._hearing.joining()
        if revoked:
            await self._relay._revoked()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await self._relay._assigned(sorted(place.partition for place in assigned))


class Relay(Stage):
    """One life of such a role. In `positions` stand the source partitions that this member works on, each with the
    position up to which it has read; records of others are not taken."""

    isolation: ClassVar[str] = "read_uncommitted"

    def __init__(self, settings: KafkaSettings, watch: Watch, source: str, target: str) -> None:
        super().__init__(settings, watch)
        self.log = logging.getLogger(f"stream_lsh.kafka.{self.role}")
        self.topics = Topics.of(settings)
        self.source = source
        self.target = target
        self.positions: dict[int, int] = {}
        self.epoch = 0  # counts assignments: what was made of records of an earlier one is not sent
        self.consumer: AIOKafkaConsumer
        self.admin: AIOKafkaAdminClient
        self._underway: Underway
        self._hearing: Hearing
        self._sent: deque[Sent] = deque()
        self._size = 0
        self._arrived, self._drained, self._room = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._drained.set()
        self._room.set()
        self._sending, self._committing = asyncio.Lock(), asyncio.Lock()
        self._acked: dict[int, Mark] = {}
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = False

    @abstractmethod
    async def _begin(self, partitions: list[int]) -> None:
        """Take over source partitions: `_seek` to where each begins."""

    @abstractmethod
    async def _work(self) -> None:
        """Read, and send, for ever."""

    def _forget(self) -> None:
        """The partitions are another member's: drop what is not sent yet."""

    def _note(self, state: Any) -> str:
        """The metadata of a commit."""
        return ""

    async def run(self, stop: asyncio.Event) -> None:
        asked = asyncio.create_task(stop.wait())
        async with AsyncExitStack() as stack:
            tasks: list[asyncio.Task[None]] = []
            try:
                await unless(self._open(stack), asked)
                tasks = [asyncio.create_task(part()) for part in (self._work, self._acknowledge, self._keep_time)]
                ends: list[asyncio.Future[Any]] = [*tasks, self._trouble, asked]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for ended in (self._trouble, *tasks):
                    if ended.done():
                        ended.result()
                tasks[0].cancel()
                await self._give_up()
            finally:
                self._over = True
                for task in (asked, *tasks):
                    task.cancel()
                await asyncio.gather(asked, *tasks, return_exceptions=True)
                if self._trouble.done():
                    self._trouble.exception()

    async def _open(self, stack: AsyncExitStack) -> None:
        try:
            async with asyncio.timeout(OPEN_SECONDS) as limit:
                await self._connect(stack)
        except TimeoutError:
            if not limit.expired():  # it is the network's
                raise
            raise Unanswered(f"no connection was ready for work within {OPEN_SECONDS:.0f} s") from None
        await self._prepare()
        self._hearing = Hearing(self.consumer, self.settings, self.role, self.source)
        self.consumer.subscribe([self.source], listener=_Listener(self))

    async def _prepare(self) -> None:
        """Wait for what must be there before the first partition is taken over, for as long as it takes."""

    async def _connect(self, stack: AsyncExitStack) -> None:
        self.admin = await stack.enter_async_context(admin(self.settings))
        there = await self.admin.list_topics()
        for topic in (self.source, self.target):
            if topic not in there:
                raise errors.UnknownTopicOrPartitionError(topic)
        self._underway = Underway(await stack.enter_async_context(producing(self.settings, self.role)))
        self.consumer = await stack.enter_async_context(
            consuming(self.settings, self.role, isolation_level=self.isolation)
        )

    # Rebalances: called by aiokafka, which waits for them before it joins again, or after it has joined.

    async def _revoked(self) -> None:
        if self._over:
            return
        try:
            await self._give_up()
        except Exception as error:
            self._fail(error)

    async def _give_up(self) -> None:
        """Send nothing more, wait a while for what is under way, commit."""
        given, self.positions = self.positions, {}
        self.epoch += 1
        self._forget()
        try:
            async with asyncio.timeout(self.settings.session_timeout_ms / 2000):
                async with self._sending:  # a frame that is just being handed over is under way too
                    pass
                await self._drained.wait()
                await self._commit()
        except Expelled as error:
            self.log.warning("%s", error)
            self._acked.clear()
        except TimeoutError:
            n = len(self._sent)
            raise Unanswered(f"{n} frames were not delivered in time before giving up partitions") from None
        if given:
            self.log.info("gave up %s, partition %s", self.source, _listed(given))

    async def _assigned(self, partitions: list[int]) -> None:
        if self._over:
            return
        self._hearing.assigned()
        self.watch.assigned(set(partitions))
        if not partitions:
            self.log.info("standing by: no partition of %s for this member", self.source)
            return
        try:
            # There are no heartbeats meanwhile.
            async with asyncio.timeout(self.settings.session_timeout_ms / 2000):
                await self._begin(partitions)
            self.log.info("reading %s, partition %s", self.source, _listed(self.positions))
        except TimeoutError:
            self._fail(Unanswered(f"the committed positions of {self.source} could not be read in time"))
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self._trouble.done():
            self._trouble.set_exception(error)

    def _seek(self, positions: Mapping[int, int]) -> None:
        """Read on from these positions. All at once: records are taken only of partitions in `positions`."""
        for partition, position in positions.items():
            self.consumer.seek(TopicPartition(self.source, partition), position)
        self.positions = dict(positions)

    async def _committed(self, role: str, topic: str) -> dict[int, tuple[int, str]]:
        """What the group of a role has committed for a topic."""
        return (await self._all_committed(role)).get(topic, {})

    async def _all_committed(self, role: str) -> dict[str, dict[int, tuple[int, str]]]:
        """What the group of a role has committed, by topic; coordinators that are moving are waited for."""
        while True:
            try:
                return await all_committed(self.admin, self.topics.group(role))
            except errors.KafkaError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.1)

    async def _bounds(self, partitions: Sequence[int], known: Mapping[int, int]) -> Mapping[int, Bounds]:
        """Of source partitions: where they begin and end. known: positions, see `position.bounds`."""
        places = [TopicPartition(self.source, partition) for partition in partitions]

        async def ask() -> Mapping[int, Bounds]:
            begins = await self.consumer.beginning_offsets(places)
            ends = await self.consumer.end_offsets(places)
            return {place.partition: (begins[place], ends[place]) for place in places}

        return await bounds(ask, known)

    # Reading and sending

    async def _poll(self, timeout_ms: int) -> dict[int, list[ConsumerRecord]]:
        """New records of `positions`, which is not changed.

        Nothing else runs between aiokafka's handing them out and the caller's taking them: a rebalance that comes
        later finds them taken.
        """
        try:
            got = await self.consumer.getmany(timeout_ms=timeout_ms)
        except errors.NoOffsetForPartitionError:
            await asyncio.sleep(0.01)  # just assigned: `_begin` is about to seek
            return {}
        except errors.OffsetOutOfRangeError:
            if not self.positions:
                return {}
            # The next life compares the committed positions with what is there, and says what is lost.
            raise Failed(f"a position in {self.source} is not there any more") from None
        if got:
            self._hearing.came()
        return {place.partition: records for place, records in got.items() if place.partition in self.positions}

    async def _position(self, partition: int) -> int:
        """Behind the last record that `_poll` gave, and what of transactions and holes follows. Does not suspend."""
        position: int = await self.consumer.position(TopicPartition(self.source, partition))
        return position

    async def _free(self) -> None:
        """Wait until there is room for another frame on its way."""
        await self._room.wait()

    async def _send(self, records: Sequence[tuple[int, bytes]], marks: Mapping[int, Mark], documents: int) -> None:
        """Hand records over, each for a partition of the target; `marks` may be committed when all are delivered.

        The caller holds `_sending`. Raises Unanswered if what is under way leaves no room for long.
        """
        futures = []
        for partition, value in records:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    future = await self._underway.send(self.target, partition, value)
            except TimeoutError:
                raise Unanswered(NOT_ACKNOWLEDGED % self.target) from None
            future.add_done_callback(seen)
            futures.append(future)
        # From now on: with many copies of a large frame the first ones were acknowledged long ago.
        sent = Sent(futures, marks, documents, sum([len(value) for _, value in records]), time.monotonic())
        self._sent.append(sent)
        self._size += sent.size
        self._drained.clear()
        self._arrived.set()
        if len(self._sent) >= MOST_FRAMES or self._size >= MOST_BYTES:
            self._room.clear()

    async def _acknowledge(self) -> None:
        while True:
            if not self._sent:
                self._drained.set()
                self._arrived.clear()
                await self._arrived.wait()
            sent = self._sent[0]
            for future in sent.futures:
                await future
            self._sent.popleft()
            self._size -= sent.size
            self._acked.update(sent.marks)
            if sent.documents:
                self.watch.documents(sent.documents)
            if len(self._sent) < MOST_FRAMES and self._size < MOST_BYTES:
                self._room.set()

    async def _commit(self) -> None:
        async with self._committing:
            acked, self._acked = self._acked, {}
            if not acked:
                return
            if self.consumer._coordinator.generation < 0:
                # Expelled. An empty group would take the commit all the same, and fall behind what others did.
                raise Expelled()
            offsets = {
                TopicPartition(self.source, partition): OffsetAndMetadata(position, self._note(state))
                for partition, (position, state) in acked.items()
            }
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self.consumer.commit(offsets)
            except errors.CommitFailedError:
                raise Expelled() from None
            except TimeoutError:
                raise Unanswered(f"a commit was not answered within {ANSWER_SECONDS:.0f} s") from None
            except errors.OffsetMetadataTooLargeError:
                longest = max(len(offset.metadata) for offset in offsets.values())
                raise StateError(
                    f"the positions that {self.role} keeps with its commit take {longest} bytes, more than the brokers "
                    "accept: raise their offset.metadata.max.bytes, or use fewer source partitions."
                ) from None
            self.watch.committed()

    # What happens by the clock

    async def _keep_time(self) -> None:
        looked = probed = time.monotonic()
        while True:
            await asyncio.sleep(COMMIT_SECONDS)
            await self._commit()
            now = time.monotonic()
            if self._sent and now - self._sent[0].began > ANSWER_SECONDS:
                raise Unanswered(NOT_ACKNOWLEDGED % self.target)
            self._hearing.check()
            if now - looked < LOOK_SECONDS:
                continue
            looked = now
            self._look()
            at_rest = not (self._sent or self._underway.bytes or self._acked)
            if at_rest and now - max(self._hearing.heard, probed) >= RECENT:
                if await self._hearing.answered(self.positions):
                    self.watch.idle()
                probed = time.monotonic()

    def _look(self) -> None:
        for partition, position in self.positions.items():
            end = self.consumer.highwater(TopicPartition(self.source, partition))
            if end is not None:
                self.watch.lag(partition, max(0, end - position))


def _listed(partitions: Mapping[int, int]) -> str:
    return ", ".join(f"{partition} from {position}" for partition, position in sorted(partitions.items()))
