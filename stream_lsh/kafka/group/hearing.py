"""Whether Kafka still answers a consumer: aiokafka waits for it without end, and keeps that to itself."""

from __future__ import annotations

import time
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from stream_lsh.kafka.group.membership import RECENT, SESSIONS, SILENCE
from stream_lsh.kafka.run.lives import Failed, Unanswered
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.topics import Topics


class Hearing:
    """What a member of a group hears, from its subscription to a topic on. It joins the group at first.

    heard: when records came last, or an answer for all partitions, by the monotonic clock.
    """

    def __init__(self, consumer: AIOKafkaConsumer, settings: KafkaSettings, role: str, topic: str) -> None:
        self.heard = time.monotonic()
        self._consumer = consumer
        self._topic = topic
        self._group = Topics.of(settings).group(role)
        self._joining: float | None = self.heard  # since when the group has not said what is whose
        self._most = max(SILENCE, SESSIONS * settings.session_timeout_ms / 1000)

    def joining(self) -> None:
        """The members join anew."""
        self._joining = time.monotonic()

    def assigned(self) -> None:
        """The group has said what is whose."""
        self.heard, self._joining = time.monotonic(), None

    def came(self) -> None:
        """Records came."""
        self.heard = time.monotonic()

    def check(self) -> None:
        """To be called from time to time.

        Raises:
            Unanswered: nothing comes of joining the group. Failed: nothing is read any more.
        """
        if self._joining is not None and time.monotonic() - self._joining > self._most:
            raise Unanswered(f"the group {self._group} has not answered for {self._most:.0f} s")
        reading = self._consumer._fetcher.error_future  # ends with any error that aiokafka does not know
        if reading.done():
            error = None if reading.cancelled() else reading.exception()
            error = error and (error.__cause__ or error)
            raise Failed(f"aiokafka has stopped reading {self._topic}: {error!r}") from error

    async def answered(self, partitions: Iterable[int]) -> bool:
        """Whether Kafka has answered a short while ago, for each of the partitions that this member reads.

        Raises:
            Unanswered: not for long. KafkaError: it does not answer a member that reads no partition.
        """
        if self._joining is not None:
            return False
        paused = self._consumer.paused()
        places = [TopicPartition(self._topic, partition) for partition in sorted(partitions)]
        places = [place for place in places if place not in paused]
        if not places:
            await self._consumer.end_offsets([TopicPartition(self._topic, 0)])
        elif silent := self._silent(places):
            if time.monotonic() - self.heard > SILENCE:
                listed = ", ".join(map(str, silent))
                raise Unanswered(f"nobody has answered for {self._topic}, partition {listed}, for {SILENCE:.0f} s")
            return False
        self.heard = time.monotonic()
        return True

    def _silent(self, places: Iterable[TopicPartition]) -> list[int]:
        if self._consumer._fetcher._records:  # not taken yet: aiokafka asks for nothing meanwhile
            return []
        since, ours = (time.time() - RECENT) * 1000, self._consumer.assignment()
        return [
            place.partition
            for place in places
            if place in ours and (self._consumer.last_poll_timestamp(place) or 0) < since
        ]
