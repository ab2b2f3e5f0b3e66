"""Rebuilding under another prefix with another number of shards, from the changelogs, without the documents topic.

The documents are restored from the stored rows and texts in the order of the log, signed, and sent as frames of the new
prefix. Its sequencer, shards and judge do the rest. A repeated frame counts once, so the command can be killed and run
again at any time. Meanwhile the signers of the new prefix pause; at the end they get the positions after what was
restored.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient

from stream_lsh.documents.columns import Columns
from stream_lsh.embedded.engine_errors import EngineErrors
from stream_lsh.errors import ForeignError, FormatError, StoreError, UsageError
from stream_lsh.families.family import signer_of
from stream_lsh.kafka.client.clients import producing, seen, waited
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.client.reading import SLICE_MS, partitions_of, read_from, reading
from stream_lsh.kafka.consumer.decisions import judged_by
from stream_lsh.kafka.consumer.output import Underway
from stream_lsh.kafka.consumer.position import all_committed, commit_alone
from stream_lsh.kafka.consumer.state import recorded
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.sequence.order import Accepted, sequenced
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.position import Note, Pause, pause_of
from stream_lsh.kafka.tools.drain import mark
from stream_lsh.kafka.tools.reindex import changed, prepare
from stream_lsh.kafka.tools.restored import Segments, documents, nothing, pieces
from stream_lsh.wire.changes import Change
from stream_lsh.wire.frames import Frame
from stream_lsh.wire.parts import Adjacent
from stream_lsh.wire.source import TOPIC_BITS, Source, output_of

log = logging.getLogger("stream_lsh.kafka.tools.from_changelog")

RESTORING = ("sequence", "match", "judge")
"""The roles that take part. This module replaces sign. Documents that were forwarded are not forwarded again."""
LOOK = 0.5  # seconds between two checks of the progress
FETCH_BYTES = 2 << 20  # of a changelog in one response; a larger record is sent alone


@dataclass(frozen=True, slots=True)
class Changelogs:
    """The source of a rebuild.

    Attributes:
        old: the settings of the old index.
        ends: by shard, the offset after its last change.
        accepted: what the sequencer has accepted, None if its commit has expired.
    """

    old: KafkaSettings
    ends: Mapping[int, int]
    accepted: Accepted | None


async def look(settings: KafkaSettings, new: KafkaSettings) -> Changelogs:
    """Inspect the changelogs, create the topics of the new prefix, and make its signers pause.

    Args:
        settings: with the prefix of the old index. Their number of shards is ignored.
        new: see `reindex.target`.

    Raises:
        UsageError: the stored data are not sufficient.
        StoreError: there is no changelog, it is incomplete, or the new prefix is in use.
        BrokerError, KafkaError, OSError: see `reindex.prepare`.
    """
    if settings.verify != "exact":
        raise UsageError(
            f"--from-changelog needs verify = exact: with verify = {settings.verify} the index has no texts to make "
            "other shards of"
        )
    if settings.window is not None:
        raise UsageError(
            f"--from-changelog does not support indexes with a window (window = {settings.window}): rebuild from the "
            "documents topic, which has to reach back as far (without --from-changelog)"
        )
    topics = Topics.of(settings)
    async with admin(settings) as client:
        places = await partitions_of(client, topics.changelog)
        if not places:
            raise StoreError(
                f"Kafka at {settings.bootstrap_servers} has no topic {topics.changelog}; --topic-prefix names the "
                "index to be rebuilt"
            )
        _, accepted = await sequenced(client, topics) or (0, None)
        old = changed(settings, f"{topics.changelog} has {len(places)} partitions", shards=len(places))
        async with reading(settings) as consumer:
            begins, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        trimmed = next((place for place in places if begins[place]), None)
        if trimmed is not None:
            raise StoreError(
                f"the changelog of shard {trimmed.partition} begins at offset {begins[trimmed]}: it was trimmed, and "
                "earlier changes are missing. Rebuild from the documents topic (without --from-changelog). With "
                "updates, only min_cleanable_bytes = 0 from the beginning on keeps them"
            )
        if not any(ends.values()):
            raise StoreError(f"{topics.changelog} is empty: there is nothing to rebuild")
        await prepare(new)
        await _claim(client, old, {place.partition: end for place, end in ends.items()}, new)
    return Changelogs(old, {place.partition: ends[place] for place in places}, accepted)


def _by(settings: KafkaSettings) -> str:
    return f"stream-lsh kafka reindex --from-changelog of {settings.topic_prefix}"


async def _claim(
    client: AIOKafkaAdminClient, old: KafkaSettings, ends: Mapping[int, int], new: KafkaSettings
) -> None:  # fmt: skip
    """Make the signers of the new prefix pause, before any worker uses it, and give it the key of the old index: the
    scopes of the stored documents are known by their hashes under that key only.

    Args:
        ends: see `Changelogs`.

    Raises:
        StoreError: the prefix is in use, or the changelogs do not match each other or the settings.
    """
    topics = Topics.of(new)
    used = StoreError(
        f"the prefix {new.topic_prefix} is in use, or was rebuilt already: start its workers, or give another "
        "--to-prefix"
    )
    if (await pause_of(client, topics) or Pause()).by != _by(old):
        for role in new.roles:
            if await all_committed(client, topics.group(role)) or await recorded(new, role):
                raise used
        await mark(client, new, Pause(_by(old), time.time_ns() // 1_000_000))
    async with reading(old, max_partition_fetch_bytes=FETCH_BYTES) as consumer:
        changes = await Chains(consumer, old, ends).following(asyncio.Event())
    if not changes:
        return
    accepted = await sequenced(client, topics)
    if accepted is None:
        first = (0, Accepted(changes[0].key).metadata())
        await commit_alone(client, topics.group("sequence"), {TopicPartition(topics.signatures, 0): first})
    elif accepted[1].key != changes[0].key:
        raise used


async def restore(
    changelogs: Changelogs, new: KafkaSettings, stop: asyncio.Event, report: Callable[[int], object]
) -> bool:  # fmt: skip
    """Restore everything with the workers of the new prefix. Returns False if `stop` is set first.

    Args:
        report: called regularly with the number of documents done.

    Raises:
        StoreError: the changelogs do not match each other or the settings, or other workers use the new prefix.
    """
    while not stop.is_set():
        try:
            async with admin(new) as client:
                work = _Restoring(changelogs, new, client, stop, report)
                if await work.send() and await work.judged():
                    await work.hand_over()
                    return True
        except (errors.KafkaError, OSError, TimeoutError) as error:
            # The workers decide how long to wait for a broker that is down.
            log.info("beginning again: %s", error)
            await waited(stop, LOOK)
    return False


class _Restoring:
    """One attempt. It reads the changelogs from the beginning, and skips what was accepted already."""

    def __init__(
        self, changelogs: Changelogs, new: KafkaSettings, client: AIOKafkaAdminClient, stop: asyncio.Event,
        report: Callable[[int], object],
    ) -> None:  # fmt: skip
        self._changelogs = changelogs
        self._new = new
        self._topics = Topics.of(new)
        self._client = client
        self._stop = stop
        self._report = report
        self._looked = 0.0
        self._segments = Segments()

    async def _judge(self) -> int:
        """The last frame that is judged. Reports the number of judged documents."""
        judged = await judged_by(self._client, self._topics)
        self._looked = time.monotonic()
        self._report(judged.documents)
        return judged.last

    async def send(self) -> bool:
        """Send every frame that is not accepted yet. Returns False if asked to stop."""
        while (found := await sequenced(self._client, self._topics)) is None:
            await waited(self._stop, LOOK)
            if self._stop.is_set():
                return False
        accepted = found[1]
        old, ends = self._changelogs.old, self._changelogs.ends
        signer, last = signer_of(self._new.signing, accepted.key), -1
        under_way: deque[asyncio.Future[Any]] = deque()
        async with (
            reading(old, max_partition_fetch_bytes=FETCH_BYTES) as consumer,
            producing(self._new, "reindex") as producer,
        ):
            chains, underway = Chains(consumer, old, ends), Underway(producer)
            engine_errors = EngineErrors(log)

            async def send(columns: Columns, source: Source, segments: Any) -> None:
                if all(to <= accepted.positions.get(partition, -1) for partition, _, to, _ in segments.tolist()):
                    return
                frame = await asyncio.to_thread(Frame.of, signer, self._new, columns, segments, source)
                engine_errors.look(source.rejected, partial(source.place, Topics.of(old).where))
                data = frame.encode(self._new)
                future = await underway.send(self._topics.signatures, 0, data)
                future.add_done_callback(seen)
                under_way.append(future)
                while under_way and under_way[0].done():
                    under_way.popleft().result()
                if time.monotonic() > self._looked + LOOK:
                    await self._judge()

            while changes := await chains.following(self._stop):
                for columns, source in pieces(*documents(changes, old), self._new.frame_documents):
                    await send(columns, source, self._segments.of(source))
                last = changes[0].offset
            known = self._changelogs.accepted
            if known is not None and known.last <= last:  # adds transaction markers and compacted records
                await send(*nothing(), self._segments.up_to(known.positions, {}))
            await asyncio.gather(*under_way)
        return not self._stop.is_set()

    async def judged(self) -> bool:
        """Wait until everything is judged. Returns False if asked to stop."""
        wanted = self._segments.positions
        while not self._stop.is_set():
            _, accepted = await sequenced(self._client, self._topics) or (0, None)
            if accepted is not None and all(accepted.positions.get(p, -1) >= to for p, to in wanted.items()):
                if await self._judge() >= accepted.last:
                    return True
            elif time.monotonic() > self._looked + LOOK:
                await self._judge()
            await waited(self._stop, LOOK)
        return False

    async def hand_over(self) -> None:
        """Commit the positions after what was restored for sign and forward, and let the signers read.

        Raises:
            StoreError: there are workers already.
        """
        new, topics, positions = self._new, self._topics, self._segments.positions
        signed = dict[TopicPartition, tuple[int, str]]()
        for partition, to in positions.items():
            place = TopicPartition(*topics.place(partition))
            given = new.by_topic[place.topic]
            number = partition >> TOPIC_BITS
            note = Note(given.fingerprint, given.document_format, given.partitioner, number=number)
            signed[place] = to, note.metadata()
        verdicts = [TopicPartition(topics.verdicts, partition) for partition in {*map(output_of, positions)}]
        # After all written verdicts, even if their transaction marker is not written yet.
        async with reading(new, isolation_level="read_uncommitted") as consumer:
            ends = await consumer.end_offsets(verdicts)
        await commit_alone(self._client, topics.group("sign"), signed)
        forwarded = {place: (to, "") for place, (to, _) in signed.items()}
        forwarded |= {place: (end, "") for place, end in ends.items()}
        await commit_alone(self._client, topics.group("forward"), forwarded)
        await mark(self._client, self._new, Pause())


class Chains:
    """The changes of all shards, frame by frame, up to the last frame that all of them have (the chain rule).

    Args:
        ends: by shard, the offset after the last change to be read.
    """

    def __init__(self, consumer: AIOKafkaConsumer, settings: KafkaSettings, ends: Mapping[int, int]) -> None:
        self._consumer = consumer
        self._settings = settings
        topic = Topics.of(settings).changelog
        self._ends = {TopicPartition(topic, shard): end for shard, end in ends.items()}
        self._waiting: dict[TopicPartition, deque[Change]] = {place: deque() for place in self._ends}
        self._last = dict.fromkeys(self._ends, -1)
        self._parts = {place: Adjacent(settings) for place in self._ends}
        read_from(consumer, dict.fromkeys(self._ends, 0))

    async def following(self, stop: asyncio.Event) -> list[Change]:
        """The changes of all shards for the next frame, in order. Empty if a shard has no more, or if asked to stop.

        Raises:
            StoreError: they do not match each other or the settings.
        """
        while missing := [place for place, changes in self._waiting.items() if not changes]:
            if stop.is_set():
                return []
            for place in missing:
                if await self._consumer.position(place) >= self._ends[place]:
                    return []
            for place, records in (await self._consumer.getmany(*missing, timeout_ms=SLICE_MS)).items():
                for record in records:
                    if record.offset < self._ends[place]:
                        self._take(place, record)
        changes = [waiting.popleft() for waiting in self._waiting.values()]
        if len({change.offset for change in changes}) > 1:
            found = ", ".join(f"shard {change.shard} after that frame {change.offset}" for change in changes)
            raise StoreError(f"the changelogs do not belong together: {found}")
        return changes

    def _take(self, place: TopicPartition, record: ConsumerRecord) -> None:
        try:
            found = self._parts[place].read(record.offset, record.value or b"", Change.decode)
        except ForeignError:  # not written by this program; the shards skip it too
            return
        except FormatError as error:
            raise StoreError(
                f"{place.topic}, partition {place.partition}, offset {record.offset}: {error}. --from-changelog "
                "changes the number of shards and nothing else: give all other settings as the workers have them"
            ) from None
        if found is not None and found[1].offset > self._last[place] == found[1].predecessor:
            self._last[place] = found[1].offset
            self._waiting[place].append(found[1])
