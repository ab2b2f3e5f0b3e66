"""Reading the outputs of a pipeline: one run, from as far back as events are stored.

The progress of the pipeline is the commit of the judge, and with groups also that of the role group: all outputs up to
there are in the topics. The end offsets are requested after that, so they cover these outputs. Once the partitions are
read up to these ends, everything that belongs to the documents up to there is known. The order in which partitions are
read does not matter, nor how long one of them is empty.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from stream_lsh.errors import StoreError
from stream_lsh.kafka.client import private
from stream_lsh.kafka.client.clients import consuming, seen
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.client.reading import missing
from stream_lsh.kafka.consumer.decisions import Judged
from stream_lsh.kafka.consumer.group_member import check_reading
from stream_lsh.kafka.consumer.output_values import OutputValues, check_decoded
from stream_lsh.kafka.consumer.position import all_committed, committed
from stream_lsh.kafka.groups.store import Folded
from stream_lsh.kafka.names import HOUR_MS, Topics
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.position import noted
from stream_lsh.serve.event_filter import Kind
from stream_lsh.serve.pipeline.outputs import Outputs
from stream_lsh.wire.source import ROW_BITS, TOPIC_BITS

_LOG = logging.getLogger("stream_lsh.serve")
ROLE = "serve"
POLL_MS = 50
LOOK_SECONDS, IDLE_SECONDS = 0.1, 1.0  # between two checks of the progress: normally, and without new records
ANSWER_SECONDS = 10.0  # time limit of a check
LATE_SECONDS = 15.0  # without catching up, after which the service counts as behind
BACK = 64  # offsets before the first wanted event: the seq of an earlier event shows that none is missing
EXACT_MS = 1000
SLACK_MS = 60_000  # margin before the limit of retention, within which nothing is deleted


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of progress: the end offsets of the topics once they have everything for documents with seq < `before`.
    documents: number of documents that have a verdict."""

    before: int
    documents: int | None
    ends: Mapping[TopicPartition, int]


async def follow(settings: KafkaSettings, outputs: Outputs, keep: int, up_to_date: Callable[[bool], None]) -> None:
    """Read until an error.

    Args:
        keep: number of existing events that are wanted.
        up_to_date: called with whether everything is read that there is.

    Raises:
        StreamLshError: retrying cannot help.
        Failed, KafkaError, OSError: the next run may succeed.
    """
    whole = {"group_id": None, "isolation_level": "read_committed"}
    ends = {"group_id": None, "isolation_level": "read_uncommitted"}  # end offsets include open transactions
    async with (
        admin(settings) as client,
        consuming(settings, ROLE, **whole) as consumer,
        consuming(settings, ROLE, **ends) as looker,
    ):
        await _check(client, settings)
        await _Run(settings, outputs, client, consumer, looker, up_to_date).run(keep)


def kinds_of(settings: KafkaSettings) -> dict[str, Kind]:
    """The topics with events, and their kinds."""
    topics = Topics.of(settings)
    found: dict[str, Kind] = {topics.verdicts: "verdict", topics.pairs: "pair"}
    if settings.groups:
        found |= {topics.groups: "group", topics.alerts: "alert"}
    return found


@dataclass
class _Run:
    _settings: KafkaSettings
    _outputs: Outputs
    _client: AIOKafkaAdminClient
    _consumer: AIOKafkaConsumer
    _looker: AIOKafkaConsumer
    _up_to_date: Callable[[bool], None]

    def __post_init__(self) -> None:
        self._topics = Topics.of(self._settings)
        self._values = OutputValues(self._settings)
        self._kinds = kinds_of(self._settings)
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
            for record in await self._values.read(records):
                try:
                    check_decoded(record)
                except StoreError as undecodable:
                    if self._settings.registry_url is None:
                        raise
                    _LOG.warning("%s; it is skipped", undecodable)
                    continue
                self._outputs.take(record)
        check_reading(self._consumer, self._topics.verdicts)

    async def _is_behind(self, mark: Mark) -> bool:
        """Whether everything up to a mark is read. Positions count, as transaction markers may follow the last
        record."""
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
        """The progress of the pipeline. Commits are read before the end offsets."""
        async with asyncio.timeout(ANSWER_SECONDS):
            topics, last, documents = self._topics, -1, None
            judge = topics.group("judge")
            if (found := (await committed(self._client, judge, topics.matches)).get(0)) is not None:
                judged = Judged.of(found[1], judge, topics.listed)
                last, documents = judged.last, judged.documents
            if self._settings.groups:
                group = topics.group("group")
                at = (await committed(self._client, group, topics.memberships)).get(0)
                last = min(last, -1 if at is None else Folded.of(at[1], group).last)
            if await self._partitions() != self._places:
                raise Failed("the outputs have other partitions now")
            return Mark((last + 1) << ROW_BITS, documents, await self._looker.end_offsets(self._places))

    async def _starts(self, keep: int) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The start offsets for about `keep` verdicts and everything that belongs to them, and the first offsets of the
        partitions. Records that retention may delete soon are avoided: if a partition is read from its first offset,
        nothing is missing."""
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
    """Check that the topics exist, and that the settings are those of the pipeline.

    Raises:
        BrokerError: topics are missing.
        StoreError: the documents were signed with other settings.
    """
    topics = Topics.of(settings)
    there = set(await client.list_topics())
    if lacking := [topic for topic in (*topics.sources, *kinds_of(settings)) if topic not in there]:
        raise missing(settings, lacking)
    given = [*settings.by_topic.items()]
    for partition, (_, note) in noted(topics, await all_committed(client, topics.group("sign"))).items():
        topic, own = given[partition >> TOPIC_BITS]
        replace(note, format=None).check(own.fingerprint, own.document_format, own.partitioner, topic)  # it reads none
