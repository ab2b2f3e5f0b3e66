"""Finds verdicts that the brokers have lost at the end of their topic. Nothing may ever follow that shows the loss."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupAuthorizationFailedError, IllegalStateError, KafkaError

from stream_lsh.errors import StoreError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.client.reading import reading
from stream_lsh.kafka.consumer.decisions import judged_by
from stream_lsh.kafka.consumer.group_member import GroupMember
from stream_lsh.kafka.forward.partition import SourcePartition
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.sequence.order import sequenced
from stream_lsh.kafka.settings import KafkaSettings

log = logging.getLogger("stream_lsh.kafka.forward")

PAUSE, LONGEST_PAUSE = 3.0, 300.0  # seconds between two looks: the least, and while nothing changes or brokers refuse
AFTER_TIMEOUT = 10.0  # seconds in which a broker ends a transaction whose timeout is over
UNSEEN = (
    "forward sees no commits of sequence and judge: it does not notice verdicts that %s has lost at its end. Give it "
    "describe on the topics signatures and matches, and on the groups sequence and judge"
)
OPEN = (
    "%s, partition %d: the judge has committed the transaction at offset %d, and it stays open: the brokers have lost "
    "its end. Its documents are in no output until it ends: abort it with kafka-transactions.sh"
)


@dataclass(slots=True)
class _AllJudged:
    """What was judged at a time.

    Attributes:
        accepted: positions of source partitions. All documents before them had a verdict.
        end: of the partition of verdicts, read after that.
        since: when, by the monotonic clock.
    """

    accepted: Mapping[int, int]
    end: int
    since: float


class LostVerdicts:
    """Looks for documents that wait for a verdict, although the judge has judged all documents up to them, and every
    verdict was read that there was then: `watch` looks at what is judged, `offered` compares it with what was read.

    Args:
        sources: the source partitions that this member forwards now, by number.
    """

    def __init__(self, settings: KafkaSettings, member: GroupMember, sources: Mapping[int, SourcePartition]) -> None:
        self.settings = settings
        self._topics = Topics.of(settings)
        self._member, self._sources = member, sources
        self._blind = False  # may not see what is judged
        self._judged: dict[TopicPartition, _AllJudged] = {}  # by partition of verdicts

    def forget(self) -> None:
        """What was judged: this member has other source partitions now."""
        self._judged = {}

    async def watch(self) -> None:
        """Look until it is cancelled, or the brokers refuse it."""
        pause = PAUSE
        while True:
            await asyncio.sleep(pause)
            if not self._waiting():
                pause = PAUSE
                continue
            began, uncommitted = time.monotonic(), {"isolation_level": "read_uncommitted"}  # what transactions wrote
            try:
                async with admin(self.settings) as client, reading(self.settings, **uncommitted) as consumer:
                    await self._look(client, consumer)
            except GroupAuthorizationFailedError:
                log.warning(UNSEEN, self._topics.verdicts)
                return
            except (KafkaError, OSError, StoreError) as error:  # other parts of the role notice what stays
                log.debug("cannot see what is judged: %s", error)
            pause = PAUSE if time.monotonic() > began + LONGEST_PAUSE else min(LONGEST_PAUSE, 2 * pause)

    def _waiting(self) -> dict[TopicPartition, SourcePartition]:
        """The source partitions in which documents wait, by their partition of verdicts."""
        since = time.monotonic() - PAUSE
        return {source.verdicts: source for source in self._sources.values() if source.waits(since)}

    async def _look(self, client: AIOKafkaAdminClient, consumer: AIOKafkaConsumer) -> None:
        pause = PAUSE
        while True:
            waiting, before = self._waiting(), self._judged.keys()
            self._judged = {place: found for place, found in self._judged.items() if place in waiting}
            if waiting:
                known, judged = await sequenced(client, self._topics), await judged_by(client, self._topics)
                ends = await consumer.end_offsets([*waiting])
                if not self._blind and (known is None or judged.last < 0) and any(ends.values()):
                    log.warning(UNSEEN, self._topics.verdicts)
                    self._blind = True
                accepted = known[1].positions if known is not None and judged.last >= known[1].last else None
                for place in waiting:
                    await self._note(place, accepted, ends[place])
            pause = PAUSE if not waiting or self._judged.keys() != before else min(LONGEST_PAUSE, 2 * pause)
            await asyncio.sleep(pause)

    async def _note(self, place: TopicPartition, accepted: Mapping[int, int] | None, end: int) -> None:
        """Note what was judged of a partition of verdicts. Name a transaction in it that stays open.

        Args:
            accepted: positions of source partitions, if all documents before them had a verdict before `end` was read.
            end: of the partition.
        """
        now, consumer = time.monotonic(), self._member.consumer
        if (found := self._judged.get(place)) is None:
            if accepted is not None:
                self._judged[place] = _AllJudged(accepted, end, now)
            return
        found.end = min(found.end, end)  # lower than before if the topic has lost its tail since
        late = now > found.since + self.settings.transaction_timeout_ms / 1000 + AFTER_TIMEOUT
        with suppress(IllegalStateError):  # given away meanwhile
            if late and (await consumer.end_offsets([place]))[place] < found.end:  # read_committed
                log.warning(OPEN, *place, await consumer.position(place))
                found.since = math.inf

    async def offered(self) -> None:
        """Everything that the consumer has read was offered to the source partitions. Those that have all verdicts on
        what was judged name the documents without one.

        The position of the consumer alone does not say this: verdicts that it has read may wait for the Schema
        Registry, or for their turn in the event loop.
        """
        if not self._judged:
            return
        for place, source in self._waiting().items():
            found = self._judged.get(place)
            with suppress(IllegalStateError):  # given away meanwhile
                if found is not None and await self._member.consumer.position(place) >= found.end:
                    self._judged.pop(place, None)
                    source.judged(found.accepted)
