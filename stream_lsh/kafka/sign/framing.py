"""Signed frames from the records of several source partitions: the signing itself, without a broker and a clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from stream_lsh.documents.columns import Columns, Rejection
from stream_lsh.documents.fields import MAX_ID_BYTES
from stream_lsh.families.components import components_of
from stream_lsh.families.family import Signs
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.registry.decoding import Schemas
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.position import Last
from stream_lsh.kafka.sign.records import NONE_EXCLUDED, columns_of, headers_of
from stream_lsh.wire.frames import CONTINUES, Frame
from stream_lsh.wire.source import TOPIC_BITS, Headers, Record, Source, header_bytes, record_size

HEADER_BYTES = 128 << 10
"""Limit for a document's trace headers: its verdict and every pair repeat them, and their topics accept 1 MiB."""
TOMBSTONE_BYTES = 2 * MAX_ID_BYTES
"""Limit for the ids in the headers of a tombstone."""
ROW_BYTES = 56  # of a document besides signature, id and text: positions, times, sizes, fingerprint, ends
COMPRESSED = 0.6  # estimated ratio of compressed to plain text, before the first measurement
AIM = 0.92  # share of a frame's size limit that is aimed at, because compression varies


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of one source partition.

    Attributes:
        partition: its number (TOPIC_BITS).
        begins, ends: positions, `ends` exclusive. Transaction markers and compaction may leave gaps.
        first: see `frames`.
    """

    partition: int
    records: Sequence[Record]
    begins: int
    ends: int
    first: int = CONTINUES

    def split(self, n: int) -> tuple[Chunk, Chunk]:
        """The first n records (0 < n < all), and the rest."""
        middle = self.records[n].offset
        return (
            Chunk(self.partition, self.records[:n], self.begins, middle, self.first),
            Chunk(self.partition, self.records[n:], middle, self.ends),
        )


def split(chunks: Iterable[Chunk], n: int) -> tuple[list[Chunk], list[Chunk]]:
    """The first n documents, and the rest. Chunks without records stay with the chunk before them."""
    head: list[Chunk] = []
    tail: list[Chunk] = []
    for chunk in chunks:
        if tail or (n == 0 and chunk.records):
            tail.append(chunk)
        elif len(chunk.records) > n:
            first, rest = chunk.split(n)
            head.append(first)
            tail.append(rest)
        else:
            head.append(chunk)
            n -= len(chunk.records)
    return head, tail


@dataclass(frozen=True, slots=True)
class Signed:
    """A frame to be sent.

    Attributes:
        positions: by source partition, the position after the frame.
        lasts: the last record of each source partition that has records in the frame.
        source: where the documents are from, and why they are rejected.
    """

    data: bytes
    positions: dict[int, int]
    lasts: dict[int, Last]
    source: Source

    @property
    def documents(self) -> int:
        return len(self.source)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Documents to be put into frames, in the order of the chunks."""

    chunks: list[Chunk]
    columns: Columns
    headers: dict[int, Headers]

    def part(self, begin: int, end: int) -> _Batch:
        """The documents begin to end."""
        if begin == 0 and end == len(self.columns):
            return self
        chunks = split(split(self.chunks, end)[0], begin)[1] if begin else split(self.chunks, end)[0]
        headers = {i - begin: found for i, found in self.headers.items() if begin <= i < end}
        return _Batch(chunks, self.columns.part(begin, end), headers)


class Framer:
    """Signs chunks and cuts them into frames of at most `frame_documents` and `frame_bytes`.

    A frame of a single document may be larger, up to `largest` bytes. A document that needs more is rejected
    (too_large). So is a record of more than `copied` bytes, which `unique` does not take. Not thread-safe: it measures
    how well texts compress.
    """

    def __init__(
        self, settings: KafkaSettings, signer: Signs, largest: int, schemas: Schemas | None = None,
        copied: int | None = None,
    ) -> None:  # fmt: skip
        self._schemas = schemas
        self._copied = copied
        self._topics = Topics.of(settings)
        self._settings = settings
        self._signer = signer
        self._largest = largest
        self._names = frozenset(settings.trace_headers)
        self._fixed = ROW_BYTES + components_of(settings.signing).octets
        self._ratio = COMPRESSED if settings.verify == "exact" else 0.0

    def frames(
        self, chunks: list[Chunk], now: int, excluded: Mapping[int, Rejection] = NONE_EXCLUDED
    ) -> list[Signed]:  # fmt: skip
        """Frames of all records in the order of the chunks, at least one.

        Args:
            now: time of signing, ms since 1970.
            excluded: records that are rejected unread, by place.
        """
        records = [record for chunk in chunks for record in chunk.records]
        columns = self._columns(chunks, excluded)
        headers = headers_of(records, self._names)
        carried = {i: header_bytes(found) for i, found in headers.items()}
        for i in [i for i, size in carried.items() if size > HEADER_BYTES]:
            why = f"the trace headers have {carried.pop(i)} bytes, more than {HEADER_BYTES}"
            columns.rejected.setdefault(i, Rejection("too_large", why))
            del headers[i]
        for i, size in [] if self._copied is None else _above(records, self._copied):
            why = f"the record has {size} bytes, more than {self._copied}; {_raise(self._topics.unique)}"
            columns.rejected.setdefault(i, Rejection("too_large", why))
        batch = _Batch(chunks, columns, headers)
        bounds = self._bounds(columns, carried)
        return [frame for begin, end in pairwise(bounds) for frame in self._signed(batch.part(begin, end), now)]

    def _columns(self, chunks: list[Chunk], excluded: Mapping[int, Rejection]) -> Columns:
        """The documents of the chunks, those of each topic by its settings."""
        topics, parts, place = [*self._settings.by_topic.values()], list[Columns](), 0
        for topic, found in groupby(chunks, lambda chunk: chunk.partition >> TOPIC_BITS):
            records = [record for chunk in found for record in chunk.records]
            here = {i - place: why for i, why in excluded.items() if place <= i < place + len(records)}
            schemas = self._schemas if topics[topic].document_format == "registry" else None
            parts.append(columns_of(records, topics[topic], schemas, here))
            place += len(records)
        return Columns.chained(parts)

    def _bounds(self, columns: Columns, carried: Mapping[int, int]) -> list[int]:
        """Where frames begin, by their estimated sizes, and the end of the last. carried: bytes of headers, by
        document."""
        n = len(columns)
        sizes = np.diff(columns.ends, prepend=0) * self._ratio + np.array([len(id) for id in columns.ids]) + self._fixed
        sizes[list(carried)] += list(carried.values())
        filled = np.cumsum(sizes)
        bounds, most = [0], self._settings.frame_bytes * AIM
        while bounds[-1] < n:
            begin = bounds[-1]
            before = float(filled[begin - 1]) if begin else 0.0
            end = int(np.searchsorted(filled, before + most, "right"))
            bounds.append(min(max(end, begin + 1), begin + self._settings.frame_documents, n))
        return bounds if n else [0, 0]

    def _signed(self, batch: _Batch, now: int) -> list[Signed]:
        """One frame, or several if it is too large."""
        n = len(batch.columns)
        source, data = self._encoded(batch, now)
        if n > 1 and len(data) > self._settings.frame_bytes:
            return self._signed(batch.part(0, n // 2), now) + self._signed(batch.part(n // 2, n), now)
        if n == 1 and len(data) > self._largest:
            text = f"its frame would have {len(data)} bytes, more than {self._largest}"
            why = Rejection("too_large", f"{text}; {_raise(self._topics.signatures)}")
            source, data = self._encoded(_Batch(batch.chunks, batch.columns.rejecting({0: why}), batch.headers), now)
        positions = {chunk.partition: chunk.ends for chunk in batch.chunks}
        lasts = {chunk.partition: chunk.records[-1] for chunk in batch.chunks if chunk.records}
        return [Signed(data, positions, {partition: Last.of(record) for partition, record in lasts.items()}, source)]

    def _encoded(self, batch: _Batch, now: int) -> tuple[Source, bytes]:
        settings, columns, chunks = self._settings, batch.columns, batch.chunks
        lengths = [len(chunk.records) for chunk in chunks]
        source = Source(
            np.repeat(np.array([chunk.partition for chunk in chunks], np.int32), lengths),
            np.array([record.offset for chunk in chunks for record in chunk.records], np.int64),
            columns.ids, columns.times, now, columns.rejected, batch.headers, columns.sources,
        )  # fmt: skip
        frame = Frame.of(self._signer, settings, columns, _segments(chunks), source)
        if settings.verify == "exact" and len(columns.texts) > 1000:
            payload = sum(len(part.payload) for parts in frame.texts for part in parts)
            self._ratio += (payload / len(columns.texts) - self._ratio) / 4
        return frame.source, frame.encode(settings)


def _above(records: Sequence[Record], most: int) -> list[tuple[int, int]]:
    """Number and bytes of the records that are larger than `most`, or whose tombstones may be: these have the headers,
    too."""
    sizes = [
        record_size(record.key, None, record.headers)
        + max(len(record.value or b""), TOMBSTONE_BYTES if record.headers else 0)
        for record in records
    ]
    return [(i, size) for i, size in enumerate(sizes) if size > most]


def _raise(topic: str) -> str:
    return f"raise max.message.bytes of {topic}"


def _segments(chunks: Sequence[Chunk]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """int64[s, 4]: PARTITION, FROM, TO, FIRST of each source partition."""
    found: dict[int, list[int]] = {}
    for chunk in chunks:
        segment = found.setdefault(chunk.partition, [chunk.partition, chunk.begins, chunk.ends, chunk.first])
        segment[2] = chunk.ends
    return np.array(list(found.values()), np.int64).reshape(-1, 4)
