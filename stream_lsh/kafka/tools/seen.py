"""An observation of a pipeline from outside. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stream_lsh.kafka.sequence.order import Accepted
from stream_lsh.kafka.sign.position import Pause
from stream_lsh.kafka.tools.workers import Answer
from stream_lsh.wire.source import TOPIC_BITS, output_of

NO_PAUSE = Pause()


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a consumer group. partitions: its assignment, by topic (the broker's name)."""

    host: str
    partitions: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group as the brokers describe it."""

    state: str
    members: Sequence[Member]


@dataclass(frozen=True, slots=True)
class Reader:
    """A partition as a role reads it.

    Attributes:
        topic: an attribute of `Topics`; `documents` for each documents topic.
        partition: of documents its number among all source partitions.
        begin, end: its first and end offset.
        position: the next offset to be read; None if nothing was ever committed.
        since: timestamp of the first waiting record, seconds since 1970; None if none waits.
    """

    role: str
    topic: str
    partition: int
    begin: int
    end: int
    position: int | None
    since: float | None = None

    @property
    def next(self) -> int:
        """The next offset to be read."""
        return self.begin if self.position is None else self.position

    @property
    def overtaken(self) -> int:
        """Number of records that were deleted before they were read."""
        return max(0, self.begin - self.next)

    @property
    def waiting(self) -> int:
        """Number of existing records that are not read yet."""
        return 0 if self.since is None else self.end - self.next - self.overtaken


@dataclass(frozen=True, slots=True)
class Next:
    """A waiting frame. offset: in signatures; predecessor: offset of the frame before; documents: their number before
    it."""

    offset: int
    predecessor: int
    documents: int


@dataclass(frozen=True, slots=True)
class Seen:
    """The observed values. Topics are attributes of `Topics`.

    Attributes:
        now: seconds since 1970.
        names: the broker's names of the topics.
        groups: by role.
        provisional: by source partition, the number of documents without a verdict, and the first one's timestamp.
        accepted: by the sequencer; None: unknown.
        with_verdict: number of documents that have a verdict; None: unknown.
        complete: the last frame that all shards have answered, -1 before the first; None: unknown.
        nexts: the next frame of each shard, if there is one that is readable.
        kept: seconds that records are kept, by the broker's names of the topics; None: for ever.
        sources, outputs: numbers of partitions that the largest documents topic and all outputs have.
        answers: of the workers; None if their addresses are unknown.
        unread: why frames are unreadable.
        pause: of the signers.
        documents: the broker's names of the documents topics, if there are several.
    """

    now: float
    names: Mapping[str, str]
    groups: Mapping[str, Group]
    readers: Sequence[Reader]
    provisional: Mapping[int, tuple[int, float | None]]
    accepted: Accepted | None
    with_verdict: int | None
    complete: int | None
    nexts: Mapping[int, Next]
    kept: Mapping[str, float | None]
    sources: int
    outputs: int
    answers: Sequence[Answer] | None = None
    unread: str | None = None
    pause: Pause = NO_PAUSE
    documents: Sequence[str] = ()

    def place(self, topic: str, partition: int) -> tuple[str, int]:
        """The broker's names of a partition that a reader has."""
        if topic == "documents" and self.documents:
            return self.documents[partition >> TOPIC_BITS], output_of(partition)
        return self.names[topic], partition

    def members(self, role: str, topic: str) -> Iterator[tuple[Member, bool]]:
        """The members of a role, and whether each has partitions of a topic."""
        names = {*self.documents} if topic == "documents" and self.documents else {self.names[topic]}
        for member in self.groups[role].members:
            yield member, any(member.partitions.get(name) for name in names)
