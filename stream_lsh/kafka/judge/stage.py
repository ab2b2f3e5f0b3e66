"""The judge: gathers the shards' replies to a frame, decides, and writes verdicts and pairs. One member works at a
time.

Exactly once: one transaction commits verdicts, pairs, memberships and the position of the oldest reply that is still
needed. The metadata of that position name the last complete frame. A new judge first starts the transactional producer,
which ends every open transaction of its predecessor, and only then reads the position.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import ClassVar

from aiokafka import ConsumerRecord, TopicPartition

from stream_lsh.errors import FormatError
from stream_lsh.kafka.consumer.decisions import DecisionLog, Judged
from stream_lsh.kafka.consumer.delivery import Delivery, Outputs, Row, delivering
from stream_lsh.kafka.consumer.group_member import GroupMember
from stream_lsh.kafka.consumer.output_values import OutputValues
from stream_lsh.kafka.consumer.position import REBUILD, Reading
from stream_lsh.kafka.consumer.state import taken_over
from stream_lsh.kafka.consumer.unreadable import Unreadable
from stream_lsh.kafka.judge.deciding import Deciding
from stream_lsh.kafka.judge.gather import Assembly, Gather, Outcome
from stream_lsh.kafka.judge.records import Records
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Stage
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.parts import Part, Place, cut, is_part
from stream_lsh.wire.replies import head

log = logging.getLogger("stream_lsh.kafka.judge")

READING = Reading("replies", "judged", REBUILD)
POLL_SECONDS = 0.2
FETCH_BYTES = 4 << 20
ROUND_SECONDS, ROUND_REPLIES = 0.01, 32 << 10  # time between the starts of two rounds, unless so many bytes wait
ROUND_DOCUMENTS, ROUND_BYTES = 10_000, 8 << 20  # limits of a transaction; its last frame may exceed them
BLOCKING_BYTES = 128 << 10  # replies to a frame larger than this are processed in a thread
WAIT_SECONDS = 10.0  # how long a frame may wait for a shard before it is logged
QUIET_SECONDS = 3.0  # after which a position is committed that only repeats have moved
STUCK_SECONDS = 30.0  # how long a gap in the replies may last before it is logged


class JudgeStage(Stage):
    """One run of the judge, or of an idle member."""

    role: ClassVar[str] = "judge"

    def __init__(self, settings: KafkaSettings, probe: Probe) -> None:
        super().__init__(settings, probe)
        self._topics = Topics.of(settings)
        self._input = TopicPartition(self._topics.matches, 0)
        self._member = GroupMember(settings, self.role, [self._input.topic], self._take_over, self._give_up)
        self._delivery: Delivery | None = None
        self._open = AsyncExitStack()  # what is open during an assignment
        self._gather: Gather[bytes] | None = None
        self._assembly: Assembly
        self._deciding: Deciding | None = None  # with several shards and `compare_with = "kept"`
        self._due = 0.0  # when the next round may begin, by the monotonic clock
        self._waiting = 0  # bytes of the replies since the last one
        self._position = self._committed = 0  # offset after the last reply that was read; the one last committed
        self._moved = 0.0  # when the last reply arrived, by the monotonic clock
        self._documents = 0  # documents that have a verdict
        self._gap: tuple[int, int, float] | None = None  # shard, its last frame, since when its next reply is missing
        self._waits: tuple[int, float] | None = None  # the frame that waits for a shard, and since when
        self._unreadable = Unreadable(settings, probe)
        self._values = OutputValues(settings, probe)

    async def run(self, stop: asyncio.Event) -> None:
        options = {"isolation_level": "read_uncommitted", "max_partition_fetch_bytes": FETCH_BYTES}
        await self._values.register(("verdict", "pair"), stop)
        await self._member.run(stop, self._step, **options)

    async def _step(self) -> None:
        found = await self._member.poll(self._patience())
        async with self._member.working:
            if self._input not in self._member.assigned:
                if found is not None:
                    self.probe.idle()  # another member judges
                return
            if found:
                self._moved = time.monotonic()
                await self._read(found[self._input])
            elif found is not None:
                self.probe.idle()
                await self._pass_repeats()
            if self._gather is not None and self._gather.ready and not self._patience():
                await self._judge()
            self.probe.lag(0, self._member.lag(self._input, self._position))
            self._mention_gap()
            self._mention_wait()

    def _patience(self) -> float:
        """How long to wait for replies, in seconds. Each round costs a transaction, large or small: if few replies
        are there, it waits for more."""
        if self._gather is None or not self._gather.ready:
            return POLL_SECONDS
        return 0.0 if self._waiting >= ROUND_REPLIES else max(0.0, self._due - time.monotonic())

    # -- taking over and revoking partitions ------------------------------------------------------------------------

    async def _take_over(self, assigned: frozenset[TopicPartition]) -> None:
        """Begin at the position that the judge before has committed.

        Raises:
            StoreError: that position is uncertain.
        """
        self.probe.assigned({partition.partition for partition in assigned})
        if self._input not in assigned:
            return
        settings, group = self.settings, self._topics.group(self.role)
        # First: it fences the producer of the judge before, so that nothing more is committed after this.
        self._delivery = await self._open.enter_async_context(delivering(settings, self.probe))
        topic = self._topics.verdicts
        verdicts = [TopicPartition(topic, number) for number in await self._delivery.partitions(topic)]
        nothing = Judged(-1, self._topics.listed, 0).metadata()
        position, text = await taken_over(self._member, settings, self._input, READING, verdicts, "verdicts", nothing)
        judged = Judged.of(text, group, self._topics.listed)
        await self._commit({}, position, judged)  # a commit may be lost, or without a record
        self._documents = judged.documents
        self._gather = Gather(settings.shards, judged.last)
        self._assembly = Assembly(self._gather.last_of)
        if settings.late:
            self._deciding = await self._decided_before(judged.last, judged.documents)
        self._position, self._gap, self._waits = position, None, None
        self._moved = time.monotonic()
        self._member.consumer.seek(self._input, position)
        log.info("judging from offset %d of %s on, after frame %d", position, self._input.topic, judged.last)

    async def _decided_before(self, last: int, documents: int) -> Deciding:
        """Continue deciding after the frame `last`, with `documents` documents decided."""
        settings, block = self.settings, self.settings.block
        async with DecisionLog.open(settings, self.probe) as log:
            await log.read_to(last)
        return Deciding(settings, log.known.since((documents // block - 1) * block, last), documents)

    async def _give_up(self) -> None:
        self._delivery = self._gather = self._deciding = None
        await self._open.aclose()

    # -- judging ----------------------------------------------------------------------------------------------------

    async def _read(self, records: Sequence[ConsumerRecord]) -> None:
        """Add replies. The chain rule says which of them count."""
        assert self._gather is not None
        for record in records:
            try:
                shard, outcome = self._add(self._gather, record.offset, record.value or b"")
            except FormatError as error:
                await self._unreadable.pass_over(record.topic, record.partition, record.offset, error)
                self._position = record.offset + 1
                continue
            self._waiting += len(record.value or b"")
            self._position = record.offset + 1
            if outcome is Outcome.APPLIED:
                if self._gap is not None and self._gap[0] == shard:
                    self._gap = None
            else:
                self.probe.ignored(outcome)
                if outcome is Outcome.GAP and self._gap is None:
                    self._gap = shard, self._gather.last_of(shard), time.monotonic()

    def _add(self, gather: Gather[bytes], position: int, value: bytes) -> tuple[int, Outcome]:
        """Add a reply, or a part of one. Returns its shard, and what happened to it.

        Raises:
            FormatError: it cannot be read.
        """
        if not is_part(value):
            place = head(value, self.settings)
            return place[0], gather.add(position, *place, value)
        part = Part.decode(value, self.settings)
        outcome = gather.outcome(*part.place)
        if outcome is Outcome.APPLIED and (found := self._assembly.add(position, part)) is not None:
            position, reply = found
            return part.place.shard, gather.add(position, *head(reply, self.settings), reply)
        return part.place.shard, outcome

    def _needed(self, gather: Gather[bytes]) -> int:
        """The offset in matches of the first reply that was not taken, or of the first part of one."""
        return self._assembly.needed(gather.needed(self._position))

    async def _judge(self) -> None:
        """Judge all complete frames, in rounds."""
        gather = self._gather
        assert gather is not None
        self._due, self._waiting = time.monotonic() + ROUND_SECONDS, 0
        while gather.ready:
            began = time.perf_counter()
            records = Records(self._topics)
            while records.documents < ROUND_DOCUMENTS and records.size < ROUND_BYTES:
                frame = gather.take()
                if frame is None:
                    break
                work = frame.replies, self._deciding, self.settings
                if sum(len(reply) for reply in frame.replies) > BLOCKING_BYTES:
                    await asyncio.to_thread(records.judge, *work)
                else:
                    records.judge(*work)
            outputs: dict[tuple[str, int], Sequence[Row]] = {
                (topic, partition): found
                for topic, kind in ((self._topics.verdicts, records.verdicts), (self._topics.pairs, records.pairs))
                for partition, found in kind.items()
            }
            for topic, values in (
                (self._topics.decisions, records.decisions), (self._topics.memberships, records.memberships),
            ):  # fmt: skip
                if values:
                    outputs[topic, 0] = self._rows(values, [offset for offset, *_ in records.frames])
            self._documents += records.documents
            said = Judged(gather.last, self._topics.listed, self._documents)
            await self._commit(outputs, self._needed(gather), said)
            self._count(records, time.perf_counter() - began)

    def _rows(self, values: Sequence[bytes], frames: Sequence[int]) -> list[Row]:
        """Records for an internal topic, one for each frame, whole or in parts."""
        most = self.settings.record_bytes
        return [
            (None, part, [], None)
            for value, frame in zip(values, frames, strict=True)
            for part in cut(value, Place(0, frame, frame), most, self.settings)
        ]

    async def _commit(self, outputs: Outputs, position: int, judged: Judged) -> None:
        assert self._delivery is not None
        await self._delivery(await self._values.encoded(outputs), {self._input: (position, judged.metadata())})
        self._committed = position

    async def _pass_repeats(self) -> None:
        """Commit the position after trailing repeats. Otherwise they count as unread replies, and if retention empties
        the topic this looks like a loss."""
        gather = self._gather
        if gather is None or time.monotonic() < self._moved + QUIET_SECONDS:
            return
        position = self._needed(gather)
        if position != self._committed:
            await self._commit({}, position, Judged(gather.last, self._topics.listed, self._documents))

    def _count(self, records: Records, seconds: float) -> None:
        probe = self.probe
        probe.committed()
        probe.documents.inc(records.documents)
        probe.batch(records.documents, seconds)
        for offset, documents, headers in records.frames:
            probe.traced(seconds, documents, headers.values, frame=offset)
        for kind, number in records.kinds.items():
            probe.verdicts(kind.label, number)
        probe.not_compared.inc(records.not_compared)
        probe.pairs.inc(sum(len(found) for found in records.pairs.values()))

    def _mention_gap(self) -> None:
        if self._gap is not None and time.monotonic() > self._gap[2] + STUCK_SECONDS:
            log.warning(
                "shard %d: its reply after frame %d is missing for %d s: restart the worker of match that has this "
                "shard, which sends it again", *self._gap[:2], STUCK_SECONDS,
            )  # fmt: skip
            self._gap = None

    def _mention_wait(self) -> None:
        """Log once per frame which shards it waits for."""
        waits, now = None if self._gather is None else self._gather.waits, self.probe.health.clock()
        if waits is None:
            self._waits = None
        elif self._waits is None or self._waits[0] != waits.frame:
            self._waits = waits.frame, now
        elif now >= self._waits[1] + WAIT_SECONDS:
            log.warning("%s", waits)
            self._waits = waits.frame, math.inf
