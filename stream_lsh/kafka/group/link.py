"""The clients of a role that reads one topic and writes another without transactions, and one life of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from aiokafka import ConsumerRecord, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient

from stream_lsh.kafka.client.clients import consuming, producing, unless
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.group.member import Member
from stream_lsh.kafka.group.output import Noted, Output
from stream_lsh.kafka.group.position import Bounds, bounds_of
from stream_lsh.kafka.run.metrics import Watch
from stream_lsh.kafka.settings import KafkaSettings

POLL_SECONDS = 0.2
LOOK_SECONDS = 1.0  # between two looks at the lag


class Link:
    """Between two topics: read by partition, sent in the order of reading, committed when delivered.

    Args:
        begin: takes partitions over: it has to `seek` to where each begins. forget: drops what was not sent yet, for
        the partitions are another member's.

    Attributes:
        positions: the source partitions that this member works on, each with the position up to which it has read.
        epoch: counts how often they were given up: what was made of records of an earlier one is not to be sent.
    """

    admin: AIOKafkaAdminClient
    member: Member
    output: Output

    def __init__(
        self,
        settings: KafkaSettings,
        watch: Watch,
        source: str,
        target: str,
        begin: Callable[[list[int]], Awaitable[None]],
        forget: Callable[[], None],
    ) -> None:
        self.source, self.target = source, target
        self.positions: dict[int, int] = {}
        self.epoch = 0
        self._settings = settings
        self._watch = watch
        self._begin = begin
        self._forget = forget

    async def run(
        self,
        stop: asyncio.Event,
        role: str,
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
                await unless(self._open(stack, role, isolation), asked)
                if prepare is not None:
                    await unless(prepare(), asked)
                async with self.member:
                    await self._live(asked, [*parts, self.output.run, self._tell])
        finally:
            asked.cancel()

    async def _open(self, stack: AsyncExitStack, role: str, isolation: str) -> None:
        settings = self._settings
        self.admin = await stack.enter_async_context(admin(settings))
        there = await self.admin.list_topics()
        for topic in (self.source, self.target):
            if topic not in there:
                raise errors.UnknownTopicOrPartitionError(topic)
        producer = await stack.enter_async_context(producing(settings, role))
        consumer = await stack.enter_async_context(consuming(settings, role, isolation_level=isolation))
        self.member = Member(consumer, settings, role, [self.source], self._take_over, self._give_up)
        self.output = Output(settings, producer, self.member, self._watch)

    async def _live(self, asked: asyncio.Task[bool], parts: Sequence[Callable[[], Awaitable[None]]]) -> None:
        tasks = [asyncio.ensure_future(part()) for part in parts]
        try:
            await asyncio.wait([*tasks, asked], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        except BaseException:
            self.output.close()
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_over(self, assigned: frozenset[TopicPartition]) -> None:
        partitions = sorted(place.partition for place in assigned)
        self._watch.assigned(set(partitions))
        if not partitions:
            self.member.log.info("standing by: no partition of %s for this member", self.source)
            return
        await self._begin(partitions)
        self.member.log.info("reading %s, partition %s", self.source, _listed(self.positions))

    async def _give_up(self) -> None:
        given, self.positions = self.positions, {}
        self.epoch += 1
        self._forget()
        await self.output.drain()
        if given:
            self.member.log.info("gave up %s, partition %s", self.source, _listed(given))

    def seek(self, positions: Mapping[int, int]) -> None:
        """Read on from these positions."""
        for partition, position in positions.items():
            self.member.consumer.seek(self.place(partition), position)
        self.positions = dict(positions)

    def place(self, partition: int) -> TopicPartition:
        """A partition of the source."""
        return TopicPartition(self.source, partition)

    async def bounds(self, partitions: Sequence[int], known: Mapping[int, int]) -> dict[int, Bounds]:
        """Of source partitions: where they begin and end. known: positions, see `position.bounds`."""
        positions = {self.place(partition): known.get(partition, 0) for partition in partitions}
        found = await bounds_of(self.member.consumer, positions)
        return {place.partition: ends for place, ends in found.items()}

    async def poll(self) -> dict[int, list[ConsumerRecord]]:
        """New records of `positions`, which is not changed."""
        found = await self.member.poll(POLL_SECONDS)
        if found is not None and not found:
            self.idle()
        return {place.partition: records for place, records in (found or {}).items()}

    def idle(self) -> None:
        """Kafka has just answered, and there is nothing to do."""
        if self.output.at_rest:
            self._watch.idle()

    async def position(self, partition: int) -> int:
        """Behind the last record that `poll` gave, and what of transactions and holes follows. Does not suspend."""
        position: int = await self.member.consumer.position(self.place(partition))
        return position

    async def send(
        self, records: Sequence[tuple[int, bytes]], positions: Mapping[int, tuple[int, Noted]], documents: int
    ) -> None:
        """Hand records over, each for a partition of the target; see `Output.send`."""
        await self.output.send(
            [(self.target, partition, value) for partition, value in records],
            {self.place(partition): found for partition, found in positions.items()},
            documents,
        )

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for partition, position in self.positions.items():
                self._watch.lag(partition, self.member.lag(self.place(partition), position))


def _listed(partitions: Mapping[int, int]) -> str:
    return ", ".join(f"{partition} from {position}" for partition, position in sorted(partitions.items()))
