"""A stage as a member of its consumer group: assignment, revocation, reading, commits, and time limits on answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition, errors
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.structs import OffsetAndMetadata

from stream_lsh.errors import StoreError
from stream_lsh.kafka.client import private
from stream_lsh.kafka.client.clients import ANSWER_MS, Stopped, consuming, seen, unless
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.restarts import Failed, Unanswered
from stream_lsh.kafka.settings import KafkaSettings

SILENCE, SESSIONS = 30.0, 3.0  # a run ends after this many seconds (of a group: session timeouts) without an answer
RECENT = 5.0  # seconds for which an answer counts as recent
ANSWER_SECONDS = ANSWER_MS / 1000  # for a commit
_GROUP_SECONDS = 1.0  # how long a poll waits for a rebalance
_SET_UP_SECONDS = 20.0

Positions = Mapping[TopicPartition, tuple[int, str]]
"""Offsets to commit, with metadata."""


class Expelled(Failed):
    """The group has removed this member."""

    def __init__(self) -> None:
        super().__init__("the group has removed this member; other members repeat what it has not committed")


class OutOfRange(Failed):
    """A position that was read from is not in its topic.

    The next run compares the committed positions with the topic, and reports what is lost.

    Attributes:
        positions: the affected ones.
    """

    def __init__(self, positions: Mapping[TopicPartition, int]) -> None:
        listed = ", ".join(f"{place.topic}, partition {place.partition}" for place in positions)
        super().__init__(f"a position is no longer in its topic: {listed}")
        self.positions = positions


def check_reading(consumer: AIOKafkaConsumer, topic: str) -> None:
    """Raise Failed if aiokafka has stopped reading a topic: it does so silently at an error that it does not expect."""
    ended, error = private.reader_ended(consumer)
    if ended:
        raise Failed(f"aiokafka has stopped reading {topic}: {error!r}") from error


class GroupMember(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Reads the partitions that the group assigns, from where `set_up` seeks to.

    Args:
        set_up: is called with newly assigned partitions before any record is read. It must `seek` all of them.
        tear_down: is called before partitions are given to another member, and at the end. It must finish what is in
            flight.

    Attributes:
        consumer: started, not subscribed. Set before the group is joined; `run` does so.
    """

    consumer: AIOKafkaConsumer

    def __init__(
        self,
        settings: KafkaSettings,
        role: str,
        topics: Sequence[str],
        set_up: Callable[[frozenset[TopicPartition]], Awaitable[None]],
        tear_down: Callable[[], Awaitable[None]],
    ) -> None:
        self.working = asyncio.Lock()  # held while something is in flight; a revocation waits for it
        self.role, self.group = role, Topics.of(settings).group(role)
        self.log = logging.getLogger(f"stream_lsh.kafka.{role}")
        self._settings = settings
        self._topics = topics
        self._patience = max(SILENCE, SESSIONS * settings.session_timeout_ms / 1000)
        self._set_up = set_up
        self._tear_down = tear_down
        self._joining = True  # a rebalance is under way
        self._given: frozenset[TopicPartition] | None = None  # assigned, but not set up yet
        self._ready: frozenset[TopicPartition] = frozenset()  # assigned and set up
        self._heard = time.monotonic()
        self._asked = -RECENT
        self._failure: Exception | None = None
        self._over = False
        self._stopping: list[asyncio.Future[Any]] = []

    async def run(self, stop: asyncio.Event, step: Callable[[], Awaitable[None]], **options: Any) -> None:
        """One run of a stage that works in steps, each with a `poll`: see `Stage.run`. options: as `consuming`."""
        self._stopping = [asyncio.ensure_future(stop.wait())]
        try:
            async with AsyncExitStack() as stack:
                opening = stack.enter_async_context(consuming(self._settings, self.role, **options))
                self.consumer = await unless(opening, *self._stopping)
                async with self:
                    while not stop.is_set():
                        await step()
        finally:
            self._stopping.pop().cancel()

    async def __aenter__(self) -> Self:
        """Join the group."""
        self.consumer.subscribe(self._topics, listener=self)
        self._heard = time.monotonic()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Revoke everything."""
        self._given, self._over = None, True
        await self._release()

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that are set up."""
        return self._ready

    # Called by aiokafka, which would only log an exception.

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._given = None
        self._joining, self._heard = True, time.monotonic()
        if self._over:
            return
        try:
            await self._release()
        except Exception as error:
            self._failure = self._failure or error

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._joining, self._heard = False, time.monotonic()
        if not self._over:
            self._given = frozenset(assigned)  # `poll` sets them up, while heartbeats continue

    async def _release(self) -> None:
        async with self.working:
            self._ready = frozenset()
            await self._tear_down()

    async def poll(
        self, seconds: float, *others: asyncio.Future[Any], places: Sequence[TopicPartition] = ()
    ) -> dict[TopicPartition, list[ConsumerRecord]] | None:
        """Records of the partitions that are set up, as soon as there are some.

        Args:
            seconds: how long to wait for some.
            others: return earlier when one of these is done or the run is to stop. The run must end then: a set-up in
                progress is left unfinished.
            places: only of these partitions; none = all.

        Returns:
            {} if Kafka has confirmed for all partitions that there are none; None if it has not.

        Raises:
            OutOfRange: of a partition that is set up.
            Unanswered: Kafka has not answered for too long.
            Failed: aiokafka has stopped reading.
            KafkaError: as aiokafka.
            Exception: from `tear_down`.
        """
        if self._failure is not None:
            raise self._failure
        others = *others, *self._stopping
        found: dict[TopicPartition, list[ConsumerRecord]] | None = None
        reading = asyncio.ensure_future(self.consumer.getmany(*places, timeout_ms=int(seconds * 1000)))
        try:
            # `getmany` waits for a rebalance without a limit.
            await asyncio.wait(
                [reading, *others], timeout=seconds + _GROUP_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if reading.done():
                found = reading.result()
        except (errors.NoOffsetForPartitionError, errors.OffsetOutOfRangeError) as error:
            if self._given is None and self._ready:
                raise OutOfRange(error.args[0]) if isinstance(error, errors.OffsetOutOfRangeError) else error from None
            found = {}  # the position is the one before `set_up`
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait([reading])
            seen(reading)
        if found is not None and self._given is not None:
            with suppress(Stopped):  # `tear_down` then ends what was begun
                await unless(self._begin(), *others)
            return None
        found = found and {place: records for place, records in found.items() if place in self._ready}
        if found or (found is not None and await self._answered(others)):
            self._heard = time.monotonic()
            return found
        if not any(other.done() for other in others):
            self._check()
        return None

    async def _begin(self) -> None:
        async with self.working:
            given = self._given
            if given is None:
                return
            try:
                async with asyncio.timeout(_SET_UP_SECONDS):
                    await self._set_up(given)
            except TimeoutError as error:
                raise Unanswered(f"partitions could not be taken over within {_SET_UP_SECONDS:.0f} s") from error
            if self._given is given:  # not revoked meanwhile
                self._given, self._ready = None, given
            self._heard = time.monotonic()

    # Silence: aiokafka waits for brokers without a limit, and does not report it.

    async def _answered(self, others: Sequence[asyncio.Future[Any]]) -> bool:
        """Whether Kafka has answered recently for each of the partitions that this member reads."""
        if self._joining:
            return False
        return not self._silent() if self._ready - self.consumer.paused() else await self._ask(others)

    def _silent(self) -> list[TopicPartition]:
        """The partitions for which Kafka has not answered recently."""
        since, holding = (time.time() - RECENT) * 1000, private.holding(self.consumer)
        return sorted(
            place
            for place in self._ready - self.consumer.paused()
            if place not in holding and (self.consumer.last_poll_timestamp(place) or 0) < since
        )

    async def _ask(self, others: Sequence[asyncio.Future[Any]]) -> bool:
        """Whether the broker has just answered. A member without partitions does not fetch, and sends a request now and
        then."""
        if time.monotonic() < self._asked + RECENT:
            return False
        self._asked = time.monotonic()
        with suppress(TimeoutError, Stopped):
            async with asyncio.timeout(RECENT):
                await unless(self.consumer.end_offsets([TopicPartition(self._topics[0], 0)]), *others)
            return True
        return False

    def _check(self) -> None:
        check_reading(self.consumer, self._topics[0])
        seconds = self._patience if self._joining else SILENCE
        if time.monotonic() <= self._heard + seconds:
            return
        if self._joining:
            raise Unanswered(f"the group {self.group} has not answered for {seconds:.0f} s")
        silent = self._silent()
        topic = silent[0].topic if silent else self._topics[0]
        numbers = ", ".join(str(place.partition) for place in silent if place.topic == topic)
        listed = f", partition {numbers}," if numbers else ""
        raise Unanswered(f"Kafka has not answered for {topic}{listed} for {seconds:.0f} s")

    # -- lag and commits --------------------------------------------------------------------------------------------

    def lag(self, partition: TopicPartition, position: int) -> int:
        """Number of records between a position and the end of a partition, as far as the end is known."""
        end = self.consumer.highwater(partition)
        return max(0, end - position) if end is not None else 0

    async def commit(self, positions: Positions) -> None:
        """Commit as a member of the group.

        Raises:
            Expelled: it is no member any more.
            Unanswered, KafkaError: the commit failed.
            StoreError: the metadata are too long.
        """
        if not private.is_member(self.consumer):
            # An empty group would accept the commit, which may be older than those of other members.
            raise Expelled()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self.consumer.commit({place: OffsetAndMetadata(*found) for place, found in positions.items()})
        except errors.CommitFailedError:
            raise Expelled() from None
        except TimeoutError:
            raise Unanswered(f"a commit was not answered within {ANSWER_SECONDS:.0f} s") from None
        except errors.OffsetMetadataTooLargeError:
            longest = max(len(metadata) for _, metadata in positions.values())
            raise StoreError(
                f"the positions that {self.role} keeps with its commit take {longest} bytes, more than the brokers "
                "accept: raise their offset.metadata.max.bytes, or use fewer source partitions."
            ) from None
