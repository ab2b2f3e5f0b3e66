"""The role `sign`: documents become signed frames in the signatures topic.

Fetching, signing and sending go on side by side; signing has a thread of its own and leaves the event loop free. Frames
are begun at least `linger_ms` apart: a single document goes at once, many share a frame.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from aiokafka.structs import TopicPartition

from stream_lsh.errors import StateError
from stream_lsh.families.signer import Signer
from stream_lsh.kafka.group.relay import Relay
from stream_lsh.kafka.run.metrics import Watch
from stream_lsh.kafka.sequence.order import CONTINUES, JUMPS, STARTS, Accepted
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.framing import Chunk, Framer, Pending
from stream_lsh.kafka.sign.records import Record
from stream_lsh.kafka.topics import ENVELOPE, Topics, largest_record, output_partitions

POLL_MS = 200
# A request for each document would cost more than all else that is done with it.
GATHERED_BYTES, GATHERED_MS, IDLE_MS = 256 << 10, 50, 500
HOLES_SECONDS = 1.0  # after which what follows the last record (transaction markers) counts as read, too
WAITING_BYTES, WAITING_FRAMES = 16 << 20, 4  # fetched and not signed yet; then no more is fetched
OUTPUT_SECONDS = 2.0  # between two looks whether the outputs have the partitions that are left out
KEY_SECONDS, SAY_SECONDS = 0.2, 30.0  # between two looks for the key, and two lines that say so
REQUEST_BYTES = 100 * 2**20
"""socket.request.max.bytes as brokers have it by default: a larger request would only lose the connection."""


class SignStage(Relay):
    """One life of a signer. It keeps no state: what it has not committed, the next one signs again."""

    role: ClassVar[str] = "sign"
    isolation: ClassVar[str] = "read_committed"

    def __init__(self, settings: KafkaSettings, watch: Watch) -> None:
        topics = Topics.of(settings)
        super().__init__(settings, watch, topics.documents, topics.signatures)
        self._framer: Framer
        self._pending = Pending()
        self._came, self._full, self._hungry = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._hungry.set()
        self._left_out: set[int] = set()

    def _note(self, state: Any) -> str:
        return self.settings.fingerprint

    async def _prepare(self) -> None:
        """Fingerprints are made with the index's key, which the sequencer commits at its first start."""
        said = -math.inf
        while 0 not in (found := await self._committed("sequence", self.target)):
            if time.monotonic() - said >= SAY_SECONDS:
                said = time.monotonic()
                self.log.info("waiting for a sequencer, which makes the key of a new index at its first start")
            self.watch.idle()
            await asyncio.sleep(KEY_SECONDS)
        key = Accepted.of(found[0][1]).key
        # Copies, changelog and replies, with what they add, have to fit as well.
        largest = min(largest_record(self.settings) - 2**19, REQUEST_BYTES - ENVELOPE)
        self._framer = Framer(self.settings, Signer(self.settings.signing, key), largest)

    async def _begin(self, partitions: list[int]) -> None:
        found = await self._committed(self.role, self.source)
        self._check_settings({note for _, note in found.values()})
        # What a group commits may be forgotten after some days of silence; the sequencer knows it, too.
        sequenced = await self._committed("sequence", self.target)
        accepted = Accepted.of(sequenced[0][1]).positions if 0 in sequenced else {}
        known = {partition: offset for partition, (offset, _) in found.items()}
        lost: set[int] = set()
        if self.settings.accept_loss and 0 in sequenced:
            # Frames may be lost as well: back to what has been accepted. What is signed twice counts once. If nothing
            # has been, the first frame may be lost, too: from the beginning again, with a mark that is always taken.
            lost = known.keys() - accepted.keys()
            known = {partition: min(known[partition], accepted[partition]) for partition in known.keys() - lost}
        known = {**accepted, **known}
        bounds = await self._bounds(partitions)
        for _ in range(4):  # a broker that has just taken over may not know its end yet
            if all(known.get(partition, 0) <= end for partition, (_, end) in bounds.items()):
                break
            await asyncio.sleep(0.5)
            bounds = await self._bounds(partitions)
        positions: dict[int, int] = {}
        for partition in partitions:
            first = CONTINUES if partition in known else JUMPS if partition in lost else STARTS
            position = known.get(partition, bounds[partition][0])
            if partition in lost:
                self.log.warning(
                    "%s, partition %d: no frame of it was sequenced yet; signing it again from offset %d on, where it "
                    "begins now (--accept-loss)", self.source, partition, position,
                )  # fmt: skip
            if not bounds[partition][0] <= position <= bounds[partition][1]:
                first, position = JUMPS, self._jump(partition, position, *bounds[partition])
            positions[partition] = position
            if first != CONTINUES:
                # Where it begins is committed before there are documents: they may be deleted before they are read.
                self._pending.add(Chunk(partition, (), position, position, first))
        have = await output_partitions(self.admin, self.settings)
        self._seek(positions)
        self._leave_out(have)
        self._wake()

    def _leave_out(self, have: int) -> None:
        """Read nothing of partitions that the outputs, which have so many, do not have; take up those that they have
        got. Where they begin is committed like that of all others, so that nothing is lost silently meanwhile."""
        before, self._left_out = self._left_out, {partition for partition in self.positions if partition >= have}
        for pause, partitions in (
            (self.consumer.pause, self._left_out - before), (self.consumer.resume, before - self._left_out),
        ):  # fmt: skip
            if partitions:
                pause(*[TopicPartition(self.source, partition) for partition in partitions])
        self.watch.left_out(len(self._left_out))
        if self._left_out - before:
            self.log.warning(
                "%s has partitions %s, which the outputs do not have: documents in them wait until "
                "`stream-lsh topics create` has added those", self.source, ", ".join(map(str, sorted(self._left_out))),
            )  # fmt: skip
        elif before != self._left_out:
            self.log.info("the outputs have the partitions now that were left out of %s", self.source)

    def _check_settings(self, notes: Iterable[str]) -> None:
        """One signer with other settings would put frames into the log that no sequencer takes, for good."""
        mine = self.settings.fingerprint
        for note in notes:
            if note and note != mine:
                raise StateError(
                    f"{self.source} was signed with other settings so far (fingerprint {note}, here {mine}): use the "
                    "same settings for all workers of a topic_prefix, or rebuild under another one with stream-lsh "
                    "reindex"
                )

    def _jump(self, partition: int, position: int, begin: int, end: int) -> int:
        """Where to go on if a position is not there any more."""
        where = f"{self.source}, partition {partition}"
        if position > end:
            raise StateError(
                f"{where}, ends at offset {end}, but has been read up to {position}: the topic was deleted and made "
                "again, or the brokers have lost its end. Which documents were judged cannot be told any more: "
                "read it under another topic_prefix."
            )
        lost = begin - position
        if not self.settings.accept_loss:
            raise StateError(
                f"{where}: {lost} documents from offset {position} on were deleted before they were read (retention). "
                "To go on without them start the worker with --accept-loss once; raise the topic's retention.ms."
            )
        self.log.warning("%s: going on without %d documents from offset %d on", where, lost, position)
        return begin

    def _forget(self) -> None:
        self._left_out = set()
        self._pending.clear()
        self._came.clear()
        self._full.clear()
        self._hungry.set()

    def _wake(self) -> None:
        """After a change of what is pending."""
        pending, most = self._pending, self.settings.frame_documents
        if pending:
            self._came.set()
        else:
            self._came.clear()
        if pending.documents >= most or pending.bytes >= 2 * self.settings.frame_bytes:
            self._full.set()
        else:
            self._full.clear()
        if pending.documents >= WAITING_FRAMES * most or pending.bytes >= WAITING_BYTES:
            self._hungry.clear()
        else:
            self._hungry.set()

    async def _work(self) -> None:
        pool = ThreadPoolExecutor(1, "sign")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._fetch())
                group.create_task(self._sign(pool))
        finally:
            # Not waited for, for all else would stand still: what is being signed is this life's alone, and dropped.
            pool.shutdown(wait=False, cancel_futures=True)

    async def _fetch(self) -> None:
        looked = asked = time.monotonic()
        while True:
            await self._hungry.wait()
            got = await self._poll(POLL_MS)
            self._pace(bool(got))
            for partition, records in got.items():
                await self._take(partition, records)
            now = time.monotonic()
            if now - looked >= HOLES_SECONDS:
                looked = now
                for partition in self.positions.keys() - got.keys():
                    await self._take(partition, [])
            if self._left_out and now - asked >= OUTPUT_SECONDS:
                asked, epoch = now, self.epoch
                have = await output_partitions(self.admin, self.settings)
                if epoch == self.epoch:
                    self._leave_out(have)

    def _pace(self, busy: bool) -> None:
        """While documents come, let the broker gather them for the next request, as long as they may linger anyway."""
        fetcher, linger = self.consumer._fetcher, min(self.settings.linger_ms, GATHERED_MS)
        gather = busy and linger > 0
        fetcher._fetch_min_bytes = GATHERED_BYTES if gather else 1
        fetcher._fetch_max_wait_ms = linger if gather else IDLE_MS

    async def _take(self, partition: int, records: Sequence[Record]) -> None:
        begins, ends = self.positions[partition], await self._position(partition)
        if ends > begins:
            self.positions[partition] = ends
            self._pending.add(Chunk(partition, records, begins, ends))
            self._wake()

    async def _sign(self, pool: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        linger = self.settings.linger_ms / 1000
        began = -linger
        while True:
            await self._came.wait()
            wait = began + linger - loop.time()
            if wait > 0:
                waker = loop.call_later(wait, self._full.set)
                await self._full.wait()
                waker.cancel()
            await self._free()
            began = loop.time()
            epoch, chunks = self.epoch, self._pending.take(self.settings.frame_documents)
            self._wake()
            if not chunks:  # given up meanwhile
                continue
            frames = await loop.run_in_executor(pool, self._framer.frames, chunks, time.time_ns() // 1_000_000)
            if documents := sum(frame.documents for frame in frames):
                self.watch.batch(documents, loop.time() - began)
            async with self._sending:
                if epoch != self.epoch:
                    continue
                for frame in frames:
                    marks = {partition: (position, None) for partition, position in frame.positions.items()}
                    await self._send([(0, frame.data)], marks, frame.documents)
