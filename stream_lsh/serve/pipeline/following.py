"""Reading the outputs of a pipeline: one life, from as far back as events are kept, and on for as long as it goes.

How far the pipeline is, is what the judge has committed, and with groups who folds them: all that they said up to there
is in the topics then. What ends the topics have, asked after that, is behind it. So once these ends are read, all that
came with the documents up to there is known, in whatever order the partitions were read, and however long one of them
has nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from stream_lsh.errors import BrokerError
from stream_lsh.kafka.client import private
from stream_lsh.kafka.client.clients import consuming, seen
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.consumer.decided import Judged
from stream_lsh.kafka.consumer.position import committed
from stream_lsh.kafka.groups.copy import Folded
from stream_lsh.kafka.names import HOUR_MS, Topics
from stream_lsh.kafka.run.lives import Failed
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.position import Note
from stream_lsh.serve.events import Kind
from stream_lsh.serve.pipeline.outputs import Outputs
from stream_lsh.wire.source import ROW_BITS

ROLE = "serve"
POLL_MS = 50
LOOK_SECONDS, IDLE_SECONDS = 0.1, 1.0  # between two looks how far the pipeline is; where nothing comes
ANSWER_SECONDS = 10.0  # in which Kafka says so
LATE_SECONDS = 15.0  # after which who has not read that far is behind
BACK = 64  # offsets before where events are wanted from: the number of one says what is not missing
EXACT_MS = 1000
SLACK_MS = 60_000  # retention deletes nothing that is younger by that


@dataclass(frozen=True, slots=True)
class Mark:
    """What ends the topics have once all that came with documents with numbers below `before` is in them. documents:
    how many have their verdict."""

    before: int
    documents: int | None
    ends: Mapping[TopicPartition, int]


async def follow(settings: KafkaSettings, outputs: Outputs, keep: int, up_to_date: Callable[[bool], None]) -> None:
    """Read until something goes wrong. keep: events that are wanted of what is there. up_to_date: told whether all is
    read that there is.

    Raises:
        StreamLshError: retrying cannot help. Failed, KafkaError, OSError: the next life may do better.
    """
    whole = {"group_id": None, "isolation_level": "read_committed"}
    ends = {"group_id": None, "isolation_level": "read_uncommitted"}  # behind what is not committed yet, too
    async with (
        admin(settings) as client,
        consuming(settings, ROLE, **whole) as consumer,
        consuming(settings, ROLE, **ends) as looker,
    ):
        await _check(client, settings)
        await _Life(settings, outputs, client, consumer, looker, up_to_date).run(keep)


def kinds_of(settings: KafkaSettings) -> dict[str, Kind]:
    """The topics that events come from."""
    topics = Topics.of(settings)
    found: dict[str, Kind] = {topics.verdicts: "verdict", topics.pairs: "pair"}
    if settings.groups:
        found |= {topics.groups: "group", topics.alerts: "alert"}
    return found


class _Life:
    def __init__(
        self,
        settings: KafkaSettings,
        outputs: Outputs,
        client: AIOKafkaAdminClient,
        consumer: AIOKafkaConsumer,
        looker: AIOKafkaConsumer,
        up_to_date: Callable[[bool], None],
    ) -> None:
        self._settings = settings
        self._outputs = outputs
        self._client = client
        self._consumer = consumer
        self._looker = looker
        self._up_to_date = up_to_date
        self._topics = Topics.of(settings)
        self._kinds = kinds_of(settings)
        self._places: list[TopicPartition] = []

    async def run(self, keep: int) -> None:
        self._places = await self._partitions()
        for topic in self._kinds:
            await private.learn(self._looker, topic)
        starts, begins = await self._starts(keep)
        kinds = self._kinds
        whole = [place for place, at in starts.items() if at == begins[place]]
        self._outputs.begin({place: kinds[place.topic] for place in starts}, whole)
        self._consumer.assign(self._places)
        for place, at in starts.items():
            self._consumer.seek(place, at)
        marking: asyncio.Task[Mark] | None = None
        mark, asked = None, 0.0
        try:
            while True:
                await self._read()
                now = time.monotonic()
                if marking is not None and marking.done():
                    mark, marking = marking.result(), None
                if mark is not None and await self._is_behind(mark):
                    self._outputs.reach(mark.before, mark.documents)
                    self._up_to_date(True)
                    mark = None
                elif now > asked + LATE_SECONDS:
                    self._up_to_date(False)
                patience = LOOK_SECONDS if self._outputs.waiting else IDLE_SECONDS
                if mark is None and marking is None and now > asked + patience:
                    asked, marking = now, asyncio.create_task(self._mark())
        finally:
            if marking is not None:
                marking.cancel()
                marking.add_done_callback(seen)

    async def _read(self) -> None:
        for records in (await self._consumer.getmany(timeout_ms=POLL_MS)).values():
            for record in records:
                self._outputs.take(record)
        ended, error = private.reader_ended(self._consumer)
        if ended:
            raise Failed(f"aiokafka has stopped reading {self._topics.verdicts}: {error!r}") from error

    async def _is_behind(self, mark: Mark) -> bool:
        """Whether everything up to a mark is read; not by the last records, behind which marks of transactions are."""
        for place, end in mark.ends.items():
            if await self._consumer.position(place) < end:
                return False
        return True

    async def _partitions(self) -> list[TopicPartition]:
        described = await self._client.describe_topics(list(self._kinds))
        return [
            TopicPartition(topic["topic"], number)
            for topic in described
            for number in sorted(partition["partition"] for partition in topic["partitions"])
        ]

    async def _mark(self) -> Mark:
        """How far the pipeline is; who says so comes before the ends."""
        async with asyncio.timeout(ANSWER_SECONDS):
            topics, last, documents = self._topics, -1, None
            judge = topics.group("judge")
            if (found := (await committed(self._client, judge, topics.matches)).get(0)) is not None:
                judged = Judged.of(found[1], judge, topics.documents)
                last, documents = judged.last, judged.documents
            if self._settings.groups:
                group = topics.group("group")
                at = (await committed(self._client, group, topics.memberships)).get(0)
                last = min(last, -1 if at is None else Folded.of(at[1], group).last)
            if await self._partitions() != self._places:
                raise Failed("the outputs have other partitions now")
            return Mark((last + 1) << ROW_BITS, documents, await self._looker.end_offsets(self._places))

    async def _starts(self, keep: int) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where to begin, so that about so many verdicts come, and all else that came with them; and where the
        partitions begin. Nothing is read that retention may have begun to delete: where a partition is read from its
        beginning on, nothing is missing."""
        looker, places = self._looker, self._places
        begins, ends = await looker.beginning_offsets(places), await looker.end_offsets(places)

        async def at(time: int) -> dict[TopicPartition, int]:
            found = await looker.offsets_for_times(dict.fromkeys(places, time))
            return {place: ends[place] if found[place] is None else found[place].offset for place in places}

        high = int(1000 * time.time())
        low = high - self._settings.retention_hours * HOUR_MS + SLACK_MS
        offsets = await at(low)
        while high - low > EXACT_MS:
            middle = (low + high) // 2
            found = await at(middle)
            if sum(ends[p] - found[p] for p in places if self._kinds[p.topic] == "verdict") >= keep:
                low, offsets = middle, found
            else:
                high = middle
        return {place: max(begins[place], offsets[place] - BACK) for place in places}, begins


async def _check(client: AIOKafkaAdminClient, settings: KafkaSettings) -> None:
    """Whether the topics are there, and the settings are those of the pipeline.

    Raises:
        BrokerError: there are no such topics. StoreError: the documents were signed with other settings.
    """
    topics = Topics.of(settings)
    there = set(await client.list_topics())
    for topic in (topics.documents, *kinds_of(settings)):
        if topic not in there:
            raise BrokerError(
                f"Kafka at {settings.bootstrap_servers} does not have the topic {topic}. `stream-lsh kafka topics "
                f"create` "
                "makes it."
            )
    for _, fingerprint in (await committed(client, topics.group("sign"), topics.documents)).values():
        Note(fingerprint, None).check(settings.fingerprint, settings.document_format, topics.documents)
