"""Processing of the output records: ordered events, verdicts for waiting requests, counts.

The events of a document are its verdict, then its pairs, then events of groups, then alerts. Each of these kinds is in
one partition, in order. So the n-th event of a document is the same for every reader at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from aiokafka import ConsumerRecord, TopicPartition

from stream_lsh.documents.fields import output_object
from stream_lsh.serve.counts import Tally
from stream_lsh.serve.event_filter import KINDS, Kind
from stream_lsh.serve.events import SEQ, Block, Place, Ring, Said, numbered, seq_of
from stream_lsh.serve.pipeline.verdicts import Verdicts

_LOG = logging.getLogger("stream_lsh.serve")
_NEWER = b'"newer_seq":'
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


class Outputs:
    """Processes output records. The partitions may be read in any order.

    Args:
        most: limit of stored events, released or not.

    Attributes:
        documents: number of documents that have a verdict; None if unknown.
        before: all events of documents with a smaller seq are released.
    """

    def __init__(self, ring: Ring, verdicts: Verdicts, tally: Tally, most: int) -> None:
        self.documents: int | None = None
        self.before = 0
        self._ring = ring
        self._verdicts = verdicts
        self._tally = tally
        self._most = most
        self._merge = Merge(most)
        self._kinds: Mapping[TopicPartition, Kind] = {}
        self._complete: dict[TopicPartition, int] = {}  # from the document with this seq on, everything was read
        self._seen: dict[TopicPartition, int] = {}  # offset after the last counted record
        self._counts = False  # records from before the start of the service are not counted

    @property
    def waiting(self) -> int:
        """Number of events that cannot be released yet."""
        return len(self._merge)

    def begin(self, kinds: Mapping[TopicPartition, Kind], whole: Iterable[TopicPartition]) -> None:
        """Start or restart reading partitions.

        Args:
            kinds: the kind of events in each partition.
            whole: the partitions that are read from their beginning.
        """
        self._kinds, self._complete = kinds, dict.fromkeys(whole, 0)
        self._merge = Merge(self._most)

    def take(self, record: ConsumerRecord) -> None:
        """Process the next record of a partition."""
        value = record.value
        if value is None:
            return  # the tombstone of an ended group; the event before it says the same
        place = TopicPartition(record.topic, record.partition)
        kind = self._kinds[place]
        try:
            verdict = output_object(value) if kind == "verdict" else {}
            seq = seq_of(value, _NEWER if kind == "pair" else SEQ)
            # Earlier events of the first document may be missing.
            self._complete.setdefault(place, seq + 1)
            if record.offset >= self._seen.get(place, 0):
                self._seen[place] = record.offset + 1
                if self._counts:
                    self._count(kind, verdict)
            if kind == "verdict":
                self._verdicts.add(value, verdict)
            self._merge.add(seq, kind, value)
        except (ValueError, KeyError, TypeError) as error:
            where = f"{record.topic}, partition {record.partition}, offset {record.offset}"
            _LOG.warning("%s: it is no %s (%r), and is skipped", where, kind, error)

    def _count(self, kind: Kind, verdict: Mapping[str, object]) -> None:
        tally = self._tally
        if kind == "verdict":
            tally.verdict(verdict)
        elif kind == "pair":
            tally.counts.pairs += 1
        elif kind == "group":
            tally.groups += 1
        else:
            tally.alerts += 1

    def reach(self, before: int, documents: int | None) -> None:
        """Release all events of documents with seq < `before`: everything up to there is read. documents: number of
        documents that have a verdict."""
        if before < self.before:  # the topics were recreated
            self._seen.clear()
            self._verdicts.clear()
        begin = max(self._merge.begin, *(self._complete.setdefault(place, before) for place in self._kinds))
        tell(self._ring, self._merge.take(before), begin, before)
        self.before, self.documents = before, documents
        self._counts = True


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
