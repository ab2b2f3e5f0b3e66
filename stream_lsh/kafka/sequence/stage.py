"""The role `sequence`: gives signed frames their place in the total order, and sends a copy to every shard.

The same signatures give the same frames, from any committed position on: the accepted positions and the key of the
index are committed with the offset. The very first start creates and commits the key. Signers wait for it.

A checkpoint in the topic `state` outlives these commits. It has only frames that the judge has completed: later ones
are sent again. A sequencer that takes over first starts the transactional producer, and only then reads the checkpoint:
an earlier one can write none after that.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import ClassVar

import numpy as np
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError
from numpy.typing import NDArray

from stream_lsh.documents.times import moment
from stream_lsh.errors import FormatError, StoreError, StreamLshError
from stream_lsh.hashing.siphash import KEY_BYTES
from stream_lsh.index.segments.stream_time import BEFORE, StreamTime, jumps, shown
from stream_lsh.kafka.client.clients import switch, waited
from stream_lsh.kafka.consumer.decisions import DecisionLog, decisions_due, judged_by, judged_so_far
from stream_lsh.kafka.consumer.delivery import Delivery, delivering
from stream_lsh.kafka.consumer.position import Reading, committed, offset_lost
from stream_lsh.kafka.consumer.relay import LOOK_SECONDS, Relay
from stream_lsh.kafka.consumer.state import SETTINGS, encode_settings, known_at, recorded
from stream_lsh.kafka.consumer.unreadable import Unreadable
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Stage
from stream_lsh.kafka.sequence.in_flight import Repeat, Window
from stream_lsh.kafka.sequence.last_sent import check_last_sent
from stream_lsh.kafka.sequence.order import Accepted, Decision, Gap, sent_to_shards
from stream_lsh.kafka.sequence.together import Together
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.envelope import kind_of
from stream_lsh.wire.frames import Places, headers_of
from stream_lsh.wire.set_back import KIND as SET_BACK
from stream_lsh.wire.set_back import SetBack

SOONEST, LATEST = 0.05, 0.2  # seconds between two requests for the judge's position
READING = Reading(
    "frames", "sequenced", "Rebuild under another topic_prefix.",
    "Start the workers of sign and sequence with --accept-deleted-records {place}: the documents in them are signed "
    "again as far as they are still there. Raise retention_hours.",
)  # fmt: skip
GAP_SECONDS = 30.0  # between two warnings about the same gap
AGAIN_SECONDS = 30.0  # without a frame judged, after which frames are sent again
UNSEEN = (
    "the sequencer may not describe the group %s: it does not send frames again that the brokers may have lost. Give "
    "it that permission"
)


class SequenceStage(Stage):
    """One run of the sequencer. The topic signatures has one partition: one member works, the others are idle."""

    role: ClassVar[str] = "sequence"

    def __init__(self, settings: KafkaSettings, probe: Probe) -> None:
        super().__init__(settings, probe)
        self.topics = topics = Topics.of(settings)
        self._relay = Relay(settings, probe, [topics.signatures], topics.frames, self._begin, self._forget)
        self._accepted: Accepted
        self._window = Window(settings.decision_lag)
        self._together = Together()
        self._half = asyncio.Event()  # the window is half full
        self._asked = asyncio.Event()  # the judge's position is new
        self._repeat = Repeat(time.monotonic(), AGAIN_SECONDS)
        self._blind = False  # may not see what match has read
        self._warned: dict[int, float] = {}
        self._unreadable = Unreadable(settings, probe)
        self._done = -1  # offset of the last frame that every shard had answered at the start of this run
        self._judged = -1  # offset of the last frame that the judge has completed, as far as is known
        self._delivery: Delivery | None = None  # of checkpoints
        self._open = AsyncExitStack()
        self._kept = -1  # position of the last checkpoint
        self._since = 0.0  # since when it may lack frames, by the monotonic clock
        self._next: tuple[int, Accepted, float] | None = None  # the next one, for which the judge must have all frames
        self._log: DecisionLog | None = None  # with several shards and `compare_with = "kept"`
        self._more_decisions = asyncio.Event()
        if settings.keeps_time:
            StreamTime().advance(np.zeros(1, np.int64))  # compile before joining: a member must send heartbeats

    async def run(self, stop: asyncio.Event) -> None:
        following = [self._follow] if self.settings.late else []
        async with self._open:
            await self._relay.run(stop, self._work, self._look, self._keep_checkpoints, *following)

    async def _begin(self, partitions: list[int]) -> None:
        source = self.topics.signatures
        self._since = time.monotonic()
        await self._open.aclose()
        self._delivery = await self._open.enter_async_context(delivering(self.settings, self.probe))
        found = await known_at(self.settings, self.role, self._relay.place(0))
        position, known = (0, None) if found is None else (found[0], Accepted.of(found[1]))
        await check_last_sent(self.settings, position, READING)
        bounds = (await self._relay.bounds({0: position}))[0]
        self._accepted = known or await self._first(bounds[1])
        self._show_time(self._accepted)
        accepted = self.settings.accept_deleted_records
        if missing := READING.missing(self._relay.place(0), position, bounds, accepted):
            self._relay.member.log.warning(
                "%s: %d frames from offset %d on are deleted; the signers sign their documents again "
                "(accept_deleted_records)", source, missing, position,
            )  # fmt: skip
            position += missing
        self._window = Window(self.settings.decision_lag)
        judged = await judged_so_far(self.settings)
        self._done = self._judged = judged.last
        self._repeat = Repeat(time.monotonic(), AGAIN_SECONDS)
        if judged.last < self._accepted.last:  # an earlier run has sent frames that are not judged yet
            self._window.sent(self._accepted.last, self._accepted.documents - judged.documents)
        if known is None:  # before the commit, which signers wait for: there is one key
            await self._write(position, self._accepted)
        await self._relay.record({0: (position, self._accepted)})  # by itself this is no progress
        settings = encode_settings(self.settings)
        await (await self._relay.producer.send(self.topics.state, settings, key=SETTINGS.encode(), partition=0))
        self._relay.seek({0: position})

    async def _write(self, position: int, accepted: Accepted) -> None:
        assert self._delivery is not None
        place = self._relay.place(0)
        await self._delivery({}, {place: (position, accepted.metadata())}, commit=False)
        self._kept = position

    async def _keep_checkpoints(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            async with self._relay.member.working:
                if self._relay.positions:
                    await self._keep_checkpoint(self._relay.positions[0], time.monotonic())

    async def _keep_checkpoint(self, position: int, now: float) -> None:
        if self._next is None and position == self._kept:
            self._since = now
        elif self._next is None:
            self._next = position, self._accepted, now
        if self._next is not None and self._next[1].last <= self._judged:
            kept, accepted, self._since = self._next
            self._next = None
            await self._write(kept, accepted)
        self.probe.checkpoint((now - self._since) / (3600 * self.settings.retention_hours))

    async def _first(self, end: int) -> Accepted:
        """The very first start: create the key.

        Raises:
            Failed: another member has taken over, and has begun.
            StoreError: there was a start before. Signers need its key.
        """
        if end:
            raise await offset_lost(
                self.settings, self._relay.member.group, self._relay.place(0),
                f", but {self.topics.signatures} has or had frames", "lose their positions and the key of the index",
            )  # fmt: skip
        return Accepted(secrets.token_bytes(KEY_BYTES))

    async def _work(self) -> None:
        try:
            await self._read()
        finally:
            self.probe.in_flight(0)  # the member that works now reports what is in flight

    async def _read(self) -> None:
        while True:
            await self._window_open(1)
            epoch, got = self._relay.epoch, await self._relay.poll()
            if epoch != self._relay.epoch:  # the records may be those after a new position
                self._relay.seek(self._relay.positions)
                continue
            try:
                for record in got.get(0, ()):
                    if epoch != self._relay.epoch:
                        break
                    decision = await self._decide(record)
                    if not self._window.room(decision.documents):
                        await self._send()
                    await self._window_open(decision.documents)
                    per_shard = await self._decisions_for(record.offset, decision)
                    await self._relay.room.wait()
                    began = time.monotonic()
                    async with self._relay.member.working:
                        if epoch != self._relay.epoch:
                            break
                        await self._sequence(record, decision, per_shard, began)
            except StreamLshError:
                await self._send()  # what comes before a record that stops the role
                raise
            await self._send()

    async def _decide(self, record: ConsumerRecord) -> Decision:
        """The decision on the next frame."""
        future = self.settings.max_future_ms
        # The broker's append time is in the log: no clock of a worker decides, and every sequencer says the same.
        latest = None if future is None else record.timestamp + future
        data = record.value or b""
        try:
            if kind_of(data) == SET_BACK:
                return Decision(self._set_back(SetBack.decode(data)), 0, None, (), 0)
            places = Places.of(data, self.settings)
            self.probe.clocks(record.timestamp, places.signed_at)
            return self._accepted.accept(places, latest)
        except FormatError as error:
            await self._unreadable.pass_over(record.topic, 0, record.offset, error)
            return Decision(self._accepted, 0, None, (), 0)

    def _set_back(self, order: SetBack) -> Accepted:
        """What is accepted after an order to set stream time back."""
        after = self._accepted.set_back(order.time)
        self._relay.member.log.warning(
            "stream time is set back from %s to %s (stream-lsh kafka set-stream-time)",
            *(moment(shown(accepted.log)) for accepted in (self._accepted, after)),
        )
        self._show_time(after)
        return after

    def _show_time(self, accepted: Accepted) -> None:
        if accepted.log is not None:
            self.probe.stream_time(accepted.log["time"], 0, accepted.log.get("shift", 0))

    async def _sequence(
        self, record: ConsumerRecord, decision: Decision, per_shard: Sequence[bytes], began: float
    ) -> None:  # fmt: skip
        """Add a frame to those that are sent together. per_shard: the decisions that are sent with it."""
        offset, value = record.offset, record.value or b""
        if decision.repeats:
            self.probe.ignored("repeat", decision.repeats)
        for gap in decision.gaps:
            self._warn(gap)
        after, sent = decision.after, list[bytes]()
        if decision.documents:
            if offset > self._done:
                sent = sent_to_shards(offset, record.timestamp, value, decision, per_shard, self.settings)
                self._window.sent(offset, decision.documents)
            after = after.passed_on(offset, decision.documents)
            if decision.log is not None:
                self._tell_time(decision.log, decision.shift)
        if not self._together.room(sent, min(self.settings.frame_bytes, self.settings.record_bytes)):
            await self._deliver()
        self._together.add(sent, decision.documents, (offset + 1, after))
        self._accepted = after
        self._relay.positions[0] = offset + 1
        self._repeat.check(self.topics.signatures, offset + 1, after, READING.anew)
        if sent:
            seconds = time.monotonic() - began
            self.probe.batch(decision.documents, seconds)
            self.probe.traced(
                seconds, decision.documents, lambda: headers_of(value, self.settings).values(), frame=offset
            )

    async def _send(self) -> None:
        """Send the frames that were added. Done before each wait for another role, and at the end of each poll."""
        async with self._relay.member.working:
            await self._deliver()

    async def _deliver(self) -> None:
        together, self._together = self._together, Together()
        if together.mark is not None:
            await self._relay.send(together.records(self.settings), {0: together.mark}, together.documents)

    def _tell_time(self, log: NDArray[np.int64], shift: int) -> None:
        """Report stream time after a frame, and warn if it has jumped by more than the window."""
        before = self._accepted.log["time"] if self._accepted.log is not None else BEFORE
        found = 0 if self.settings.window is None else jumps(log, before, self.settings.window_ms)
        if found:
            self._relay.member.log.warning(
                "stream time jumped by more than the window of %s, to %s, and the documents before are forgotten: if "
                "event times were wrong, stop their sender, and set it back with stream-lsh kafka set-stream-time",
                self.settings.window, moment(int(log[-1]) - shift),
            )  # fmt: skip
        self.probe.stream_time(int(log[-1]), found, shift)

    async def _decisions_for(self, offset: int, decision: Decision) -> list[bytes]:
        """The decisions to send with a frame, one record per shard. They are those on the block before the last if a
        block of the log begins in this frame. Waits until all of them are decided."""
        settings, block = self.settings, self.settings.block
        nothing = [b""] * settings.shards
        if not settings.late or offset <= self._done:
            return nothing
        if decision.documents > block:
            raise StoreError(
                f"the frame at offset {offset} of {self.topics.signatures} has {decision.documents} documents, more "
                f"than half of decision_lag: give all workers the same frame_documents, of at most {block}"
            )
        places = decisions_due(self._accepted.documents, decision.documents, block)
        if places is None:
            return nothing
        epoch = self._relay.epoch
        if self._log is None or self._log.known.documents < places[1]:
            await self._send()
        while self._log is None or self._log.known.documents < places[1]:
            if epoch != self._relay.epoch:
                return nothing
            self._more_decisions.clear()
            await waited(self._more_decisions, LATEST)
        per_shard = self._log.known.records(*places, settings)
        await self._log.trim(self._relay.admin)
        return per_shard

    async def _follow(self) -> None:
        """Read the decisions, also while idle: a new sequencer then has them at once."""
        async with DecisionLog.open(self.settings, self.probe) as log:
            self._log = log
            while True:
                await log.read()
                log.forget()
                self._more_decisions.set()

    def _warn(self, gap: Gap) -> None:
        """Count a gap, and warn. The signer that left it fills it."""
        self.probe.ignored("gap")
        now = time.monotonic()
        if now - self._warned.get(gap.partition, -GAP_SECONDS) >= GAP_SECONDS:
            self._warned[gap.partition] = now
            self._relay.member.log.warning(
                "%s: a frame from position %d on is ignored until what is missing before it has come (%s): the signer "
                "sends it again, or signs it again if %s has lost it", self.topics.where(gap.partition), gap.begins,
                "nothing accepted yet" if gap.accepted < 0 else f"accepted up to {gap.accepted}",
                self.topics.signatures,
            )  # fmt: skip

    # -- limit on documents in flight to the judge ------------------------------------------------------------------

    async def _look(self) -> None:
        """Ask for the judge's position every second, and more often while the window is half full."""
        pause = SOONEST
        while True:
            switch(self._half, self._window.half)
            await waited(self._half, LOOK_SECONDS)
            before = self._judged
            if len(self._window):
                await self._ask()
                pause = SOONEST if self._judged > before else min(LATEST, 1.5 * pause)
                await asyncio.sleep(pause)
            now = time.monotonic()
            if self._judged > before or not len(self._window):
                self._repeat.progress(self._judged, now)
            elif self._repeat.due(now):
                if await self._all_matched():
                    await self._send_again(now - self._repeat.since)
                self._repeat.since = now
            self.probe.in_flight(len(self._window))

    async def _all_matched(self) -> bool:
        """Whether match has read all of `frames`, so that the judge waits for records that may be lost."""
        topics = self.topics
        shards = [TopicPartition(topics.frames, shard) for shard in range(self.settings.shards)]
        ends = await self._relay.member.consumer.end_offsets(shards)
        try:
            read = await committed(self._relay.admin, topics.group("match"), topics.frames)
        except GroupAuthorizationFailedError:
            if not self._blind:
                self._relay.member.log.warning(UNSEEN, topics.group("match"))
            self._blind = True
            return False
        return all(read.get(shard.partition, (0, ""))[0] >= end for shard, end in ends.items())

    async def _send_again(self, seconds: float) -> None:
        """Send the frames again that are not judged, from the checkpoint on. The brokers may have lost frames or
        replies. Shards reply again to a frame that they have, and its bytes are the same."""
        epoch = self._relay.epoch
        # A checkpoint is true also if its transaction was aborted, and an open one of another role need not end.
        known = await recorded(self.settings, self.role, "read_uncommitted")
        found = known.get(self.topics.signatures, {}).get(0)
        if found is None or epoch != self._relay.epoch or not self._relay.positions:
            return
        position, accepted = found[0], Accepted.of(found[1])
        begin = (await self._relay.bounds({0: position}))[0][0]
        async with self._relay.member.working:
            if epoch != self._relay.epoch or not begin <= position < self._relay.positions[0]:
                return
            if self._judged < accepted.last:
                return
            self._relay.member.log.warning(
                "no frame after the one at %d of %s was judged for %.0f s: sending what follows again. Match or judge "
                "does not answer, or the brokers may have lost records of %s or %s",
                self._judged, self.topics.signatures, seconds, self.topics.frames, self.topics.matches,
            )  # fmt: skip
            self._relay.epoch += 1  # what was read is read again
            self._repeat.begin(self._relay.positions[0], self._accepted)
            self._done, self._accepted, self._together = self._judged, accepted, Together()
            self._next, self._window = None, Window(self.settings.decision_lag)
            self._relay.seek({0: position})

    def _forget(self) -> None:
        self._next, self._kept, self._since = None, -1, time.monotonic()
        self.probe.checkpoint(0)
        self.probe.clocks(0, 0)  # the member that works now reports it
        if self.settings.keeps_time:
            self.probe.stream_time(0, 0, 0)
        self._together = Together()
        self._window = Window(self.settings.decision_lag)

    async def _window_open(self, documents: int) -> None:
        """Wait until there is room for so many documents."""
        switch(self._half, self._window.half)
        while not self._window.room(documents) and self._relay.positions:
            self._asked.clear()
            await waited(self._asked, LATEST)

    async def _ask(self) -> None:
        epoch, judged = self._relay.epoch, await judged_by(self._relay.admin, self.topics)
        self._asked.set()
        self._relay.idle()  # while it waits for the judge, the role has nothing to do
        if epoch == self._relay.epoch:
            self._judged = judged.last
            self._window.complete(judged.last)
