"""The role `sign`: documents become signed frames in the signatures topic.

Fetching, signing and sending go on side by side; signing has a thread of its own and leaves the event loop free. Frames
are begun at least `linger_ms` apart: a single document goes at once, many share a frame.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from aiokafka.structs import TopicPartition

from stream_lsh.errors import StateError
from stream_lsh.families.signer import Signer
from stream_lsh.kafka.group.relay import Relay
from stream_lsh.kafka.run.metrics import Watch
from stream_lsh.kafka.sequence.order import Accepted
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.framing import Chunk, Framer, Pending
from stream_lsh.kafka.sign.pause import GROUP, Pause, pause_of
from stream_lsh.kafka.sign.position import Beginning, Last, Note, another_topic, beginning
from stream_lsh.kafka.sign.records import Record
from stream_lsh.kafka.topics import ENVELOPE, Topics, configs_of, largest_record, output_partitions
from stream_lsh.wire.frames import CONTINUES

POLL_MS = 200
# A request for each document would cost more than all else that is done with it.
GATHERED_BYTES, GATHERED_MS, IDLE_MS = 256 << 10, 50, 500
HOLES_SECONDS = 1.0  # after which what follows the last record (transaction markers) counts as read, too
WAITING_BYTES, WAITING_FRAMES = 16 << 20, 4  # fetched and not signed yet; then no more is fetched
HELD_SECONDS = 2.0  # between two looks whether there is a pause, and whether the outputs have what is left out
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
        self._left_out: set[int] = set()  # partitions that the outputs do not have
        self._pause = self._at_rest = Pause()  # as it was seen last; that for which everything read is committed
        self._signing = False
        self._lasts: dict[int, Last] = {}  # of each partition the last record that was handed over
        self._again: dict[int, Last] = {}  # those that were read before, and are to be found again

    def _note(self, state: Any) -> str:
        note: Note = state
        return note.metadata()

    def _noted(self, last: Last | None, *, begun: bool = False) -> Note:
        return Note(self.settings.fingerprint, self.settings.document_format, last, begun, self._at_rest.since)

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
        places = await self._beginnings(partitions)
        for partition, place in places.items():
            if place.warning:
                self.log.warning("%s", place.warning)
            if place.new:
                self._acked[partition] = place.position, self._noted(None, begun=True)
        await self._commit()  # before anything is sent: so a position that is missing is one that was lost
        pause = await pause_of(self._committed(GROUP, self.source))
        have = await output_partitions(self.admin, self.settings)
        self._lasts = {partition: place.last for partition, place in places.items() if place.last is not None}
        self._again = {partition: self._lasts[partition] for partition, place in places.items() if place.again}
        for partition, place in places.items():
            if place.first != CONTINUES:
                # Where it begins is committed before there are documents: they may be deleted before they are read.
                self._pending.add(Chunk(partition, (), place.position, place.position, place.first))
        self._seek({partition: place.position for partition, place in places.items()})
        for partition, last in self._again.items():
            self.consumer.seek(TopicPartition(self.source, partition), last.offset)
        self._at_rest = Pause()  # what is said of some partitions says nothing of others
        self._hold(have, pause)
        self._wake()

    async def _beginnings(self, partitions: list[int]) -> dict[int, Beginning]:
        committed = await self._all_committed(self.role)
        if (error := another_topic(self.source, self.topics.prefix, committed)) is not None:
            raise error
        group = self.topics.group(self.role)
        found = {
            partition: (offset, Note.of(metadata, group))
            for partition, (offset, metadata) in committed.get(self.source, {}).items()
        }
        for _, note in found.values():
            note.check(self.settings.fingerprint, self.settings.document_format, self.source)
        sequenced = await self._committed("sequence", self.target)
        accepted = Accepted.of(sequenced[0][1]).positions if 0 in sequenced else {}
        known = {**accepted, **{partition: offset for partition, (offset, _) in found.items()}}
        bounds = await self._bounds(partitions, known)
        return {
            p: beginning(
                f"{self.source}, partition {p}", found.get(p), accepted.get(p), bounds[p], self.settings.accept_loss
            )
            for p in partitions
        }

    def _hold(self, have: int, pause: Pause) -> None:
        """Read nothing in a pause, and nothing of partitions that the outputs, which have so many, do not have; take up
        what is not held any more. Where such partitions begin is committed like that of all others, so that nothing is
        lost silently meanwhile."""
        before, self._left_out = self._left_out, {partition for partition in self.positions if partition >= have}
        held = {TopicPartition(self.source, p) for p in (self.positions if pause else self._left_out)}
        still = self.consumer.paused()
        self.consumer.pause(*held - still)
        self.consumer.resume(*still - held)
        self.watch.left_out(len(self._left_out))
        if self._left_out - before:
            self.log.warning(
                "%s has partitions %s, which the outputs do not have: documents in them wait until "
                "`stream-lsh topics create` has added those", self.source, ", ".join(map(str, sorted(self._left_out))),
            )  # fmt: skip
        elif before != self._left_out:
            self.log.info("the outputs have the partitions now that were left out of %s", self.source)
        if pause and pause != self._pause:
            self.log.warning("reading nothing more of %s: %s", self.source, pause.by)
        elif self._pause and not pause:
            self.log.info("reading %s again", self.source)
            self._at_rest = pause
        self._pause = pause

    async def _watch_holds(self) -> None:
        """Beside reading, which a coordinator that moves must not hold up."""
        while True:
            await asyncio.sleep(HELD_SECONDS)
            epoch, have = self.epoch, max(self.positions, default=0) + 1
            pause = await pause_of(self._committed(GROUP, self.source))
            if self._left_out:
                have = await output_partitions(self.admin, self.settings)
            if epoch == self.epoch:
                self._hold(have, pause)

    async def _rest(self) -> None:
        """In a pause, once all that was read is delivered, have that said with the positions."""
        if self._at_rest == self._pause:
            return
        for partition in list(self.positions):
            await self._take(partition, [])
        if not (self._pending or self._signing or self._sent):
            self._at_rest = self._pause
            for partition, position in self.positions.items():
                self._acked[partition] = position, self._noted(self._lasts.get(partition))

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
                group.create_task(self._watch_holds())
        finally:
            # Not waited for, for all else would stand still: what is being signed is this life's alone, and dropped.
            pool.shutdown(wait=False, cancel_futures=True)

    async def _fetch(self) -> None:
        looked = time.monotonic()
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
            await self._rest()

    def _pace(self, busy: bool) -> None:
        """While documents come, let the broker gather them for the next request, as long as they may linger anyway."""
        fetcher, linger = self.consumer._fetcher, min(self.settings.linger_ms, GATHERED_MS)
        gather = busy and linger > 0
        fetcher._fetch_min_bytes = GATHERED_BYTES if gather else 1
        fetcher._fetch_max_wait_ms = linger if gather else IDLE_MS

    async def _take(self, partition: int, records: Sequence[Record]) -> None:
        begins, ends = self.positions[partition], await self._position(partition)
        if partition in self._again and (records or ends > self._again[partition].offset):
            await self._compare(partition, self._again.pop(partition), records[0] if records else None)
            records = [record for record in records if record.offset >= begins]
        if ends > begins:
            self.positions[partition] = ends
            self._pending.add(Chunk(partition, records, begins, ends))
            self._wake()

    async def _compare(self, partition: int, last: Last, found: Record | None) -> None:
        """Whether this is the record that was read last.

        Raises:
            StateError: it is another, or there is none though nothing has taken it.
        """
        if found is not None and found.offset == last.offset:
            if Last.of(found) == last:
                return
            what = "another record"
        else:
            if (await self._bounds([partition], {partition: last.offset}))[partition][0] > last.offset:
                return  # by now
            policy = (await configs_of(self.admin, [self.source])).get(self.source, {}).get("cleanup.policy", "compact")
            if "compact" in policy:
                self.log.info(
                    "%s, partition %d: the record at offset %d, which was read last, is compacted away, so that it is "
                    "not known for sure to be the same topic", self.source, partition, last.offset,
                )  # fmt: skip
                return
            what = "no record"
        raise StateError(
            f"{self.source}, partition {partition}, has {what} at offset {last.offset}, which was read last: "
            "the topic was deleted and made again, or the brokers have lost its end, and others have come since. Which "
            "documents were judged cannot be told any more: read it under another topic_prefix."
        )

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
            self._signing = bool(chunks)
            if not chunks:  # given up meanwhile
                continue
            frames = await loop.run_in_executor(pool, self._framer.frames, chunks, time.time_ns() // 1_000_000)
            if documents := sum(frame.documents for frame in frames):
                self.watch.batch(documents, loop.time() - began)
            async with self._sending:
                for frame in frames if epoch == self.epoch else ():
                    self._lasts |= frame.lasts
                    marks = {p: (position, self._noted(self._lasts.get(p))) for p, position in frame.positions.items()}
                    await self._send([(0, frame.data)], marks, frame.documents)
            self._signing = False
