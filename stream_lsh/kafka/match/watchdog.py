"""Whether match stands still although there is something to do: what is seen once a second -> what is wrong; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from stream_lsh.kafka.consumer.position import Bounds

LOOK_SECONDS = 1.0  # between two looks
LATE_SECONDS = 1.5  # after a longer pause the process, or its event loop, stood still: the look before proves nothing
TWICE = 2  # looks: what is on its way between two tasks is there by the second
UNREAD_LOOKS = 10  # looks that frames may wait at the brokers
UNANSWERED_LOOKS = 10  # looks that a shard may be without a flow


class Stall(StrEnum):
    """Why nothing goes on; a label of `stream_lsh_stalls_total`."""

    LOST = "frames_lost"
    UNREAD = "frames_unread"
    ENDED = "fetch_ended"
    UNANSWERED = "no_flow"


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard that this member answers for. Offsets are of its partition of the frames topic.

    position: of the next frame that its flow takes. idle: the flow has nothing in flight. handed: behind the last frame
    that was fetched for the flow, 0 if none was. read: where the client goes on; None if it does not know. bounds: as
    the broker said last; None if it did not answer.
    """

    position: int
    idle: bool
    handed: int
    read: int | None
    bounds: Bounds | None


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look has found.

    hand_overs: how often shards were handed over. ended: the task that fetches has ended, and why; None if it goes on.
    unanswered: shards that are assigned and recovered, and have no flow. shards: those that have one.
    """

    hand_overs: int
    ended: str | None = None
    unanswered: frozenset[int] = frozenset()
    shards: Mapping[int, Shard] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something is wrong. ends: this life has to end, for nothing else helps."""

    stall: Stall
    text: str
    ends: bool = True


@dataclass(frozen=True, slots=True)
class Again:
    """The client is past frames that were never fetched: it has to read a shard from this offset on again."""

    shard: int
    offset: int


class Watchdog:
    """Compares each look with those before it.

    Args:
        patience: seconds after which frames that wait at the brokers end this life. Not less than a request may take: a
        slow connection is no stall.
    """

    def __init__(self, patience: float) -> None:
        self._patience = int(patience / LOOK_SECONDS)
        self._seen = Seen(-1)
        self._time = 0.0
        self._counts: dict[tuple[Stall, int], int] = {}  # looks in a row that have found this of a shard
        self._again: dict[int, tuple[int, int]] = {}  # position and place of the client when a shard was read again

    def look(self, seen: Seen, now: float) -> list[Finding | Again]:
        """What is wrong by what was seen at a time, in seconds of a clock that never goes back."""
        if seen.hand_overs != self._seen.hand_overs:
            self._counts, self._again = {}, {}
        elif now > self._time + LATE_SECONDS:
            self._counts = {key: n for key, n in self._counts.items() if key[0] not in (Stall.LOST, Stall.ENDED)}
        found = list(self._found(seen))
        self._seen, self._time = seen, now
        return found

    def _found(self, seen: Seen) -> Iterator[Finding | Again]:
        if self._count(Stall.ENDED, -1, seen.ended is not None) == TWICE:
            yield Finding(Stall.ENDED, f"match fetches no more: {seen.ended}")
        counts = [self._count(Stall.UNANSWERED, shard, True) for shard in sorted(seen.unanswered)]
        self._keep(Stall.UNANSWERED, seen.unanswered)
        if max(counts, default=0) == UNANSWERED_LOOKS:
            shards = ", ".join(map(str, sorted(seen.unanswered)))
            yield Finding(Stall.UNANSWERED, f"shards are recovered and not answered for: {shards}")
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
        """Whether the brokers have frames for a shard, or had some and have deleted them."""
        if shard.bounds is None:
            return False
        begin, end = shard.bounds
        # The end of a transaction, for example, is no record, and has an offset. The client has looked for a frame
        # there twice, and found none.
        empty = shard.read is not None and shard.read >= end and self._again.get(number) == (shard.position, shard.read)
        return begin > shard.position or (end > shard.position and not empty)

    def _count(self, stall: Stall, shard: int, found: bool) -> int:
        count = self._counts[stall, shard] = self._counts.get((stall, shard), 0) + 1 if found else 0
        return count

    def _keep(self, stall: Stall, shards: frozenset[int]) -> None:
        for key in [key for key in self._counts if key[0] is stall and key[1] not in shards]:
            del self._counts[key]
