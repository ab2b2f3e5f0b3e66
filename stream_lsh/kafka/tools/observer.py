"""Observes a pipeline from outside: reads its topics and groups from the brokers, and asks its workers over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from stream_lsh.errors import FormatError, StoreError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.client.reading import missing, reading, records_to
from stream_lsh.kafka.consumer.decisions import Judged
from stream_lsh.kafka.consumer.output_values import OutputValues
from stream_lsh.kafka.consumer.position import all_committed, patiently
from stream_lsh.kafka.consumer.state import Commits
from stream_lsh.kafka.forward.partition import read_verdict
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.sequence.order import Accepted
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.position import Pause, pause_of
from stream_lsh.kafka.tools.seen import Group, Member, Next, Reader, Seen
from stream_lsh.kafka.tools.workers import Answer, ask
from stream_lsh.kafka.topics import configs_of, output_partitions
from stream_lsh.wire.parts import Part, is_part
from stream_lsh.wire.sequenced import Sequenced, split_frames
from stream_lsh.wire.source import output_of

FETCH_BYTES = 1 << 20  # per partition; a larger record is sent all the same
READS = {"sign": ("documents",), "sequence": ("signatures",), "match": ("frames",), "judge": ("matches",),
         "forward": ("documents", "verdicts"), "group": ("memberships",)}  # fmt: skip
LOOKED_AT = ("documents", "signatures", "frames", "changelog", "matches", "verdicts")
BACK = (2, 100, 10_000)  # numbers of records before the end in which a partition's last verdict is searched

Places = Mapping[TopicPartition, int]


class Observer:
    """Observes a pipeline on request.

    Args:
        workers: host and port of the first process of each worker. If empty, the members of the consumer groups are
            asked, at the settings' http_port. None: no worker is asked.
    """

    def __init__(
        self, settings: KafkaSettings, client: AIOKafkaAdminClient, consumer: AIOKafkaConsumer,
        workers: Sequence[tuple[str, int]] | None,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._client = client
        self._consumer = consumer
        self._workers = workers
        self._topics = Topics.of(settings)
        self._values = OutputValues(settings)
        looked_at = (*LOOKED_AT, "memberships") if settings.groups else LOOKED_AT
        self._names = {attribute: getattr(self._topics, attribute) for attribute in looked_at}

    async def look(self) -> Seen:
        """An observation of the current state.

        Raises:
            BrokerError: topics are missing.
            KafkaError, OSError: see `connection.explained`.
        """
        partitions = await self._partitions()
        names = {role: self._topics.group(role) for role in self._settings.roles}
        groups = {role: await group_of(self._client, name) for role, name in names.items()}
        commits = {role: await all_committed(self._client, name) for role, name in names.items()}
        readers = await self._readers(partitions, commits)
        provisional = await self._provisional(readers)  # right away, so that all figures are of the same moment
        records = await self._first({(self._place(r.topic, r.partition), r.next): r.end for r in readers})
        found = [(r, records.get((self._place(r.topic, r.partition), r.next))) for r in readers]
        frames = {r.partition: record for r, record in found if r.topic == "frames" and record is not None}
        judged = _judged(commits["judge"].get(self._names["matches"], {}))
        nexts = {shard: _next(record, judged, self._settings) for shard, record in frames.items()}
        return Seen(
            now=time.time(),
            names=self._names,
            groups=groups,
            readers=[replace(r, since=record.timestamp / 1000) if record else r for r, record in found],
            provisional=provisional,
            accepted=_accepted(commits["sequence"].get(self._names["signatures"], {})),
            with_verdict=None if judged is None else judged.documents,
            complete=None if judged is None else judged.last,
            nexts={shard: found for shard, found in nexts.items() if isinstance(found, Next)},
            unread=next((found for found in nexts.values() if isinstance(found, str)), None),
            kept=await self._kept(),
            sources=max(map(output_of, partitions["documents"]), default=-1) + 1,
            outputs=await output_partitions(self._client, self._settings),
            answers=await self._answers(groups),
            pause=await pause_of(self._client, self._topics) or Pause(),
            documents=self._topics.sources if len(self._topics.sources) > 1 else (),
        )

    def _place(self, topic: str, partition: int) -> TopicPartition:
        if topic == "documents":
            return TopicPartition(*self._topics.place(partition))
        return TopicPartition(self._names[topic], partition)

    def _number(self, place: TopicPartition) -> int:
        """The reverse of `_place`."""
        if place.topic in self._topics.sources:
            return self._topics.number(*place)
        return int(place.partition)

    async def _partitions(self) -> dict[str, list[int]]:
        """The partitions of each topic; those of the documents topics by their numbers."""
        names = [*{*self._names.values(), *self._topics.sources}]
        if lacking := sorted(set(names) - set(await self._client.list_topics())):
            raise missing(self._settings, lacking, "; check topic_prefix")
        described = await self._client.describe_topics(names)
        found = {topic["topic"]: [partition["partition"] for partition in topic["partitions"]] for topic in described}
        documents = {topic: dict.fromkeys(found[topic]) for topic in self._topics.sources}
        return {attribute: sorted(found[name]) for attribute, name in self._names.items()} | {
            "documents": sorted(self._topics.numbered(documents))
        }

    async def _readers(self, partitions: Mapping[str, Sequence[int]], commits: Mapping[str, Commits]) -> list[Reader]:
        reads = {role: READS[role] for role in self._settings.roles}
        topics_read = {topic for topics in reads.values() for topic in topics}
        places = [self._place(topic, number) for topic in topics_read for number in partitions[topic]]
        begins = await self._consumer.beginning_offsets(places)
        ends = await self._consumer.end_offsets(places)
        found = []
        for role, topics in reads.items():
            for topic in topics:
                for partition in partitions[topic]:
                    place = self._place(topic, partition)
                    committed = commits[role].get(place.topic, {})
                    position = committed[place.partition][0] if place.partition in committed else None
                    found.append(Reader(role, topic, partition, begins[place], ends[place], position))
        return found

    async def _first(
        self, wanted: Mapping[tuple[TopicPartition, int], int]
    ) -> dict[tuple[TopicPartition, int], ConsumerRecord]:
        """The first record at or after each of these offsets, if there is one before the end given with it."""
        found: dict[tuple[TopicPartition, int], ConsumerRecord] = {}
        left = {key: end for key, end in wanted.items() if key[1] < end}
        while left:
            once = {place: (offset, end) for (place, offset), end in left.items()}  # one offset of each partition
            records = await self._read({place: offset for place, (offset, _) in once.items()})
            for place, (offset, end) in once.items():
                del left[place, offset]
                if records[place] and records[place][0].offset < end:
                    found[place, offset] = records[place][0]
        return found

    async def _read(self, places: Places, *, whole: bool = False) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records of each partition from an offset on, as one fetch returns them. None only if there are none.

        Args:
            whole: read all of them.

        Raises:
            KafkaTimeoutError: a partition does not answer.
        """
        consumer = self._consumer
        found: dict[TopicPartition, list[ConsumerRecord]] = {place: [] for place in places}
        consumer.assign(list(places))
        begins = await consumer.beginning_offsets(list(places))
        for place, offset in places.items():
            consumer.seek(place, max(offset, begins[place]))
        ends = await consumer.end_offsets(list(places))
        async for place, records in records_to(consumer, ends, first=not whole):
            found[place] += records
        return found

    async def _provisional(self, readers: Sequence[Reader]) -> dict[int, tuple[int, float | None]]:
        """By source partition: number of documents without a verdict, and the timestamp of the first of them."""
        judged = await self._judged(readers)
        wanted = {
            (self._place(r.topic, r.partition), max(r.begin, judged.get(r.partition, 0))): r.end
            for r in readers if (r.role, r.topic) == ("sign", "documents")
        }  # fmt: skip
        records = await self._first(wanted)
        found: dict[int, tuple[int, float | None]] = {self._number(place): (0, None) for place, _ in wanted}
        for (place, begin), record in records.items():
            found[self._number(place)] = wanted[place, begin] - record.offset, record.timestamp / 1000
        return found

    async def _judged(self, readers: Sequence[Reader]) -> dict[int, int]:
        """By source partition: offset after the last document that has a verdict. Partitions without one are left
        out."""
        found: dict[int, int] = {}
        verdicts = {reader.partition: reader for reader in readers if reader.topic == "verdicts"}
        sources = {reader.partition for reader in readers if reader.topic == "documents"}
        values: OutputValues | None = self._values
        for back in BACK:
            open_ = set(map(output_of, sources - found.keys()))
            left = [reader for p, reader in verdicts.items() if p in open_ and reader.end > reader.begin]
            places = {self._place("verdicts", r.partition): max(r.begin, r.end - back) for r in left}
            for place, records in (await self._read(places, whole=True) if places else {}).items():
                decoded: Sequence[ConsumerRecord] = records
                if values is not None:
                    try:
                        decoded = await values.read(records)
                    except Failed:  # the Schema Registry is absent, which is no reason to show nothing
                        values = None
                for record in decoded:
                    with suppress(StoreError):  # a foreign record, or one in Avro that cannot be decoded
                        verdict = read_verdict(record, *self._topics.sources)
                        source = self._topics.number(verdict.topic, place.partition)
                        found[source] = max(verdict.document + 1, found.get(source, 0))
        for reader in readers:  # retention may have deleted the verdicts, or the last ones were all aborted
            if (reader.role, reader.topic) == ("forward", "documents") and reader.position is not None:
                found[reader.partition] = max(reader.position, found.get(reader.partition, 0))
        return found

    async def _kept(self) -> dict[str, float | None]:
        """How long records are kept, in seconds, by the broker's names of the topics; None: for ever."""
        found = dict[str, float | None]()
        configs = await configs_of(self._client, sorted({*self._names.values(), *self._topics.sources}))
        for name, config in configs.items():
            ms = int(config.get("retention.ms", -1)) if "delete" in config.get("cleanup.policy", "delete") else -1
            found[name] = None if ms < 0 else ms / 1000
        return found

    async def _answers(self, groups: Mapping[str, Group]) -> list[Answer] | None:
        firsts, port = self._workers, self._settings.http_port
        if firsts is None or not (firsts or port):
            return None
        hosts = sorted({member.host for group in groups.values() for member in group.members})
        return await asyncio.to_thread(ask, firsts or [(host, port) for host in hosts if port])


@asynccontextmanager
async def observing(settings: KafkaSettings, workers: Sequence[tuple[str, int]] | None = ()) -> AsyncIterator[Observer]:
    """An `Observer`. Raises as `connection.admin`."""
    async with (
        admin(settings) as client,
        reading(settings, max_partition_fetch_bytes=FETCH_BYTES, fetch_max_bytes=8 * FETCH_BYTES) as consumer,
    ):
        yield Observer(settings, client, consumer, workers)


async def group_of(client: AIOKafkaAdminClient, name: str) -> Group:
    """A consumer group.

    Raises:
        KafkaError: the request was refused, or not answered in time.
    """

    async def ask() -> Group:
        [answer] = await client.describe_consumer_groups([name])
        code, _, state, _, _, members, *_ = answer.groups[0]
        if code:
            raise errors.for_code(code)(f"the members of the consumer group {name}")
        return Group(state, [_member(host, assignment) for _, _, host, _, assignment in members])

    return await patiently(ask, f"the members of the consumer group {name} could not be read")


def _member(host: str, assignment: bytes) -> Member:
    partitions = {}
    if assignment:  # there is none during a rebalance
        shared = ConsumerProtocolMemberAssignment.decode(assignment).assignment
        partitions = {topic: tuple(sorted(numbers)) for topic, numbers in shared}
    return Member(host.lstrip("/"), partitions)


def _accepted(committed: Mapping[int, tuple[int, str]]) -> Accepted | None:
    """What the sequencer has accepted; None if another version has committed it."""
    with suppress(StoreError):
        return Accepted.of(committed[0][1]) if committed else Accepted(b"")
    return None


def _judged(committed: Mapping[int, tuple[int, str]]) -> Judged | None:
    """What the judge has committed; None if another version has committed it."""
    with suppress(StoreError):
        return Judged.of(committed[0][1], "judge") if committed else Judged(-1, "", 0)
    return None


def _next(record: ConsumerRecord, judged: Judged | None, settings: KafkaSettings) -> Next | str:
    """The frame in a record that the judge waits for, else its first one; or why it is unreadable."""
    try:
        if is_part(record.value or b""):
            place = Part.decode(record.value or b"", settings).place
            return Next(place.offset, place.predecessor, 0 if judged is None else judged.documents)
        frames = [Sequenced.decode(frame, settings) for frame in split_frames(record.value or b"", settings)]
    except FormatError as error:
        return str(error)
    following = [frame for frame in frames if judged is not None and frame.predecessor == judged.last]
    frame = (following or frames)[0]
    return Next(frame.offset, frame.predecessor, frame.first)
