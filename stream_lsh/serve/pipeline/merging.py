"""Merges the events of several topics in the order of their documents. Pure.

The events of a document are its verdict, then its pairs, then events of groups, then alerts. Each of these kinds is in
one partition, in order. So the n-th event of a document is the same for every reader at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from stream_lsh.serve.event_filter import KINDS, Kind
from stream_lsh.serve.events import Block, Place, Ring, Said, numbered

BLOCK = 512  # events of a block; the events of its last document may exceed it


class Merge:
    """Events that were read but not released, because earlier ones may still arrive.

    The limit is `most` events. The ring of released events has the same limit, so earlier ones would be dropped there
    before their turn.

    Attributes:
        begin: seq of the first document without missing events.
    """

    def __init__(self, most: int) -> None:
        self.begin = 0
        self._most = most
        self._waiting: list[tuple[int, int, int, bytes]] = []  # seq, kind, order of arrival, data
        self._arrived = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, seq: int, kind: Kind, data: bytes) -> None:
        """Add an event."""
        self._arrived += 1
        heappush(self._waiting, (seq, KINDS.index(kind), self._arrived, data))
        if len(self._waiting) > self._most:
            dropped = heappop(self._waiting)[0]
            self.begin = max(self.begin, dropped + 1)

    def take(self, before: int) -> list[Said]:
        """Take out all events of documents with seq < `before`, which are complete."""
        found: list[Said] = []
        while self._waiting and self._waiting[0][0] < before:
            seq, kind, _, data = heappop(self._waiting)
            if seq >= self.begin:
                found.append((seq, KINDS[kind], data))
        return found


def tell(ring: Ring, said: Sequence[Said], begin: int, before: int) -> None:
    """Add the complete events of documents with `begin` <= seq < `before` to the ring. Events that it had already are
    left out. After a gap the ring restarts."""
    released = ring.end[0]
    if begin > released or before < released:  # after a gap, or with recreated topics
        ring.restart((begin, 0))
        released = begin
    at: Place = ring.end
    for events in _parts([item for item in said if item[0] >= released]):
        block = Block(at, (events[-1][0] + 1, 0), numbered(events))
        ring.add(block)
        at = block.end


def _parts(said: Sequence[Said]) -> Iterator[Sequence[Said]]:
    """Splits events into blocks, and keeps those of a document together."""
    begin = 0
    while begin < len(said):
        end = min(begin + BLOCK, len(said))
        while end < len(said) and said[end][0] == said[end - 1][0]:
            end += 1
        yield said[begin:end]
        begin = end
