"""The events of several topics in one order, that of their documents; pure.

Of one document the verdict comes first, then its pairs, then what became of groups, then alerts; each kind of them is
in one partition, in its order. So the n-th event of a document is the same for whoever reads the topics, and whenever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from stream_lsh.serve.events import KINDS, Block, Kind, Place, Ring, Said, numbered

BLOCK = 512  # events of a block, and those of its last document besides


class Merge:
    """What was read and not told yet, because something before it may still come.

    It has no more than `most` events: as many are kept of those that were told, and so of more the first would be
    forgotten by the time it is their turn.

    Attributes:
        begin: what is told begins with the document with this number, as before it something is missing.
    """

    def __init__(self, most: int) -> None:
        self.begin = 0
        self._most = most
        self._waiting: list[tuple[int, int, int, bytes]] = []  # number, kind, order of arrival, data
        self._arrived = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, seq: int, kind: Kind, data: bytes) -> None:
        """Something was read."""
        self._arrived += 1
        heappush(self._waiting, (seq, KINDS.index(kind), self._arrived, data))
        if len(self._waiting) > self._most:
            gone = heappop(self._waiting)[0]
            self.begin = max(self.begin, gone + 1)

    def take(self, before: int) -> list[Said]:
        """All that came with documents with smaller numbers than this, of which nothing more will come."""
        found: list[Said] = []
        while self._waiting and self._waiting[0][0] < before:
            seq, kind, _, data = heappop(self._waiting)
            if seq >= self.begin:
                found.append((seq, KINDS[kind], data))
        return found


def tell(ring: Ring, said: Sequence[Said], begin: int, before: int) -> None:
    """Go on with the events of documents with the numbers from `begin` to before `before`, of which none is missing.
    Those that were told are left out; where something is missing in between, the ring begins anew."""
    told = ring.end[0]
    if begin > told or before < told:  # behind a gap; or other topics under the same names
        ring.restart((begin, 0))
        told = begin
    at: Place = ring.end
    for events in _parts([item for item in said if item[0] >= told]):
        block = Block(at, (events[-1][0] + 1, 0), numbered(events))
        ring.add(block)
        at = block.end


def _parts(said: Sequence[Said]) -> Iterator[Sequence[Said]]:
    """Some at a time, those of a document together."""
    begin = 0
    while begin < len(said):
        end = min(begin + BLOCK, len(said))
        while end < len(said) and said[end][0] == said[end - 1][0]:
            end += 1
        yield said[begin:end]
        begin = end
