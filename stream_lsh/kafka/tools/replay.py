"""Dead letters back onto the documents topic, as they came: which ones, and how far it has come.

What is sent and the position in the dead letters are one transaction, by a producer that fences every other one of this
kind: killed or repeated, each letter is sent at most once. A header counts how often, so that what is rejected again
and again does not go round for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

import orjson
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from stream_lsh.errors import BrokerError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.consumer.delivery import Delivery, Row, delivering
from stream_lsh.kafka.consumer.position import committed
from stream_lsh.kafka.forward.partition import LETTER
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.lives import Failed
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.reindex import partitions_of, read_from, reading

ROLE = "replay"
"""Of the consumer group and the transactional id."""
HEADER = "stream-lsh-replays"
WAIT_MS = 500
LETTERS, FETCH_BYTES = 500, 4 << 20  # of a transaction, and of an answer


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters. reasons: none = all. since, until: the documents' own timestamps in ms, `removed_at` exclusive.
    most: replays after which a document is left."""

    reasons: frozenset[str] = frozenset()
    since: int | None = None
    until: int | None = None
    most: int = 3

    def takes(self, reason: str) -> bool:
        return not self.reasons or reason in self.reasons

    def at(self, timestamp: int) -> bool:
        """Whether the time is one that was asked for."""
        return (self.since is None or timestamp >= self.since) and (self.until is None or timestamp < self.until)


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter. replays: how often the document was sent again before. row: as it is to be sent."""

    reason: str
    replays: int
    row: Row

    @classmethod
    def of(cls, record: ConsumerRecord) -> Letter | None:
        """What forward made a letter of; None: it is none."""
        headers = list(record.headers)
        original, added = headers[: -len(LETTER)], headers[-len(LETTER) :]
        if tuple(name for name, _ in added) != LETTER:
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
    """How far a partition of the dead letters was gone through: up to `offset`, but for letters with one of the
    `reasons`, each of which has an offset of its own."""

    offset: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)

    def at(self, reason: str) -> int:
        """Where letters with this reason begin that were not gone through."""
        return self.reasons.get(reason, self.offset)

    def first(self, wanted: Wanted) -> int:
        """Where such letters may begin."""
        return min(map(self.at, wanted.reasons)) if wanted.reasons else min([self.offset, *self.reasons.values()])

    def after(self, wanted: Wanted, offset: int) -> Reached:
        """With these letters gone through up to an offset."""
        if wanted.reasons:
            return Reached(self.offset, {**self.reasons, **{r: max(offset, self.at(r)) for r in wanted.reasons}})
        reasons, furthest = {r: max(offset, to) for r, to in self.reasons.items()}, max(offset, self.offset)
        return Reached(furthest, {r: to for r, to in reasons.items() if to != furthest})

    def again(self, wanted: Wanted) -> Reached:
        """With none of these letters gone through."""
        return (
            Reached(self.offset, {**self.reasons, **dict.fromkeys(wanted.reasons, 0)}) if wanted.reasons else Reached()
        )

    def metadata(self) -> str:
        """As text for an offset commit."""
        return orjson.dumps(self.reasons).decode()


@dataclass(slots=True)
class Counts:
    """What became of the letters. sent: by reason. other_time, too_often, foreign: left, as they are out of the time
    asked for, were sent too often, or are no letters."""

    sent: Counter[str] = field(default_factory=Counter)
    other_time: int = 0
    too_often: int = 0
    foreign: int = 0

    def chosen(self, records: Iterable[ConsumerRecord], wanted: Wanted, reached: Reached) -> list[Row]:
        """What is to be sent of these records."""
        rows = []
        for record in records:
            letter = Letter.of(record)
            if letter is None:
                self.foreign += 1
            elif not wanted.takes(letter.reason) or record.offset < reached.at(letter.reason):
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
    settings: KafkaSettings, wanted: Wanted, *, from_beginning: bool = False, dry_run: bool = False,
    report: Callable[[int], object] = lambda sent: None,
) -> Counts:  # fmt: skip
    """Send again what is wanted of the dead letters that are there now and were not gone through yet.

    Args:
        from_beginning: gone through or not. dry_run: only count. report: told how many were sent, again and again.

    Raises:
        BrokerError: a topic is missing, another one does the same, or Kafka does not answer.
        KafkaError, OSError: see `connection.explained`.
    """
    topics, counts = Topics.of(settings), Counts()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(admin(settings))
        places = await _places(client, settings)
        deliver: Delivery | None = None
        try:
            if not dry_run:  # first of all: it ends what another one has begun, so that the positions are the last ones
                deliver = await stack.enter_async_context(delivering(settings, Probe(ROLE)))
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
                        rows = counts.chosen(records, wanted, reached)
                        # It may have come further by now: what it has read there is for the next time.
                        reached = reached.after(wanted, min(await consumer.position(place), ends[place]))
                        if deliver is not None:
                            documents = {(topics.documents, place.partition): rows} if rows else {}
                            await deliver(documents, {place: (reached.offset, reached.metadata())})
                            report(counts.sent.total())
        except Failed as error:
            raise BrokerError(
                f"{error}. If no other replay is running, run the command again: it goes on where it was."
            ) from error
    return counts


async def _places(client: AIOKafkaAdminClient, settings: KafkaSettings) -> list[TopicPartition]:
    topics = Topics.of(settings)
    for topic in (topics.documents, topics.dead_letters):
        if not await partitions_of(client, topic):
            raise BrokerError(
                f"Kafka at {settings.bootstrap_servers} does not have the topic {topic}. `stream-lsh kafka topics "
                f"create` "
                "makes it."
            )
    return await partitions_of(client, topics.dead_letters)


async def reached_by(client: AIOKafkaAdminClient, settings: KafkaSettings) -> dict[int, Reached]:
    """How far the dead letters were gone through, by partition."""
    topics = Topics.of(settings)
    found = await committed(client, topics.group(ROLE), topics.dead_letters)
    return {partition: Reached(offset, orjson.loads(metadata)) for partition, (offset, metadata) in found.items()}


async def _next(consumer: AIOKafkaConsumer, place: TopicPartition, end: int) -> Sequence[ConsumerRecord]:
    found = (await consumer.getmany(place, timeout_ms=WAIT_MS, max_records=LETTERS)).get(place, [])
    return [record for record in found if record.offset < end]
