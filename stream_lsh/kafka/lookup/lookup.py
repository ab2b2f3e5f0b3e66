"""A copy of all shards of a pipeline in a folder, and the answers from it.

It reads the changelogs without a consumer group, and writes to no topic. All shards are opened as of the same frame.
They answer until a later frame is applied to all of them. With several shards and `compare_with = "kept"` the judge has
committed the decisions on this frame.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from stream_lsh.errors import StoreError, StreamLshError, UsageError
from stream_lsh.index.reader import IndexReader
from stream_lsh.index.store.errors import refusal
from stream_lsh.kafka.client.clients import Stopped, unless
from stream_lsh.kafka.client.connection import FINAL, admin, cause, explain
from stream_lsh.kafka.client.reading import existing, read_from, reading
from stream_lsh.kafka.consumer.decisions import DecisionLog, KnownDecisions, judged_by
from stream_lsh.kafka.consumer.group_member import check_reading
from stream_lsh.kafka.lookup.alignment import Alignment, Behind, Lag
from stream_lsh.kafka.lookup.reader import FrameReader, provisional_from
from stream_lsh.kafka.match.held import Held
from stream_lsh.kafka.match.lock import locked
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Failed, may_pass
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.progress import Step
from stream_lsh.wire.decisions import Decisions
from stream_lsh.wire.source import ROW_BITS

ROLE = "lookup"
NO_END = 2**63 - 1
POLL_MS = 100
LOOK_SECONDS = 1.0  # between two looks at the commits of the judge
MEMTABLE_DOCUMENTS = 16_384  # more would be read again for each frame that is opened
FRAME_SECONDS = 1.0  # a frame answers at least so long, before the next one is applied
SHARE = 4.0  # and at least so many times as long as opening it took
PAUSE = 0.5  # seconds between two runs of a single question
Answer = TypeVar("Answer")


class LookupShard(Held):
    """A replica that matches no frames and writes to no topic. Its folder is never the only copy of the shard, so it
    is deleted and built again wherever that helps."""

    @property
    def replica(self) -> Replica:
        """The replica. Raises Failed if it is not open."""
        return self._opened()

    def follow(self) -> None:
        """Follow the changelog again after `activate`."""
        self.check(self.start, NO_END)

    async def apply(self) -> None:
        """Apply everything that was taken.

        Raises:
            Failed, FormatError, StoreError: see `Held.take`.
        """
        self.backlog.flush()
        await self.backlog.wait(-1)

    def _delete(self, reason: str, *, whole: bool = False) -> None:
        super()._delete(reason, whole=True)


class NotReady(StreamLshError):
    """There is no frame to answer from, yet or at the moment."""


@dataclass(frozen=True, slots=True)
class AsOf:
    """The frame that an answer is as of.

    Attributes:
        frame: offset in signatures.
        behind: how far it is behind the last verdicts.
    """

    frame: int
    behind: Behind

    @property
    def facts(self) -> dict[str, Any]:
        """For JSON. next_seq: all documents with a smaller seq are known."""
        return {
            "frame": self.frame, "next_seq": (self.frame + 1) << ROW_BITS,
            "documents_behind": self.behind.documents, "seconds_behind": round(self.behind.seconds, 3),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Open:
    """What answers."""

    reader: FrameReader
    frame: int
    until: float  # no later frame is applied before this time, by the monotonic clock


class Lookup:
    """The copy, while `follow` runs.

    Args:
        folder: of the copy, created if missing. It is kept between runs, and is used by one process at a time.
    """

    def __init__(self, settings: KafkaSettings, folder: Path) -> None:
        rows = min(settings.memtable_documents, MEMTABLE_DOCUMENTS)
        self._settings = settings.model_copy(update={"data_folder": folder, "memtable_documents": rows})
        self._folder = folder
        self._topics = Topics.of(settings)
        self._using = asyncio.Lock()  # held while the open shards are used or changed
        self._shards: list[LookupShard] = []
        self._ends: Mapping[TopicPartition, int] = {}
        self._alignment: Alignment
        self._open: _Open | None = None
        self._lag = Lag()
        self._judged: int | None = None  # the last frame that the judge has committed
        self._known: KnownDecisions | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # -- answers ----------------------------------------------------------------------------------------------------

    async def ask(self, question: Callable[[IndexReader], Answer]) -> tuple[Answer, AsOf]:
        """The answer to a question, which runs in another thread, and the frame that it is as of. The reader is valid
        until the question returns, so the answer must have all that it needs.

        Raises:
            NotReady: there is no frame to answer from.
        """
        # A caller that is cancelled must not free the shards while the other thread uses them.
        return await asyncio.shield(asyncio.ensure_future(self._asked(question)))

    async def _asked(self, question: Callable[[IndexReader], Answer]) -> tuple[Answer, AsOf]:
        async with self._using:
            if self._open is None:
                raise NotReady("no document was judged yet" if self._judged == -1 else str(self.progress))
            found = self._open
            answer = await asyncio.to_thread(question, found.reader)
            return answer, AsOf(found.frame, self._lag.behind(found.frame, time.monotonic()))

    @property
    def behind(self) -> Behind:
        """How far the frame that answers is behind; everything if none answers."""
        return self._lag.behind(-1 if self._open is None else self._open.frame, time.monotonic())

    @property
    def progress(self) -> Step:
        """How much is read of what the changelogs had at the start."""
        total = sum(end - shard.start for shard, end in zip(self._shards, self._ends.values(), strict=False))
        done = sum(shard.expected - shard.start for shard in self._shards)
        return Step("reading the changelogs from Kafka", min(done, total), total, "records")

    # -- following --------------------------------------------------------------------------------------------------

    async def follow(self, up_to_date: Callable[[bool], None]) -> None:
        """Follow the changelogs until an error.

        Args:
            up_to_date: called once everything that has a verdict is there.

        Raises:
            Failed, KafkaError, OSError: the next run may succeed. Among them is a full disk.
            StreamLshError: retrying cannot help.
        """
        if (self._folder / "db").exists():
            raise UsageError(f"{self._folder} holds an index; the copy of a pipeline needs a folder of its own")
        try:
            with locked(self._folder):
                async with (
                    admin(self._settings) as client,
                    reading(self._settings) as consumer,
                    self._opened(client, consumer),
                ):
                    await self._follow(consumer, up_to_date)
        except StreamLshError as error:
            if refusal(error) in (errno.ENOSPC, errno.EDQUOT):
                raise Failed(str(error)) from error
            raise

    @asynccontextmanager
    async def _opened(self, client: AIOKafkaAdminClient, consumer: AIOKafkaConsumer) -> AsyncIterator[None]:
        settings, topics = self._settings, self._topics
        if settings.late:
            await existing(client, settings, topics.decisions)
        places = await existing(client, settings, topics.changelog)
        if len(places) != settings.shards:
            raise StoreError(
                f"{topics.changelog} has {len(places)} partitions, but shards = {settings.shards}: give the settings "
                "of the workers"
            )
        begins, self._ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        self._judged, self._known = None, None
        shards = [LookupShard(settings, place.partition) for place in places]
        try:
            for shard, place in zip(shards, places, strict=True):
                await shard.open(begins[place])
                shard.check(begins[place], self._ends[place])
            self._shards = shards
            starts = [begins[place] for place in places]
            self._alignment = Alignment(settings, [shard.replica.last for shard in shards], starts)
            read_from(consumer, {place: shard.expected for place, shard in zip(places, shards, strict=True)})
            self._tasks = [asyncio.create_task(self._look(client))]
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            async with self._using:
                self._open, self._shards = None, []
                await asyncio.gather(*[shard.close() for shard in shards], return_exceptions=True)

    async def _look(self, client: AIOKafkaAdminClient) -> None:
        while True:
            judged = await judged_by(client, self._topics)
            self._judged = judged.last
            self._lag.note(judged.last, judged.documents, time.monotonic())
            await asyncio.sleep(LOOK_SECONDS)

    async def _decisions(self) -> None:
        async with DecisionLog.open(self._settings, Probe(ROLE)) as log:
            self._known = log.known
            while True:
                await log.read()

    async def _follow(self, consumer: AIOKafkaConsumer, up_to_date: Callable[[bool], None]) -> None:
        topic, alignment = self._topics.changelog, self._alignment
        while True:
            wanted = [shard for shard in self._shards if alignment.wants(shard.shard)]
            if wanted:
                places = [TopicPartition(topic, shard.shard) for shard in wanted]
                for place, records in (await consumer.getmany(*places, timeout_ms=POLL_MS)).items():
                    for record in records:
                        alignment.add(place.partition, record.offset, record.value or b"")
            else:
                await asyncio.sleep(POLL_MS / 1000)
            check_reading(consumer, topic)
            for task in self._tasks:
                if task.done():
                    task.result()
            await self._advance()
            if self._open is not None or self._judged == -1:
                up_to_date(True)

    async def _advance(self) -> None:
        """Apply what all shards have, and open it for answers once it has everything that is judged."""
        frame, opened, late = self._alignment.frame, self._open, self._settings.late
        whole = self._judged is not None and frame >= max(0, self._judged)
        if late and whole and self._known is None and len(self._tasks) == 1:
            # Not earlier: the decisions of a long way would fill the memory.
            self._tasks.append(asyncio.create_task(self._decisions()))
        if late and self._known is not None:
            frame = min(frame, self._known.last)
        if opened is not None:
            # A snapshot, or a change in parts, can be larger than what may wait before the next frame. A reader that
            # lets it wait could lose the rest: its owner deletes what came before the next one.
            waits = frame == opened.frame or time.monotonic() < opened.until
            if waits and not self._alignment.makes_room(frame):
                return
        taken = [self._alignment.take(shard.shard, frame) for shard in self._shards]
        async with self._using:
            self._open = None
            began = time.monotonic()
            for shard, records in zip(self._shards, taken, strict=True):
                shard.follow()
                for offset, value in records:
                    if not await shard.take(offset, value, more=True):
                        raise Failed(f"the changelog of shard {shard.shard} was trimmed while it was read")
            await asyncio.gather(*[shard.apply() for shard in self._shards])
            lasts = {shard.replica.last for shard in self._shards}
            whole = whole and (not late or (self._known is not None and self._known.last >= max(lasts)))
            # A changelog may begin with a snapshot, and its frame be the last one.
            ends = zip(self._shards, self._ends.values(), strict=True)
            built = all(shard.replica.cycle.taking is None or shard.expected >= end for shard, end in ends)
            if (opened is not None or whole) and built and len(lasts) == 1 and lasts != {-1}:
                for shard in self._shards:
                    if missing := shard.replica.missing:
                        raise StoreError(
                            f"the changelog of shard {shard.shard} begins at offset {shard.start}: it was trimmed, and "
                            f"changes of {missing:,} rows are missing. So the pipeline cannot be looked up; rebuild it "
                            "under another topic_prefix with stream-lsh kafka reindex"
                        )
                await asyncio.gather(*[shard.activate() for shard in self._shards])
                self._open = self._at(*lasts, began=began)

    def _at(self, frame: int, *, began: float) -> _Open:
        """What answers as of this frame. began: when it began to be applied, by the monotonic clock."""
        replicas = [shard.replica for shard in self._shards]
        known, key = list[Decisions](), replicas[0].key
        assert key is not None, "a frame was applied, which has it"
        if any(replica.key != key for replica in replicas):
            raise StoreError(
                f"the partitions of {self._topics.changelog} have the keys of several indexes: two pipelines use the "
                "same topic_prefix; rebuild under another one with stream-lsh kafka reindex"
            )
        if self._settings.late:
            assert self._known is not None
            place = provisional_from(replicas[0].shard.late.block, self._settings)
            known = self._known.since(place, frame)
            # One frame more, which shows that none is missing.
            self._known.trim(self._known.documents - place + self._settings.block)
        now = time.monotonic()
        until = now + max(FRAME_SECONDS, SHARE * (now - began))
        return _Open(FrameReader(self._settings, key, replicas, known), frame, until)


async def ask_once(
    settings: KafkaSettings, folder: Path, question: Callable[[IndexReader], Answer]
) -> tuple[Answer, AsOf]:  # fmt: skip
    """The answer to a question, and the frame that it is as of.

    Args:
        folder: see `Lookup`.

    Raises:
        NotReady: the pipeline has judged no document yet.
        BrokerError: Kafka could not be read for `give_up_seconds`.
        StreamLshError: see `Lookup.follow`.
    """
    copy, end = Lookup(settings, folder), time.monotonic() + settings.give_up_seconds
    while True:
        try:
            return await _asked(copy, question)
        except Exception as error:
            if not may_pass(error):
                raise
            why = await cause(error, settings)
            if isinstance(why, FINAL) or time.monotonic() > end:
                raise explain(why, settings) from error
            await asyncio.sleep(PAUSE)


async def _asked(copy: Lookup, question: Callable[[IndexReader], Answer]) -> tuple[Answer, AsOf]:
    read = asyncio.Event()
    following = asyncio.create_task(copy.follow(lambda _: read.set()))
    try:
        with suppress(Stopped):
            await unless(read.wait(), following)
        if following.done():
            following.result()
        return await copy.ask(question)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
