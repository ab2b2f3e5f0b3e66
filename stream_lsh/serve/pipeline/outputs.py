"""Processing of the output records: ordered events, verdicts for waiting requests, counts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from aiokafka import ConsumerRecord, TopicPartition

from stream_lsh.serve.counts import Tally
from stream_lsh.serve.event_filter import Kind
from stream_lsh.serve.events import Ring, seq_of
from stream_lsh.serve.pipeline.merging import Merge, tell
from stream_lsh.serve.pipeline.verdicts import Verdicts, parsed

_LOG = logging.getLogger("stream_lsh.serve")
_NEWER = b'"newer_seq":'


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
            verdict = parsed(value) if kind == "verdict" else {}
            seq = _newer(value) if kind == "pair" else seq_of(value)
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


def _newer(pair: bytes) -> int:
    """The seq of the newer document of a pair. In strings quotes are escaped."""
    return int(pair.partition(_NEWER)[2].partition(b",")[0])
