"""Faust's recovery from a changelog, overridden where it is slow, silent or wrong; each place says why."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from typing import Any

from aiokafka.errors import KafkaError
from faust.tables import recovery
from faust.tables.manager import TableManager as FaustTableManager
from faust.types import TP, EventT
from mode import Service
from mode.utils.queues import ThrowableQueue

from stream_lsh.errors import ForeignError
from stream_lsh.kafka.match.faust_driver import Consumer, ConsumerHost
from stream_lsh.kafka.run.restarts import Unanswered

log = logging.getLogger("stream_lsh.kafka.match")

RECOVERED_SECONDS = 0.1  # between two looks for a shard that is recovered


class Host(ConsumerHost):
    """The same, as its recovery and its store see it."""

    consumer: Consumer
    tables: TableManager

    @abstractmethod
    async def activate(self, ends: Mapping[int, int]) -> None:
        """Open shards for matching. ends: of each, the last offset of its changelog. Errors end this run."""

    @abstractmethod
    def answer_for(self, shards: set[int]) -> None:
        """Match the frames of these shards from now on. Their recovery is complete."""

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """End this run: nothing more is sent or acknowledged. The caller finds the error in `failure`."""

    @abstractmethod
    def foreign(self, shard: int, offset: int, error: ForeignError) -> None:
        """Count a skipped changelog record that no version of this program writes. Called by the shards' threads."""


class Recovery(recovery.Recovery):
    """A recovery that does not end silently, and starts the flow of each shard as soon as it is recovered."""

    app: Host
    _hand_overs = 0  # at the time of the assignment
    _recovered = -1  # generation of the last completed recovery
    _said = -1  # generation of the last warning about recovered shards

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._beginning = asyncio.Lock()

    async def _wait(self, coro: Any, timeout: Any = None) -> None:
        # Faust takes a timeout (the broker is down for a while) for a stop: the task ends, and recovery never
        # continues.
        began = self.should_stop
        try:
            await super()._wait(coro, timeout)
        except recovery.ServiceStopped:
            if began or self.should_stop or timeout is None:
                raise
            raise Unanswered("Kafka did not answer in time during recovery") from None

    async def crash(self, reason: BaseException) -> None:
        """End this run, without Faust's traceback: the caller of the app says what has ended it."""
        self.app.fail(reason)

    async def on_rebalance(
        self, assigned: set[TP], revoked: set[TP], newly_assigned: set[TP], generation_id: int = 0
    ) -> None:
        self._hand_overs = self.app.hand_overs
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)

    @Service.task
    async def _look_for_recovered(self) -> None:
        while not self.should_stop:
            await self.sleep(RECOVERED_SECONDS)
            if self.in_recovery and self.app.consumer.flow_active:
                try:
                    await self.begin_recovered()
                except KafkaError as error:  # the next look tries again, unless the partitions were revoked
                    if self._said != self._generation_id and not self._handed_over(self._generation_id):
                        self._said = self._generation_id
                        log.warning("recovered shards cannot begin before the others; it is tried again: %r", error)

    async def begin_recovered(self) -> None:
        """Match the frames of the shards that have read their changelog, while others are still reading. Faust would
        begin with all of them at once."""
        async with self._beginning:
            left, generation, consumer = self.remaining(), self._generation_id, self.app.consumer
            done = {tp for tp in self.active_tps if not left[tp.partition] and tp.partition not in self.app.answering}
            if not done or self._handed_over(generation):
                return
            # Not by Faust's ends, which may be those of the recovery before.
            ends = {tp: (end or 0) - 1 for tp, end in (await consumer.highwaters(*done)).items()}
            has = {tp: self.tp_to_table[tp].persisted_offset(tp) for tp in ends}
            done = {tp for tp, offset in has.items() if offset is not None and offset >= ends[tp]}
            if not done:
                return
            await self.app.activate({tp.partition: ends[tp] for tp in done})
            if not self._handed_over(generation):
                await consumer.perform_seek()
            if not self._handed_over(generation):
                consumer.pause_partitions(done)
                consumer.resume_partitions({TP(self.app.names.frames, tp.partition) for tp in done})
                self.app.answer_for({tp.partition for tp in done})

    async def on_recovery_completed(self, generation_id: int = 0) -> None:
        async with self._beginning:
            # Faust ignores a rebalance or a stop that interrupts the reading of the changelog, and calls this as at the
            # end.
            if self._handed_over(generation_id):
                return
            await super().on_recovery_completed(generation_id)
            self._recovered = generation_id
            if not self._handed_over(generation_id):
                self.app.answer_for({tp.partition for tp in self.active_tps})

    def _handed_over(self, generation_id: int) -> bool:
        # The generation changes only with the next assignment. The shards may be handed over long before.
        changed = self._hand_overs != self.app.hand_overs or self.app.consumer_generation_id != generation_id
        return changed or self.app.should_stop

    @property
    def recovered(self) -> set[int]:
        """The shards of this assignment that need a flow; none before its recovery has ended."""
        ended = self._recovered == self.app.consumer_generation_id
        return {tp.partition for tp in self.active_tps} if ended else set()

    def remaining(self) -> Mapping[int, int]:
        """Number of changelog records that each shard has yet to read."""
        found: Counter[int] = Counter()
        for tps, highwaters, offsets in (
            (self.active_tps, self.active_highwaters, self.active_offsets),
            (self.standby_tps, self.standby_highwaters, self.standby_offsets),
        ):
            for tp in tps:
                end, at = highwaters.get(tp), offsets.get(tp)
                found[tp.partition] = max(0, (-1 if end is None else end) - (-1 if at is None else at))
        return found


class ChangelogQueue(ThrowableQueue[EventT[Any]]):
    """Changelog records to be applied. bytes: their total; Faust limits only their number."""

    bytes = 0

    def _put(self, item: EventT[Any]) -> None:
        super()._put(item)
        self.bytes += _bytes(item)

    def _get(self) -> EventT[Any]:
        item: EventT[Any] = super()._get()
        self.bytes -= _bytes(item)
        return item

    def clear(self) -> None:
        super().clear()
        self.bytes = 0


def _bytes(event: EventT[Any]) -> int:
    return len(event.message.value or b"")


class TableManager(FaustTableManager):
    """Faust's, with our queue and our recovery."""

    _changelog_queue: ChangelogQueue | None = None
    _recovery: Recovery | None = None

    @property
    def changelog_queue(self) -> ChangelogQueue:
        if self._changelog_queue is None:
            self._changelog_queue = ChangelogQueue(
                maxsize=self.app.conf.stream_buffer_maxsize, flow_control=self.app.flow_control, clear_on_resume=True
            )
        return self._changelog_queue

    async def on_start(self) -> None:
        # Without Faust's sleep of a second for tables that are declared late: our only one is declared.
        await self._update_channels()
        await self.recovery.start()

    @property
    def recovery(self) -> Recovery:
        if self._recovery is None:
            self._recovery = Recovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery
