"""Replay: sends dead letters to their documents topic again, unchanged, and keeps the position.

One transaction commits the sent documents and the position in the dead letters. Its producer fences every other replay:
even if it is killed or repeated, each letter is sent at most once. A header counts the replays of a document, so that a
document that is always rejected is not replayed for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

import orjson
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from stream_lsh.errors import BrokerError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.client.reading import existing, read_from, reading
from stream_lsh.kafka.consumer.delivery import BATCH_BYTES, Delivery, Row, delivering
from stream_lsh.kafka.consumer.position import committed
from stream_lsh.kafka.forward.partition import LETTER, TOPIC, TRUNCATED
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.topics import batch_limit

ROLE = "replay"
"""Name of the consumer group and of the transactional id."""
HEADER = "stream-lsh-replays"
WAIT_MS = 500
LETTERS, FETCH_BYTES = 500, 4 << 20  # limits of a transaction, and of a fetch response


@dataclass(frozen=True, slots=True)
class Wanted:
    """The letters to replay.

    Attributes:
        reasons: none = all.
        since, until: range of the documents' timestamps in ms, `until` exclusive.
        most: a document with as many replays is not sent again.
    """

    reasons: frozenset[str] = frozenset()
    since: int | None = None
    until: int | None = None
    most: int = 3

    def at(self, timestamp: int) -> bool:
        """Whether a timestamp is in the range."""
        return (self.since is None or timestamp >= self.since) and (self.until is None or timestamp < self.until)


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter. replays: how often the document was sent again. row: the record to be sent."""

    reason: str
    replays: int
    row: Row

    @classmethod
    def of(cls, record: ConsumerRecord) -> Letter | None:
        """The letter in a record of forward; None for another record, or if the document is cut."""
        headers = list(record.headers)
        original, added = headers[: -len(LETTER)], headers[-len(LETTER) :]
        if tuple(name for name, _ in added) != LETTER or (original and original[-1][0] == TRUNCATED):
            return None
        replays = 0
        for name, value in original:
            if name == HEADER:
                with suppress(ValueError):
                    replays = max(replays, int(value or b""))
        kept = [(name, value) for name, value in original if name != HEADER]
        row = record.key, record.value, [*kept, (HEADER, b"%d" % (replays + 1))], record.timestamp
        return cls((added[0][1] or b"").decode("utf-8", "replace"), replays, row)


@dataclass(frozen=True, slots=True)
class Reached:
    """Progress in a partition of the dead letters. All letters before `offset` are processed, except those with a
    reason in `reasons`, each of which has its own offset."""

    offset: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)

    def at(self, reason: str) -> int:
        """Offset of the first letter with this reason that may be unprocessed."""
        return self.reasons.get(reason, self.offset)

    def first(self, wanted: Wanted) -> int:
        """The lowest such offset of the wanted letters."""
        return min(map(self.at, wanted.reasons)) if wanted.reasons else min([self.offset, *self.reasons.values()])

    def after(self, wanted: Wanted, offset: int) -> Reached:
        """The progress with these letters processed up to an offset."""
        if wanted.reasons:
            return Reached(self.offset, {**self.reasons, **{r: max(offset, self.at(r)) for r in wanted.reasons}})
        reasons, furthest = {r: max(offset, to) for r, to in self.reasons.items()}, max(offset, self.offset)
        return Reached(furthest, {r: to for r, to in reasons.items() if to != furthest})

    def again(self, wanted: Wanted) -> Reached:
        """The progress with these letters unprocessed."""
        return (
            Reached(self.offset, {**self.reasons, **dict.fromkeys(wanted.reasons, 0)}) if wanted.reasons else Reached()
        )

    def metadata(self) -> str:
        """The text for an offset commit."""
        return orjson.dumps(self.reasons).decode()


@dataclass(slots=True)
class Counts:
    """Counts of letters.

    Attributes:
        sent: by reason.
        other_time, too_often, foreign: not sent, because the timestamp is out of range, the document was replayed too
            often, or the record is no letter.
    """

    sent: Counter[str] = field(default_factory=Counter)
    other_time: int = 0
    too_often: int = 0
    foreign: int = 0

    def by_topic(
        self, records: Sequence[ConsumerRecord], topics: Sequence[str]
    ) -> Mapping[str, Sequence[ConsumerRecord]]:
        """The records by the documents topic of which they are: of several the one that a letter names."""
        if len(topics) == 1:
            return {topics[0]: records}
        found: dict[str, list[ConsumerRecord]] = {topic: [] for topic in topics}
        for record in records:
            topic = (dict(list(record.headers)[-len(LETTER) :]).get(TOPIC) or b"").decode("utf-8", "replace")
            if topic in found:
                found[topic].append(record)
            else:
                self.foreign += 1
        return found

    def chosen(self, records: Iterable[ConsumerRecord], wanted: Wanted, reached: Reached) -> list[Row]:
        """The documents to be sent for these records."""
        rows = []
        for record in records:
            letter = Letter.of(record)
            if letter is None:
                self.foreign += 1
            elif (wanted.reasons and letter.reason not in wanted.reasons) or record.offset < reached.at(letter.reason):
                continue
            elif not wanted.at(record.timestamp):
                self.other_time += 1
            elif letter.replays >= wanted.most:
                self.too_often += 1
            else:
                self.sent[letter.reason] += 1
                rows.append(letter.row)
        return rows


async def replay(
    settings: KafkaSettings, wanted: Wanted, *, from_beginning: bool = False, dry_run: bool = False
) -> Counts:
    """Send the wanted dead letters that are there now and unprocessed.

    Args:
        from_beginning: include processed letters.
        dry_run: only count.

    Raises:
        BrokerError: a topic is missing, another replay runs, or Kafka does not answer.
        KafkaError, OSError: see `connection.explained`.
    """
    topics, counts = Topics.of(settings), Counts()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(admin(settings))
        for topic in topics.sources:
            await existing(client, settings, topic)
        places = await existing(client, settings, topics.dead_letters)
        deliver: Delivery | None = None
        try:
            if not dry_run:  # first: it ends another replay's transaction, so that the positions are final
                batch_bytes = await batch_limit(client, settings, BATCH_BYTES)
                delivery = delivering(settings, Probe(ROLE), batch_bytes=batch_bytes)
                deliver = await stack.enter_async_context(delivery)
            found = await reached_by(client, settings)
            async with reading(settings, max_partition_fetch_bytes=FETCH_BYTES) as consumer:
                begins, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
                known = {place: found.get(place.partition, Reached()) for place in places}
                if from_beginning:
                    known = {place: reached.again(wanted) for place, reached in known.items()}
                begin = {place: max(begins[place], reached.first(wanted)) for place, reached in known.items()}
                read_from(consumer, {place: min(ends[place], at) for place, at in begin.items()})
                for place, reached in known.items():
                    while await consumer.position(place) < ends[place]:
                        records = await _next(consumer, place, ends[place])
                        documents = {
                            (topic, place.partition): rows
                            for topic, letters in counts.by_topic(records, topics.sources).items()
                            if (rows := counts.chosen(letters, wanted, reached))
                        }
                        # The consumer may be past the end: what follows is left for the next replay.
                        reached = reached.after(wanted, min(await consumer.position(place), ends[place]))
                        if deliver is not None:
                            await deliver(documents, {place: (reached.offset, reached.metadata())})
        except Failed as error:
            raise BrokerError(
                f"{error}. If no other replay is running, run the command again: it continues from there."
            ) from error
    return counts


async def reached_by(client: AIOKafkaAdminClient, settings: KafkaSettings) -> dict[int, Reached]:
    """The progress in the dead letters, by partition."""
    topics = Topics.of(settings)
    found = await committed(client, topics.group(ROLE), topics.dead_letters)
    return {partition: Reached(offset, orjson.loads(metadata)) for partition, (offset, metadata) in found.items()}


async def _next(consumer: AIOKafkaConsumer, place: TopicPartition, end: int) -> Sequence[ConsumerRecord]:
    found = (await consumer.getmany(place, timeout_ms=WAIT_MS, max_records=LETTERS)).get(place, [])
    return [record for record in found if record.offset < end]
