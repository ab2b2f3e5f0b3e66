"""The match role as a Faust application: `faust -A stream_lsh.kafka.match.app worker`.

Faust assigns shards and standbys to members, and restores them from the changelog. `flow.py` sends and acknowledges the
results of frames.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from faust import stores
from faust.app.base import BootStrategy as FaustBootStrategy
from faust.streams import Stream
from faust.tables.table import Table
from faust.types import TP, EventT, StreamT
from mode import Service, ServiceT
from yarl import URL

from stream_lsh.embedded.warming import warm_up
from stream_lsh.errors import ForeignError, StreamLshError
from stream_lsh.index.store.heap import map_large
from stream_lsh.kafka.client.clients import Deletion, heartbeat_ms, producing
from stream_lsh.kafka.client.connection import admin, client_options
from stream_lsh.kafka.client.reading import between, reading
from stream_lsh.kafka.consumer.output import Underway
from stream_lsh.kafka.consumer.position import Reading
from stream_lsh.kafka.consumer.unreadable import Unreadable
from stream_lsh.kafka.match.faust_driver import Transport
from stream_lsh.kafka.match.flow import Elsewhere, Flow
from stream_lsh.kafka.match.lock import locked
from stream_lsh.kafka.match.recovery import Host, TableManager
from stream_lsh.kafka.match.store import FrameStore
from stream_lsh.kafka.match.unjudged import beginnings
from stream_lsh.kafka.match.watchdog import LOOK_SECONDS, Again, Stall, Watchdog
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import FOREIGN, Probe, served
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.topics import check

log = logging.getLogger("stream_lsh.kafka.match")
# The entry point registers the same. This line serves a package that runs from source without being installed.
stores.STORES.aliases.setdefault("frames", "stream_lsh.kafka.match.store:FrameStore")

READING = Reading(
    "frames", "matched",
    "Rebuild from the documents under another topic_prefix (stream-lsh kafka reindex), with a longer retention_hours "
    "if it "
    "was too short",
)  # fmt: skip
COMMIT_SECONDS = 0.5
NEVER = 2**62
"""Number of frames after which Faust commits at once. Faust stops delivery during a commit, which looks like a
stall."""
TICK_SECONDS = 1.0
SLOW_TICKS = 15  # between two measurements of the shards' folders, or two attempts to trim after a failed one
# Faust would keep 1,000 changelog records after the shards have them, of any size. With 1 it would go on reading the
# changelogs of active shards.
RECORDS_KEPT = 2
HOLE_RECORDS = 1000  # of a changelog, read at a time
REQUEST_SECONDS = 30.0  # time limit for any response of a broker


class Shards(Table):  # type: ignore[type-arg]
    """The table of the shards. `stream-lsh kafka topics create` creates its changelog; Faust would make it
    compacted."""

    async def on_start(self) -> None:
        await self.add_runtime_dependency(self.data)


class BootStrategy(FaustBootStrategy):
    """The services of a worker, in order. Without web server, leader and replies of agents. Also without Faust's
    producer: it is not idempotent, and only logs a failed send."""

    enable_web = enable_kafka_producer = False
    app: MatchApp

    def kafka_consumer(self) -> Iterable[ServiceT]:
        return [self.app.consumer]


class MatchApp(Host):
    """The match role. Each run creates a new instance, within its event loop.

    Args:
        serve: whether to listen on settings.http_port. Only `faust worker` needs this.

    Attributes:
        failure: the first error that ended this run, or None.
    """

    BootStrategy = BootStrategy

    def __init__(self, settings: KafkaSettings, probe: Probe, *, serve: bool = False) -> None:
        self.settings = settings
        self.probe = probe
        self.names = Topics.of(settings)
        self.client_options = client_options(settings)
        self.failure: BaseException | None = None
        self.hand_overs = 0
        self._serve = serve
        self._underway: Underway
        self._open = AsyncExitStack()  # the data folder, the shards in it, the producer
        self._closing = asyncio.Lock()
        self._flows: dict[int, Flow] = {}
        self._positions: dict[int, int] = {}
        self._judged = -1  # see `Held.judged`
        self._shortened: dict[int, int] = {}  # by shard, the last offset up to which its changelog was deleted
        self._deletion = Deletion()
        self._unreadable = Unreadable(settings, probe)
        self._elsewhere = Elsewhere(settings, probe)
        for stall in Stall:
            probe.stalled(stall, 0)  # a series that begins with 1 shows no increase
        session = settings.session_timeout_ms / 1000
        request = max(REQUEST_SECONDS, 3 * session + 5)
        self._watchdog = Watchdog(2 * request)
        self._drain_seconds = min(5.0, session / 2)
        super().__init__(
            self.names.group("match"),
            broker=[URL(f"kafka://{server}") for server in settings.bootstrap_servers.split(",")],
            datadir=str(settings.data_folder),
            store=URL("frames:shards"),
            autodiscover=False,
            web_enabled=False,
            topic_allow_declare=False,
            topic_disable_leader=True,
            topic_partitions=settings.shards,
            table_standby_replicas=settings.standbys,
            broker_commit_interval=COMMIT_SECONDS,
            broker_commit_every=NEVER,
            broker_session_timeout=session,
            broker_heartbeat_interval=heartbeat_ms(settings) / 1000,
            # The broker lets a join wait for busy members, for as long as the rebalance timeout.
            broker_request_timeout=request,
            broker_rebalance_timeout=max(15.0, 2 * session),
            stream_wait_empty=False,
            stream_buffer_maxsize=256,
            processing_guarantee="at_least_once",
            TableManager=TableManager,
            Table=Shards,
        )
        raw: Mapping[str, Any] = {
            "key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw",
        }  # fmt: skip
        self.table = self.Table(
            "shards", key_type=bytes, value_type=bytes, on_changelog_event=self._changed,
            recovery_buffer_size=RECORDS_KEPT,
        )  # fmt: skip
        self._frames = self.topic(self.names.frames, **raw)
        self.agent(self._frames, name="match")(self._read)

    @property
    def store(self) -> FrameStore:
        """The shards of this member."""
        return cast(FrameStore, self.table.data)

    def _new_transport(self) -> Transport:
        return Transport(self.conf.broker_consumer, self)

    # -- starting and stopping --------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            self.add_future(self.crash(error))

    @property
    def ended(self) -> BaseException | None:
        """The error that has ended this run, ours or Faust's."""
        return self.failure or self.crash_reason

    async def on_first_start(self) -> None:
        """Replaces Faust's method, which creates unused folders."""
        await check(self.settings, ["match"])
        self._open.enter_context(locked(self.settings.data_folder))
        self._open.push_async_callback(self.store.close)
        # At the end what is not delivered is dropped. Its frames are not acknowledged, and are read again.
        self._underway = Underway(await self._open.enter_async_context(producing(self.settings, "match")))
        map_large()  # a record of 16 MB is copied several times on its way

    async def on_started(self) -> None:
        if self._serve and self.settings.http_port is not None:
            health, registry = self.probe.health, self.probe.registry
            await self.add_async_context(served(health, registry, self.settings.http_host, self.settings.http_port))
        await super().on_started()

    async def on_stop(self) -> None:
        await self.hand_over()
        await super().on_stop()

    async def on_shutdown(self) -> None:
        await super().on_shutdown()
        await self.let_go()

    async def let_go(self) -> None:
        """Close the producer and the shards, and release the data folder, even if other services are still stopping.
        Returns only when this is done, also if another call began it: the next run needs the folder."""
        async with self._closing:
            await self._open.aclose()

    # -- frames -----------------------------------------------------------------------------------------------------

    async def _read(self, stream: StreamT[bytes]) -> None:
        """The agent: passes each frame to the flow of its shard."""
        try:
            async for event in cast(Stream[bytes], stream).noack().events():
                message = event.message
                flow = self._flows.get(message.partition)
                if flow is None or message.generation_id != self.consumer_generation_id:
                    continue  # of an ended assignment: the next one seeks to what is committed
                flow.offer(message.offset, message.value or b"", partial(self.consumer.acknowledge, message))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # Faust would acknowledge the frame and restart the agent
            self.fail(error)

    def foreign(self, shard: int, offset: int, error: ForeignError) -> None:
        self._unreadable.passed(f"{self.names.changelog}, partition {shard}, offset {offset}", FOREIGN, error)

    async def _changed(self, event: EventT[Any]) -> None:
        await self.store.take(event)

    def has_room(self, tp: TP) -> bool:
        if tp.topic != self.names.frames:
            return self.store.room
        flow = self._flows.get(tp.partition)
        return flow is not None and flow.room

    async def positions(self, committed: Mapping[TP, int | None]) -> Mapping[TP, int]:
        """The position of each partition of frames: the committed one, or at first the beginning.

        Raises:
            StoreError: frames were deleted before they were matched.
        """
        if not committed:
            return {}
        found = {tp: offset or 0 for tp, offset in committed.items()}
        for tp, bounds in (await self.consumer.bounds(found)).items():
            if not committed[tp]:  # a first start, or the commit is lost: the chain of frames says what is missing
                found[tp] = bounds[0]
            READING.missing(tp, found[tp], bounds)
            self._positions[tp.partition] = found[tp]
        return found

    async def begin(self, committed: Mapping[TP, int | None]) -> Mapping[TP, int]:
        positions = await self.positions(committed)
        offsets = {tp.partition: offset for tp, offset in positions.items()}
        found, self._judged = await beginnings(self.settings, offsets)
        for tp, offset in positions.items():
            if found[tp.partition] < offset:
                log.info(
                    "shard %d: frames from offset %d to %d are not judged yet, and are answered again", tp.partition,
                    found[tp.partition], offset,
                )  # fmt: skip
        self._positions |= found
        return {tp: found[tp.partition] for tp in positions}

    @property
    def answering(self) -> Collection[int]:
        return self._flows.keys()

    async def activate(self, ends: Mapping[int, int]) -> None:
        await self.store.activate(ends)

    def answer_for(self, shards: set[int]) -> None:
        shards = shards - self._flows.keys()
        for shard in sorted(shards):
            self.store.held[shard].judged = self._judged
            self._flows[shard] = Flow(
                self.store.held[shard], self._positions[shard], self._underway.send, self.names.changelog,
                self.names.matches, self.fail, self.probe, self._unreadable, self._elsewhere,
            )  # fmt: skip
        self.probe.assigned(set(self._flows))
        if shards:
            log.info("answering for the shards %s", ", ".join(map(str, sorted(shards))))

    async def hand_over(self) -> None:
        self.hand_overs += 1
        flows, self._flows = list(self._flows.values()), {}
        if not flows:
            return
        if not self.crashed:
            await asyncio.gather(*[flow.drain(self._drain_seconds) for flow in flows])
            with suppress(TimeoutError):
                await asyncio.wait_for(self._commit(), self._drain_seconds)
        for flow in flows:
            await flow.close()

    async def _commit(self) -> None:
        if not await self.consumer.commit():  # another commit was in progress, without the latest offsets
            await self.consumer.commit()

    # -- metrics and monitoring -------------------------------------------------------------------------------------

    @Service.task
    async def _tick(self) -> None:
        ticks, shortens = 0, True
        while not self.should_stop:
            await self.sleep(TICK_SECONDS)
            if self.should_stop:
                return
            await self.store.nudge()
            for shard, remaining in self.tables.recovery.remaining().items():
                self.probe.recovery(shard, remaining)
            # Without an assignment the only sign of progress is a recovery.
            busy = self.rebalancing or not self.tables.recovery.completed.is_set()
            busy = busy and not self.store.following
            for shard, flow in list(self._flows.items()):
                flow.check()
                flow.clean()
                lag = (self.consumer.highwater(TP(self.names.frames, shard)) or 0) - flow.position
                self.probe.lag(shard, max(0, lag))
                busy = busy or not flow.idle or lag > 0
            if not busy:
                self.probe.idle()
            if shortens or ticks % SLOW_TICKS == 0:
                shortens = await self._shorten()
            if ticks % SLOW_TICKS == 0:
                for shard, held in list(self.store.held.items()):
                    documents, size = await asyncio.to_thread(held.size)
                    self.probe.index(shard, documents, size, held.oldest)
            ticks += 1

    @Service.task
    async def _look_for_stalls(self) -> None:
        while not self.should_stop:
            await self.sleep(LOOK_SECONDS)
            if self.should_stop or self.ended is not None or not self._look():
                return

    def _look(self) -> bool:
        """Check for stalls and act on them. Returns whether this run continues."""
        if self._consumer is None:
            return True
        flows = {shard: (flow.position, flow.idle) for shard, flow in self._flows.items()}
        seen = self.consumer.seen(flows, self.tables.recovery.recovered)
        for found in self._watchdog.look(seen, self.probe.health.clock()):
            if isinstance(found, Again):
                log.info("shard %d: reading the frames again from offset %d", found.shard, found.offset)
                self.consumer.read_again(found.shard, found.offset, seen.hand_overs)
                continue
            self.probe.stalled(found.stall)
            if found.ends:
                self.fail(Failed(found.text))
                return False
            log.warning("%s", found.text)
        return True

    async def _shorten(self) -> bool:
        """Delete records of the changelogs that are not needed any more. Returns whether that succeeded."""
        firsts = {}
        for shard, flow in list(self._flows.items()):
            if (first := flow.held.needed) > max(flow.held.start, self._shortened.get(shard, 0)):
                firsts[TP(self.names.changelog, shard)] = first
        if not firsts:
            return True
        try:
            async with admin(self.settings) as client:
                done = await self._deletion.before(client, firsts)
        except (KafkaError, OSError, StreamLshError) as error:
            log.info("%s could not be trimmed; it is tried again: %s", self.names.changelog, error)
            return False
        if done:
            self._shortened.update({place.partition: first for place, first in firsts.items()})
            for shard, flow in self._flows.items():
                flow.held.deleted = self._shortened.get(shard, 0)
        return done

    @Service.task
    async def _read_holes(self) -> None:
        while not self.should_stop:
            await self.sleep(TICK_SECONDS)
            for flow in list(self._flows.values()):
                if flow.idle:  # no frame may come that would tell
                    await flow.tell()
            await self._look_into_holes()

    async def _look_into_holes(self) -> None:
        """Read what others have written before a change of ours, whose reply waits for it."""
        for shard, flow in list(self._flows.items()):
            if flow.hole is None:
                continue
            first, last = flow.hole
            end = min(last, first + HOLE_RECORDS)
            records = await self._records(shard, first, end)
            if records is None or self._flows.get(shard) is not flow:
                continue
            if not await flow.held.agrees(records, whole=end == last):
                self.fail(Failed(f"another worker writes the changelog of shard {shard}: it is read from {first} on"))
                return
            flow.agreed(end)

    async def _records(self, shard: int, first: int, end: int) -> list[tuple[int, bytes]] | None:
        """Offset and value of records of a changelog; None if they cannot be read now."""
        try:
            async with reading(self.settings) as consumer:
                records = await between(consumer, TopicPartition(self.names.changelog, shard), first, end)
        except (KafkaError, OSError, StreamLshError) as error:
            log.info("%s, partition %d could not be read; it is tried again: %s", self.names.changelog, shard, error)
            return None
        return [(record.offset, record.value or b"") for record in records]


def create(settings: KafkaSettings, probe: Probe | None = None) -> MatchApp:
    """The application for `faust worker`. Kernels are compiled before it joins the group."""
    warm_up(settings)
    return MatchApp(settings, probe or Probe("match"), serve=True)


def __getattr__(name: str) -> Any:
    """`app`: created when Faust asks for it, from $STREAM_LSH_CONFIG (a TOML file) and other STREAM_LSH_ variables."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    config = os.environ.get("STREAM_LSH_CONFIG")
    try:
        app = create(KafkaSettings.load(Path(config) if config else None))
    except StreamLshError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(error.exit_code) from None
    globals()["app"] = app
    return app
