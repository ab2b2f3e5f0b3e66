"""One partition of a simulated topic: batches, producers, transactions, deletion, retention, compaction, a lost tail.

After Kafka's UnifiedLog, ProducerStateManager and LogCleaner. A batch stays the bytes that the producer sent; the
broker writes only its head: base offset, leader epoch, and with LogAppendTime the time.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from stream_lsh.kafka.client import private
from support.simulation.errors import Error

HEAD = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC = 21  # where the attributes begin
_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x08, 0x10, 0x20
_KEPT_BATCHES = 5  # of a producer, among which a repeated one is found
NOBODY = -1  # as a producer id


@dataclass(frozen=True, slots=True)
class Batch:
    """Offsets are inclusive; time: the latest of its records, in milliseconds."""

    base: int
    last: int
    data: bytes
    producer: int
    epoch: int
    sequence: int
    time: int
    transactional: bool
    control: bool


@dataclass(slots=True)
class Producer:
    """What a partition knows of a producer. first: offset at which its open transaction begins."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_KEPT_BATCHES))
    first: int | None = None


@dataclass(frozen=True, slots=True)
class Aborted:
    """A transaction that was aborted: from its first record to its marker."""

    producer: int
    first: int
    marker: int


class Log:
    """A partition. Offsets start at `start`, the next record gets `end`.

    Attributes:
        epoch: of the leader.
        changed: called when a reader may see more, or has to look again.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self.config = config
        self.batches: list[Batch] = []
        self.start = self.end = self.epoch = 0
        self.aborted: list[Aborted] = []
        self._producers: dict[int, Producer] = {}
        self._segments = [0]
        self._segment_bytes = 0
        self.changed: dict[Callable[[], object], None] = {}

    @property
    def stable(self) -> int:
        """The last stable offset: every transaction before it has ended."""
        return min((p.first for p in self._producers.values() if p.first is not None), default=self.end)

    def append(self, data: bytes, now: int, verified: bool = True) -> tuple[Error, int]:
        """Append one batch. Returns the error and the offset of its first record; a batch that is here already is not
        appended again. verified: the partition belongs to the producer's open transaction, if it has one."""
        _, _, _, magic, crc, attributes, delta, _, latest, producer, epoch, sequence, _ = HEAD.unpack_from(data)
        if magic != 2 or crc != calc_crc32c(data[_AFTER_CRC:]):
            return Error.CORRUPT_MESSAGE, -1
        if len(data) > int(self.config["max.message.bytes"]):
            return Error.MESSAGE_TOO_LARGE, -1
        if producer != NOBODY:
            known = self._producers.setdefault(producer, Producer(epoch))
            if epoch < known.epoch:
                return Error.INVALID_PRODUCER_EPOCH, -1
            if not verified:
                return Error.INVALID_TXN_STATE, -1
            if epoch == known.epoch:
                for first, last, base in known.batches:
                    if (first, last) == (sequence, sequence + delta):
                        return Error.NONE, base
                if known.batches and sequence != known.batches[-1][1] + 1:
                    return Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            elif sequence != 0:
                return Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        if self.config["message.timestamp.type"] == "LogAppendTime":
            data, latest = _stamped(data, now), now
        base = self.end
        self._put(
            Batch(base, base + delta, self._headed(data, base), producer, epoch, sequence, latest,
                  bool(attributes & _TRANSACTIONAL), bool(attributes & _CONTROL)),
        )  # fmt: skip
        return Error.NONE, base

    def restore(self, start: int, batches: Iterable[bytes]) -> None:
        """Take the log of another cluster. Its producers are unknown here."""
        for data in batches:
            base, _, _, _, _, attributes, delta, _, latest, producer, epoch, sequence, _ = HEAD.unpack_from(data)
            self._put(
                Batch(base, base + delta, data, producer, epoch, sequence, latest,
                      bool(attributes & _TRANSACTIONAL), bool(attributes & _CONTROL)),
            )  # fmt: skip
        self._producers.clear()
        self.delete_before(start)

    def mark(self, producer: int, epoch: int, commit: bool, now: int) -> None:
        """Write the marker that ends a transaction."""
        data = _marker(producer, epoch, commit, now)
        self._put(Batch(self.end, self.end, self._headed(data, self.end), producer, epoch, -1, now, True, True))

    def _put(self, batch: Batch) -> None:
        self._segment_bytes += len(batch.data)
        if self._segment_bytes > int(self.config["segment.bytes"]):
            self.roll()
            self._segment_bytes = len(batch.data)
        self.batches.append(batch)
        self.end = batch.last + 1
        self._learn(batch)
        self._tell()

    def _learn(self, batch: Batch) -> None:
        """Follow the producers and transactions."""
        if batch.producer == NOBODY:
            return
        known = self._producers.setdefault(batch.producer, Producer(batch.epoch))
        if batch.epoch > known.epoch:
            known.epoch = batch.epoch
            known.batches.clear()
        if batch.control:
            if known.first is not None and struct.unpack_from(">h", batch.data, HEAD.size + 7)[0] != 1:  # no commit
                self.aborted.append(Aborted(batch.producer, known.first, batch.base))
            known.first = None
            return
        known.batches.append((batch.sequence, batch.sequence + batch.last - batch.base, batch.base))
        if batch.transactional and known.first is None:
            known.first = batch.base

    def _headed(self, data: bytes, base: int) -> bytes:
        return struct.pack(">q", base) + data[8:12] + struct.pack(">i", self.epoch) + data[16:]

    def _tell(self) -> None:
        changed, self.changed = self.changed, {}
        for call in changed:
            call()

    def read(self, offset: int, most: int, committed: bool) -> tuple[bytes, list[Aborted]]:
        """Batches from the one with this offset on, at least one and at most so many bytes, and the aborted
        transactions among them. committed: only before the last stable offset."""
        limit = self.stable if committed else self.end
        found, size, reached = [], 0, offset
        for place in range(bisect_left(self.batches, offset, key=lambda batch: batch.last), len(self.batches)):
            batch = self.batches[place]
            if batch.base >= limit or (found and size + len(batch.data) > most):
                break
            found.append(batch.data)
            size += len(batch.data)
            reached = batch.last
        aborted = [one for one in self.aborted if one.marker >= offset and one.first <= reached] if committed else []
        return b"".join(found), aborted

    def records(self) -> Iterator[tuple[Batch, Any]]:
        """All records, and the batch of each."""
        for batch in self.batches:
            for record in private._Batch(DefaultRecordBatch(batch.data), memoryview(batch.data)):
                if record.offset >= self.start:
                    yield batch, record

    def committed(self) -> Iterator[Any]:
        """The records that a reader of committed ones has seen once it is at the last stable offset."""
        gone = self._aborted_offsets()
        for batch, record in self.records():
            if not batch.control and record.offset < self.stable and record.offset not in gone:
                yield record

    def at_time(self, time: int, committed: bool) -> tuple[int, int] | None:
        """Offset and time of the first record that is not older; None if there is none."""
        limit = self.stable if committed else self.end
        return next(
            (
                (record.offset, record.timestamp)
                for batch, record in self.records()
                if not batch.control and record.offset < limit and record.timestamp >= time
            ),
            None,
        )  # fmt: skip

    def delete_before(self, offset: int) -> None:
        """Delete the records before this offset (DeleteRecords, retention)."""
        self.start = max(self.start, min(offset, self.end))
        self.batches = [batch for batch in self.batches if batch.last >= self.start]
        self.aborted = [one for one in self.aborted if one.marker >= self.start]
        self._segments = [self.start, *(base for base in self._segments if base > self.start)]
        self._tell()

    def roll(self) -> None:
        """Begin a new segment file: what lies before it can be deleted and compacted."""
        if self._segments[-1] < self.end:
            self._segments.append(self.end)
        self._segment_bytes = 0

    def clean(self, now: int) -> None:
        """Let retention and compaction do what they may at this time, in milliseconds."""
        policies = self.config["cleanup.policy"].split(",")
        if "delete" in policies:
            self._expire(now)
        if "compact" in policies:
            self._compact(now)

    def _expire(self, now: int) -> None:
        kept_ms, kept_bytes = int(self.config["retention.ms"]), int(self.config["retention.bytes"])
        while len(self._segments) > 1:
            first, second = self._segments[:2]
            within = [batch for batch in self.batches if batch.last < second]
            old = kept_ms >= 0 and max((batch.time for batch in within), default=0) < now - kept_ms
            more = sum(len(batch.data) for batch in self.batches) - sum(len(batch.data) for batch in within)
            if not old and not 0 <= kept_bytes <= more:
                return
            assert first < second
            self.delete_before(second)

    def _compact(self, now: int) -> None:
        """Keep the last record of each key, of what no open transaction and no active segment holds."""
        limit = min(self._segments[-1], self.stable)
        horizon = now - int(self.config["delete.retention.ms"])
        gone = self._aborted_offsets()
        latest = {
            bytes(record.key): record.offset
            for batch, record in self.records()
            if not batch.control and record.offset not in gone and record.offset < limit and record.key is not None
        }
        kept: list[Batch] = []
        for batch in self.batches:
            if batch.last >= limit:
                kept.append(batch)
                continue
            # A marker goes: its transaction has ended, and its aborted records go with it.
            for record in () if batch.control else DefaultRecordBatch(batch.data):
                tombstone = record.value is None and record.timestamp < horizon
                if latest.get(bytes(record.key or b"")) == record.offset and not tombstone:
                    kept.append(_alone(record, self.epoch))
            if batch.last == limit - 1 and not (kept and kept[-1].last == batch.last):
                kept.append(_emptied(batch))  # readers learn from it that there is nothing more
        self.batches = kept
        self.aborted = [one for one in self.aborted if one.marker >= limit]

    def _aborted_offsets(self) -> set[int]:
        return {
            offset
            for one in self.aborted for batch in self.batches
            if batch.producer == one.producer and one.first <= batch.base < one.marker
            for offset in range(batch.base, batch.last + 1)
        }  # fmt: skip

    def lose(self, offset: int) -> None:
        """Lose everything from this offset on: a leader that did not have it was elected."""
        self.batches = [batch for batch in self.batches if batch.last < offset]
        self.end = max(self.start, min(self.end, offset))
        self.aborted = [one for one in self.aborted if one.marker < offset]
        self._segments = [base for base in self._segments if base <= self.end]
        self.epoch += 1
        self._producers.clear()
        ended, self.aborted = self.aborted, []
        for batch in self.batches:
            self._learn(batch)
        self.aborted = ended
        self._tell()


def _stamped(data: bytes, now: int) -> bytes:
    """A batch whose records have the broker's time."""
    changed = bytearray(data)
    (attributes,) = struct.unpack_from(">h", changed, _AFTER_CRC)
    struct.pack_into(">h", changed, _AFTER_CRC, attributes | _APPEND_TIME)
    struct.pack_into(">q", changed, 35, now)
    struct.pack_into(">I", changed, 17, calc_crc32c(bytes(changed[_AFTER_CRC:])))
    return bytes(changed)


def _marker(producer: int, epoch: int, commit: bool, now: int) -> bytes:
    """A control batch with one record: key (version 0, type), value (version 0, epoch of the coordinator)."""
    record = (
        b"\0\0\0" + bytes([4 << 1]) + struct.pack(">hh", 0, commit) + bytes([6 << 1]) + struct.pack(">hi", 0, 0) + b"\0"
    )
    body = bytes([len(record) << 1]) + record
    head = HEAD.pack(
        0, HEAD.size - 12 + len(body), 0, 2, 0, _TRANSACTIONAL | _CONTROL, 0, now, now, producer, epoch, -1, 1,
    )  # fmt: skip
    data = bytearray(head + body)
    struct.pack_into(">I", data, 17, calc_crc32c(bytes(data[_AFTER_CRC:])))
    return bytes(data)


def _emptied(batch: Batch) -> Batch:
    """A batch without its records, which keeps its last offset."""
    head = bytearray(batch.data[: HEAD.size])
    struct.pack_into(">i", head, 8, HEAD.size - 12)
    struct.pack_into(">h", head, _AFTER_CRC, 0)
    struct.pack_into(">i", head, HEAD.size - 4, 0)
    struct.pack_into(">I", head, 17, calc_crc32c(bytes(head[_AFTER_CRC:])))
    return replace(batch, data=bytes(head), transactional=False, control=False)


def _alone(record: Any, epoch: int) -> Batch:
    """A record in a batch of its own, under its offset."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=0,
    )  # fmt: skip
    builder.append(0, record.timestamp, record.key, record.value, record.headers)
    data = bytes(builder.build())
    data = struct.pack(">q", record.offset) + data[8:12] + struct.pack(">i", epoch) + data[16:]
    return Batch(record.offset, record.offset, data, NOBODY, -1, -1, record.timestamp, False, False)
