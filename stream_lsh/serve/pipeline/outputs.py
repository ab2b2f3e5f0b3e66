"""What comes of the records of the outputs: events in their order, verdicts for who waits, counts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from aiokafka import ConsumerRecord, TopicPartition

from stream_lsh.serve.counts import Tally
from stream_lsh.serve.events import Kind, Ring, seq_of
from stream_lsh.serve.pipeline.merging import Merge, tell
from stream_lsh.serve.pipeline.verdicts import Verdicts, parsed

_LOG = logging.getLogger("stream_lsh.serve")
_NEWER = b'"newer_seq":'


class Outputs:
    """What a service makes of the outputs, in whatever order it reads their partitions.

    Args:
        most: events that are kept, told or not.

    Attributes:
        documents: how many have their verdict; None as long as nobody has said. before: all that came with documents
            with smaller numbers is told.
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
        self._complete: dict[TopicPartition, int] = {}  # from the document with this number on everything was read
        self._seen: dict[TopicPartition, int] = {}  # offset behind what was counted
        self._counts = False  # what was there before the service began counts for nothing

    @property
    def waiting(self) -> int:
        """Events that cannot be told yet."""
        return len(self._merge)

    def begin(self, kinds: Mapping[TopicPartition, Kind], whole: Iterable[TopicPartition]) -> None:
        """Partitions are read from somewhere on, perhaps not for the first time: what they are, and which of
        them have nothing that counts before."""
        self._kinds, self._complete = kinds, dict.fromkeys(whole, 0)
        self._merge = Merge(self._most)

    def take(self, record: ConsumerRecord) -> None:
        """Take the next record of a partition."""
        value = record.value
        if value is None:
            return  # a group has ended, as the event before says
        place = TopicPartition(record.topic, record.partition)
        kind = self._kinds[place]
        try:
            verdict = parsed(value) if kind == "verdict" else {}
            seq = _newer(value) if kind == "pair" else seq_of(value)
            # What the first document has had before may be missing.
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
            _LOG.warning("%s: it is no %s (%r), and is passed over", where, kind, error)

    def _count(self, kind: Kind, verdict: Mapping[str, object]) -> None:
        tally = self._tally
        if kind == "verdict":
            tally.verdict(verdict)
        elif kind == "pair":
            tally.pair()
        elif kind == "group":
            tally.groups += 1
        else:
            tally.alerts += 1

    def reach(self, before: int, documents: int | None) -> None:
        """All was read that came with documents with smaller numbers than this: tell it. documents: that have their
        verdict."""
        if before < self.before:  # other topics under the same names
            self._seen.clear()
            self._verdicts.clear()
        begin = max(self._merge.begin, *(self._complete.setdefault(place, before) for place in self._kinds))
        tell(self._ring, self._merge.take(before), begin, before)
        self.before, self.documents = before, documents
        self._counts = True


def _newer(pair: bytes) -> int:
    """The number of the document that a pair came with; in strings quotes are escaped."""
    return int(pair.partition(_NEWER)[2].partition(b",")[0])
