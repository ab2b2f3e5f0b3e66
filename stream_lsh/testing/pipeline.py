"""The pipeline on Kafka in memory: the roles' own functions, called one after the other, without a broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import orjson

from stream_lsh.embedded.temporary import temporary_folder
from stream_lsh.errors import StreamLshError, UsageError
from stream_lsh.families.family import signer_of
from stream_lsh.hashing.siphash import KEY_BYTES
from stream_lsh.kafka.consumer.decisions import BEHIND, KnownDecisions, decisions_due
from stream_lsh.kafka.consumer.delivery import Row
from stream_lsh.kafka.consumer.output_headers import ALERT, GROUP, EventHeaders
from stream_lsh.kafka.consumer.output_values import in_avro, topic_of
from stream_lsh.kafka.forward.join import Joined
from stream_lsh.kafka.forward.partition import forwarded, read_verdict
from stream_lsh.kafka.groups.folding import Folding
from stream_lsh.kafka.groups.stage import rules_of, with_headers
from stream_lsh.kafka.groups.store import LocalStore
from stream_lsh.kafka.judge.deciding import Deciding
from stream_lsh.kafka.judge.records import Records
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.kafka.names import Topics, largest_frame
from stream_lsh.kafka.partitioner import partition_of
from stream_lsh.kafka.registry.encoding import IN_MEMORY, Encoder, avro_schema
from stream_lsh.kafka.sequence.order import Accepted, Decision, sent_to_shards
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.framing import Chunk, Framer
from stream_lsh.settings.model import Settings
from stream_lsh.testing.log import Consumer, Log, Record, in_json
from stream_lsh.wire.decisions import Decisions
from stream_lsh.wire.frames import STARTS, Places
from stream_lsh.wire.memberships import Memberships
from stream_lsh.wire.source import is_passed_over
from stream_lsh.wording import missing_package

KEY = bytes(KEY_BYTES)
"""The key of every index: equal documents give equal records."""
READABLE = ("documents", "verdicts", "pairs", "unique", "dead_letters", "groups", "alerts")
"""The topics that users read, as attributes of `Topics` and of `Pipeline`."""


class Pipeline:
    """A pipeline without a broker. `send` publishes at once all records that a document causes.

    Workers on Kafka publish the same records: topics, keys, values, headers and their order in a partition. Documents
    are processed in the order in which they are sent, each in a frame of its own. The index is in a temporary folder.
    All pipelines have the same index key: equal documents and times give equal records.

    With `output_format` = "avro" no registry is asked. The schemas have the ids 1 (verdict), 2 (pair), 3 (group) and
    4 (alert); `schemas` has them by id.

    Args:
        settings: of the pipeline.
        clock: gives the time of signing and of arrival, in ms since 1970; by default the system's.
        given: settings by name, which replace those of `settings`.

    Raises:
        UsageError: a setting is wrong, or the documents need a Schema Registry.
        StreamLshError: outputs are Avro, and the extra `registry` is not installed.
    """

    def __init__(
        self, settings: Settings | None = None, *, clock: Callable[[], int] | None = None, **given: Any
    ) -> None:  # fmt: skip
        known = {} if settings is None else {name: getattr(settings, name) for name in settings.model_fields_set}
        self.settings = settings = KafkaSettings(**{**known, **given})
        if any(topic.document_format == "registry" for topic in settings.by_topic.values()):
            raise UsageError(
                "document_format = 'registry' needs a Schema Registry, and a pipeline in memory has none: leave it "
                "out, and send the documents as JSON"
            )
        self.topics = topics = Topics.of(settings)
        self.schemas: dict[int, str] = {}
        self._encoders: dict[str, Encoder] = {}
        if settings.output_format == "avro":
            try:
                self._encoders = {topic_of(settings, output): Encoder(output, id) for output, id in IN_MEMORY.items()}
            except ModuleNotFoundError as error:
                raise StreamLshError(missing_package("output_format = avro", error.name, "registry")) from None
            self.schemas = {id: orjson.dumps(avro_schema(output)).decode() for output, id in IN_MEMORY.items()}
        self._clock = clock or (lambda: time.time_ns() // 1_000_000)
        self._log = Log(settings)
        self._framer = Framer(settings, signer_of(settings.signing, KEY), largest_frame(settings))
        self._frames = 0  # offset of the next frame in `signatures`
        self._accepted = Accepted(KEY)
        self._known = KnownDecisions(topics.decisions)
        self._decisions = 0  # offset of the next record in `decisions`
        self._deciding = Deciding(settings, (), 0) if settings.late else None
        self._folding: Folding | None = None
        self._closed = False
        with ExitStack() as opened:
            folder = Path(opened.enter_context(temporary_folder()))
            self._replicas = [self._replica(shard, folder, opened) for shard in range(settings.shards)]
            if settings.groups:
                rules = rules_of(settings)
                self._local = LocalStore(folder / "groups")
                opened.callback(self._local.close)
                self._folding = Folding(self._local.store, settings, rules, -1)
            # As a signer begins: it commits the start of each partition before there are documents.
            sources = [topics.number(topic, p) for topic in topics.sources for p in range(settings.partitions)]
            self._sign([Chunk(source, (), 0, 0, STARTS) for source in sources], self._clock())
            self._open = opened.pop_all()

    def _replica(self, shard: int, folder: Path, opened: ExitStack) -> Replica:
        replica = Replica(self.settings, shard, folder / f"shard-{shard}")
        opened.callback(replica.close)
        replica.activate()
        return replica

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete the index. The records can still be read. A second call has no effect."""
        self._closed = True
        self._open.close()

    def send(
        self,
        document: Mapping[str, Any] | bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
        partition: int | None = None,
        timestamp: int | None = None,
        topic: str | None = None,
    ) -> list[Record]:
        """Send a record to a documents topic. Returns the records that it causes.

        Args:
            document: the value: a mapping is sent as JSON, a text in UTF-8, bytes as they are. None: a tombstone.
            key: of the record.
            headers: of the record.
            partition: None: the one that the `partitioner` chooses for the key, and 0 without a key.
            timestamp: of the record, in ms since 1970; None: the time of the clock.
            topic: None: the only documents topic.

        Raises:
            UsageError: the pipeline is closed, there is no such topic or partition, or a mapping is no JSON.
        """
        if self._closed:
            raise UsageError("the pipeline is closed: send documents before its with statement ends")
        known = self.topics.sources
        if topic not in (known if topic is not None or len(known) > 1 else (None,)):
            raise UsageError(f"topic = {topic!r}: the documents topics are {', '.join(known)}")
        topic = topic or known[0]
        if isinstance(key, str):
            key = key.encode()
        count = self.settings.partitions
        if partition is None:
            partition = 0 if key is None else partition_of(self.settings.partitioner, key, count)
        if not 0 <= partition < count:
            raise UsageError(
                f"partition = {partition}: the documents topic has the partitions 0 to {count - 1}; set partitions of "
                "the pipeline"
            )
        now = self._clock()
        row = key, _value_of(document), list(headers), timestamp
        record = self._log.append(topic, partition, row, now)
        first = len(self._log.records)
        records = [] if is_passed_over(record, self.settings.by_topic[topic]) else [record]
        self._sign([Chunk(self.topics.number(topic, partition), records, record.offset, record.offset + 1)], now)
        return self._log.records[first:]

    # -- what is published ------------------------------------------------------------------------------------------

    @property
    def documents(self) -> list[Record]:
        """The records of the documents topics: everything that was sent."""
        return list(self.consumer("documents"))

    @property
    def verdicts(self) -> list[Record]:
        """The records of the topic `verdicts`."""
        return self._log.of(self.topics.verdicts)

    @property
    def pairs(self) -> list[Record]:
        """The records of the topic `pairs`."""
        return self._log.of(self.topics.pairs)

    @property
    def unique(self) -> list[Record]:
        """The records of the topic `unique`: unique documents and tombstones."""
        return self._log.of(self.topics.unique)

    @property
    def dead_letters(self) -> list[Record]:
        """The records of the topic `dead-letters`: rejected documents, with the reason in headers."""
        return self._log.of(self.topics.dead_letters)

    @property
    def groups(self) -> list[Record]:
        """The records of the topic `groups`: events of groups, and tombstones; with the setting `groups`."""
        return self._log.of(self.topics.groups)

    @property
    def alerts(self) -> list[Record]:
        """The records of the topic `alerts`; with the settings `groups` and `alerts`."""
        return self._log.of(self.topics.alerts)

    def consumer(self, *topics: str) -> Consumer:
        """A consumer of some topics, from their beginning.

        Args:
            topics: as the attributes of the pipeline (`"dead_letters"`), or their whole names
                (`"stream-lsh.dead-letters"`).

        Raises:
            UsageError: there is no such topic.
        """
        names = {name: {str(getattr(self.topics, name))} for name in READABLE} | {"documents": {*self.topics.sources}}
        names |= {name: {name} for found in names.values() for name in found}
        for topic in topics:
            if topic not in names:
                raise UsageError(f"{topic!r} is no topic of the pipeline; there are {', '.join(READABLE)}")
        return Consumer(self._log.records, frozenset().union(*(names[topic] for topic in topics)))

    # -- the roles --------------------------------------------------------------------------------------------------

    def _sign(self, chunks: list[Chunk], now: int) -> None:
        for frame in self._framer.frames(chunks, now):
            self._sequence(frame.data, now)

    def _sequence(self, frame: bytes, now: int) -> None:
        settings, future = self.settings, self.settings.max_future_ms
        offset, self._frames = self._frames, self._frames + 1
        decision = self._accepted.accept(Places.of(frame, settings), None if future is None else now + future)
        self._accepted = decision.after
        if not decision.documents:
            return
        copies = sent_to_shards(offset, now, frame, decision, self._decisions_for(decision), settings)
        self._accepted = decision.after.passed_on(offset, decision.documents)
        answers = [replica.match(copy) for replica, copy in zip(self._replicas, copies, strict=True)]
        self._judge([answer.reply for answer in answers if answer is not None and answer.reply is not None], now)

    def _decisions_for(self, decision: Decision) -> list[bytes]:
        """The decisions that are sent with a frame, by shard."""
        settings, due = self.settings, None
        if settings.late:
            due = decisions_due(decision.after.documents, decision.documents, settings.block)
        return [b""] * settings.shards if due is None else self._known.records(*due, settings)

    def _judge(self, replies: list[bytes], now: int) -> None:
        records = Records(self.topics)
        records.judge(replies, self._deciding, self.settings)
        for data in records.decisions:
            self._known.add(self._decisions, Decisions.decode(data, self.settings))
            self._decisions += 1
        self._known.trim(BEHIND * self.settings.decision_lag)
        verdicts = [
            verdict
            for partition, rows in records.verdicts.items()
            for verdict in self._publish(self.topics.verdicts, partition, rows, now)
        ]
        for partition, rows in records.pairs.items():
            self._publish(self.topics.pairs, partition, rows, now)
        for verdict in verdicts:
            self._forward(verdict, now)
        for membership in records.memberships:
            self._fold(membership, now)

    def _forward(self, verdict: Record, now: int) -> None:
        assert verdict.value is not None
        found = read_verdict(replace(verdict, value=in_json(verdict.value)), *self.topics.sources)
        unique, letters = forwarded([Joined(self._log.last(found.topic), found)], self.settings)
        self._publish(self.topics.unique, verdict.partition, unique, now)
        self._publish(self.topics.dead_letters, verdict.partition, letters, now)

    def _fold(self, membership: bytes, now: int) -> None:
        folding, settings = self._folding, self.settings
        assert folding is not None
        folding.add(Memberships.decode(membership, settings))
        found = folding.take()
        self._local.write(found.changes, 0, None)
        self._publish(self.topics.groups, 0, with_headers(EventHeaders(settings, GROUP), found.events), now)
        self._publish(self.topics.alerts, 0, with_headers(EventHeaders(settings, ALERT), found.alerts), now)

    def _publish(self, topic: str, partition: int, rows: Iterable[Row], now: int) -> list[Record]:
        if (encoder := self._encoders.get(topic)) is not None:
            rows = in_avro(rows, encoder)
        return [self._log.append(topic, partition, row, now) for row in rows]


def _value_of(document: Mapping[str, Any] | bytes | str | None) -> bytes | None:
    if document is None or isinstance(document, bytes):
        return document
    if isinstance(document, str):
        return document.encode()
    try:
        return orjson.dumps(dict(document))
    except TypeError as error:
        raise UsageError(f"the document is no JSON: {error}; send bad input as bytes") from None
