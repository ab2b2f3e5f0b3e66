"""A stage as a member of its consumer group: what it is assigned, giving it up in order, reading, and silence."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import NoOffsetForPartitionError, OffsetOutOfRangeError

from stream_lsh.kafka.client.clients import Stopped, seen, unless
from stream_lsh.kafka.run.lives import Unanswered
from stream_lsh.kafka.settings import KafkaSettings

log = logging.getLogger("stream_lsh.kafka.group.membership")

SILENCE, SESSIONS = 30.0, 3.0  # seconds, and session timeouts, without an answer after which a life ends
RECENT = 5.0  # seconds in which Kafka is taken to be there after an answer
_GROUP_SECONDS = 1.0  # how long one waits for the group to have made up its mind
_SET_UP_SECONDS = 20.0


class Membership(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Reads what the group assigns, from where `set_up` seeks to.

    Args:
        consumer: started, not subscribed; somebody else's to stop.
        set_up: called with partitions that were assigned, before anything of them is read; it has to `seek` them all.
        tear_down: called before they go to another member, and at the end; what is in flight is to be finished.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        topics: Sequence[str],
        settings: KafkaSettings,
        set_up: Callable[[frozenset[TopicPartition]], Awaitable[None]],
        tear_down: Callable[[], Awaitable[None]],
    ) -> None:
        self.consumer = consumer
        self._topics = topics
        self._silence = max(SILENCE, SESSIONS * settings.session_timeout_ms / 1000)
        self._set_up = set_up
        self._tear_down = tear_down
        self._given: frozenset[TopicPartition] | None = None  # assigned, and not set up yet
        self._ready: frozenset[TopicPartition] = frozenset()  # assigned and set up
        self._heard = time.monotonic()
        self._asked = -RECENT
        self._over = False
        self.working = asyncio.Lock()  # held while something is in flight, which a revocation has to wait for

    async def __aenter__(self) -> Self:
        """Join the group."""
        self.consumer.subscribe(self._topics, listener=self)
        self._heard = time.monotonic()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Give up what is assigned."""
        self._given, self._over = None, True
        await self._release()

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that are set up."""
        return self._ready

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._given = None
        await self._release()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        # Errors in here would only be logged, so the work is done in `poll`.
        if not self._over:
            self._given = frozenset(assigned)

    async def _release(self) -> None:
        async with self.working:
            self._ready = frozenset()
            await self._tear_down()

    async def poll(
        self, seconds: float, *others: asyncio.Future[Any]
    ) -> dict[TopicPartition, list[ConsumerRecord]] | None:
        """Records of the partitions that are set up, as soon as there are some.

        Args:
            seconds: how long to wait for some. others: return earlier if one of these is done, which is to end the
                life: a set-up that is under way is left unfinished.

        Returns:
            None: there are none, but Kafka has not said so; {}: it has.

        Raises:
            OffsetOutOfRangeError: of a partition that is set up.
            Unanswered: Kafka has not answered for long. KafkaError.
        """
        if time.monotonic() > self._heard + self._silence:
            raise Unanswered(f"Kafka has not answered for {self._silence:.0f} s")
        reading = asyncio.ensure_future(self.consumer.getmany(timeout_ms=int(seconds * 1000)))
        try:
            # It waits for the group without a limit.
            await asyncio.wait(
                [reading, *others], timeout=seconds + _GROUP_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if not reading.done():
                return None
            found: dict[TopicPartition, list[ConsumerRecord]] = reading.result()
        except (NoOffsetForPartitionError, OffsetOutOfRangeError):
            if self._given is None:
                raise
            found = {}  # of the position before `set_up`
        finally:
            reading.cancel()
            await asyncio.wait([reading])
            seen(reading)
        if self._given is not None:
            with suppress(Stopped):  # what was begun is torn down then
                await unless(self._begin(), *others)
            return None
        found = {partition: records for partition, records in found.items() if partition in self._ready}
        if found or (self._fetched() if self._ready else await self._ask(others)):
            self._heard = time.monotonic()
            return found
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

    def _fetched(self) -> bool:
        """Whether the broker has answered a fetch a short while ago."""
        last = max(self.consumer.last_poll_timestamp(partition) or 0 for partition in self._ready)
        return last > (time.time() - RECENT) * 1000

    async def _ask(self, others: Sequence[asyncio.Future[Any]]) -> bool:
        """Whether the broker has just answered; who stands by does not fetch, and asks something now and then."""
        if time.monotonic() < self._asked + RECENT:
            return False
        self._asked = time.monotonic()
        with suppress(TimeoutError, Stopped):
            async with asyncio.timeout(RECENT):
                await unless(self.consumer.end_offsets([TopicPartition(self._topics[0], 0)]), *others)
            return True
        return False

    def lag(self, partition: TopicPartition, position: int) -> int:
        """Records between a position and the end of a partition, as far as that is known."""
        end = self.consumer.highwater(partition)
        return max(0, end - position) if end is not None else 0
