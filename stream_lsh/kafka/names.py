"""Names of the pipeline's topics and consumer groups, and the configuration that each topic needs.

This module imports no Kafka client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from stream_lsh.index.segments.window import slot_of
from stream_lsh.kafka.settings import OWN_TOPICS, KafkaSettings
from stream_lsh.wire.source import place_of, source_of

FOREVER = -1
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
ENVELOPE = 64 * 2**10
"""Bytes allowed for a record's key, headers and Kafka's own overhead, on top of its value."""
_INTERNAL_BYTES = 64 * 2**20
"""What clients take of internal topics at least: earlier revisions sent replies of dense frames in one record."""
_COUNTS_BYTES = 16 * 2**20
"""Size limit of the document frequencies in a change (`index.frequencies`). Counters that were all in use took 8 MB."""
KAFKA_BYTES = 1_048_588
"""The default of message.max.bytes, which is that of max.message.bytes. Many hosted clusters accept no more."""
OVERHEAD = 1024
"""Bytes allowed for Kafka's own overhead of a record."""
_REPRESENTATIVES_BYTES = 16 * 2**20
"""Size limit of a verdict that names new representatives: as many as a block has documents."""
_STATE = {"segment.bytes": str(4 << 20), "segment.ms": str(HOUR_MS)}
"""Each transaction writes a record, and a role that starts may read the whole topic. Kafka compacts closed segments."""
_REQUEST_BYTES = 100 * 2**20
"""The default of socket.request.max.bytes: a broker closes the connection if a request is larger."""
NEEDS = {
    "sign": ("documents", "signatures", "state"),
    "sequence": ("signatures", "frames", "decisions", "state"),
    "match": ("frames", "changelog", "matches"),
    "judge": ("documents", "matches", "verdicts", "pairs", "decisions", "memberships", "state"),
    "forward": ("documents", "verdicts", "unique", "dead_letters", "state"),
    "group": ("memberships", "groups", "alerts", "group_changelog", "state"),
}
"""The topics that each role reads and writes, as attributes of `Topics`.

`decisions` is needed with several shards and `compare_with = "kept"`. memberships, groups, alerts and group_changelog
are needed with `groups`.
"""
LIKE_DOCUMENTS = ("pairs", "unique", "dead_letters", "verdicts")
"""The outputs in the order in which they get new partitions. verdicts is last: forward reads it and writes others."""
SHARDED = ("frames", "changelog")
SINGLE = ("state", "signatures", "matches", "decisions", "memberships", "groups", "alerts", "group_changelog")
"""Topics with one partition, because their records have one total order."""
TIMESTAMPS = "message.timestamp.type"
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of all topics. Consumer groups and transactional ids begin with the same prefix.

    Attributes:
        documents: the first of the documents topics.
        sources: the documents topics, in the order that numbers them.
    """

    prefix: str
    documents: str
    sources: tuple[str, ...]
    verdicts: str
    pairs: str
    unique: str
    dead_letters: str
    state: str
    signatures: str
    frames: str
    matches: str
    decisions: str
    changelog: str
    memberships: str
    groups: str
    alerts: str
    group_changelog: str

    @classmethod
    def of(cls, settings: KafkaSettings) -> Topics:
        """The names that these settings give."""
        prefix = settings.topic_prefix
        own = {attribute: f"{prefix}.{name}" for attribute, name in OWN_TOPICS.items()}
        sources = tuple(settings.by_topic)
        return cls(prefix=prefix, documents=sources[0], sources=sources, **own)

    @property
    def listed(self) -> str:
        """The documents topics, as messages and commits name them."""
        return ",".join(self.sources)

    def place(self, source: int) -> tuple[str, int]:
        """Topic and partition of a source partition."""
        return place_of(self.sources, source)

    def where(self, source: int) -> str:
        """A source partition, for messages."""
        topic, partition = self.place(source)
        return f"{topic}, partition {partition}"

    def number(self, topic: str, partition: int) -> int:
        """The number of a source partition: of the first topic that of the partition."""
        return source_of(self.sources, topic, partition)

    def numbered(self, found: Mapping[str, Mapping[int, Found]]) -> dict[int, Found]:
        """What was found by topic and partition, by source partition. What is of no documents topic is left out."""
        return {
            self.number(topic, partition): value
            for topic in self.sources
            for partition, value in found.get(topic, {}).items()
        }

    def group(self, role: str) -> str:
        """The consumer group of a role."""
        return f"{self.prefix}.{role}"

    def transactional_id(self, role: str, partition: int | None = None) -> str:
        """The transactional id of a role. With `partition`: of its producer for that source partition."""
        return f"{self.prefix}.{role}" if partition is None else f"{self.prefix}.{role}.{partition}"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """The configuration that a topic needs.

    Attributes:
        retention_ms: -1 keeps records for ever.
        further: other topic settings, by Kafka's names.
    """

    name: str
    partitions: int
    cleanup_policy: str
    retention_ms: int
    max_message_bytes: int
    further: Mapping[str, str] = field(default_factory=dict)

    @property
    def configs(self) -> dict[str, str]:
        """The topic's settings by Kafka's names."""
        found = {
            "cleanup.policy": self.cleanup_policy,
            "retention.ms": str(self.retention_ms),
            "max.message.bytes": str(self.max_message_bytes),
            **self.further,
        }
        if self.retention_ms == FOREVER:
            found["retention.bytes"] = "-1"
        return found


def largest_record(settings: KafkaSettings) -> int:
    """The most bytes that a record of an internal topic may have, also of an earlier revision: for clients, which
    need it as max_request_size.

    A frame of one document may exceed frame_bytes: zstd makes incompressible text 1/256 larger, and the signature, the
    keys and the id add to it. With `tf-idf` a change may also contain all document frequencies.
    """
    single = settings.max_document_bytes + settings.max_document_bytes // 255
    single += _COUNTS_BYTES * (settings.measure == "tf-idf")
    return max(settings.frame_bytes, single, _INTERNAL_BYTES) + 2**20


def largest_frame(settings: KafkaSettings, limit: int | None = None) -> int:
    """The size limit of a frame, in bytes. limit: max.message.bytes of signatures (None: what it needs)."""
    return min(limit or _signatures(settings, _documents(settings)), _REQUEST_BYTES) - OVERHEAD


def _documents(settings: KafkaSettings) -> int:
    """The max.message.bytes that the documents topic needs: the broker's default, unless another limit is set."""
    given = "max_document_bytes" in settings.model_fields_set
    return settings.max_document_bytes + ENVELOPE if given else KAFKA_BYTES


def _signatures(settings: KafkaSettings, document_bytes: int) -> int:
    """The max.message.bytes that signatures needs. A document is never cut, so that a frame may have one that is as
    large as its topic allows."""
    single = largest_record(settings) if document_bytes > KAFKA_BYTES else 0
    return max(KAFKA_BYTES, settings.frame_bytes + OVERHEAD, min(single, document_bytes + document_bytes // 64))


def _segments(settings: KafkaSettings) -> dict[str, str]:
    """How long a segment file of a changelog or of decisions lasts. Kafka deletes expired and erased rows by whole
    segment files, so these must be short. A snapshot begins a segment file if the one before has lasted as long as
    erased rows wait."""
    limits = [HOUR_MS]
    if settings.window is not None:
        limits.append(slot_of(settings.window_ms))
    if settings.erase_hours is not None:
        limits.append(max(MINUTE_MS, round(HOUR_MS * settings.erase_hours)))
    return {"segment.ms": str(min(limits))} if len(limits) > 1 else {}


def compaction_lag(settings: KafkaSettings) -> int:
    """With `erase_hours`: ms after which Kafka compacts a record of `group-changelog`."""
    return max(HOUR_MS, round(HOUR_MS * (settings.erase_hours or 0)))


def wanted(
    settings: KafkaSettings, partitions: int | None = None, document_bytes: int | None = None
) -> list[TopicSpec]:
    """The configuration of all topics under these settings, documents first.

    Args:
        partitions: the most partitions of an existing documents topic. None: settings.partitions.
        document_bytes: the largest max.message.bytes of these, if it is larger than the settings require.
    """
    topics = Topics.of(settings)
    count = partitions or settings.partitions
    kept = settings.retention_hours * HOUR_MS
    largest = _documents(settings)
    documents = max(largest, document_bytes or 0)
    copied = documents + ENVELOPE * (documents > KAFKA_BYTES)
    internal = max(KAFKA_BYTES, settings.record_bytes + OVERHEAD)
    said = _REPRESENTATIVES_BYTES if settings.late and settings.updates else KAFKA_BYTES
    # Append time: with old event times as timestamps, retention would delete records before they are read.
    arrival = {TIMESTAMPS: "LogAppendTime"}
    # Dead letters keep the documents' own timestamps: `kafka replay` sends them again.
    original = {TIMESTAMPS: "CreateTime", "message.timestamp.after.max.ms": str(2**63 - 1)}
    unique = original if settings.unique_timestamps == "CreateTime" else arrival
    brief = {} if settings.erase_hours is None else _segments(settings)  # decisions have ids of deleted documents
    decisions = TopicSpec(topics.decisions, 1, "delete", FOREVER, internal, arrival | brief)
    return [
        *(TopicSpec(name, count, "delete", kept, largest) for name in topics.sources),
        TopicSpec(topics.verdicts, count, "delete", kept, said, arrival),
        TopicSpec(topics.pairs, count, "delete", kept, KAFKA_BYTES, arrival),
        TopicSpec(topics.unique, count, "delete", kept, copied, unique),
        TopicSpec(topics.dead_letters, count, "delete", kept, copied, original),
        TopicSpec(topics.state, 1, "compact", FOREVER, KAFKA_BYTES, arrival | _STATE),
        TopicSpec(topics.signatures, 1, "delete", kept, _signatures(settings, documents), arrival),
        TopicSpec(topics.frames, settings.shards, "delete", kept, internal, arrival),
        TopicSpec(topics.matches, 1, "delete", kept, internal, arrival),
        TopicSpec(topics.changelog, settings.shards, "delete", FOREVER, internal, arrival | _segments(settings)),
        *([decisions] if settings.late else []),
        *(_of_groups(settings, kept, internal, arrival) if settings.groups else []),
    ]


def _of_groups(settings: KafkaSettings, kept: int, internal: int, arrival: Mapping[str, str]) -> list[TopicSpec]:
    """The topics of `groups`. Each has one partition: rules over sources need all documents in order."""
    topics = Topics.of(settings)
    # Compaction must keep each event as long as the retention of the other outputs.
    late = {"min.compaction.lag.ms": str(kept)}
    # By default Kafka may wait until half of the topic is obsolete; erased ids have to leave it earlier.
    soon = {} if settings.erase_hours is None else {"max.compaction.lag.ms": str(compaction_lag(settings))}
    return [
        TopicSpec(topics.memberships, 1, "delete", kept, internal, arrival),
        TopicSpec(topics.groups, 1, "compact", FOREVER, KAFKA_BYTES, {**arrival, **late}),
        TopicSpec(topics.alerts, 1, "delete", kept, KAFKA_BYTES, arrival),
        TopicSpec(topics.group_changelog, 1, "compact", FOREVER, internal, {**arrival, **soon}),
    ]
