"""Gathers the replies of all shards to complete frames, in the order of the log. Pure.

The chain rule: every reply names the predecessor of its frame. From each shard only the reply to the frame right
after the last one counts. An earlier one is a repeat. A later one is ignored: its sender has failed, and will send the
missing reply and this one again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from stream_lsh.errors import StoreError
from stream_lsh.wire.parts import Part, Series

Payload = TypeVar("Payload")

FORKED = (
    "the chain of frames is forked (shard {shard}, frame {offset} after {predecessor}, expected one after {last}): the "
    "committed offsets of the sequencer were changed, or another pipeline uses the same topic_prefix. Rebuild into a "
    "new one with `stream-lsh kafka reindex`"
)


class Outcome(StrEnum):
    """What happened to a reply."""

    APPLIED = "applied"
    REPEAT = "repeat"
    GAP = "gap"


class _Waiting(NamedTuple, Generic[Payload]):
    position: int
    offset: int
    payload: Payload


class Complete(NamedTuple, Generic[Payload]):
    """A frame that every shard has answered. offset: of the frame; replies: of shard 0, 1, ..."""

    offset: int
    replies: Sequence[Payload]


@dataclass(frozen=True, slots=True)
class Waits:
    """The shards whose replies to a frame are missing. frame: its offset in the topic signatures."""

    shards: tuple[int, ...]
    frame: int

    def __str__(self) -> str:
        listed = ", ".join(map(str, self.shards))
        return f"waiting for shard{'s' * (len(self.shards) > 1)} {listed}: frame {self.frame}"


class Gather(Generic[Payload]):
    """Gathers the replies of `shards` shards. last: offset of the last complete frame, -1 if there is none."""

    def __init__(self, shards: int, last: int) -> None:
        self.last = last
        self._chains: list[deque[_Waiting[Payload]]] = [deque() for _ in range(shards)]
        self._tails = [last] * shards

    def add(self, position: int, shard: int, offset: int, predecessor: int, payload: Payload) -> Outcome:
        """Add a reply.

        Args:
            position: its offset in the topic matches; never smaller than before.
            offset, predecessor: of the frame that it answers.

        Raises:
            StoreError: as `outcome`.
        """
        outcome = self.outcome(shard, offset, predecessor)
        if outcome is Outcome.APPLIED:
            self._chains[shard].append(_Waiting(position, offset, payload))
            self._tails[shard] = offset
        return outcome

    def outcome(self, shard: int, offset: int, predecessor: int) -> Outcome:
        """What would happen to a reply.

        Raises:
            StoreError: the shard does not exist, or the reply belongs to another chain of frames.
        """
        if not 0 <= shard < len(self._chains):
            raise StoreError(
                f"there is a reply of shard {shard}, but shards = {len(self._chains)}: give all workers of a "
                "topic_prefix the same settings"
            )
        tail = self._tails[shard]
        if predecessor > tail:
            return Outcome.GAP
        if predecessor < tail:
            if offset > tail:
                raise StoreError(FORKED.format(shard=shard, offset=offset, predecessor=predecessor, last=tail))
            return Outcome.REPEAT
        if offset <= predecessor:
            raise StoreError(FORKED.format(shard=shard, offset=offset, predecessor=predecessor, last=tail))
        return Outcome.APPLIED

    def last_of(self, shard: int) -> int:
        """The last frame that a shard has answered without a gap."""
        return self._tails[shard]

    @property
    def ready(self) -> bool:
        """Whether `take` has a frame."""
        return all(self._chains)

    def take(self) -> Complete[Payload] | None:
        """Take out the next complete frame, if there is one. It becomes the last one.

        Raises:
            StoreError: the shards have answered different frames.
        """
        if not self.ready:
            return None
        heads = [chain.popleft() for chain in self._chains]
        offset = heads[0].offset
        for shard, head in enumerate(heads):
            if head.offset != offset:
                raise StoreError(FORKED.format(shard=shard, offset=head.offset, predecessor=self.last, last=self.last))
        self.last = offset
        return Complete(offset, [head.payload for head in heads])

    @property
    def waits(self) -> Waits | None:
        """The shards that the next frame waits for. None if it is complete, or if no shard has answered: the frame is
        then unknown here."""
        frame = next((chain[0].offset for chain in self._chains if chain), None)
        if frame is None or self.ready:
            return None
        return Waits(tuple(shard for shard, chain in enumerate(self._chains) if not chain), frame)

    def needed(self, end: int) -> int:
        """The offset in matches of the first reply that was not taken; `end` if there is none."""
        return min([end, *(chain[0].position for chain in self._chains if chain)])

    @property
    def waiting(self) -> int:
        """Number of frames that have a reply and were not taken yet."""
        return max(len(chain) for chain in self._chains)


class Assembly:
    """The replies of all shards that come in parts: of each shard those to the frame right after its last reply.

    A shard's replies are complete one after the other, so no others can count. All replies to a frame are equal to the
    byte, so the parts of several workers may complete each other.

    Args:
        last_of: the last frame to which a shard has replied.
    """

    def __init__(self, last_of: Callable[[int], int]) -> None:
        self._last_of = last_of
        self._series: dict[int, dict[tuple[int, bytes], Series]] = {}  # by shard; of each the number of parts, digest

    def add(self, position: int, part: Part) -> tuple[int, bytes] | None:
        """Add a part whose predecessor is the last frame of its shard.

        Args:
            position: its offset in the topic matches.

        Returns:
            The reply that it completes, and the offset of its first part.

        Raises:
            FormatError: the parts are damaged.
        """
        shard, _, predecessor = part.place
        known = self._series.setdefault(shard, {})
        self._forget(shard, predecessor)
        name = part.count, part.digest
        series = known.get(name) or Series(position)
        if not series.add(part):  # a repeat, or what was before it is missing
            return None
        known[name] = series
        if (record := series.record) is None:
            return None
        del known[name]
        return series.begin, record

    def _forget(self, shard: int, last: int) -> None:
        """Drop the parts of replies to other frames than the one after `last`."""
        known = self._series[shard]
        for name in [name for name, series in known.items() if series.parts[0].place.predecessor != last]:
            del known[name]

    def needed(self, end: int) -> int:
        """The offset of the first part of a reply that may still be completed; `end` if there is none."""
        for shard in self._series:
            self._forget(shard, self._last_of(shard))
        return min([end, *(series.begin for known in self._series.values() for series in known.values())])
