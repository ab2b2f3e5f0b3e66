"""Detects stalls of match: no progress although there is work. Works on observations made once a second. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from stream_lsh.kafka.consumer.position import Bounds

LOOK_SECONDS = 1.0  # between two observations
LATE_SECONDS = 1.5  # after a longer pause the process or its event loop was blocked; the last observation is void
TWICE = 2  # observations: by the second one a frame between two tasks has arrived
UNREAD_LOOKS = 10  # observations for which frames may wait at the brokers
UNANSWERED_LOOKS = 10  # observations for which a shard may be without a flow


class Stall(StrEnum):
    """The reason of a stall; a label of `stream_lsh_stalls_total`."""

    LOST = "frames_lost"
    UNREAD = "frames_unread"
    ENDED = "fetch_ended"
    UNANSWERED = "no_flow"


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard of this member. Offsets are of its partition of frames.

    Attributes:
        position: the next frame that its flow takes.
        idle: the flow has nothing in flight.
        handed: the offset after the last frame fetched for the flow, 0 if there was none.
        read: the client's position; None if unknown.
        bounds: by the broker's last response; None if it did not answer.
    """

    position: int
    idle: bool
    handed: int
    read: int | None
    bounds: Bounds | None


@dataclass(frozen=True, slots=True)
class Seen:
    """An observation.

    Attributes:
        hand_overs: counts how often shards were handed over.
        ended: why the fetch task has ended; None if it runs.
        unanswered: shards that are assigned and recovered but have no flow.
        shards: those that have one.
    """

    hand_overs: int
    ended: str | None = None
    unanswered: frozenset[int] = frozenset()
    shards: Mapping[int, Shard] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """A stall. ends: the run must end, because nothing else helps."""

    stall: Stall
    text: str
    ends: bool = True


@dataclass(frozen=True, slots=True)
class Again:
    """The client has skipped frames that were never fetched: the shard must be read again from this offset."""

    shard: int
    offset: int


class Watchdog:
    """Compares each observation with the ones before it.

    Args:
        patience: seconds after which frames that wait at the brokers end the run. At least the time limit of a request:
            a slow connection is no stall.
    """

    def __init__(self, patience: float) -> None:
        self._patience = int(patience / LOOK_SECONDS)
        self._seen = Seen(-1)
        self._time = 0.0
        self._counts: dict[tuple[Stall, int], int] = {}  # consecutive observations of a stall, by shard
        self._again: dict[int, tuple[int, int]] = {}  # flow's and client's position at the last repeated read, by shard

    def look(self, seen: Seen, now: float) -> list[Finding | Again]:
        """The findings of an observation made at `now`, in seconds of a monotonic clock."""
        if seen.hand_overs != self._seen.hand_overs:
            self._counts, self._again = {}, {}
        elif now > self._time + LATE_SECONDS:
            self._counts = {key: n for key, n in self._counts.items() if key[0] not in (Stall.LOST, Stall.ENDED)}
        found = list(self._found(seen))
        self._seen, self._time = seen, now
        return found

    def _found(self, seen: Seen) -> Iterator[Finding | Again]:
        if self._count(Stall.ENDED, -1, seen.ended is not None) == TWICE:
            yield Finding(Stall.ENDED, f"match fetches no more for shards {_listed(seen.shards)}: {seen.ended}")
        counts = [self._count(Stall.UNANSWERED, shard, True) for shard in sorted(seen.unanswered)]
        self._keep(Stall.UNANSWERED, seen.unanswered)
        if max(counts, default=0) == UNANSWERED_LOOKS:
            text = f"shards are recovered and not answered for: {_listed(seen.unanswered)}"
            yield Finding(Stall.UNANSWERED, text)
        for number, shard in seen.shards.items():
            yield from self._of(number, shard)

    def _of(self, number: int, shard: Shard) -> Iterator[Finding | Again]:
        before = self._seen.shards.get(number)
        if before is None or not before.idle or before.position != shard.position:
            self._count(Stall.LOST, number, False)
            self._count(Stall.UNREAD, number, False)
        ahead = shard.idle and shard.read is not None and shard.read > shard.position
        if self._count(Stall.LOST, number, ahead) >= TWICE and shard.read is not None:
            if shard.handed > shard.position:
                text = (
                    f"shard {number}: frames from offset {shard.position} to {shard.handed} were fetched and got lost"
                )
                yield Finding(Stall.LOST, text)
            elif self._again.get(number) != (shard.position, shard.read):
                self._again[number] = (shard.position, shard.read)
                yield Again(number, shard.position)
        looks = self._count(Stall.UNREAD, number, shard.idle and self._waits(number, shard))
        if looks in (UNREAD_LOOKS, max(self._patience, UNREAD_LOOKS + 1)):
            deleted = shard.bounds is not None and shard.bounds[0] > shard.position
            what = "were deleted before they were fetched" if deleted else f"wait for {looks} s, and none is fetched"
            text = f"shard {number}: frames from offset {shard.position} on {what}"
            yield Finding(Stall.UNREAD, text, ends=deleted or looks > UNREAD_LOOKS)

    def _waits(self, number: int, shard: Shard) -> bool:
        """Whether the brokers have frames for a shard, or have deleted some that it needs."""
        if shard.bounds is None:
            return False
        begin, end = shard.bounds
        # Transaction markers, for example, have offsets but are no records. The client has searched there twice for a
        # frame, and found none.
        empty = shard.read is not None and shard.read >= end and self._again.get(number) == (shard.position, shard.read)
        return begin > shard.position or (end > shard.position and not empty)

    def _count(self, stall: Stall, shard: int, found: bool) -> int:
        count = self._counts[stall, shard] = self._counts.get((stall, shard), 0) + 1 if found else 0
        return count

    def _keep(self, stall: Stall, shards: frozenset[int]) -> None:
        for key in [key for key in self._counts if key[0] is stall and key[1] not in shards]:
            del self._counts[key]


def _listed(shards: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(shards)))
