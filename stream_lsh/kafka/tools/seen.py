"""What is seen of a pipeline from outside; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stream_lsh.kafka.sequence.order import Accepted
from stream_lsh.kafka.sign.position import Pause
from stream_lsh.kafka.tools.workers import Answer

NO_PAUSE = Pause()


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group. partitions: what it is assigned, by topic (as the broker calls it)."""

    host: str
    partitions: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group as the brokers describe it."""

    state: str
    members: Sequence[Member]


@dataclass(frozen=True, slots=True)
class Reader:
    """A partition as a role reads it: the offsets it begins and ends with, and the one to be read next.

    topic: an attribute of `Topics`. position: None if nothing was ever committed. since: timestamp of the first record
    that waits, seconds since 1970; None if none does.
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
        """Where it goes on."""
        return self.begin if self.position is None else self.position

    @property
    def overtaken(self) -> int:
        """Records that were deleted before they were read."""
        return max(0, self.begin - self.next)

    @property
    def waiting(self) -> int:
        """Records that are there and wait."""
        return 0 if self.since is None else self.end - self.next - self.overtaken


@dataclass(frozen=True, slots=True)
class Next:
    """A frame that waits. offset: in the signatures topic; predecessor: of the frame before; documents: before it."""

    offset: int
    predecessor: int
    documents: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read. Topics are attributes of `Topics`.

    now: seconds since 1970. names: of the topics at the broker. groups: by role. provisional: of each source partition,
    documents without a verdict, and the timestamp of the first of them. accepted: by the sequencer; decided: documents
    that have their verdict; complete: the last frame that all shards have answered, -1 before the first; None: not
    known. nexts: the frame that each shard is to read next, as far as there is one that can be read. kept:
    seconds that records are kept; None: for ever. sources, outputs: partitions that documents and all outputs have.
    answers: of the workers; None if it is not known where to ask. unread: why frames cannot be read. pause: of the
    signers.
    """

    now: float
    names: Mapping[str, str]
    groups: Mapping[str, Group]
    readers: Sequence[Reader]
    provisional: Mapping[int, tuple[int, float | None]]
    accepted: Accepted | None
    decided: int | None
    complete: int | None
    nexts: Mapping[int, Next]
    kept: Mapping[str, float | None]
    sources: int
    outputs: int
    answers: Sequence[Answer] | None = None
    unread: str | None = None
    pause: Pause = NO_PAUSE
