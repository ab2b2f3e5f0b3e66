"""Faust's consumer, overridden where it is slow, silent or wrong; each place says why."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, ClassVar

import aiokafka
import faust
from aiokafka.errors import KafkaError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, Message
from mode import Service
from mode.threads import WorkerThread
from mode.utils.queues import FlowControlEvent

from stream_lsh.kafka.client import private
from stream_lsh.kafka.client.clients import FETCH_BYTES, NEVER_MS, stop_consumer, throttled, watch_name
from stream_lsh.kafka.consumer.position import Bounds, bounds
from stream_lsh.kafka.match.watchdog import Seen, Shard
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run import logs
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import may_pass
from stream_lsh.kafka.settings import KafkaSettings

log = logging.getLogger("stream_lsh.kafka.match")

FETCH_WAIT_MS = 25
"""How long the broker may hold a fetch request without data. With Faust's 1,500 ms one empty partition delays the next
requests of the others, which fall to a third of their speed."""
IDLE_WAIT_MS = 100
"""The same while no fetched records wait to be polled: then no partition is left out, except those that are paused. A
broker answers the other requests of the connection after it."""
PARTITION_BYTES = 4 << 20  # of FETCH_BYTES in one response; a larger record is sent alone
FETCH_RECORDS = 64  # limit of a poll, all partitions together
ASK_SECONDS, ASK_PATIENCE = 2.0, 5.0  # between two requests for the bounds of the frames, and time limit of one
FULL_SECONDS = 0.02  # until the next poll of a shard that had no room


class ConsumerHost(faust.App):
    """The application of the match role, as its consumer sees it.

    Attributes:
        hand_overs: counts how often shards were handed over. Work begun before a hand-over must not be finished after.
    """

    settings: KafkaSettings
    probe: Probe
    names: Topics
    client_options: dict[str, Any]
    hand_overs: int

    @cached_property
    def flow_control(self) -> FlowControlEvent:
        return FlowControl(loop=self.loop)

    @property
    @abstractmethod
    def answering(self) -> Collection[int]:
        """The shards whose frames are being matched."""

    @abstractmethod
    def has_room(self, tp: TP) -> bool:
        """Whether to fetch from a partition now."""

    @abstractmethod
    async def begin(self, committed: Mapping[TP, int | None]) -> Mapping[TP, int]:
        """Where to begin in the partitions of frames: at what is committed, or earlier if the judge has not completed
        the frames before it. The brokers may have lost their replies.

        Raises:
            StoreError: frames were deleted before they were matched.
        """

    @abstractmethod
    async def hand_over(self) -> None:
        """Finish and commit what is in flight: this member may lose its shards, or is stopping."""


class FlowControl(FlowControlEvent):
    """Lets records into the queues of tables and streams."""

    def resume(self) -> None:
        # Faust resumes several times in a recovery, and each time drops what is queued, also frames of the shards that
        # are recovered already.
        if not self.is_active():
            super().resume()


class _Thread(WorkerThread):
    """Prints no traceback when its service cannot start, or is cancelled: the caller of the app gets the error."""

    def run(self) -> None:
        try:
            super().run()
        except (Exception, asyncio.CancelledError) as error:
            log.debug("the thread of the consumer has ended", exc_info=error)


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """The thread with the aiokafka consumer.

    Attributes:
        frame_bounds: first and end offsets of the partitions of frames, by the broker's last response; empty if it did
            not answer. Not taken from the consumer, whose progress they are to check.
    """

    Worker = _Thread
    app: ConsumerHost
    frame_bounds: Mapping[TP, Bounds] = MappingProxyType({})

    async def on_start(self) -> None:
        logs.hush(self.thread_loop, may_pass)
        await super().on_start()
        private.wait_longer_when_idle(self._ensure_consumer(), IDLE_WAIT_MS)

    def _create_worker_consumer(self, transport: driver.Transport) -> aiokafka.AIOKafkaConsumer:
        # Faust does not support fetch_max_wait_ms, and not all of TLS and SASL.
        conf = self.app.conf
        self._assignor = self.app.assignor
        consumer = aiokafka.AIOKafkaConsumer(
            **self.app.client_options,
            client_id=conf.broker_client_id,
            group_id=conf.id,
            group_instance_id=self.app.settings.instance,
            partition_assignment_strategy=[self._assignor],
            enable_auto_commit=False,
            # Also for the changelog, which has no commits. `seek_to_committed` makes sure that no frame is skipped.
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_poll_records=FETCH_RECORDS,
            # A spare member does not poll, nor does one that is opening its shards: neither may lose its membership.
            # After Faust's 1,000 s it would leave the group, and aiokafka would not let it join again.
            max_poll_interval_ms=NEVER_MS,
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=PARTITION_BYTES,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            request_timeout_ms=int(conf.broker_request_timeout * 1000),
            session_timeout_ms=int(conf.broker_session_timeout * 1000),
            rebalance_timeout_ms=int(conf.broker_rebalance_timeout * 1000),
            heartbeat_interval_ms=int(conf.broker_heartbeat_interval * 1000),
        )
        private.watch_throttle(consumer, partial(throttled, self.app.settings, conf.broker_client_id))
        return consumer

    @Service.task
    async def _watch_coordinator(self) -> None:
        # aiokafka keeps errors of the group (no permission, a failed assignment) for the next `getmany`. Faust never
        # calls it, and would wait for its assignment for ever.
        while not self.should_stop:
            await self.sleep(0.5)
            private.check_group(self._ensure_consumer())

    @Service.task
    async def _watch_name(self) -> None:
        if (name := self.app.settings.instance) is not None:
            await watch_name(self._ensure_consumer(), self.app.settings, self.app.conf.id, name)

    @Service.task
    async def _ask_bounds(self) -> None:
        while not self.should_stop:
            await self.sleep(ASK_SECONDS)
            self.frame_bounds = await self._bounds_of_frames()

    async def _bounds_of_frames(self) -> Mapping[TP, Bounds]:
        consumer = self._ensure_consumer()
        places = [place for place in consumer.assignment() if place.topic == self.app.names.frames]
        try:
            async with asyncio.timeout(ASK_PATIENCE):
                begins, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        except (KafkaError, TimeoutError):
            return {}
        return {TP(*place): (begins[place], ends[place]) for place in places}

    async def seek_committed(self, places: Iterable[TP]) -> Mapping[TP, int]:
        """Seek these partitions to what is committed, and return it. Called from another thread."""
        found = [aiokafka.TopicPartition(*place) for place in places]
        committed = await self.call_thread(self._ensure_consumer().seek_to_committed, *found) if found else {}
        return {TP(*place): offset for place, offset in committed.items()}

    def read_again(self, place: TP, offset: int, hand_overs: int) -> None:
        """Seek to an offset soon, unless shards are handed over before. Called from another thread."""

        def seek() -> None:
            if self.app.hand_overs == hand_overs and place in self.assignment():
                self.seek(place, offset)

        self.thread_loop.call_soon_threadsafe(seek)

    @property
    def client(self) -> aiokafka.AIOKafkaConsumer | None:
        """The consumer, once it has started."""
        consumer = self._consumer
        return None if consumer is None or consumer._fetcher is None else consumer

    async def fetch(self, partitions: set[TP], timeout: float, hand_overs: int) -> Any:
        """Records of these partitions, as soon as there are some. Called from another thread.

        Args:
            hand_overs: the count when the partitions were chosen.
        """
        return await self.call_thread(self._fetch, partitions, timeout, hand_overs)

    async def _fetch(self, partitions: set[TP], timeout: float, hand_overs: int) -> Any:
        # Nothing ends a waiting call, not even a rebalance. So it may take records of the next assignment, which has
        # no flow yet. They would be lost: no flow takes them, and no later call fetches them. Therefore seek back
        # before anything else runs in this thread.
        consumer = self._ensure_consumer()
        found = await self._fetch_records(consumer, partitions, timeout=timeout, max_records=FETCH_RECORDS)
        if self.app.hand_overs == hand_overs:
            return found
        for place, records in found.items():
            consumer.seek(place, records[0].offset)
        return {}

    async def on_thread_stop(self) -> None:
        # Faust's, except for the consumer: without a broker aiokafka's own stop may raise, and the thread would not
        # end.
        await super(driver.AIOKafkaConsumerThread, self).on_thread_stop()
        if self._consumer is not None:
            await stop_consumer(self._consumer)

    def on_crash(self, msg: str, *fmt: Any, **kwargs: Any) -> None:
        """Print no traceback to standard error: the caller of the app gets the error."""

    def close(self) -> None:
        """Do nothing: Faust would close the client from the wrong event loop. Stopping closes it."""


class Consumer(driver.Consumer):
    """Fetches only what there is room for, and hands over cleanly."""

    app: ConsumerHost
    _thread: ConsumerThread

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._handed: dict[TP, int] = {}  # offset after the last record delivered, since the last hand-over
        super().__init__(*args, **kwargs)

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        # Before Faust drops what was acknowledged since the last commit: all of it would be read again.
        await self.app.hand_over()
        self._handed.clear()
        await super().on_partitions_revoked(revoked)

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Any:
        # Faust's own back-pressure sleeps for a second when all queues are full. Frames that it fetches before the end
        # of recovery may be lost, because it clears its queues then.
        hand_overs = self.app.hand_overs
        wanted = set(active_partitions or ())
        ready = {tp for tp in wanted if self.app.has_room(tp)}
        if not ready:
            await self.sleep(FULL_SECONDS)
            return {}
        seconds = timeout if len(ready) == len(wanted) else FULL_SECONDS
        found = await self._thread.fetch(ready, seconds, hand_overs)
        # Fetched before a hand-over that began meanwhile: the next assignment seeks to all of it.
        if self.app.hand_overs != hand_overs:
            return {}
        self._handed.update({TP(*place): records[-1].offset + 1 for place, records in found.items()})
        return found

    def seen(self, positions: Mapping[int, tuple[int, bool]], recovered: Iterable[int]) -> Seen:
        """The observations for the watchdog.

        Args:
            positions: of each flow, and whether it is idle.
            recovered: shards that need a flow.
        """
        client, fetcher = self._thread.client, self.app._fetcher
        if client is None:
            return Seen(self.app.hand_overs)
        ended, error = private.reader_ended(client)
        why = f"aiokafka has stopped reading: {error!r}" if ended else None
        if why is None and (fetcher.crashed or fetcher._shutdown.is_set()):
            why = f"Faust has stopped fetching: {fetcher.crash_reason!r}"
        shards = {}
        for shard, (position, idle) in positions.items():
            place = TP(self.app.names.frames, shard)
            read, handed = private.reads_at(client, place), self._handed.get(place, 0)
            shards[shard] = Shard(position, idle, handed, read, self._thread.frame_bounds.get(place))
        unanswered = frozenset() if private.reassigning(client) else frozenset(recovered) - set(positions)
        return Seen(self.app.hand_overs, why, unanswered, shards)

    def read_again(self, shard: int, offset: int, hand_overs: int) -> None:
        """Fetch frames of a shard from an offset on, unless shards were handed over since."""
        self._thread.read_again(TP(self.app.names.frames, shard), offset, hand_overs)

    def ack(self, message: Message) -> bool:
        """Ignore acknowledgements by Faust: its streams acknowledge what they skip because of a rebalance."""
        return False

    def acknowledge(self, message: Message) -> None:
        """Allow committing a frame's offset, if the partition is still ours: all its results are acknowledged."""
        if message.generation_id == self.app.consumer_generation_id:
            super().ack(message)

    def on_buffer_full(self, tp: TP) -> None:
        """Do nothing: a full queue makes Faust wait, and `_getmany` has its own limit."""

    async def seek_to_committed(self) -> Mapping[TP, int]:
        # Only where no frame is read yet: Faust also calls this when some shards have begun.
        places = {tp for tp in self.assignment() if tp.topic == self.app.names.frames}
        frames = await self._thread.seek_committed(tp for tp in places if tp.partition not in self.app.answering)
        positions = await self.app.begin(frames)
        # aiokafka does not seek where nothing, or 0, is committed: it keeps its current position.
        begin = {tp: offset for tp, offset in positions.items() if not offset or offset != frames[tp]}
        if begin:
            await self.seek_wait(begin)
        return {tp: positions[tp] if offset else offset for tp, offset in frames.items()}

    async def bounds(self, positions: Mapping[TP, int]) -> Mapping[TP, Bounds]:
        """The first and end offsets of these partitions; see `position.bounds`."""
        return await bounds(
            lambda places: self.earliest_offsets(*places), lambda places: self.highwaters(*places), positions
        )

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        done = await super()._commit(offsets)
        if done:
            self.app.probe.committed()
        return done

    async def on_stop(self) -> None:
        # A crashed app's thread does nothing worth waiting for, and nothing may be committed.
        if not self.app.crashed:
            await super().on_stop()

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Do nothing: Faust's check compares clocks of two kinds, and reports an idle input as an error."""

    def verify_recovery_event_path(self, now: float, tp: TP) -> None:
        """As `verify_event_path`."""


class Transport(driver.Transport):
    """Faust's transport with our consumer. Its producer is never started."""

    Consumer: ClassVar[Any] = Consumer
