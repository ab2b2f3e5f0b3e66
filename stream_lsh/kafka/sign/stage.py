"""The role `sign`: reads documents and writes signed frames to the topic signatures.

Fetching, signing and sending overlap; signing has its own thread. Between the beginnings of two frames there is a pause
(`Pacing`), unless the next one is full: a single document is sent at once, and many share a frame.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import ClassVar

from aiokafka import TopicPartition

from stream_lsh.embedded.engine_errors import EngineErrors
from stream_lsh.embedded.often import Often
from stream_lsh.errors import StoreError
from stream_lsh.families.family import signer_of
from stream_lsh.kafka.client import private
from stream_lsh.kafka.client.clients import seen, switch
from stream_lsh.kafka.consumer import state
from stream_lsh.kafka.consumer.absence import REGISTRY, Absence
from stream_lsh.kafka.consumer.output import ANSWER_SECONDS
from stream_lsh.kafka.consumer.position import all_committed, bounds_of, commit_alone
from stream_lsh.kafka.consumer.relay import Marks, Relay
from stream_lsh.kafka.names import OVERHEAD, Topics, largest_frame
from stream_lsh.kafka.registry.decoding import Schemas
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Failed, Stage, Unanswered
from stream_lsh.kafka.sequence.order import sequenced
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.attempts import Attempts
from stream_lsh.kafka.sign.framing import Chunk, Framer, Signed
from stream_lsh.kafka.sign.pacing import Pacing
from stream_lsh.kafka.sign.pending import Pending
from stream_lsh.kafka.sign.position import (
    PAUSE,
    Beginning,
    Last,
    Note,
    Pause,
    another_topic,
    beginning,
    noted,
    pause_of,
    recorded_pause,
    recovered,
)  # fmt: skip
from stream_lsh.kafka.sign.unaccepted import Unaccepted
from stream_lsh.kafka.topics import configs_of, limits_of, output_partitions, too_small
from stream_lsh.wire.frames import CONTINUES
from stream_lsh.wire.source import TOPIC_BITS, Record, is_passed_over, output_of

# A fetch request per document would cost more than all other work on it.
GATHERED_BYTES, GATHERED_MS, IDLE_MS = 256 << 10, 50, 500
HOLES_SECONDS = 1.0  # after which offsets after the last record (transaction markers) count as read, too
WAITING_BYTES, WAITING_FRAMES = 16 << 20, 4  # limits of what is fetched but not signed yet
HOLD_SECONDS = 5.0  # for which a partition with unread records holds up others while Kafka returns none of them
HELD_SECONDS = 2.0  # between two checks for a pause, and for new partitions of the outputs
KEPT_SECONDS = 10.0  # between two notes of a partition in the topic `state`, once one has a record, unless it pauses
KEY_SECONDS, SAY_SECONDS = 0.2, 30.0  # between two checks for the key, and two log lines about it
LAST_SECONDS = 3.0  # for which a stop waits for what is being signed
ENDED = "a worker has ended while it signed %s, offsets %d to %d: signing them in smaller batches"


class SignStage(Stage):
    """One run of a signer. The next run signs again what was not committed. Only `Attempts` are kept on disk."""

    role: ClassVar[str] = "sign"

    def __init__(self, settings: KafkaSettings, probe: Probe) -> None:
        super().__init__(settings, probe)
        self.topics = topics = Topics.of(settings)
        self._relay = Relay(
            settings, probe, topics.sources, topics.signatures, self._begin, self._forget, self._note, self._placed
        )
        self.log = self._relay.member.log
        self._given = [*settings.by_topic.values()]
        self._pacing = Pacing(settings.linger_ms / 1000)
        self._framer: Framer
        self._attempts = Attempts(settings.data_folder, topics.listed, settings.frame_documents)
        self._schemas: Schemas | None = None
        self._absence = Absence(self.log, probe)
        self._engine_errors = EngineErrors(self.log)
        self._pending = Pending(None if settings.window is None else settings.window_ms)
        self._available, self._full, self._room = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._room.set()
        # With a window: partitions with unread records, and when it was last seen that some are read, by the monotonic
        # clock.
        self._unread: dict[int, float] = {}
        self._scarce: list[int] = []  # those of which nothing is pending
        self._limited = False  # whether so much is pending that only these are fetched
        self._excluded: set[int] = set()  # partitions that the outputs lack
        self._pause = self._at_rest = Pause()  # as last read; and the one for which everything read is committed
        self._signing = False
        self._underway: asyncio.Future[list[Signed]] | None = None
        self._lasts: dict[int, Last] = {}  # last record sent, by partition
        self._kept: dict[int, float] = {}  # when they are next written in the topic `state`, by the monotonic clock
        self._again: dict[int, Last] = {}  # records read before, to be read again and compared
        self._unaccepted = Unaccepted()

    async def run(self, stop: asyncio.Event) -> None:
        for partition, first, end in self._attempts.found:
            self.log.warning(ENDED, self.topics.where(partition), first, end - 1)
        try:
            await self._relay.run(
                stop, self._fetch, self._sign, self._watch_holds, prepare=self._prepare, isolation="read_committed"
            )
        finally:
            if not stop.is_set():
                self._attempts.close()
            elif self._underway is not None:  # what is still being signed after that counts as an attempt
                await asyncio.wait([self._underway], timeout=LAST_SECONDS)

    def _noted(self, partition: int, last: Last | None, *, begun: bool = False) -> Note:
        number = partition >> TOPIC_BITS
        given = self._given[number]
        return Note(
            given.fingerprint, given.document_format, given.partitioner, last, begun, self._at_rest.since, number
        )  # fmt: skip

    async def _prepare(self) -> None:
        """Wait for the index's key, which fingerprints need. The sequencer commits it at its first start."""
        often = Often(SAY_SECONDS)
        while (found := await sequenced(self._relay.admin, self.topics)) is None:
            if often.due():
                self.log.info("waiting for a sequencer, which creates the key of a new index at its first start")
            self.probe.idle()
            await asyncio.sleep(KEY_SECONDS)
        key = found[1].key
        if any(given.document_format == "registry" for given in self._given):
            from stream_lsh.kafka.registry.client import Client  # of the extra registry

            self._schemas = Schemas(Client(next(given for given in self._given if given.document_format == "registry")))
            self.probe.stalled(REGISTRY, 0)
        settings, topics = self.settings, self.topics
        limits = await limits_of(self._relay.admin, settings, topics.signatures, topics.unique)
        if (problem := too_small(settings, limits)) is not None:  # else documents would be rejected for good
            raise Failed(problem)
        largest = largest_frame(settings, limits[topics.signatures])
        copied = limits[topics.unique] - OVERHEAD
        self._framer = Framer(settings, signer_of(settings.signing, key), largest, self._schemas, copied)

    async def _begin(self, partitions: list[int]) -> None:
        places = await self._beginnings(partitions)
        for place in places.values():
            if place.warning:
                self.log.warning("%s", place.warning)
        consumer = self._relay.member.consumer
        everything = sum(len(consumer.partitions_for_topic(topic) or ()) for topic in self.topics.sources)
        self._pacing.share = len(partitions) / max(everything, len(partitions))
        self._at_rest = Pause()  # only valid for the partitions that it was measured for
        # Written before anything is sent, so that a missing position is known to be lost.
        found = {p: place for p, place in places.items() if place.new or place.last is not None}
        marks = {p: (place.position, self._noted(p, place.last, begun=place.new)) for p, place in found.items()}
        if marks:
            await self._relay.record(marks)
        pause = await self._paused(lost=True)
        have = await output_partitions(self._relay.admin, self.settings)
        self._lasts = {partition: place.last for partition, place in places.items() if place.last is not None}
        self._again = {partition: self._lasts[partition] for partition, place in places.items() if place.again}
        for partition, place in places.items():
            if place.first == CONTINUES:  # also a position that was set by hand
                self._unaccepted.committed(partition, place.position)
            else:
                # The start is committed before there are documents: they may be deleted before they are read.
                self._pending.add(Chunk(partition, (), place.position, place.position, place.first))
        if self.settings.window is not None:
            self._unread = dict.fromkeys(places, time.monotonic())  # until a fetch says that they have nothing
        self._relay.seek({partition: place.position for partition, place in places.items()})
        for partition, last in self._again.items():
            self._relay.member.consumer.seek(self._relay.place(partition), last.offset)
        self._hold(have, pause)
        self._wake()

    async def _note(self, marks: Marks) -> None:
        """Write committed positions in the topic `state`, too. Less often: an old one there has signed again what the
        sequencer has not accepted.

        Raises:
            Unanswered: that is not acknowledged in time. aiokafka would wait for ever.
        """
        self._attempts.passed({p: at for p, (at, _) in marks.items()})
        sent, now = [], time.monotonic()
        for p, (at, note) in marks.items():
            assert isinstance(note, Note)
            self._unaccepted.committed(p, -1 if note.begun else at)
            if note.paused or now >= self._kept.get(p, now):
                if note.last is not None:
                    self._kept[p] = now + KEPT_SECONDS
                value = state.encode({self._relay.place(p): (at, note.metadata())})
                key = state.key_of(self.role, p)
                sent.append(await self._relay.producer.send(self.topics.state, value, key=key, partition=0))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await asyncio.gather(*sent)
        except TimeoutError:
            what = f"{self.topics.state} has not acknowledged positions within {ANSWER_SECONDS:.0f} s"
            raise Unanswered(what) from None

    async def _beginnings(self, partitions: list[int]) -> dict[int, Beginning]:
        topics = self.topics
        commits = await all_committed(self._relay.admin, topics.group(self.role))
        if (error := another_topic(topics, commits)) is not None:
            raise error
        found = noted(topics, commits)
        known_to = await sequenced(self._relay.admin, self.topics)
        accepted = {} if known_to is None else known_to[1].positions
        if lost := set(partitions) - found.keys():
            records = noted(topics, await state.recorded(self.settings, self.role))
            found |= recovered({p: place for p, place in records.items() if p in lost}, accepted)
        for partition, (_, note) in found.items():
            given = self._given[partition >> TOPIC_BITS]
            source = topics.place(partition)[0]
            note.check_number(partition >> TOPIC_BITS, source)
            note.check(given.fingerprint, given.document_format, given.partitioner, source)
        reached = {**accepted, **{partition: offset for partition, (offset, _) in found.items()}}
        bounds = await self._relay.bounds({p: reached.get(p, 0) for p in partitions})
        return {
            p: beginning(self._relay.place(p), found.get(p), accepted.get(p), bounds[p], self.settings)
            for p in partitions
        }

    def _hold(self, have: int, pause: Pause) -> None:
        """Pause and resume partitions: in a pause all of them, and always those that the outputs lack (`have`: number
        of partitions of the outputs). The start of an excluded partition is committed like any other, so that a loss
        is noticed."""
        positions, consumer = self._relay.positions, self._relay.member.consumer
        before, self._excluded = self._excluded, {partition for partition in positions if output_of(partition) >= have}
        held, still = set(map(self._relay.place, positions if pause else self._excluded)), consumer.paused()
        consumer.pause(*held - still)
        consumer.resume(*still - held)
        self.probe.excluded.set(len(self._excluded))
        if self._excluded - before:
            for topic, found in groupby(map(self.topics.place, sorted(self._excluded)), itemgetter(0)):
                self.log.warning(
                    "%s has partitions %s, which the outputs do not have: documents in them wait until "
                    "`stream-lsh kafka topics create` has added those", topic, ", ".join(str(p) for _, p in found),
                )  # fmt: skip
        elif before != self._excluded:
            self.log.info("the outputs now have the partitions of %s that were left out", self.topics.listed)
        if pause and pause != self._pause:
            self.log.warning("reading nothing more of %s: %s", self.topics.listed, pause.by)
        elif self._pause and not pause:
            self.log.info("reading %s again", self.topics.listed)
            self._at_rest = pause
        self._pause = pause

    async def _watch_holds(self) -> None:
        """Runs beside reading, which must not wait for a moving coordinator."""
        while True:
            await asyncio.sleep(HELD_SECONDS)
            positions = self._relay.positions  # another object after each assignment
            have = max(map(output_of, positions), default=0) + 1
            pause = await self._paused(lost=bool(self._pause))
            if self._excluded:
                have = await output_partitions(self._relay.admin, self.settings)
            if positions is self._relay.positions:
                self._hold(have, pause)
            await self._look_for_lost_frames()

    async def _look_for_lost_frames(self) -> None:
        """Sign again what was acknowledged, and is not in what the sequencer has read since.

        Raises:
            Failed: there is such a loss, and the positions are set back.
        """
        unaccepted, topics = self._unaccepted, self.topics
        if not unaccepted or (known := await sequenced(self._relay.admin, topics)) is None:
            return
        place = TopicPartition(topics.signatures, 0)
        end = (await bounds_of(self._relay.member.consumer, {place: 0}))[place][1]
        if not (lost := unaccepted.look(known[0], known[1].positions, end) & self._relay.positions.keys()):
            return
        accepted, listed = known[1].positions, ", ".join(map(self.topics.where, sorted(lost)))
        begins = await self._relay.bounds({p: accepted.get(p, 0) for p in lost})
        # Where nothing is accepted, the start may be lost, too.
        await self._relay.set_back(
            {p: (accepted[p], self._noted(p, None)) if p in accepted else
             (begins[p][0], self._noted(p, None, begun=True)) for p in lost}
        )  # fmt: skip
        raise Failed(
            f"{topics.signatures} has lost frames that were acknowledged (an unclean leader election?): the documents "
            f"in them are signed again, of {listed}"
        )

    async def _paused(self, *, lost: bool) -> Pause:
        """The current pause. lost: whether its mark may be lost; it is written again."""
        found = await pause_of(self._relay.admin, self.topics)
        if found is None and lost and (found := await recorded_pause(self.settings)) is not None:
            mark = {self._relay.place(0): (0, found.metadata())}
            await commit_alone(self._relay.admin, self.topics.group(PAUSE), mark)
        return found or Pause()

    async def _rest(self) -> None:
        """In a pause: commit this with the positions, once everything read is delivered."""
        if self._at_rest == self._pause:
            return
        for partition in list(self._relay.positions):
            await self._take(partition, [])
        if not (self._pending or self._signing) and self._relay.at_rest:
            self._at_rest = self._pause
            self._relay.reached(
                {p: (position, self._noted(p, self._lasts.get(p))) for p, position in self._relay.positions.items()}
            )

    def _forget(self) -> None:
        self._excluded, self._unread, self._kept = set(), {}, {}
        self._unaccepted = Unaccepted()
        self._pending.clear()
        self._available.clear()
        self._full.clear()
        self._room.set()
        self._limited = False

    def _wake(self) -> None:
        """Update the events after a change of what is pending."""
        pending, most = self._pending, self.settings.frame_documents
        switch(self._available, pending.ready(self._behind))
        switch(self._full, pending.documents >= most or pending.bytes >= 2 * self.settings.frame_bytes)
        most = WAITING_FRAMES * self.settings.frame_documents
        self._scarce = [partition for partition in self._unread if partition not in pending]
        self._limited = pending.documents >= most or pending.bytes >= WAITING_BYTES
        switch(self._room, not self._limited or bool(self._scarce))

    @property
    def _behind(self) -> list[int]:
        """The partitions that may hold up others. One of which Kafka returns nothing does so for a limited time."""
        late = time.monotonic() - HOLD_SECONDS
        return [partition for partition, since in self._unread.items() if since > late]

    async def _look_for_unread(self) -> None:
        """With a window: see after a fetch which partitions have further records."""
        if self.settings.window is None:
            return
        now, consumer, found = time.monotonic(), self._relay.member.consumer, dict[int, float]()
        paused = consumer.paused()
        for partition in self._relay.positions:
            place = self._relay.place(partition)
            end = consumer.last_stable_offset(place)  # None before the first answer
            if place not in paused and (end is None or await self._relay.position(partition) < end):
                found[partition] = now if partition in self._pending else self._unread.get(partition, now)
        self._unread = found

    async def _fetch(self) -> None:
        looked = time.monotonic()
        while True:
            await self._room.wait()
            got = await self._relay.poll(self._scarce if self._limited else ())
            self._pace(bool(got))
            for partition, records in got.items():
                await self._take(partition, records)
            await self._look_for_unread()
            now = time.monotonic()
            if now - looked >= HOLES_SECONDS:
                looked = now
                for partition in self._relay.positions.keys() - got.keys():
                    await self._take(partition, [])
            await self._rest()
            self._wake()

    def _pace(self, busy: bool) -> None:
        """While documents arrive, let the broker gather them for the next response, at most for the pause."""
        linger = min(round(1000 * self._pacing.pause), GATHERED_MS)
        gathered = (GATHERED_BYTES, linger) if busy and linger > 0 else (1, IDLE_MS)
        private.pace(self._relay.member.consumer, *gathered)

    def _placed(self, offset: int) -> None:
        self._pacing.placed(offset, asyncio.get_running_loop().time())

    async def _take(self, partition: int, records: Sequence[Record]) -> None:
        if partition not in self._relay.positions:  # given up while the last record of another one was compared
            return
        epoch = self._relay.epoch
        begins, ends = self._relay.positions[partition], await self._relay.position(partition)
        if partition in self._again and (records or ends > self._again[partition].offset):
            await self._compare(partition, self._again.pop(partition), records[0] if records else None)
            if epoch != self._relay.epoch:
                return
            records = [record for record in records if record.offset >= begins]
        records = [record for record in records if not is_passed_over(record, self._given[partition >> TOPIC_BITS])]
        if ends > begins:
            self._relay.positions[partition] = ends
            self._pending.add(Chunk(partition, records, begins, ends))

    async def _compare(self, partition: int, last: Last, found: Record | None) -> None:
        """Check that this is the record that was read last.

        Raises:
            StoreError: it is another, or is missing without having been deleted.
        """
        if found is not None and found.offset == last.offset:
            if Last.of(found) == last:
                return
            what = "another record"
        else:
            if (await self._relay.bounds({partition: last.offset}))[partition][0] > last.offset:
                return  # deleted by retention meanwhile
            source = self.topics.place(partition)[0]
            policy = (await configs_of(self._relay.admin, [source])).get(source, {}).get("cleanup.policy", "compact")
            if "compact" in policy:
                self.log.info(
                    "%s: the record at offset %d, which was read last, is compacted away, so it is not certain that "
                    "the topic is the same", self.topics.where(partition), last.offset,
                )  # fmt: skip
                return
            what = "no record"
        raise StoreError(
            f"{self.topics.where(partition)}, has {what} at offset {last.offset}, which was read last: "
            "the topic was deleted and made again, or the brokers have lost its end, and it has new records since. It "
            "is unknown which of its documents were judged: read it under another topic_prefix."
        )

    async def _fetch_schemas(self, pool: ThreadPoolExecutor, schemas: Schemas, chunks: Sequence[Chunk]) -> None:
        """Fetch the schemas that records need. While the registry is absent this waits."""
        values = list[bytes | None]()
        for chunk in chunks:
            given = self._given[chunk.partition >> TOPIC_BITS]
            if given.document_format == "registry":
                values += [record.key for record in chunk.records if given.envelope == "debezium"]
                values += [record.value for record in chunk.records]
        missing, epoch = schemas.missing(values), self._relay.epoch

        async def pause(seconds: float) -> bool:
            await asyncio.sleep(seconds)
            return epoch != self._relay.epoch  # records of another epoch are not sent

        while missing and epoch == self._relay.epoch:
            fetch = partial(asyncio.get_running_loop().run_in_executor, pool, schemas.fetch, missing.pop())
            await self._absence.answered(fetch, pause)

    async def _sign(self) -> None:
        pool = ThreadPoolExecutor(1, "sign")
        try:
            await self._sign_in(pool)
        finally:
            # Not awaited: it would block everything else. The results of this signing are dropped.
            pool.shutdown(wait=False, cancel_futures=True)

    async def _sign_in(self, pool: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        began = -math.inf
        while True:
            await self._available.wait()
            wait = began + self._pacing.pause - loop.time()
            if wait > 0:
                waker = loop.call_later(wait, self._full.set)
                await self._full.wait()
                waker.cancel()
            await self._relay.room.wait()
            began = loop.time()
            epoch, chunks = self._relay.epoch, self._pending.take(self.settings.frame_documents, self._behind)
            self._wake()
            self._signing = bool(chunks)
            if not chunks:  # revoked meanwhile
                continue
            if self._schemas is not None:
                await self._fetch_schemas(pool, self._schemas, chunks)
            for part in self._attempts.parts(chunks):
                await self._relay.room.wait()
                if epoch == self._relay.epoch:
                    await self._send(pool, part, epoch, began)
            self._signing = False

    async def _send(self, pool: ThreadPoolExecutor, chunks: list[Chunk], epoch: int, began: float) -> None:
        """Sign documents, and send them unless the partitions were revoked meanwhile. began: when they were taken."""
        loop, now = asyncio.get_running_loop(), time.time_ns() // 1_000_000
        self._relay.busy = True
        self._underway = loop.run_in_executor(pool, self._attempts.sign, self._framer, chunks, now)
        self._underway.add_done_callback(seen)
        frames = await asyncio.shield(self._underway)
        self._relay.busy = False
        seconds = loop.time() - began
        if documents := sum(frame.documents for frame in frames):
            self.probe.batch(documents, seconds)
        for frame in frames:
            self.probe.traced(seconds, frame.documents, frame.source.headers.values)
        async with self._relay.member.working:
            for frame in frames if epoch == self._relay.epoch else ():
                self._engine_errors.look(frame.source.rejected, partial(frame.source.place, self.topics.where))
                self._lasts |= frame.lasts
                marks = {p: (position, self._noted(p, self._lasts.get(p))) for p, position in frame.positions.items()}
                await self._relay.send([(0, frame.data)], marks, frame.documents)
