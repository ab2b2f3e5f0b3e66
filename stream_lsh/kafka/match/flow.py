"""The frames of one shard on their way: matched in its thread, sent, acknowledged in order once all is confirmed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from stream_lsh.errors import FormatError, StoreError
from stream_lsh.kafka.client.clients import waited
from stream_lsh.kafka.consumer.output import InOrder, Record, Send
from stream_lsh.kafka.consumer.unreadable import Unreadable
from stream_lsh.kafka.match.held import Held, Matched
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.lives import Failed, Unanswered
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.wire.bases import Mark
from stream_lsh.wire.sequenced import Sequenced

TOGETHER, TOGETHER_BYTES = 32, 1 << 20  # frames that are matched in one go, if they wait
CLEANING_STEPS = 16  # a second, while no frame waits: 4 MB of base records
MOST_FRAMES, MOST_BYTES = 128, 32 << 20  # of a shard that are not acknowledged yet; then no more are fetched


@dataclass(slots=True, eq=False)
class Taken:
    """A frame in flight. offset: in its partition of the frames topic; changed: its offset in the signatures topic if
    there is a change of it, the first record of those that come of it. Or a base record."""

    offset: int
    size: int
    acknowledge: Callable[[], object]
    changed: int | Mark | None = None


class Flow:
    """What a member does with one shard, from the end of its recovery until it is given up.

    Args:
        position: offset of the first frame to come. send: raises if nothing more can be sent. failed: is told the error
        that ends this life; nothing is acknowledged after it.
    """

    def __init__(
        self,
        held: Held,
        position: int,
        send: Send,
        changelog: str,
        matches: str,
        failed: Callable[[BaseException], object],
        watch: Probe,
        unreadable: Unreadable,
    ) -> None:
        self.held = held
        self.position = position
        self._changelog = changelog
        self._matches = matches
        self._failed = failed
        self._watch = watch
        self._unreadable = unreadable
        self._order: InOrder[Taken] = InOrder(send, self._acknowledge, self._fail)
        self._waiting: deque[tuple[Taken, bytes]] = deque()
        self._confirmed: list[tuple[int | Mark, int]] = []
        self._steps = 0  # of cleaning that may be done while no frame waits
        self._frames = self._bytes = 0
        self._wake, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._open = self._taking = True
        self._worker = asyncio.create_task(self._run(), name=f"shard-{held.shard}")

    @property
    def room(self) -> bool:
        """Whether more frames may be fetched."""
        return self._taking and self._frames < MOST_FRAMES and self._bytes < MOST_BYTES

    @property
    def idle(self) -> bool:
        """Whether every frame that came is acknowledged."""
        return not self._frames

    def check(self) -> None:
        """Fail if Kafka has not acknowledged for long what was sent, for which aiokafka would wait for ever, or if the
        shard has been waiting too long for its next frame."""
        try:
            self.held.look()
            self._order.check()
        except (StoreError, Unanswered) as error:
            self._fail(error)

    def offer(self, offset: int, value: bytes, acknowledge: Callable[[], object]) -> None:
        """Take a frame, the one at `position`; `acknowledge` is called when everything that came of it is confirmed."""
        if not self._taking or offset < self.position:  # fetched before a seek: it has been taken, or comes again
            return
        if offset > self.position:
            # Faust clears its queues when flow is resumed; what was in them would be missing for ever.
            self._fail(Failed(f"frames from offset {self.position} to {offset} of shard {self.held.shard} got lost"))
            return
        self.position = offset + 1
        self._frames += 1
        self._bytes += len(value)
        self._idle.clear()
        self._waiting.append((Taken(offset, len(value), acknowledge), value))
        self._wake.set()

    async def _run(self) -> None:
        try:
            while self._open:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting and self._open:
                    await self._next()
                    await self._clean()
                while self._steps and not self._waiting and self._open:
                    self._steps -= 1
                    await self._clean()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._fail(error)

    def clean(self) -> None:
        """A second has passed: while no frame waits something may be done of what is to be erased."""
        if self.held.erases:
            self._steps = CLEANING_STEPS
            self._wake.set()

    async def _clean(self) -> None:
        """Do a step of it. A frame that comes waits for one at most."""
        if not (self.held.erases and self._taking):
            return
        confirmed, self._confirmed = self._confirmed, []
        found = await self.held.clean(confirmed)
        if found is not None and self._open:
            mark, record = found
            taken = Taken(-1, 0, lambda: None, mark)
            await self._order.send(taken, [(self._changelog, self.held.shard, record)])

    async def _next(self) -> None:
        taken, size = [self._waiting.popleft()], 0
        while self._waiting and len(taken) < TOGETHER and (size := size + taken[-1][0].size) < TOGETHER_BYTES:
            taken.append(self._waiting.popleft())
        confirmed, self._confirmed = self._confirmed, []
        found: list[Matched | None]
        try:
            found = [*await self.held.match([value for _, value in taken], confirmed)]
        except FormatError:
            # Each by itself: those before the one in question are known by now, and get their answers again.
            found = [await self._matched(frame.offset, value) for frame, value in taken]
        for (frame, _), matched in zip(taken, found, strict=True):
            if not self._open:
                return
            await self._order.send(frame, [] if matched is None else self._answer(frame, matched))

    async def _matched(self, offset: int, value: bytes) -> Matched | None:
        """What came of a frame; None if it is passed over."""
        settings = self.held.settings
        place = Topics.of(settings).frames, self.held.shard, offset
        try:
            Sequenced.decode(value, settings)
        except FormatError as error:
            await self._unreadable.pass_over(*place, error)
            return None
        try:
            [matched] = await self.held.match([value], [])
        except FormatError as error:  # it has a place in the chain: without it nothing goes on
            raise FormatError("{}, partition {}, offset {}: {}".format(*place, error)) from None
        return matched

    def _answer(self, frame: Taken, matched: Matched) -> list[Record]:
        """The records to be sent for a frame."""
        answer = matched.answer
        if answer is None:
            self._watch.ignored("gap")
            return []
        if answer.documents:
            self._watch.batch(answer.documents, matched.seconds)
            self._watch.documents(answer.documents)
        frame.changed = None if answer.change is None else answer.offset
        records = (self._changelog, self.held.shard, answer.change), (self._matches, 0, answer.reply)
        return [(topic, partition, value) for topic, partition, value in records if value is not None]

    def _acknowledge(self, frame: Taken, placed: list[Any]) -> None:
        if isinstance(frame.changed, Mark):
            self._confirmed.append((frame.changed, -1 if placed[0] is None else placed[0].offset))
            return
        self._done(1, frame.size)
        change = placed[0] if frame.changed is not None else None
        if frame.changed is not None and change is not None and change.offset >= 0:  # -1: the broker had it already
            self._confirmed.append((frame.changed, change.offset))
        frame.acknowledge()

    def _done(self, frames: int, size: int) -> None:
        self._frames -= frames
        self._bytes -= size
        if not self._frames:
            self._idle.set()

    def _fail(self, error: BaseException) -> None:
        self._open = self._taking = False
        self._order.close()
        self._idle.set()
        self._failed(error)

    async def tell(self) -> None:
        """Have the shard know what is confirmed by now, though no frame comes with which it is told."""
        if self._open and self._confirmed:
            confirmed, self._confirmed = self._confirmed, []
            await self.held.match((), confirmed)

    async def drain(self, seconds: float) -> None:
        """Take nothing more, drop what was not begun, wait (but no longer) until what is in flight is acknowledged."""
        self._taking = False
        self._done(len(self._waiting), sum(frame.size for frame, _ in self._waiting))
        self._waiting.clear()
        await waited(self._idle, seconds)

    async def close(self) -> None:
        """Acknowledge nothing more; what is being matched is matched to its end."""
        self._open = self._taking = False
        self._order.close()
        self._worker.cancel()
        await asyncio.wait([self._worker])
        confirmed, self._confirmed = self._confirmed, []
        if confirmed:
            with suppress(Failed):  # this life ends anyway
                await self.held.match((), confirmed)
