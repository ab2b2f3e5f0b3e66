"""Frames of one shard in flight: matched in its thread, sent, and acknowledged in order once all is delivered.

A reply is sent once it is certain that the change of its frame counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.embedded.engine_errors import EngineErrors
from stream_lsh.embedded.often import Often
from stream_lsh.errors import FormatError, StoreError
from stream_lsh.kafka.client.clients import waited
from stream_lsh.kafka.consumer.output import InOrder, Send
from stream_lsh.kafka.consumer.unreadable import SAY_SECONDS, Unreadable
from stream_lsh.kafka.match.held import Held, Matched
from stream_lsh.kafka.match.replica import Answer
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Failed, Unanswered
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.bases import Mark
from stream_lsh.wire.frames import Frame, headers_of
from stream_lsh.wire.parts import Adjacent, Place, adjoin, cut
from stream_lsh.wire.sequenced import Sequenced, split_frames
from stream_lsh.wire.source import Headers

log = logging.getLogger("stream_lsh.kafka.match")

TOGETHER, TOGETHER_BYTES = 32, 1 << 20  # limits of the waiting frames that are matched in one call
CLEANING_STEPS = 16  # per second, while no frame waits: 4 MB of snapshot records
MOST_FRAMES, MOST_BYTES = 128, 32 << 20  # of a shard, not acknowledged yet; above that no more are fetched


@dataclass(slots=True, eq=False)
class Taken:
    """A frame in flight, or a snapshot record.

    Attributes:
        offset: of its record in its partition of frames.
        acknowledge: what to do once it is delivered, and all frames before it.
        changed: for a frame with a change: its offset in signatures.
        reply: its records, to be sent once the change is acknowledged.
        placed: offset of the change or snapshot record in the changelog; None: there is none.
        records: how many it is there: one, or its parts.
        error: why the record cannot be read.
    """

    offset: int
    size: int
    acknowledge: Callable[[], object]
    changed: int | Mark | None = None
    reply: Sequence[bytes] = ()
    placed: int | None = None
    records: int = 0
    error: FormatError | None = None


class Elsewhere:
    """Counts and reports updates and deletions that arrive from another partition than their document. Their order is
    not known: the sequencer may have read them the other way round."""

    def __init__(self, settings: KafkaSettings, probe: Probe) -> None:
        self._settings = settings
        self._counter = probe.registry.elsewhere.labels(probe.role)
        self._often, self._count = Often(SAY_SECONDS), 0

    def add(self, found: NDArray[np.int64]) -> None:
        """Count them, see `Answer.elsewhere`. A warning is logged every SAY_SECONDS at most."""
        if not len(found):
            return
        self._counter.inc(len(found))
        self._count += len(found)
        if not self._often.due():
            return
        source, offset, known = found[-1].tolist()
        topics = Topics.of(self._settings)
        topic, partition = topics.place(source)
        other = "another topic or partition" if len(topics.sources) > 1 else f"partition {known}"
        log.warning(
            "%s: %d updates and deletions arrived from another partition than their document, so that their order is "
            "not certain. The last one is at offset %d of partition %d, its document was in %s: give all producers the "
            "id as key, and one way to choose partitions (partitioner = %s)",
            topic, self._count, offset, partition, other, self._settings.partitioner,
        )  # fmt: skip
        self._count = 0


class Flow:
    """A shard's frames in this member, from the end of recovery until it is handed over.

    Args:
        position: offset of the next frame.
        send: raises if nothing more can be sent.
        failed: gets the error that ends this run. Nothing is acknowledged after it.
    """

    def __init__(
        self,
        held: Held,
        position: int,
        send: Send,
        changelog: str,
        matches: str,
        failed: Callable[[BaseException], object],
        probe: Probe,
        unreadable: Unreadable,
        elsewhere: Elsewhere,
    ) -> None:
        self.held = held
        self.position = position
        self._changelog = changelog
        self._matches = matches
        self._failed = failed
        self._probe = probe
        self._unreadable = unreadable
        self._elsewhere = elsewhere
        self._engine_errors = EngineErrors(log)
        self._changes: InOrder[Taken] = InOrder(send, self._placed, self._fail)
        self._replies: InOrder[Taken] = InOrder(send, self._acknowledge, self._fail)
        self._due: deque[Taken] = deque()  # their changes are acknowledged, and their replies are not sent
        self._next = held.settled  # offset after the last record of the changelog that is ours or was read
        self._waiting: deque[tuple[Taken, bytes]] = deque()
        self._adjacent = Adjacent(held.settings)
        self._parts_read: list[Callable[[], object]] = []  # acknowledge the parts of a record that is not complete
        self._steps = 0  # cleaning steps allowed while no frame waits
        self._frames = self._bytes = 0
        self._wake, self._idle, self._replying = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._open = self._taking = True
        self._tasks = [
            asyncio.create_task(self._guarded(work()), name=f"shard-{held.shard}") for work in (self._run, self._reply)
        ]

    @property
    def room(self) -> bool:
        """Whether more frames may be fetched."""
        return self._taking and self._frames < MOST_FRAMES and self._bytes < MOST_BYTES

    @property
    def idle(self) -> bool:
        """Whether every frame is acknowledged."""
        return not self._frames

    def check(self) -> None:
        """Fail if Kafka has not acknowledged a record in time (aiokafka would wait for ever), or if the shard has
        waited too long for its next frame."""
        try:
            self.held.look()
            self._changes.check()
            self._replies.check()
        except (StoreError, Unanswered) as error:
            self._fail(error)

    def offer(self, offset: int, data: bytes, acknowledge: Callable[[], object]) -> None:
        """Add the frames of the record at `position`. `acknowledge` is called when all their results are delivered."""
        if not self._taking or offset < self.position:  # fetched before a seek: taken already, or fetched again
            return
        if offset > self.position:
            # Faust clears its queues when it resumes flow. Frames that were in them would be missing for ever.
            self._fail(Failed(f"frames from offset {self.position} to {offset} of shard {self.held.shard} got lost"))
            return
        self.position = offset + 1
        self._parts_read.append(acknowledge)
        damage: FormatError | None = None
        try:
            begin, value = self._adjacent.add(offset, data) or (self._adjacent.begin, None)
        except FormatError as error:
            begin, value, damage = offset, data, error
        done = self._parts_read[len(self._parts_read) - (0 if begin is None else offset + 1 - begin) :]
        for passed in self._parts_read[: len(self._parts_read) - len(done)]:
            passed()  # parts without the others
        self._parts_read = done
        if value is None:
            return
        self._parts_read = []
        try:
            frames = [value] if damage else [bytes(frame) for frame in split_frames(value, self.held.settings)]
        except FormatError as error:
            frames, damage = [value], error
        self._frames += len(frames)
        self._bytes += sum(map(len, frames))
        self._idle.clear()
        self._waiting += [(Taken(offset, len(frame), lambda: None, error=damage), frame) for frame in frames]
        self._waiting[-1][0].acknowledge = lambda: [each() for each in done]  # frames are done in their order
        self._wake.set()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._fail(error)

    async def _run(self) -> None:
        while self._open:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting and self._open:
                await self._take()
                await self._clean()
                while self.held.owes and self._taking:
                    await self._clean()
            while self._steps and not self._waiting and self._open:
                self._steps -= 1
                await self._clean()

    async def _reply(self) -> None:
        """Send replies, each once all of the changelog up to its change is ours or was read: the first change of a
        frame there counts, and another worker may have left out other documents."""
        while self._open:
            await self._replying.wait()
            self._replying.clear()
            while self._due and self._open and self.hole is None:
                frame = self._due.popleft()
                self._next = max(self._next, -1 if frame.placed is None else frame.placed + frame.records)
                await self._replies.send(frame, [(self._matches, 0, part) for part in frame.reply])

    def _cut(self, record: bytes | None, frame: int, predecessor: int) -> list[bytes]:
        """A record as it is sent: whole or in parts."""
        settings, place = self.held.settings, Place(self.held.shard, frame, predecessor)
        return [] if record is None else cut(record, place, settings.record_bytes, settings)

    @property
    def hole(self) -> tuple[int, int] | None:
        """First and end offset of records of the changelog that another worker has written before our next change;
        None if there are none."""
        placed = self._due[0].placed if self._due else None
        return None if placed is None or placed <= self._next else (self._next, placed)

    def agreed(self, end: int) -> None:
        """The records in the hole, up to `end`, are those that we would have written."""
        self._next = end
        self._replying.set()

    def clean(self) -> None:
        """Allow cleaning steps while no frame waits. Called once a second."""
        if self.held.erases:
            self._steps = CLEANING_STEPS
            self._wake.set()

    async def _clean(self) -> None:
        """Do one cleaning step."""
        if not (self.held.erases and self._taking):
            return
        found = await self.held.clean()
        if found is not None and self._open:
            mark, record = found
            taken = Taken(-1, 0, lambda: None, mark)
            await self._change_shard(taken, self._cut(record, mark.frame, mark.frame))

    async def _change_shard(self, taken: Taken, records: Sequence[bytes]) -> None:
        """Send the records of a change or snapshot record."""
        taken.records = len(records)
        await self._changes.send(taken, [(self._changelog, self.held.shard, record) for record in records])

    async def _take(self) -> None:
        taken, size = [self._waiting.popleft()], 0
        while self._waiting and len(taken) < TOGETHER and (size := size + taken[-1][0].size) < TOGETHER_BYTES:
            taken.append(self._waiting.popleft())
        found: list[Matched | None]
        try:
            found = [*await self.held.match([value for _, value in taken])]
        except FormatError:
            # One by one: those before the bad frame are known by now, and get their replies again.
            found = [await self._matched(frame, value) for frame, value in taken]
        for (frame, value), matched in zip(taken, found, strict=True):
            if not self._open:
                return
            await self._change_shard(frame, [] if matched is None else self._change(frame, value, matched))

    async def _matched(self, frame: Taken, value: bytes) -> Matched | None:
        """The result of a frame; None if it is skipped."""
        settings = self.held.settings
        place, damage = (Topics.of(settings).frames, self.held.shard, frame.offset), frame.error
        try:
            Sequenced.decode(value, settings)
        except FormatError as error:
            damage = damage or error
        if damage is not None:
            await self._unreadable.pass_over(*place, damage)
            return None
        try:
            [matched] = await self.held.match([value])
        except FormatError as error:  # the frame is part of the chain, and the shard cannot continue without it
            raise FormatError("{}, partition {}, offset {}: {}".format(*place, error)) from None
        return matched

    def _change(self, frame: Taken, value: bytes, matched: Matched) -> list[bytes]:
        """The change to be sent for a frame, whole or in parts; notes the reply."""
        answer = matched.answer
        if answer is None:
            self._probe.ignored("gap")
            return []
        if answer.documents:
            self._probe.batch(answer.documents, matched.seconds)
            facts = {"frame": answer.offset, "shard": self.held.shard}
            self._probe.traced(matched.seconds, answer.documents, lambda: self._headers(value), **facts)
            self._probe.documents.inc(answer.documents)
        self._elsewhere.add(answer.elsewhere)
        if any(answer.failed):
            self._report(answer, value)
        frame.changed = None if answer.change is None else answer.offset
        frame.reply = self._cut(answer.reply, answer.offset, answer.predecessor)
        return self._cut(answer.change, answer.offset, answer.predecessor)

    def _report(self, answer: Answer, value: bytes) -> None:
        """Log documents with which matching has failed."""
        settings, (mine, others) = self.held.settings, answer.failed
        source = Frame.decode(Sequenced.decode(value, settings).frame, settings).source
        name = partial(source.place, Topics.of(settings).where)
        self._engine_errors.look(mine, name)
        self._engine_errors.look(others, name, f"not compared with shard {self.held.shard}")

    def _headers(self, value: bytes) -> Iterable[Headers]:
        settings = self.held.settings
        return headers_of(Sequenced.decode(value, settings).frame, settings).values()

    def _placed(self, frame: Taken, placed: list[Any]) -> None:
        """The change of a frame, or a snapshot record, is acknowledged."""
        if placed:
            offsets = [found.offset for found in placed]
            frame.placed = first = offsets[0]
            if min(offsets) < 0:  # the broker had it already
                self._fail(Failed(f"the place of a change of shard {self.held.shard} is unknown: it is looked for"))
                return
            if not adjoin(offsets):  # for a reader its parts count for nothing
                where = f"{self._changelog}, partition {self.held.shard}, offset {first}"
                self._fail(Failed(f"{where}: another worker has written between the parts of a change"))
                return
        self._due.append(frame)
        self._replying.set()

    def _acknowledge(self, frame: Taken, _: list[Any]) -> None:
        if frame.changed is not None and frame.placed is not None:
            self.held.confirmed.append((frame.changed, frame.placed, frame.records))
        if not isinstance(frame.changed, Mark):
            self._done(1, frame.size)
            frame.acknowledge()

    def _done(self, frames: int, size: int) -> None:
        self._frames -= frames
        self._bytes -= size
        if not self._frames:
            self._idle.set()

    def _fail(self, error: BaseException) -> None:
        self._open = self._taking = False
        self._changes.close()
        self._replies.close()
        self._idle.set()
        self._failed(error)

    async def tell(self) -> None:
        """Pass acknowledged offsets to the shard without waiting for the next frame."""
        if self._open and self.held.confirmed:
            try:
                await self.held.match(())
            except Failed as error:
                self._fail(error)

    async def drain(self, seconds: float) -> None:
        """Accept no more, drop what was not begun, and wait (limited) until what is in flight is acknowledged."""
        self._taking = False
        self._done(len(self._waiting), sum(frame.size for frame, _ in self._waiting))
        self._waiting.clear()
        await waited(self._idle, seconds)

    async def close(self) -> None:
        """Acknowledge nothing more. Matching in progress is finished."""
        self._open = self._taking = False
        self._changes.close()
        self._replies.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        if self.held.confirmed:
            with suppress(Failed):  # this run ends anyway
                await self.held.match(())
