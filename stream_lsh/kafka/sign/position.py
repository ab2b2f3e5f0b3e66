"""What a signer commits with its position in a source partition, where the next one begins, and the mark for a pause.

An offset alone does not show that the topic is the same: the topic may have been deleted and created again, or may have
lost its end. So a signer also commits the last record before the position. The next signer reads it again and compares.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import orjson
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupAuthorizationFailedError

from stream_lsh.errors import StoreError
from stream_lsh.kafka.consumer.position import Reading, committed, place_of
from stream_lsh.kafka.consumer.state import Commits, recorded
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.frames import CONTINUES, JUMPS, STARTS
from stream_lsh.wire.source import Record

READING = Reading(
    "documents", "read",
    "It is unknown which of its documents were judged: read it under another topic_prefix.",
    "To continue without them, start the worker with --accept-deleted-records {place}; raise the topic's retention.ms.",
)  # fmt: skip
PAUSE = "pause"
"""A consumer group without members. Its commit for partition 0 of documents holds the mark of a pause, as metadata."""
VERSION = 2


@dataclass(frozen=True, slots=True)
class Last:
    """A record that was read. timestamp: ms since 1970. crc: CRC-32 of its key's length, a colon, its key and value."""

    offset: int
    timestamp: int
    crc: int

    @classmethod
    def of(cls, record: Record) -> Last:
        """The marks of a record."""
        key = record.key or b""
        crc = zlib.crc32(record.value or b"", zlib.crc32(b"%d:%b" % (len(key), key)))
        return cls(record.offset, record.timestamp, crc)


@dataclass(frozen=True, slots=True)
class Note:
    """Facts about a committed position, which are its metadata.

    Attributes:
        fingerprint: of the settings; "" if unknown.
        format, partitioner: the settings `document_format` and `partitioner`; None if unknown.
        last: the last record before the position, if one was read.
        begun: nothing of this partition was sent when this was committed.
        paused: the `since` of the pause in which nothing more is read and everything read is delivered; 0 = none.
        number: of its topic among the documents topics; None if unknown.
    """

    fingerprint: str
    format: str | None
    partitioner: str | None
    last: Last | None = None
    begun: bool = False
    paused: int = 0
    number: int | None = 0

    def metadata(self) -> str:
        """The text for an offset commit."""
        found: dict[str, Any] = {
            "version": VERSION, "fingerprint": self.fingerprint, "format": self.format,
            "partitioner": self.partitioner,
        }  # fmt: skip
        if self.last is not None:
            found["last"] = [self.last.offset, self.last.timestamp, self.last.crc]
        if self.begun:
            found["begun"] = True
        if self.paused:
            found["paused"] = self.paused
        if self.number:
            found["number"] = self.number
        return orjson.dumps(found).decode()

    @classmethod
    def of(cls, text: str, group: str) -> Note:
        """Parse a text of `metadata`. A position that was committed by hand has none, and one of an earlier revision
        only the fingerprint.

        Raises:
            StoreError: a newer version or another program has written it.
        """
        if not text.startswith("{"):
            return cls(text, None, None, number=None)
        with suppress(orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            found = orjson.loads(text)
            if found["version"] > VERSION:
                raise StoreError(
                    f"the commits of the consumer group {group} were written by version {found['version']}, "
                    f"this is {VERSION}: upgrade this worker"
                )
            last = Last(*found["last"]) if "last" in found else None
            return cls(
                found["fingerprint"], found["format"], found["partitioner"], last,
                found.get("begun", False), found.get("paused", 0), found.get("number", 0),
            )  # fmt: skip
        raise StoreError(
            f"the commits of the consumer group {group} are not from signers ({text[:80]!r}): stop them and set its "
            "positions again with kafka-consumer-groups.sh --reset-offsets --to-current --execute"
        )

    def check_number(self, number: int, source: str) -> None:
        """Check that the topic has this number among the documents topics.

        Raises:
            StoreError: it has another one.
        """
        if self.number not in (None, number):
            raise StoreError(
                f"{source} is number {self.number + 1} of the documents topics so far, and number {number + 1} here: "
                "keep the order of the tables [documents.TOPIC], and add a new one behind them"
            )

    def check(self, fingerprint: str, format: str, partitioner: str, source: str) -> None:
        """Check that a signer with these settings may continue. With other settings it would add frames that no
        sequencer accepts.

        Raises:
            StoreError: it may not.
        """
        if self.fingerprint and self.fingerprint != fingerprint:
            raise StoreError(
                f"{source} was signed with other settings so far (fingerprint {self.fingerprint}, here {fingerprint}): "
                "use the same settings for all workers of a topic_prefix, or rebuild under another one with "
                "stream-lsh kafka reindex"
            )
        if self.format not in (None, format):
            raise StoreError(
                f"{source} was read with document_format = {self.format} so far, here it is {format}: use the same for "
                "all workers of a topic_prefix, or rebuild under another one with stream-lsh kafka reindex"
            )
        self.check_partitioner(partitioner, source)

    def check_partitioner(self, partitioner: str, source: str) -> None:
        """Check that producers of this pipeline use this partitioner.

        Raises:
            StoreError: they use another one.
        """
        if self.partitioner not in (None, partitioner):
            raise StoreError(
                f"{source} has the documents of a pipeline with partitioner = {self.partitioner}, and here it is "
                f"{partitioner}: an update or deletion could miss its document. Set partitioner = "
                f"{self.partitioner!r}, or rebuild under another topic_prefix with stream-lsh kafka reindex"
            )


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a signer begins in a partition.

    Attributes:
        first: of its first segment, see `frames`.
        last: the record before the position.
        again: whether that record can be read again, to be compared.
        new: whether this is the very first start.
        warning: for the log.
    """

    position: int
    first: int = CONTINUES
    last: Last | None = None
    again: bool = False
    new: bool = False
    warning: str = ""


def noted(topics: Topics, commits: Commits) -> dict[int, tuple[int, Note]]:
    """The committed positions of the signers with their notes, by source partition. Raises as `Note.of`."""
    group = topics.group("sign")
    return {p: (at, Note.of(text, group)) for p, (at, text) in topics.numbered(commits).items()}


def recovered(records: Mapping[int, tuple[int, Note]], accepted: Mapping[int, int]) -> dict[int, tuple[int, Note]]:
    """What is known of partitions whose commits are lost, by their records in the topic `state`. These may be old.
    One that has no record to compare counts only if nothing was sequenced since.

    Args:
        accepted: the positions up to which frames were sequenced.
    """
    return {
        partition: (max(position, accepted.get(partition, 0)), replace(note, paused=0))
        for partition, (position, note) in records.items()
        if note.last is not None or accepted.get(partition, 0) <= position
    }


def beginning(
    partition: TopicPartition, committed: tuple[int, Note] | None, accepted: int | None, bounds: tuple[int, int],
    settings: KafkaSettings,
) -> Beginning:  # fmt: skip
    """Where to begin in a partition.

    Args:
        committed: the position and note of the group.
        accepted: the position up to which its frames were sequenced, if there are any.
        bounds: the first offset of the partition, and its end offset.
        settings: with the losses that an operator has accepted.

    Raises:
        StoreError: documents are missing, or may be those of another topic.
    """
    where = f"{partition.topic}, partition {partition.partition}"
    if committed is None and accepted is not None:
        place = place_of(partition, accepted)
        if place not in settings.accept_lost_position:
            raise StoreError(
                f"{where}, has no committed position, but its documents up to offset {accepted} were sequenced: the "
                "topic was deleted and created again, or Kafka has dropped the position (offsets.retention.minutes). "
                f"If it is the same topic, start the worker with --accept-lost-position {place}: it continues at that "
                "offset. Else read it under another topic_prefix."
            )
    position, note = committed or (None, Note("", None, None))
    warning = ""
    if note.begun and accepted is None:
        found = Beginning(position or 0, STARTS)
    elif position is None and accepted is None:
        found = Beginning(bounds[0], STARTS, new=True)
    elif position is None or note.begun:
        found = Beginning(accepted or 0)
    else:
        moved = note.last is not None and note.last.offset >= position  # back by hand, with the note as it was
        found = Beginning(position, last=None if moved else note.last)
    begin = bounds[0]
    if missing := READING.missing(partition, found.position, bounds, settings.accept_deleted_records):
        warning = f"{where}: continuing without {missing} documents from offset {found.position} on"
        return Beginning(begin, JUMPS, warning=warning)
    # If retention has deleted the last record, it has deleted exactly what was read. Another topic would have to begin
    # at that very offset.
    again = found.last is not None and found.last.offset >= begin
    return Beginning(found.position, found.first, found.last, again, found.new, warning)


def another_topic(topics: Topics, commits: Mapping[str, object]) -> StoreError | None:
    """The error if the signers' group has commits for a topic that is no documents topic any more."""
    if commits.keys() <= {*topics.sources}:
        return None
    read = f"{topics.prefix} has read {', '.join(sorted(commits))} so far, and"
    if len(topics.sources) == len(commits) == 1:
        return StoreError(
            f"{read} documents_topic is {topics.documents} now: use one topic_prefix for one documents topic"
        )
    return StoreError(
        f"{read} the documents topics are {', '.join(topics.sources)} now: keep a table [documents.TOPIC] for each "
        "topic that was read"
    )


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator's mark that makes the signers pause: they read nothing new, and finish what they have read.

    Attributes:
        by: the command that asked for it, and what ends it; "" = no pause.
        since: ms since 1970. It identifies the pause.
    """

    by: str = ""
    since: int = 0

    def __bool__(self) -> bool:
        return bool(self.by)

    def metadata(self) -> str:
        """The text for an offset commit."""
        return orjson.dumps({"by": self.by, "since": self.since}).decode()

    @classmethod
    def of(cls, text: str) -> Pause:
        """Parse a text of `metadata`."""
        return cls(**orjson.loads(text))


async def check_partitioner(client: AIOKafkaAdminClient, settings: KafkaSettings) -> None:
    """Check that a pipeline has the partitioner of these settings, as far as its positions may be read.

    Raises:
        StoreError: it has another one.
        KafkaError: as `position.all_committed`.
    """
    topics = Topics.of(settings)
    group = topics.group("sign")
    with suppress(GroupAuthorizationFailedError):
        for _, text in (await committed(client, group, topics.documents)).values():
            Note.of(text, group).check_partitioner(settings.partitioner, topics.documents)


async def pause_of(client: AIOKafkaAdminClient, topics: Topics) -> Pause | None:
    """The current pause; None if there was none, or its mark is lost. Without the permission to read the mark there is
    none: it cannot have been written either.

    Raises:
        KafkaError: as `position.all_committed`.
    """
    try:
        found = (await committed(client, topics.group(PAUSE), topics.documents)).get(0)
    except GroupAuthorizationFailedError:
        return Pause()
    return None if found is None else Pause.of(found[1])


async def recorded_pause(settings: KafkaSettings) -> Pause | None:
    """The pause in the topic `state`, which outlives the mark. Raises as `state.read`."""
    found = (await recorded(settings, PAUSE)).get(Topics.of(settings).documents, {}).get(0)
    return None if found is None else Pause.of(found[1])
