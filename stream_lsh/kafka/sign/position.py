"""What a signer commits beside its position in a source partition, where the next one begins, and whether to pause.

A position is a number, and says nothing of what it counts: the topic may have been deleted and made again, or its end
been lost and written anew. So it goes with the last record before it, which whoever takes over reads again.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupAuthorizationFailedError

from stream_lsh.errors import StoreError
from stream_lsh.kafka.consumer.position import Reading, committed
from stream_lsh.kafka.names import Topics
from stream_lsh.wire.frames import CONTINUES, JUMPS, STARTS
from stream_lsh.wire.source import Record

READING = Reading(
    "documents", "read",
    "Which documents were judged cannot be told any more: read it under another topic_prefix.",
    "To go on without them start the worker with --accept-loss once; raise the topic's retention.ms.",
)  # fmt: skip
NOTES = "sign-notes"
"""The group that reads nothing: a note for each position that the signers have committed, as its metadata. Signers of
version 0.1 take whatever else than the fingerprint stands beside the position itself for other settings."""
PAUSE = "pause"
"""The group that reads nothing: the metadata of its commit for partition 0 of the documents are the mark of a pause."""
VERSION = 2


@dataclass(frozen=True, slots=True)
class Last:
    """A record that was read. timestamp: ms since 1970. crc: CRC-32 of its key's length, a colon, its key and value."""

    offset: int
    timestamp: int
    crc: int

    @classmethod
    def of(cls, record: Record) -> Last:
        """The signs of a record."""
        key = record.key or b""
        crc = zlib.crc32(record.value or b"", zlib.crc32(b"%d:%b" % (len(key), key)))
        return cls(record.offset, record.timestamp, crc)


@dataclass(frozen=True, slots=True)
class Note:
    """What is known of a position.

    fingerprint: of the settings. format: `document_format`; None where nobody has said. last: the last record before
    the position, if one was read. begun: nothing of this partition was sent yet when this was committed. paused: the
    pause (its `since`) in which nothing more is read, and all that was read is delivered; 0 = none.
    """

    fingerprint: str
    format: str | None
    last: Last | None = None
    begun: bool = False
    paused: int = 0

    def metadata(self) -> str:
        """What stands beside the position."""
        return self.fingerprint

    def text(self) -> str:
        """What stands in the group of notes."""
        found: dict[str, Any] = {"version": VERSION, "fingerprint": self.fingerprint, "format": self.format}
        if self.last is not None:
            found["last"] = [self.last.offset, self.last.timestamp, self.last.crc]
        if self.begun:
            found["begun"] = True
        if self.paused:
            found["paused"] = self.paused
        return orjson.dumps(found).decode()

    @classmethod
    def of(cls, text: str, group: str) -> Note:
        """What `text` has given.

        Raises:
            StoreError: a newer version has written it, or nobody that is known.
        """
        with suppress(orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            found = orjson.loads(text)
            if found["version"] > VERSION:
                raise StoreError(
                    f"the commits of the consumer group {group} were written by version {found['version']}, "
                    f"this is {VERSION}: upgrade this worker"
                )
            last = Last(*found["last"]) if "last" in found else None
            return cls(
                found["fingerprint"], found["format"], last, found.get("begun", False), found.get("paused", 0)
            )  # fmt: skip
        raise StoreError(f"the commits of the consumer group {group} are no signers' notes ({text[:80]!r}): delete it")

    def check(self, fingerprint: str, format: str, source: str) -> None:
        """Whether a signer with these settings may go on. One with others would put frames into the log that no
        sequencer takes, for good.

        Raises:
            StoreError: it must not.
        """
        # What was committed by hand says nothing.
        if self.fingerprint and self.fingerprint != fingerprint:
            raise StoreError(
                f"{source} was signed with other settings so far (fingerprint {self.fingerprint}, here {fingerprint}): "
                "use the same settings for all workers of a topic_prefix, or rebuild under another one with stream-lsh "
                "reindex"
            )
        if self.format not in (None, format):
            raise StoreError(
                f"{source} was read with document_format = {self.format} so far, here it is {format}: use the same for "
                "all workers of a topic_prefix, or rebuild under another one with stream-lsh kafka reindex"
            )


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a signer begins in a partition.

    first: of its first segment, see `frames`. last: the record before the position. again: whether that can be read
    again, and is to be compared. new: whether this is its very first start. warning: for the log.
    """

    position: int
    first: int = CONTINUES
    last: Last | None = None
    again: bool = False
    new: bool = False
    warning: str = ""


def known(
    positions: Mapping[int, tuple[int, str]], notes: Mapping[int, tuple[int, Note]]
) -> dict[int, tuple[int, Note]]:
    """What is known of each partition.

    Args:
        positions: as they are committed, with the fingerprint. notes: those that are there. One of another position is
        older: since then a signer of version 0.1 has committed, or one has died in between. One without a position says
        that a partition was begun, and nothing of it delivered yet.
    """
    found = {partition: place for partition, place in notes.items() if place[1].begun}
    for partition, (position, fingerprint) in positions.items():
        at, note = notes.get(partition, (position, Note(fingerprint, None)))
        same = at == position
        found[partition] = position, Note(
            fingerprint, note.format, note.last if same else None, paused=note.paused if same else 0
        )  # fmt: skip
    return found


def beginning(
    where: str, committed: tuple[int, Note] | None, accepted: int | None, bounds: tuple[int, int], accept_loss: bool
) -> Beginning:
    """Where to begin in a partition.

    Args:
        where: its name, for messages. committed: what the group has. accepted: up to where frames of it were sequenced,
        if there were some. bounds: the first offset that is there, and the one after the last.

    Raises:
        StoreError: documents are missing, or those that are there are not known to be the same topic's.
    """
    if committed is None and accepted is not None and not accept_loss:
        raise StoreError(
            f"{where}, has no committed position, but its documents up to offset {accepted} were sequenced: the topic "
            "was deleted and made again, or Kafka has forgotten the position (offsets.retention.minutes). If it is the "
            f"same topic start the worker with --accept-loss once: it goes on at offset {accepted}. Else read it under "
            "another topic_prefix."
        )
    position, note = committed or (None, Note("", None))
    lost = accept_loss and position is not None and accepted is None and not note.begun
    warning = ""
    if note.begun and accepted is None:
        found = Beginning(position or 0, STARTS)
    elif position is None and accepted is None:
        found = Beginning(bounds[0], STARTS, new=True)
    elif lost:
        # If nothing has been accepted, the first frame may be lost, too: from the beginning again, with a mark that is
        # always taken.
        warning = (
            f"{where}: no frame of it was sequenced yet; signing it again from offset {bounds[0]} on, where it begins "
            "now (--accept-loss)"
        )
        found = Beginning(bounds[0], JUMPS)
    elif position is None or note.begun:
        found = Beginning(accepted or 0)
    else:
        # With accept_loss frames may be lost as well: back to what has been accepted. What is signed twice counts once.
        back = accept_loss and accepted is not None and accepted < position
        found = Beginning(accepted or 0 if back else position, last=None if back else note.last)
    begin = bounds[0]
    if missing := READING.missing(where, found.position, bounds, accept_loss=accept_loss):
        warning = f"{where}: going on without {missing} documents from offset {found.position} on"
        return Beginning(begin, JUMPS, warning=warning)
    # Where retention has taken the last record, it has taken all that was read, and nothing else: another topic would
    # have to begin at that very place.
    again = found.last is not None and found.last.offset >= begin
    return Beginning(found.position, found.first, found.last, again, found.new, warning)


def another_topic(source: str, prefix: str, commits: Mapping[str, object]) -> StoreError | None:
    """What is wrong if a group of signers has committed for other topics than this source, and nothing for it."""
    if not commits or source in commits:
        return None
    return StoreError(
        f"{prefix} has read {', '.join(sorted(commits))} so far, and documents_topic is {source} now: use one "
        "topic_prefix for one documents topic"
    )


@dataclass(frozen=True, slots=True)
class Pause:
    """The mark by which an operator has the signers pause: nothing new is read, what was read is finished.

    by: who has asked for it, and what ends it; "" = nobody, documents are read. since: ms since 1970, which tells
    one pause from another.
    """

    by: str = ""
    since: int = 0

    def __bool__(self) -> bool:
        return bool(self.by)

    def metadata(self) -> str:
        """As text for an offset commit."""
        return orjson.dumps({"by": self.by, "since": self.since}).decode()


async def pause_of(client: AIOKafkaAdminClient, topics: Topics) -> Pause:
    """The pause as it stands. Who may not look at the mark is not paused: nobody can have written it.

    Raises:
        KafkaError: as `position.all_committed`.
    """
    try:
        found = (await committed(client, topics.group(PAUSE), topics.documents)).get(0)
    except GroupAuthorizationFailedError:
        return Pause()
    return Pause() if found is None else Pause(**orjson.loads(found[1]))
