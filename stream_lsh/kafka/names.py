"""What topics and consumer groups the pipeline has: their names, and what the topics have to be like.

Nothing here imports a Kafka client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stream_lsh.index.segments.window import slot_of
from stream_lsh.kafka.settings import OWN_TOPICS, KafkaSettings

FOREVER = -1
HOUR_MS = 3_600_000
ENVELOPE = 64 * 2**10
"""Bytes for what a record has beside its value: key, headers, Kafka's own."""
_INTERNAL_BYTES = 64 * 2**20
"""What signatures, frames, matches and changelog take at least: matches of a dense frame are many. Costs nothing."""
_COUNTS_BYTES = 16 * 2**20
"""How rare words are (`index.frequencies`): 8 MB were made of counters that are all in use."""
_OUTPUT_BYTES = 16 * 2**20
NEEDS = {
    "sign": ("documents", "signatures"),
    "sequence": ("signatures", "frames", "decisions"),
    "match": ("frames", "changelog", "matches"),
    "judge": ("documents", "matches", "verdicts", "pairs", "decisions", "memberships"),
    "forward": ("documents", "verdicts", "unique", "dead_letters"),
    "group": ("memberships", "groups", "alerts", "group_changelog"),
}
"""The topics, as attributes of `Topics`, that a role reads and writes; decisions only where several shards keep,
memberships and what follows only with groups."""
LIKE_DOCUMENTS = ("pairs", "unique", "dead_letters", "verdicts")
"""The outputs in the order in which they get further partitions: what has its verdicts can be forwarded."""
SHARDED = ("frames", "changelog")
SINGLE = ("signatures", "matches", "decisions", "memberships", "groups", "alerts", "group_changelog")
"""One sequence each, in one partition."""
_TIMESTAMPS = "message.timestamp.type"


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of all topics, and of what else begins with the prefix."""

    prefix: str
    documents: str
    verdicts: str
    pairs: str
    unique: str
    dead_letters: str
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
        """The names that these settings mean."""
        prefix = settings.topic_prefix
        own = {attribute: f"{prefix}.{name}" for attribute, name in OWN_TOPICS.items()}
        return cls(prefix=prefix, documents=settings.documents_topic or f"{prefix}.documents", **own)

    def group(self, role: str) -> str:
        """The consumer group of a role."""
        return f"{self.prefix}.{role}"

    def transactional_id(self, role: str, partition: int | None = None) -> str:
        """The transactional id of a role, with `partition` of its producer for that source partition."""
        return f"{self.prefix}.{role}" if partition is None else f"{self.prefix}.{role}.{partition}"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What a topic has to be like. retention_ms -1: for ever; further: other settings of the topic."""

    name: str
    partitions: int
    cleanup_policy: str
    retention_ms: int
    max_message_bytes: int
    further: Mapping[str, str] = field(default_factory=dict)

    @property
    def configs(self) -> dict[str, str]:
        """The settings of the topic as Kafka calls them."""
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
    """Bytes that the largest record of an internal topic may have; producers need it as max_request_size.

    A frame of one document may be larger than frame_bytes: zstd makes what it cannot compress 1/256 larger, and the
    signature, the keys and the id come on top. A change may also say how rare all words are.
    """
    single = settings.max_document_bytes + settings.max_document_bytes // 255
    single += _COUNTS_BYTES * (settings.measure == "tf-idf")
    return max(settings.frame_bytes, single, _INTERNAL_BYTES) + 2**20


def _segments(settings: KafkaSettings) -> dict[str, str]:
    """What has left a window, or is erased, is deleted of the changelog by whole segments: they must not last for
    long."""
    if settings.window is not None:
        return {"segment.ms": str(min(HOUR_MS, slot_of(settings.window_ms)))}
    return {} if settings.erase_hours is None else {"segment.ms": str(HOUR_MS)}


def wanted(
    settings: KafkaSettings, partitions: int | None = None, document_bytes: int | None = None
) -> list[TopicSpec]:
    """All topics as the settings say, documents first.

    Args:
        partitions: of the documents topic that is there; without: settings.partitions.
        document_bytes: max.message.bytes of that topic, if it takes more than the settings ask for.
    """
    topics = Topics.of(settings)
    count = partitions or settings.partitions
    kept = settings.retention_hours * HOUR_MS
    largest = settings.max_document_bytes + ENVELOPE
    copied = max(largest, document_bytes or 0) + ENVELOPE
    internal = largest_record(settings)
    safe = {"min.insync.replicas": "2"} if (settings.replication_factor or 0) >= 3 else {}
    # By arrival: event times of old documents must not make Kafka delete what nobody has read yet.
    arrival = {_TIMESTAMPS: "LogAppendTime", **safe}
    # With the documents' own timestamps, whatever they are.
    original = {_TIMESTAMPS: "CreateTime", "message.timestamp.after.max.ms": str(2**63 - 1), **safe}
    decisions = TopicSpec(topics.decisions, 1, "delete", FOREVER, internal, arrival)
    return [
        TopicSpec(topics.documents, count, "delete", kept, largest, safe),
        TopicSpec(topics.verdicts, count, "delete", kept, _OUTPUT_BYTES, arrival),
        TopicSpec(topics.pairs, count, "delete", kept, _OUTPUT_BYTES, arrival),
        TopicSpec(topics.unique, count, "delete", kept, copied, original),
        TopicSpec(topics.dead_letters, count, "delete", kept, copied, original),
        TopicSpec(topics.signatures, 1, "delete", kept, internal, arrival),
        TopicSpec(topics.frames, settings.shards, "delete", kept, internal, arrival),
        TopicSpec(topics.matches, 1, "delete", kept, internal, arrival),
        TopicSpec(topics.changelog, settings.shards, "delete", FOREVER, internal, arrival | _segments(settings)),
        *([decisions] if settings.late else []),
        *(_of_groups(topics, kept, internal, arrival) if settings.groups else []),
    ]


def _of_groups(topics: Topics, kept: int, internal: int, arrival: Mapping[str, str]) -> list[TopicSpec]:
    """One partition each: rules over sources need all documents in their order."""
    # Whoever reads events is to see each of them, as long as those of other outputs.
    late = {"min.compaction.lag.ms": str(kept)}
    return [
        TopicSpec(topics.memberships, 1, "delete", kept, internal, arrival),
        TopicSpec(topics.groups, 1, "compact", FOREVER, _OUTPUT_BYTES, {**arrival, **late}),
        TopicSpec(topics.alerts, 1, "delete", kept, _OUTPUT_BYTES, arrival),
        TopicSpec(topics.group_changelog, 1, "compact", FOREVER, internal, arrival),
    ]
