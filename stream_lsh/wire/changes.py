"""Changes: what a frame has changed in a shard, as one record of the changelog. docs/internals/formats.md has the
sections.

Keys and values are those of the store (index/store/rocksdb.py): the added rows, ids, texts and source positions, and
decisions about earlier rows, by segment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field, fields
from typing import NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.errors import FormatError
from stream_lsh.hashing.siphash import KEY_BYTES
from stream_lsh.index.segments.window import Span
from stream_lsh.index.store.rocksdb import ROWS, parts_of
from stream_lsh.settings.model import Settings
from stream_lsh.wire.envelope import Sections, column, join_values, pack

VERSION = 2
_HEAD = struct.Struct(f"<qqqqq{KEY_BYTES}s")  # shard, offset, predecessor, rows before and after, key
LATE = struct.Struct("<qqq")

ProvisionalRows = tuple[int, int, int]
"""The latest block, and the first rows of the block before it and of the latest block."""


class Seen(NamedTuple):
    """The window after a frame: the first row that the next document sees, and the segments of the frame's documents
    (`index.window`)."""

    first: int
    spans: tuple[Span, ...]

    def encode(self) -> bytes:
        return np.array([self.first, *(n for span in self.spans for n in astuple(span))], np.int64).tobytes()

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Seen:
        """Decode a value of `encode`.

        Raises:
            FormatError: it has another layout.
        """
        found = column(memoryview(data), np.int64)
        if len(found) % SPAN_WORDS != 1:
            raise FormatError(f"a change is damaged: its window has {len(found)} numbers")
        return cls(int(found[0]), tuple(Span(*span) for span in found[1:].reshape(-1, SPAN_WORDS).tolist()))


SPAN_WORDS = len(fields(Span))


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What a shard stored for a frame.

    Attributes:
        offset, predecessor, key: of the frame, as in `Sequenced`.
        first, last: its number of rows before and after.
        values: rows, ids, texts and source positions by key of the store.
        reply: the shard's reply, which cannot be computed again once later frames are stored.
        late: the provisional rows behind the frame, with several shards and `kept`.
        deleted_rows: marks of rows (`deleted_rows.newly_marked`), with updates or `keep`.
        seen: with a window.
        waits: JSON of the facts for the erase queue, b"" = none.
    """

    shard: int
    offset: int
    predecessor: int
    first: int
    last: int
    key: bytes
    values: Mapping[bytes, bytes]
    reply: bytes
    late: ProvisionalRows | None = None
    deleted_rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    seen: Seen | None = None
    waits: bytes = b""

    def encode(self, settings: Settings) -> bytes:
        head = _HEAD.pack(self.shard, self.offset, self.predecessor, self.first, self.last, self.key)
        return pack(
            b"C", VERSION, settings.fingerprint,
            [
                head, *join_values(self.values), self.reply,
                *([LATE.pack(*self.late)] if self.late else []), *([self.deleted_rows] if settings.marks_rows else []),
                *([self.seen.encode()] if self.seen else []), *([self.waits] if self.waits else []),
            ],
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> Change:
        """Read a change.

        Raises:
            FormatError: it cannot be read; the message has the cause and the remedy.
        """
        sections = Sections(b"C", VERSION, settings.fingerprint, data)
        shard, offset, predecessor, first, last, key = sections.numbers(_HEAD)
        found = cls(
            shard, offset, predecessor, first, last, key, sections.values(), bytes(sections.next()),
            LATE.unpack(late) if settings.late and len(late := sections.next()) == LATE.size else None,
            sections.column(np.int64) if settings.marks_rows else np.empty(0, np.int64),
            None if settings.window is None else Seen.decode(sections.next()),
            bytes(sections.next()) if sections.left else b"",
        )  # fmt: skip
        sections.end()
        rows = found.deleted_rows
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < last << 2:
            raise FormatError(f"a change is damaged: it deletes rows that do not exist, of {last}")
        at = first
        for segment, row in found.segments():
            if row < at or row >= last:
                raise FormatError(f"a change is damaged: rows {first} to {last} cannot begin at {row} ({segment})")
            at = row
        return found

    def waiting(self) -> Iterator[tuple[str, bytes]]:
        """Names and values of the facts in `waits`.

        Raises:
            FormatError: they cannot be read.
        """
        try:
            for name, fact in orjson.loads(self.waits or b"{}").items():
                yield name, orjson.dumps(fact)
        except (orjson.JSONDecodeError, AttributeError) as error:
            raise FormatError(f"a change of shard {self.shard} is damaged: {error}") from None

    def segments(self) -> Iterator[tuple[int, int]]:
        """The segments of its rows, ascending, each with its first row in this change.

        Raises:
            FormatError: a key is of another shard.
        """
        before = -1
        for key in sorted(self.values):
            try:
                kind, shard, segment, row = parts_of(key)
            except struct.error:
                shard = -1
            if shard != self.shard:
                raise FormatError(f"a change of shard {self.shard} is damaged: it has the key {key.hex()}")
            if kind == ROWS and segment != before:
                before = segment
                yield segment, row


def frame_of(data: bytes | memoryview, settings: Settings) -> tuple[int, int]:
    """Offset and predecessor of a change's frame, without reading the rest.

    Raises:
        FormatError: it cannot be read.
    """
    _, offset, predecessor, *_ = Sections(b"C", VERSION, settings.fingerprint, data).numbers(_HEAD)
    return offset, predecessor
