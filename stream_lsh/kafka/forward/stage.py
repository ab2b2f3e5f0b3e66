"""Forward: copies the unique documents, unchanged and in the order of their partition, and writes dead letters.

Exactly once: each source partition has its own transactional producer. One transaction commits the results and the
positions in documents and verdicts. A member that takes over a partition first starts that producer, which ends every
open transaction of its predecessor, and only then reads the positions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import ClassVar

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import IllegalStateError, UnknownTopicOrPartitionError

from stream_lsh.errors import StoreError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.consumer.delivery import BATCH_BYTES, Delivery, delivering
from stream_lsh.kafka.consumer.group_member import GroupMember, OutOfRange
from stream_lsh.kafka.consumer.output_values import OutputValues
from stream_lsh.kafka.consumer.position import all_committed, bounds_of, offset_lost
from stream_lsh.kafka.consumer.state import Commits, recorded
from stream_lsh.kafka.consumer.unreadable import Unreadable
from stream_lsh.kafka.forward.assignor import PairedAssignor
from stream_lsh.kafka.forward.join import Verdict
from stream_lsh.kafka.forward.lost_verdicts import LostVerdicts
from stream_lsh.kafka.forward.partition import DOCUMENTS, VERDICTS, SourcePartition, read_verdict
from stream_lsh.kafka.names import OVERHEAD, Topics, wanted
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Stage
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.topics import limits_of

log = logging.getLogger("stream_lsh.kafka.forward")

POLL_SECONDS = 0.2
FETCH_WAIT_MS = 100  # only one fetch request is in flight at a time, and others wait for it
FETCH_LEAST, FETCH_BYTES, PARTITION_BYTES = 64 << 10, 8 << 20, 1 << 20  # avoids one request per document
WAITING_BYTES, LEAST_BYTES = 32 << 20, 256 << 10  # documents that wait for verdicts: of all partitions, of each
PAUSE, LONGEST_PAUSE = 0.1, 0.3  # seconds between two small transactions: per partition, and at most
QUIET_SECONDS = 3.0  # after which positions are committed that only transaction markers have moved


class ForwardStage(Stage):
    """One run of a member that forwards some source partitions, or is idle."""

    role: ClassVar[str] = "forward"

    def __init__(self, settings: KafkaSettings, probe: Probe) -> None:
        super().__init__(settings, probe)
        self._topics = Topics.of(settings)
        self._group = self._topics.group(self.role)
        read = [*self._topics.sources, self._topics.verdicts]
        self._member = GroupMember(settings, self.role, read, self._take_over, self._give_up)
        # Topics with a small limit do not accept batches of the usual size.
        limits = {topic.name: topic.max_message_bytes for topic in wanted(settings)}
        self._batch_bytes = min(BATCH_BYTES, limits[self._topics.unique] - 1024)
        self._sources: dict[int, SourcePartition] = {}
        self._open = AsyncExitStack()  # what is open during an assignment
        self._looked = 0.0
        self._lost = LostVerdicts(settings, self._member, self._sources)
        self._unreadable = Unreadable(settings, probe)
        self._values, self._stop = OutputValues(settings, probe), asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        self._stop = stop
        options = {
            "isolation_level": "read_committed",
            "partition_assignment_strategy": [PairedAssignor.by(self._topics.verdicts)],
            "fetch_max_wait_ms": FETCH_WAIT_MS, "fetch_min_bytes": FETCH_LEAST, "fetch_max_bytes": FETCH_BYTES,
            "max_partition_fetch_bytes": PARTITION_BYTES,
        }  # fmt: skip
        self._watching = asyncio.create_task(self._lost.watch())
        try:
            await self._member.run(stop, self._step, **options)
        finally:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    @property
    def _consumer(self) -> AIOKafkaConsumer:
        return self._member.consumer

    async def _step(self) -> None:
        tasks = [source.task for source in self._sources.values() if source.task is not None]
        try:
            found = await self._member.poll(POLL_SECONDS, *tasks)
        except OutOfRange as error:
            await self._out_of_range(error.positions)
            return
        for source in list(self._sources.values()):
            if source.task is not None and source.task.done():
                source.task.result()
        if self._watching.done():
            self._watching.result()
        if found is None:
            return
        await self._feed(found)
        await self._lost.offered()
        self._balance()
        if not found and not any(source.busy for source in self._sources.values()):
            self.probe.idle()
        now = time.monotonic()
        if now > self._looked + 1:
            self._looked = now
            await self._look(now)

    async def _feed(self, found: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        for partition, source in list(self._sources.items()):
            documents = [record for place in source.documents for record in found.get(place, ())]
            records = await self._values.read(found.get(source.verdicts, ()), self._stop)
            if documents or records:
                verdicts = [verdict for record in records if (verdict := await self._verdict(record)) is not None]
                if partition not in self._sources:  # given away meanwhile, with all others
                    return
                source.offer(documents, verdicts)
                self.probe.lag(partition, self._member.lag(source.verdicts, source.needed))

    async def _verdict(self, record: ConsumerRecord) -> Verdict | None:
        """The verdict in a record; None if the record is skipped. Raises StoreError as `Unreadable`."""
        try:
            return read_verdict(record, *self._topics.sources)
        except StoreError as error:
            await self._unreadable.pass_over(record.topic, record.partition, record.offset, error)
            return None

    def _balance(self) -> None:
        """Pause and resume partitions by the room that they have."""
        paused = self._consumer.paused()
        for source in self._sources.values():
            for place in {*source.places} & self._member.assigned:
                if (wants := source.wants(place)) == (place in paused):
                    (self._consumer.resume if wants else self._consumer.pause)(place)

    # -- taking over and revoking partitions ------------------------------------------------------------------------

    async def _take_over(self, assigned: frozenset[TopicPartition]) -> None:
        """Begin at the positions that the members before have committed.

        Raises:
            UnknownTopicOrPartitionError: verdicts lacks partitions that documents has.
            StoreError: a position is uncertain.
        """
        topics, consumer = self._topics, self._consumer
        places = {place for place in assigned if place.topic != topics.verdicts}
        partitions = {place.partition for place in places}
        self.probe.assigned(partitions)
        if partitions != {place.partition for place in assigned if place.topic == topics.verdicts}:
            counts = {
                name: len(consumer.partitions_for_topic(name) or ()) for name in (*topics.sources, topics.verdicts)
            }
            raise UnknownTopicOrPartitionError(
                " and ".join(f"{name} has {number} partitions" for name, number in counts.items())
            )
        if not partitions:
            return
        # First: they fence the producers of the members before, so that nothing more is committed after this.
        deliveries = await self._deliveries(partitions)
        async with admin(self.settings) as client:
            largest = (await limits_of(client, self.settings, topics.dead_letters))[topics.dead_letters] - OVERHEAD
        most_bytes = max(LEAST_BYTES, WAITING_BYTES // len(places))
        pause = min(LONGEST_PAUSE, PAUSE * len(partitions))
        known = await self._known(partitions)
        for partition in sorted(partitions):
            source = SourcePartition(
                partition, sorted(place for place in places if place.partition == partition), self.settings,
                deliveries[partition], self.probe, most_bytes, pause, self._balance, largest,
            )  # fmt: skip
            self._sources[partition] = source
            found = known.get(partition, {})
            begins = {**(found or await self._beginning(source))}
            added = [place for place in source.documents if place not in begins]
            begins |= {place: (at, "") for place, at in (await consumer.beginning_offsets(added)).items()}
            for place in source.places:
                consumer.seek(place, begins[place][0])
            await source.start({place: begins[place] for place in source.places}, found)
        for topic in topics.sources:
            joins = {p: source.joins[topic] for p, source in sorted(self._sources.items()) if topic in source.joins}
            if joins:
                listed = ", ".join(f"{p} from {join.position}" for p, join in joins.items())
                log.info("forwarding %s, partition %s", topic, listed)

    async def _known(self, partitions: set[int]) -> dict[int, dict[TopicPartition, tuple[int, str]]]:
        """The positions in documents and verdicts, by their commits, or where these are lost by the records."""
        async with admin(self.settings) as client:
            found = self._pairs(await all_committed(client, self._group))
        if lost := partitions - found.keys():
            there = self._pairs(await recorded(self.settings, self.role))
            for partition in sorted(lost & there.keys()):
                log.warning(
                    "the consumer group %s has no committed offsets for partition %d: continuing at those that %s has",
                    self._group, partition, self._topics.state,
                )  # fmt: skip
            found = there | found
        return found

    def _pairs(self, commits: Commits) -> dict[int, dict[TopicPartition, tuple[int, str]]]:
        """By partition, the positions of its places, if there are some of documents and of verdicts."""
        found = {
            partition: {
                TopicPartition(topic, partition): commits[topic][partition]
                for topic in (*self._topics.sources, self._topics.verdicts) if partition in commits.get(topic, {})
            }
            for partition in commits.get(self._topics.verdicts, {})
        }  # fmt: skip
        return {partition: places for partition, places in found.items() if len(places) > 1}

    async def _deliveries(self, partitions: set[int]) -> dict[int, Delivery]:
        found: dict[int, Delivery] = {}

        async def start(partition: int) -> None:
            delivery = delivering(self.settings, self.probe, partition, self._batch_bytes)
            found[partition] = await stacks[partition].enter_async_context(delivery)

        stacks = {partition: await self._open.enter_async_context(AsyncExitStack()) for partition in partitions}
        try:
            async with asyncio.TaskGroup() as group:
                for partition in partitions:
                    group.create_task(start(partition))
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        return found

    async def _beginning(self, source: SourcePartition) -> dict[TopicPartition, tuple[int, str]]:
        """The positions of the very first start of a partition. They are committed, to distinguish them from lost
        offsets.

        Documents may be older than the pipeline. Verdicts begin with offset 0. If they do not, some were deleted, and
        reading reports it.

        Raises:
            Failed: another member has taken over, and has begun.
            StoreError: it was forwarded before.
        """
        outputs = [TopicPartition(name, source.partition) for name in (self._topics.unique, self._topics.dead_letters)]
        known = set(await self._consumer.topics())
        written = await self._consumer.end_offsets([place for place in outputs if place.topic in known])
        if any(written.values()):
            what = f"{outputs[0].topic} or {outputs[1].topic} has records there"
            what = f" for partition {source.partition}, but {what}"
            raise await offset_lost(self.settings, self._group, source.verdicts, what, "repeat them")
        return {source.verdicts: (0, "")}

    async def _give_up(self) -> None:
        sources = [*self._sources.values()]
        self._sources.clear()
        self._lost.forget()
        await asyncio.gather(*(source.close() for source in sources))
        await self._open.aclose()

    # -- deleted records --------------------------------------------------------------------------------------------

    async def _out_of_range(self, positions: Mapping[TopicPartition, int]) -> None:
        """Handle a position that is no longer in its topic.

        Raises:
            StoreError: records are missing, and `accept_deleted_records` does not name them.
        """
        for place, position in positions.items():
            source = self._sources.get(place.partition)
            if source is None:
                continue
            bounds = (await bounds_of(self._consumer, {place: position}))[place]
            reading = VERDICTS if place == source.verdicts else DOCUMENTS
            missing = reading.missing(place, position, bounds, self.settings.accept_deleted_records)
            begin = position + missing
            self._consumer.seek(place, begin)
            if not missing:  # the broker had only just become leader, and has learned its end since
                continue
            log.warning(
                "%s, partition %d: continues at offset %d instead of %d (accept_deleted_records)", *place, begin,
                position,
            )  # fmt: skip
            source.loss_accepted = True
            for topic, join in source.joins.items():
                if topic == place.topic:
                    join.documents_deleted(begin)
                elif place == source.verdicts:
                    join.verdicts_deleted()

    async def _look(self, now: float) -> None:
        """Report lag, and commit the positions of quiet partitions."""
        consumer = self._consumer
        for partition, source in list(self._sources.items()):
            if not {*source.places} <= self._member.assigned:
                continue
            self.probe.lag(partition, self._member.lag(source.verdicts, source.needed))
            quiet = [place for place in source.documents if now > source.quiet_since[place.topic] + QUIET_SECONDS]
            if quiet and not source.busy:
                # A partition that was just given away has no position, and a new one may not have it yet.
                with suppress(IllegalStateError, TimeoutError):
                    async with asyncio.timeout(1):
                        documents = {place: await consumer.position(place) for place in quiet}
                        source.reached(documents, await consumer.position(source.verdicts))
