"""The frames of one shard on their way: matched in its thread, sent, acknowledged in order once all is confirmed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from stream_lsh.errors import FormatError, StateError
from stream_lsh.kafka.client.clients import ANSWER_MS
from stream_lsh.kafka.group.unreadable import Unreadable
from stream_lsh.kafka.match.acknowledger import Acknowledger, Ticket
from stream_lsh.kafka.match.held import Held, Matched
from stream_lsh.kafka.run.lives import Failed, Unanswered
from stream_lsh.kafka.run.metrics import Watch
from stream_lsh.kafka.topics import Topics
from stream_lsh.wire.frames import Sequenced

TOGETHER, TOGETHER_BYTES = 32, 1 << 20  # frames that are matched in one go, if they wait
MOST_FRAMES, MOST_BYTES = 128, 32 << 20  # of a shard that are not acknowledged yet; then no more are fetched


class Send(Protocol):
    """Sends a record: to the changelog (partition of the shard) or to the judge. What it returns becomes the record's
    offset once the broker has it."""

    async def __call__(self, topic: str, partition: int, value: bytes) -> asyncio.Future[Any]: ...


@dataclass(slots=True, eq=False)
class Sent:
    """A frame in flight.

    offset: in its partition of the frames topic; since: when what came of it was sent, by the monotonic clock; change:
    the offset that its change has got.
    """

    offset: int
    size: int
    acknowledge: Callable[[], object]
    waiting: int = 0
    since: float | None = None
    change: int | None = None


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
        watch: Watch,
        unreadable: Unreadable,
    ) -> None:
        self.held = held
        self.position = position
        self._send = send
        self._changelog = changelog
        self._matches = matches
        self._failed = failed
        self._watch = watch
        self._unreadable = unreadable
        self._acks: Acknowledger[Sent] = Acknowledger(self._acknowledge)
        self._waiting: deque[tuple[Sent, bytes]] = deque()
        self._confirmed: list[int] = []
        self._frames = self._bytes = 0
        self._wake = asyncio.Event()
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
        except StateError as error:
            self._fail(error)
            return
        first = self._acks.first
        if first is not None and first.since is not None and time.monotonic() > first.since + ANSWER_MS / 1000:
            self._fail(Unanswered(f"what came of a frame was not acknowledged within {ANSWER_MS // 1000} s"))

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
        self._waiting.append((Sent(offset, len(value), acknowledge), value))
        self._wake.set()

    async def _run(self) -> None:
        try:
            while self._open:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting and self._open:
                    await self._next()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._fail(error)

    async def _next(self) -> None:
        taken, size = [self._waiting.popleft()], 0
        while self._waiting and len(taken) < TOGETHER and (size := size + taken[-1][0].size) < TOGETHER_BYTES:
            taken.append(self._waiting.popleft())
        tickets = [self._acks.begin(sent) for sent, _ in taken]
        confirmed, self._confirmed = self._confirmed, []
        found: list[Matched | None]
        try:
            found = [*await self.held.match([value for _, value in taken], confirmed)]
        except FormatError:
            # Each by itself: those before the one in question are known by now, and get their answers again.
            found = [await self._matched(sent.offset, value) for sent, value in taken]
        for ticket, matched in zip(tickets, found, strict=True):
            if not self._open:
                return
            if matched is None:
                self._acks.done(ticket)
            else:
                await self._answer(ticket, matched)

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

    async def _answer(self, ticket: Ticket[Sent], matched: Matched) -> None:
        answer, sent = matched.answer, ticket.item
        if answer is None:
            self._watch.ignored("gap")
        elif answer.documents:
            self._watch.batch(answer.documents, matched.seconds)
            self._watch.documents(answer.documents)
        records = [] if answer is None else [(self._changelog, answer.change), (self._matches, answer.reply)]
        # Counted before the first is sent: it may be confirmed before the second is on its way.
        values = [(topic, value) for topic, value in records if value is not None]
        sent.waiting = len(values)
        if not values:
            self._acks.done(ticket)
        for topic, value in values:
            changed = topic == self._changelog
            future = await self._send(topic, self.held.shard if changed else 0, value)
            sent.since = time.monotonic()  # not before: it may have had to wait until there was room for it
            future.add_done_callback(partial(self._arrived, ticket, changed))

    def _arrived(self, ticket: Ticket[Sent], changed: bool, future: asyncio.Future[Any]) -> None:
        if not self._open:
            return
        error = Failed("a send was given up") if future.cancelled() else future.exception()
        if error is not None:
            self._fail(error)
            return
        sent, placed = ticket.item, future.result()
        if changed and placed is not None and placed.offset >= 0:  # -1: a repeat that the broker had already
            sent.change = placed.offset
        sent.waiting -= 1
        if sent.waiting == 0:
            self._acks.done(ticket)

    def _acknowledge(self, sent: Sent) -> None:
        self._frames -= 1
        self._bytes -= sent.size
        if sent.change is not None:
            self._confirmed.append(sent.change)
        sent.acknowledge()

    def _fail(self, error: BaseException) -> None:
        self._open = self._taking = False
        self._acks.close()
        self._failed(error)

    async def drain(self, seconds: float) -> None:
        """Take nothing more, drop what was not begun, wait (but no longer) until what is in flight is acknowledged."""
        self._taking = False
        self._frames -= len(self._waiting)
        self._waiting.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._acks.drained(), seconds)

    async def close(self) -> None:
        """Acknowledge nothing more; what is being matched is matched to its end."""
        self._open = self._taking = False
        self._acks.close()
        self._worker.cancel()
        await asyncio.wait([self._worker])
        confirmed, self._confirmed = self._confirmed, []
        if confirmed:
            await self.held.match((), confirmed)
