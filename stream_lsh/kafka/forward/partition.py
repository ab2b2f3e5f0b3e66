"""One source partition of the forward role: documents and verdicts joined, delivered, committed together."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from aiokafka import ConsumerRecord, TopicPartition

from stream_lsh.documents.fields import id_text, plain
from stream_lsh.documents.refused import Refused
from stream_lsh.errors import ForeignError, StoreError
from stream_lsh.judging.verdicts import Kind
from stream_lsh.kafka.client.clients import seen
from stream_lsh.kafka.consumer.delivery import Delivery, Row
from stream_lsh.kafka.consumer.position import REBUILD, Reading
from stream_lsh.kafka.forward.join import Header, Join, Joined, Verdict
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.settings import KafkaSettings

log = logging.getLogger("stream_lsh.kafka.forward")

MOST_DOCUMENTS, MOST_BYTES = 2000, 2 << 20  # of a transaction, but for its last document
FULL = 500  # documents; a transaction with fewer is followed by a pause, so that many partitions do not mean many
MOST_VERDICTS = 10_000  # waiting for their documents; then no more are fetched
_REMEDIES = (
    REBUILD,
    "To go on without them start the worker with --accept-loss once; give the topic a longer retention.ms",
)
DOCUMENTS, VERDICTS = Reading("documents", "forwarded", *_REMEDIES), Reading("verdicts", "forwarded", *_REMEDIES)
LETTER = "reason", "detail", "topic", "partition", "offset"
"""The headers that a dead letter has behind those of the document."""
GONE = (
    "id",
    "new-representative",
    "new-representative-topic",
    "new-representative-partition",
    "new-representative-offset",
)
"""The headers of a tombstone; without a new representative only the first, of a new representative that is known later
all but that. What a document brings along under these names is left out: read from the `unique` of another pipeline it
would name that one's representative."""
UNIQUE, REJECTED = Kind.UNIQUE.label, Kind.REJECTED.label


class SourcePartition:
    """Works from `begin` until `close`, in a task of its own.

    Args:
        most_bytes: of documents that wait for their verdicts; then no more are fetched.
        pause: seconds. moved: called whenever something was delivered.
    """

    def __init__(
        self,
        partition: int,
        settings: KafkaSettings,
        delivery: Delivery,
        watch: Probe,
        most_bytes: int,
        pause: float,
        moved: Callable[[], None],
    ) -> None:
        self.partition = partition
        self._topics = Topics.of(settings)
        self.documents = TopicPartition(self._topics.documents, partition)
        self.verdicts = TopicPartition(self._topics.verdicts, partition)
        self.join: Join[ConsumerRecord] = Join(0, 0)
        self.task: asyncio.Task[None] | None = None
        self.busy = False
        self.quiet_since = time.monotonic()
        self._settings = settings
        self._delivery = delivery
        self._watch = watch
        self._most_bytes = most_bytes
        self._pause = pause
        self._moved = moved
        self._committed = 0, 0
        self._lost = self._compacted = 0
        self._wake = asyncio.Event()
        self._closing = False

    async def start(self, documents: int, verdicts: int, *, commit: bool) -> None:
        """Begin at these positions; `commit` them first. Raises as `Delivery`."""
        self.join = Join(documents, verdicts)
        self._committed = documents, verdicts
        if commit:
            await self._deliver([])
        self.task = asyncio.create_task(self._run(), name=f"forward-{self.partition}")
        self.task.add_done_callback(seen)  # where several fail, the stage hears of the first

    async def close(self) -> None:
        """Finish what is being delivered, and stop. What went wrong meanwhile is the business of who began it."""
        self._closing = True
        self._wake.set()
        if self.task is not None:
            await asyncio.wait([self.task])

    def offer(self, documents: Sequence[ConsumerRecord], verdicts: Sequence[Verdict]) -> None:
        """Take what has come from the two topics."""
        self.join.add_documents(documents)
        self.join.add_verdicts(verdicts)
        self.quiet_since = time.monotonic()
        self._wake.set()

    def reached(self, documents: int, verdicts: int) -> None:
        """The consumer stands at these positions, and there has been nothing for a while: commit that.

        Else the end of a transaction, which is no record, would stay before the committed position, and a partition
        that retention empties would look as if something had been lost.
        """
        self.join.reached(documents, verdicts)
        self._wake.set()

    @property
    def wants_documents(self) -> bool:
        return self.join.size < self._most_bytes

    @property
    def wants_verdicts(self) -> bool:
        return self.join.waiting[1] < MOST_VERDICTS

    async def _run(self) -> None:
        while not self._closing:
            await self._wake.wait()
            self._wake.clear()
            while not self._closing:
                joined = self.join.take(MOST_DOCUMENTS, MOST_BYTES)
                self._look_for_losses()
                if not joined and (self.join.position, self.join.settled) == self._committed:
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
        position, settled = self.join.position, self.join.settled
        unique: list[Row] = []
        dead: list[Row] = []
        there = [(document, verdict) for document, verdict in joined if document is not None]
        for document, verdict in joined:
            unique += representatives(document, verdict)
            if verdict.gone:
                unique.append(tombstone(document, verdict))
            if document is None:
                continue
            if verdict.kind == UNIQUE:
                unique.append((document.key, document.value, list(document.headers), document.timestamp))
            elif verdict.kind == REJECTED:
                dead.append(dead_letter(document, verdict))
        outputs = {(self._topics.unique, self.partition): unique, (self._topics.dead_letters, self.partition): dead}
        await self._delivery(
            {place: rows for place, rows in outputs.items() if rows},
            {self.documents: (position, ""), self.verdicts: (settled, "")},
        )
        self._committed = position, settled
        if there:
            self._watch.documents(len(there))
            self._watch.batch(len(there), time.perf_counter() - began)
        self._watch.waited(max(0, verdict.time - document.timestamp) / 1000 for document, verdict in there)
        for _, verdict in joined:
            if verdict.kind == REJECTED:
                self._watch.rejected(verdict.reason)
        self._watch.committed()

    def _look_for_losses(self) -> None:
        """Raises StoreError where documents were deleted by retention, unless that was allowed."""
        lost, compacted = self.join.lost - self._lost, self.join.compacted - self._compacted
        self._lost, self._compacted = self.join.lost, self.join.compacted
        if compacted:
            self._watch.ignored("compacted", compacted)
        if lost and not self._settings.accept_loss:
            raise DOCUMENTS.deleted(f"{self._topics.documents}, partition {self.partition}", f"{lost} documents")
        if lost:
            log.warning("%d documents of %s, partition %d, are lost (accept_loss)", lost, *self.documents)


def tombstone(document: ConsumerRecord | None, verdict: Verdict) -> Row:
    """That a kept document went, under the key of the one with which it did; who stands in its place is in the headers.
    Where that one is not there any more, under the key of the verdict on it."""
    if document is None:
        return verdict.key, None, [*verdict.gone], verdict.time
    key = verdict.key if document.key is None else document.key
    brought = [header for header in document.headers if header[0] not in GONE]
    return key, None, [*brought, *verdict.gone], document.timestamp


def representatives(document: ConsumerRecord | None, verdict: Verdict) -> list[Row]:
    """That others stand in the places of kept ones that went before."""
    when = verdict.time if document is None else document.timestamp
    return [(key, None, [*headers], when) for key, headers in verdict.new_representatives]


def gone_headers(found: Mapping[str, Any]) -> list[Header]:
    """The headers of a tombstone, by the verdict with which a kept document went."""
    headers = [(GONE[0], id_text(found["id"]))]
    return (
        headers + _representative(found["new_representative"], found["new_representative_source"])
        if "new_representative" in found
        else headers
    )


def _representative(representative: Mapping[str, Any], place: Mapping[str, Any]) -> list[Header]:
    where = [str(place[name]).encode() for name in ("topic", "partition", "offset")]
    return list(zip(GONE[1:], [id_text(representative["id"]), *where], strict=True))


def later_representatives(found: Mapping[str, Any]) -> list[tuple[bytes | None, list[Header]]]:
    """Keys and headers of the tombstones that name representatives whose predecessors went before: each has its
    representative's key, as under that nothing stands yet, while the predecessor's may be there again."""
    named = zip(found.get("new_representatives", ()), found.get("new_representative_sources", ()), strict=True)
    return [
        (plain(id_text(representative["id"])), _representative(representative, place))
        for representative, place in named
    ]


def dead_letter(document: ConsumerRecord, verdict: Verdict) -> Row:
    """A rejected document as it came, with the reason and where it stood in its headers."""
    added = verdict.reason, verdict.detail, document.topic, str(document.partition), str(document.offset)
    headers = [(name, value.encode("utf-8", "surrogatepass")) for name, value in zip(LETTER, added, strict=True)]
    return document.key, document.value, [*document.headers, *headers], document.timestamp


def read_verdict(record: ConsumerRecord, topic: str) -> Verdict:
    """What forward needs of a verdict on a document of `topic`.

    Raises:
        ForeignError: it is none. StoreError: it is on a document of another topic.
    """
    try:
        found = _object(record.value)
        source, kind = found["source"], found["kind"]
        reason, detail = found.get("reason", ""), found.get("detail", "")
        gone = gone_headers(found) if found.get("gone") else ()
        verdict = Verdict(
            record.offset, source["offset"], kind, reason, detail, record.timestamp, record.key, gone,
            later_representatives(found),
        )  # fmt: skip
        about = source["topic"], source["partition"]
    except (ValueError, KeyError, TypeError, Refused) as error:
        raise ForeignError(f"a record is no verdict ({error}); something else writes to this topic: stop it") from None
    if about != (topic, record.partition):
        raise StoreError(
            f"a verdict is on {about[0]}, partition {about[1]}, not on {topic}: use one topic_prefix for one "
            "documents_topic"
        )
    return verdict


def _object(value: bytes) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:  # an id may hold a lone surrogate, which orjson refuses
        return json.loads(value)
