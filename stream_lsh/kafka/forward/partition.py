"""One partition of the forward role: documents and verdicts are joined, delivered and committed together.

With several documents topics it has the partitions with one number of all of them. Their verdicts are in one partition,
and each topic has a join of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aiokafka import ConsumerRecord, TopicPartition

from stream_lsh.documents.fields import id_text, output_object, plain
from stream_lsh.documents.refused import Refused
from stream_lsh.errors import ForeignError, StoreError
from stream_lsh.judging.verdicts import Kind
from stream_lsh.kafka.client.clients import seen
from stream_lsh.kafka.client.reading import between, reading
from stream_lsh.kafka.consumer.delivery import Delivery, Row
from stream_lsh.kafka.consumer.output_values import undecoded
from stream_lsh.kafka.consumer.position import REBUILD, Reading, place_of
from stream_lsh.kafka.forward.join import Header, Join, Joined, Verdict
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.source import is_passed_over, record_size, source_of

log = logging.getLogger("stream_lsh.kafka.forward")

MOST_DOCUMENTS, MOST_BYTES = 2000, 2 << 20  # limits of a transaction; its last document may exceed them
FULL = 500  # documents; after a transaction with fewer there is a pause, to limit the number of transactions
MOST_VERDICTS = 10_000  # waiting for their documents; above that no more are fetched
_REMEDIES = (
    REBUILD,
    "To continue without them, start the worker with --accept-deleted-records {place}; raise the topic's retention.ms.",
)
Commits = Mapping[TopicPartition, tuple[int, str]]
"""Positions with their metadata."""
DOCUMENTS, VERDICTS = Reading("documents", "forwarded", *_REMEDIES), Reading("verdicts", "forwarded", *_REMEDIES)
LETTER = "reason", "detail", "topic", "partition", "offset"
"""The headers that a dead letter has after those of the document."""
TOPIC = LETTER[2]
"""The header of a unique document with its topic, where there are several."""
TRUNCATED = "truncated"
"""The header before those, of a dead letter that has only the beginning of the document's value: the bytes of all."""
TOMBSTONE = (
    "id",
    "new-representative",
    "new-representative-topic",
    "new-representative-partition",
    "new-representative-offset",
)
"""The headers of a tombstone. Without a new representative it has only the first. For a representative that is known
later it has all but the first. A document's own headers of these names are left out: in documents read from the
`unique` of another pipeline they would name that pipeline's representative."""
UNIQUE, REJECTED = Kind.UNIQUE.label, Kind.REJECTED.label


class SourcePartition:
    """Works from `start` until `close`, in its own task.

    Args:
        most_bytes: limit of documents that wait for their verdicts; above that no more are fetched.
        pause: seconds between small transactions.
        moved: called after each delivery.
        largest: bytes of the largest dead letter.
    """

    def __init__(
        self,
        partition: int,
        documents: Sequence[TopicPartition],
        settings: KafkaSettings,
        delivery: Delivery,
        probe: Probe,
        most_bytes: int,
        pause: float,
        moved: Callable[[], None],
        largest: int,
    ) -> None:
        self.partition = partition
        self._largest = largest
        self._topics = Topics.of(settings)
        self.documents = documents
        self.verdicts = TopicPartition(self._topics.verdicts, partition)
        self.joins: dict[str, Join[ConsumerRecord]] = {}
        self.task: asyncio.Task[None] | None = None
        self.busy = False
        self.loss_accepted = False
        self.quiet_since = dict.fromkeys((place.topic for place in documents), time.monotonic())
        self._settings = settings
        self._delivery = delivery
        self._probe = probe
        self._most_bytes = most_bytes
        self._pause = pause
        self._moved = moved
        self._committed: Commits = {}
        self._read = 0  # offset up to which verdicts were read
        self._offered = time.monotonic()  # when there were new records
        self._losses: dict[str, tuple[int, int]] = {}  # lost and compacted, as last looked at
        self._wake = asyncio.Event()
        self._closing = False

    async def start(self, begins: Commits, known: Commits) -> None:
        """Begin at positions; commit them first if some are new. Raises as `Delivery`.

        Args:
            begins: of all places. known: those of them that were committed, with their metadata.
        """
        self._read = after = begins[self.verdicts][0]
        for place in self.documents:
            position, text = begins[place]
            self.joins[place.topic] = Join(position, int(text or after), new=place not in known)
        self._losses = dict.fromkeys(self.joins, (0, 0))
        if not begins.keys() <= known.keys():
            await self._deliver([])
        self._wake.set()  # a commit may be lost, or without a record
        self.task = asyncio.create_task(self._run(), name=f"forward-{self.partition}")
        self.task.add_done_callback(seen)  # if several fail, the stage raises the first error

    async def close(self) -> None:
        """Finish the delivery in progress, and stop. Does not raise the task's error: the stage does."""
        self._closing = True
        self._wake.set()
        if self.task is not None:
            await asyncio.wait([self.task])

    def offer(self, documents: Sequence[ConsumerRecord], verdicts: Sequence[Verdict]) -> None:
        """Add new records.

        Raises:
            Failed: a verdict is about a partition that this member does not read yet.
        """
        if added := {verdict.topic for verdict in verdicts} - self.joins.keys():
            raise Failed(f"{', '.join(added)} has a partition {self.partition} now")
        for topic, join in self.joins.items():
            settings = self._settings.by_topic[topic]
            mine = [record for record in documents if record.topic == topic]
            theirs = [verdict for verdict in verdicts if verdict.topic == topic]
            join.add_documents(record for record in mine if not is_passed_over(record, settings))
            join.add_verdicts(theirs)
            if mine or theirs:
                self.quiet_since[topic] = time.monotonic()
        if verdicts:
            self._read = verdicts[-1].at + 1
        self._offered = time.monotonic()
        self._wake.set()

    def reached(self, documents: Mapping[TopicPartition, int], verdicts: int) -> None:
        """Commit the consumer's positions in documents topics that were quiet for a time, and in verdicts.

        Otherwise trailing transaction markers count as unread records, and if retention empties the partition this
        looks like a loss.
        """
        for place, position in documents.items():
            self.joins[place.topic].reached(position, verdicts)
            self.quiet_since[place.topic] = time.monotonic()
        self._read = max(self._read, verdicts)
        self._wake.set()

    def waits(self, since: float) -> bool:
        """Whether documents wait for verdicts, and there were no new records since that time."""
        waiting = (join.waiting for join in self.joins.values())
        return self._offered < since and any(documents and not verdicts for documents, verdicts in waiting)

    def judged(self, accepted: Mapping[int, int]) -> None:
        """All verdicts on documents before the accepted position of their source partition were offered."""
        for topic, join in self.joins.items():
            join.judged(accepted.get(source_of(self._topics.sources, topic, self.partition), 0))
        self._wake.set()

    @property
    def places(self) -> list[TopicPartition]:
        """All that it reads."""
        return [*self.documents, self.verdicts]

    @property
    def needed(self) -> int:
        """Offset of the first verdict that some topic needs."""
        waiting = [first for join in self.joins.values() if (first := join.first_verdict) is not None]
        return min(waiting, default=self._read)

    @property
    def _positions(self) -> Commits:
        """What is to be committed. Of several topics, each has with its position that of its verdicts."""
        several = len(self._topics.sources) > 1
        joins = {place: self.joins[place.topic] for place in self.documents}
        documents = {place: (join.position, str(join.needed) if several else "") for place, join in joins.items()}
        return {**documents, self.verdicts: (self.needed, "")}

    def wants(self, place: TopicPartition) -> bool:
        """Whether there is room for more records of a place."""
        if place == self.verdicts:
            return sum(join.waiting[1] for join in self.joins.values()) < MOST_VERDICTS
        return self.joins[place.topic].size < self._most_bytes

    async def _run(self) -> None:
        while not self._closing:
            await self._wake.wait()
            self._wake.clear()
            while not self._closing:
                joined = list[Joined[ConsumerRecord]]()
                for place in self.documents:
                    joined += self.joins[place.topic].take(MOST_DOCUMENTS, MOST_BYTES)
                    self._look_for_losses(place)
                    await self._look_for_lost_verdicts(place)
                if not joined and self._positions == self._committed:
                    break
                self.busy = True
                try:
                    await self._deliver(joined)
                finally:
                    self.busy = False
                self._moved()
                if len(joined) < FULL:
                    await asyncio.sleep(self._pause)

    async def _deliver(self, joined: Sequence[Joined[ConsumerRecord]]) -> None:
        began = time.perf_counter()
        positions = self._positions
        there = [(document, verdict) for document, verdict in joined if document is not None]
        unique, letters = forwarded(joined, self._settings, self._largest)
        outputs = {
            (self._topics.unique, self.partition): unique,
            (self._topics.dead_letters, self.partition): letters,
        }
        await self._delivery({place: rows for place, rows in outputs.items() if rows}, positions)
        if joined or self._committed:  # positions that were committed before are no progress
            self._probe.committed()
        self._committed = positions
        if there:
            self._probe.documents.inc(len(there))
            seconds = time.perf_counter() - began
            self._probe.batch(len(there), seconds)
            headers = (document.headers for document, _ in there)
            self._probe.traced(seconds, len(there), lambda: headers, partition=self.partition)
        self._probe.waited(max(0, verdict.time - document.timestamp) / 1000 for document, verdict in there)
        for _, verdict in joined:
            if verdict.kind == REJECTED:
                self._probe.rejected(verdict.reason)

    def _look_for_losses(self, documents: TopicPartition) -> None:
        """Raises StoreError if retention has deleted documents, unless that is allowed."""
        join, before = self.joins[documents.topic], self._losses[documents.topic]
        lost, compacted = join.lost - before[0], join.compacted - before[1]
        self._losses[documents.topic] = join.lost, join.compacted
        if compacted:
            self._probe.ignored("compacted", compacted)
        if not lost:
            return
        place = place_of(documents, join.begin)
        if not self.loss_accepted and place not in self._settings.accept_deleted_records:
            raise DOCUMENTS.deleted(documents, f"{lost} documents", place)
        log.warning("%d documents of %s, partition %d, are lost (accept_deleted_records)", lost, *documents)

    async def _look_for_lost_verdicts(self, documents: TopicPartition) -> None:
        """Name the documents that have no verdict and get none. One that is not in its topic any more was compacted
        before it was signed."""
        join = self.joins[documents.topic]
        offsets, join.without_verdict = join.without_verdict, []
        if not offsets:
            return
        async with reading(self._settings) as consumer:
            records = await between(consumer, documents, offsets[0], offsets[-1] + 1)
        lost = sorted({record.offset for record in records}.intersection(offsets))
        self._probe.ignored("compacted", len(offsets) - len(lost))
        self._probe.ignored("no_verdict", len(lost))
        if lost:
            log.warning(
                "%s, partition %d: %d documents from offset %d to %d have no verdict and get none: the brokers have "
                "lost records of %s, or a record was skipped. These documents are in no output. %s",
                *documents, len(lost), lost[0], lost[-1], self.verdicts.topic, REBUILD,
            )  # fmt: skip


def forwarded(
    joined: Iterable[Joined[ConsumerRecord]], settings: KafkaSettings, largest: int = 2**31
) -> tuple[list[Row], list[Row]]:  # fmt: skip
    """The records for `unique` and for `dead-letters`. Tombstones of a document are before it: they name new
    representatives, and the key of a superseded document is its id. Of several topics, a unique document has a header
    with its topic.

    Args:
        largest: bytes of the largest dead letter.
    """
    several = len(settings.by_topic) > 1
    unique: list[Row] = []
    letters: list[Row] = []
    for document, verdict in joined:
        when = verdict.time if document is None else document.timestamp
        unique += [(plain(settings.of_id(id)[1]), None, [*h], when) for id, h in verdict.new_representatives]
        if verdict.tombstone:
            key = plain(settings.of_id(verdict.tombstone[0][1])[1])
            unique.append(tombstone(document, verdict._replace(key=key)))
        if verdict.supersedes:
            topic, id = settings.of_id(verdict.supersedes)
            key = id if topic.key_is_id == "json" else plain(id)
            unique.append((key, None, [(TOMBSTONE[0], verdict.supersedes)], when))
        if document is None:
            continue
        if verdict.kind == UNIQUE:
            headers = [*document.headers, *([(TOPIC, document.topic.encode())] if several else [])]
            unique.append((document.key, document.value, headers, document.timestamp))
        elif verdict.kind == REJECTED:
            letters.append(_cut(dead_letter(document, verdict), largest))
    return unique, letters


def tombstone(document: ConsumerRecord | None, verdict: Verdict) -> Row:
    """The tombstone of an ended kept document. Its headers name the new representative. Its key is that of the document
    that ended it, or of that document's verdict if the document is not there any more."""
    if document is None:
        return verdict.key, None, [*verdict.tombstone], verdict.time
    key = verdict.key if document.key is None else document.key
    brought = [header for header in document.headers if header[0] not in TOMBSTONE]
    return key, None, [*brought, *verdict.tombstone], document.timestamp


def tombstone_headers(found: Mapping[str, Any]) -> list[Header]:
    """The headers of a tombstone, from the verdict that ended a kept document."""
    headers = [(TOMBSTONE[0], id_text(found["id"]))]
    return (
        headers + _representative(found["new_representative"], found["new_representative_source"])
        if "new_representative" in found
        else headers
    )


def _representative(representative: Mapping[str, Any], place: Mapping[str, Any]) -> list[Header]:
    where = [str(place[name]).encode() for name in ("topic", "partition", "offset")]
    return list(zip(TOMBSTONE[1:], [id_text(representative["id"]), *where], strict=True))


def later_representatives(found: Mapping[str, Any]) -> list[tuple[bytes, list[Header]]]:
    """Ids and headers of tombstones that name a representative for a kept document that ended earlier. The id is the
    representative's: it has no earlier record, while the predecessor's key may be in use again."""
    named = zip(found.get("new_representatives", ()), found.get("new_representative_sources", ()), strict=True)
    return [(id_text(representative["id"]), _representative(representative, place)) for representative, place in named]


def dead_letter(document: ConsumerRecord, verdict: Verdict) -> Row:
    """A rejected document unchanged, with the reason and its source position in added headers."""
    added = verdict.reason, verdict.detail, document.topic, str(document.partition), str(document.offset)
    headers = [(name, value.encode("utf-8", "surrogatepass")) for name, value in zip(LETTER, added, strict=True)]
    return document.key, document.value, [*document.headers, *headers], document.timestamp


def _cut(letter: Row, most: int) -> Row:
    """The dead letter with the beginning of its value, if it has more bytes than its topic takes: the documents topic
    may have it compressed. If key and headers of the document leave no room, its headers are left out, and of the key
    is only the beginning."""
    key, value, headers, timestamp = letter
    own, added = headers[: -len(LETTER)], headers[-len(LETTER) :]
    size = TRUNCATED, str(len(value or b"")).encode()
    room = most - record_size(key, None, [*own, (TRUNCATED, bytes(20)), *added])
    if len(value or b"") <= room:
        return letter
    if room < 0:
        own, room = [], most - record_size(key, None, [size, *added])
    if room < 0:
        key, room = (key or b"")[:room], 0
    return key, value and value[:room], [*own, size, *added], timestamp


def read_verdict(record: ConsumerRecord, *topics: str) -> Verdict:
    """The parts of a verdict that forward needs.

    Args:
        topics: the documents topics.

    Raises:
        ForeignError: the record is no verdict.
        StoreError: it is about a document of another topic, or its value could not be decoded.
    """
    if (why := undecoded(record.value)) is not None:
        raise StoreError(why)
    try:
        found = output_object(record.value or b"")
        source, kind, reason, detail = found["source"], found["kind"], found.get("reason", ""), found.get("detail", "")
        headers = tombstone_headers(found) if found.get("tombstone") else ()
        supersedes = id_text(found["supersedes"]) if "supersedes" in found else b""
        verdict = Verdict(
            record.offset, source["offset"], kind, reason, detail, record.timestamp, record.key, headers,
            later_representatives(found), supersedes, source["topic"],
        )  # fmt: skip
        about = source["topic"], source["partition"]
    except (ValueError, KeyError, TypeError, Refused) as error:
        raise ForeignError(f"a record is no verdict ({error}); something else writes to this topic: stop it") from None
    if about[0] not in topics or about[1] != record.partition:
        raise StoreError(
            f"a verdict is on {about[0]}, partition {about[1]}, not on {', '.join(topics)}: use one topic_prefix for "
            "the same documents topics"
        )
    return verdict
