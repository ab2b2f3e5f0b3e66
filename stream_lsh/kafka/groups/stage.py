"""The role group: folds memberships into groups, and writes events and alerts. One member works at a time.

Exactly once: one transaction commits events, alerts, changes of the state and the position. A new member first starts
the transactional producer, which ends every open transaction of its predecessor, and only then reads position and
changelog.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import ClassVar

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from stream_lsh.alerts.rules import Rule, read_rules
from stream_lsh.embedded.alerts import check_fields
from stream_lsh.errors import FormatError, StoreError
from stream_lsh.index.store.column_families import limit_cache
from stream_lsh.index.store.rocksdb import name_key
from stream_lsh.kafka.client.clients import consuming
from stream_lsh.kafka.consumer.delivery import Delivery, Row, delivering
from stream_lsh.kafka.consumer.group_member import GroupMember
from stream_lsh.kafka.consumer.output_headers import ALERT, GROUP, EventHeaders
from stream_lsh.kafka.consumer.output_values import OutputValues
from stream_lsh.kafka.consumer.position import REBUILD, Reading
from stream_lsh.kafka.consumer.state import taken_over
from stream_lsh.kafka.consumer.unreadable import Unreadable
from stream_lsh.kafka.groups.erasing import Erasing
from stream_lsh.kafka.groups.folding import GAP, Folding, Round
from stream_lsh.kafka.groups.store import FOLDER, TIME, Folded, LocalStore
from stream_lsh.kafka.names import Topics, compaction_lag
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Stage
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.topics import tombstones_kept
from stream_lsh.wire.memberships import Memberships
from stream_lsh.wire.parts import Adjacent

log = logging.getLogger("stream_lsh.kafka.groups")

MISSING = (
    "{topic} does not have what follows after frame {last}, before offset {offset}: records were deleted, or a judge "
    f"has worked without groups. {REBUILD}"
)
READING = Reading("memberships", "folded", REBUILD)
POLL_SECONDS = 0.2
FETCH_BYTES = 4 << 20
ROUND_DOCUMENTS = 10_000  # limit of a transaction; its last frame may exceed it
PAUSE, FULL = 0.1, 500  # seconds between the starts of two rounds, unless so many documents wait
QUIET_SECONDS = 3.0  # after which a position is committed that only transaction markers have moved


class GroupStage(Stage):
    """One run of the member that folds, or of an idle one."""

    role: ClassVar[str] = "group"

    def __init__(self, settings: KafkaSettings, probe: Probe) -> None:
        super().__init__(settings, probe)
        self._rules = rules_of(settings)
        self._topics = Topics.of(settings)
        self._input = TopicPartition(self._topics.memberships, 0)
        self._changelog = TopicPartition(self._topics.group_changelog, 0)
        self._member = GroupMember(settings, self.role, [self._input.topic], self._take_over, self._give_up)
        self._open = AsyncExitStack()  # what is open during an assignment
        self._delivery: Delivery | None = None
        self._local: LocalStore | None = None
        self._folding: Folding | None = None  # set once the store is complete
        self._erasing: Erasing | None = None  # likewise, if ids are erased
        self._restoring: tuple[AIOKafkaConsumer, int] | None = None  # set until then: changelog reader, end offset
        self._folded = Folded(-1, "")
        self._adjacent: Adjacent
        self._waiting: deque[tuple[int, Memberships]] = deque()  # with their offsets
        self._documents = 0  # in them
        self._position = 0  # offset after what was folded last
        self._due = self._moved = 0.0  # when the next round may begin, and the last record arrived (monotonic clock)
        self._unreadable = Unreadable(settings, probe)
        self._values = OutputValues(settings, probe)

    async def run(self, stop: asyncio.Event) -> None:
        options = {"isolation_level": "read_committed", "max_partition_fetch_bytes": FETCH_BYTES}
        await self._values.register(("group", "alert"), stop)
        await self._member.run(stop, self._step, **options)

    async def _step(self) -> None:
        found = await self._member.poll(self._patience())
        async with self._member.working:
            if self._input not in self._member.assigned:
                if found is not None:
                    self.probe.idle()  # another member folds
                return
            if self._restoring is not None:
                await self._restore(*self._restoring)
                return
            if found:
                self._moved = time.monotonic()
                await self._read(found[self._input])
            while self._waiting and not self._patience():
                await self._round()
            await self._erase()
            if found is not None and not found and not self._waiting:
                self.probe.idle()
                await self._pass_markers()
            self.probe.lag(0, self._member.lag(self._input, self._position))

    def _patience(self) -> float:
        """How long to wait for memberships, in seconds. Each round costs a transaction, large or small."""
        if self._restoring is not None:
            return 0.0
        if not self._waiting:
            return POLL_SECONDS
        return 0.0 if self._documents >= FULL else max(0.0, self._due - time.monotonic())

    # -- taking over and revoking partitions ------------------------------------------------------------------------

    async def _take_over(self, assigned: frozenset[TopicPartition]) -> None:
        """Begin at the position that the member before has committed.

        Raises:
            StoreError: that position is uncertain.
        """
        self.probe.assigned({partition.partition for partition in assigned})
        if self._input not in assigned:
            return
        settings, group = self.settings, self._topics.group(self.role)
        # First: it fences the producer of the member before, so that nothing more is committed after this.
        self._delivery = await self._open.enter_async_context(delivering(settings, self.probe))
        outputs = [TopicPartition(self._topics.groups, 0), self._changelog]
        nothing = Folded.nothing().metadata()
        found = await taken_over(self._member, settings, self._input, READING, outputs, "groups", nothing)
        position, folded = found[0], Folded.of(found[1], group)
        await self._delivery({}, {self._input: found})  # a commit may be lost, or without a record
        self._position, self._folded, self._adjacent = position, folded, Adjacent(settings)
        self._member.consumer.seek(self._input, position)
        limit_cache(settings.cache_bytes)
        local = self._local = await asyncio.to_thread(
            LocalStore.of, settings.data_folder / FOLDER, folded.state, position
        )
        if local.position != position:
            await asyncio.to_thread(
                local.catch_up, await self._time(), await tombstones_kept(settings, self._changelog.topic)
            )
        options = {"group_id": None, "isolation_level": "read_committed", "max_partition_fetch_bytes": FETCH_BYTES}
        consumer = await self._open.enter_async_context(consuming(settings, self.role, **options))
        consumer.assign([self._changelog])
        lacking = await local.lacks(consumer, self._changelog, position)
        self._restoring = consumer, local.changelog + lacking
        self._member.consumer.pause(self._input)  # until the store is complete
        if lacking:
            log.info("reading at most %d records of %s", lacking, self._changelog.topic)

    async def _time(self) -> int:
        """The broker's time, in ms since 1970: that of a tombstone for a key that is not there."""
        assert self._delivery is not None
        place = self._changelog.topic, 0
        said = self._position, self._folded.metadata()
        placed = await self._delivery({place: [(name_key(TIME), None, [], None)]}, {self._input: said})
        return placed[place].time

    async def _restore(self, consumer: AIOKafkaConsumer, end: int) -> None:
        """Read a part of the changelog. All of it could take longer than a rebalance allows."""
        local = self._local
        assert local is not None
        before = lacking = end - local.changelog
        if before:
            lacking = await local.read(consumer, self._changelog, end, self._position)
        self.probe.recovery(0, lacking)
        if lacking < before:
            self.probe.idle()  # restoring counts as progress
        if lacking:
            return
        self._restoring = None
        self._folding = Folding(local.store, self.settings, self._rules, self._folded.last)
        if (hours := self.settings.erase_hours) is not None:
            lag = compaction_lag(self.settings) / 1000
            self._erasing = Erasing(local.store, round(3600 * hours), lag, time.time(), stale=local.restored)
        self._member.consumer.resume(self._input)
        where = self._position, self._input.topic, self._folded.last
        log.info("folding from offset %d of %s on, after frame %d", *where)

    async def _give_up(self) -> None:
        erasing, self._erasing = self._erasing, None
        self._delivery = self._folding = self._restoring = None
        self.probe.recovery(0, 0)
        self._waiting.clear()
        self._documents = 0
        local, self._local = self._local, None
        try:
            if erasing is not None:
                await asyncio.to_thread(erasing.close)
            if local is not None:
                await asyncio.to_thread(local.close)
        finally:  # also if the disk is full
            await self._open.aclose()

    # -- folding ----------------------------------------------------------------------------------------------------

    async def _read(self, records: Sequence[ConsumerRecord]) -> None:
        for record in records:
            try:
                found = self._adjacent.read(record.offset, record.value or b"", Memberships.decode)
            except FormatError as error:
                await self._unreadable.pass_over(record.topic, record.partition, record.offset, error)
                continue
            if found is not None:
                self._waiting.append((record.offset, found[1]))
                self._documents += len(found[1].judgement.ids)

    async def _round(self) -> None:
        folding, local = self._folding, self._local
        assert folding is not None and local is not None
        began = time.perf_counter()
        self._due = time.monotonic() + PAUSE
        round = await asyncio.to_thread(self._fold, folding)
        await self._commit(round)
        probe = self.probe
        probe.documents.inc(round.documents)
        seconds = time.perf_counter() - began
        probe.batch(round.documents, seconds)
        for offset, documents, traces in round.frames:
            probe.traced(seconds, documents, traces.values, frame=offset)
        probe.grouped(round.kinds, round.rules, folding.forgotten)

    def _fold(self, folding: Folding) -> Round:
        while self._waiting and folding.documents < ROUND_DOCUMENTS:
            offset, found = self._waiting.popleft()
            self._documents -= len(found.judgement.ids)
            outcome = folding.add(found)
            if outcome is not None:
                self.probe.ignored(outcome)
            if outcome == GAP:
                raise StoreError(MISSING.format(topic=self._input.topic, last=folding.last, offset=offset))
            if outcome is None and self._erasing is not None:
                self._erasing.enter(found.judgement, time.time())
            self._position = offset + 1
        round = folding.take()
        if self._erasing is not None:
            round.changes.update(self._erasing.take())
        return round

    async def _erase(self) -> None:
        """Erase some of what is due."""
        if self._erasing is None:
            return
        changes = await asyncio.to_thread(self._erasing.step, time.time())
        if changes:
            await self._commit(Round(changes=changes))

    async def _commit(self, round: Round) -> None:
        """Commit the results of a round in one transaction, then write them into the store."""
        delivery, local, folding = self._delivery, self._local, self._folding
        assert delivery is not None and local is not None and folding is not None
        changes: list[Row] = [(key, value, [], None) for key, value in round.changes.items()]
        events, alerts = EventHeaders(self.settings, GROUP), EventHeaders(self.settings, ALERT)
        outputs = {
            (topic, 0): rows
            for topic, rows in (
                (self._topics.groups, with_headers(events, round.events)),
                (self._topics.alerts, with_headers(alerts, round.alerts)),
                (self._changelog.topic, changes),
            )
            if rows
        }  # fmt: skip
        said = Folded(folding.last, self._folded.state).metadata()
        placed = await delivery(await self._values.encoded(outputs), {self._input: (self._position, said)})
        at = placed.get((self._changelog.topic, 0))
        await asyncio.to_thread(local.write, round.changes, self._position, at)
        self.probe.committed()

    async def _pass_markers(self) -> None:
        """Commit the position after trailing transaction markers. Otherwise the markers count as unread records, and if
        retention empties the topic this looks like a loss."""
        if time.monotonic() < self._moved + QUIET_SECONDS or self._adjacent.begin is not None:
            return
        position = await self._member.consumer.position(self._input)
        if position > self._position:
            self._position, self._moved = position, time.monotonic()
            await self._commit(Round())


def with_headers(headers: EventHeaders, rows: Sequence[Row]) -> Sequence[Row]:
    """The rows with the headers of CloudEvents, if they are such."""
    if not headers.used:
        return rows
    return [(key, value, [*own, *headers.of_value(value)], when) for key, value, own, when in rows]


def rules_of(settings: KafkaSettings) -> tuple[Rule, ...]:
    """The rules of alerts.

    Raises:
        UsageError: the file is missing or has no valid rules, or a rule needs fields that the documents do not have.
    """
    if settings.alerts is None:
        return ()
    rules = read_rules(settings.alerts)
    check_fields(rules, settings.time_field or "timestamp", settings.source_field)
    return rules
