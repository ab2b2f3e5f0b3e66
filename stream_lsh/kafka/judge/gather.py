"""Gathers the replies of all shards to complete frames, in the order of the log. Pure.

The chain rule: every reply names the predecessor of its frame. From each shard only the reply to the frame right
after the last one counts. An earlier one is a repeat. A later one is ignored: its sender has failed, and will send the
missing reply and this one again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from stream_lsh.errors import StoreError

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
