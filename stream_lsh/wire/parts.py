"""Parts: a record that is too large for its topic, cut into several. docs/internals/formats.md has the sections.

Each part names the record by its place in the chain and by a digest of its bytes. So parts of different records are
never put together, also if two workers have written them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from stream_lsh.errors import FormatError
from stream_lsh.settings.model import Settings
from stream_lsh.wire.envelope import Sections, kind_of, pack

VERSION = 2
DIGEST_BYTES = 16
_HEAD = struct.Struct(f"<qqqqq{DIGEST_BYTES}s")
OVERHEAD = 128
"""Bytes of a part beside those of the record, at most."""


class Place(NamedTuple):
    """The place of a record in its chain: its shard, its frame, and the frame before (-1: none)."""

    shard: int
    offset: int
    predecessor: int


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Part `number` (from 0 on) of the `count` parts of a record. digest: BLAKE2b of the whole record."""

    place: Place
    number: int
    count: int
    digest: bytes
    data: memoryview

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> Part:
        """Read a part.

        Raises:
            FormatError: it cannot be read; the message has the cause and the remedy.
        """
        sections = Sections(b"P", VERSION, settings.fingerprint, data)
        shard, offset, predecessor, number, count, digest = sections.numbers(_HEAD)
        piece = sections.next()
        sections.end()
        if not 0 <= number < count:
            raise FormatError(f"a part is damaged: it is number {number} of {count}")
        return cls(Place(shard, offset, predecessor), number, count, digest, piece)

    def same(self, other: Part) -> bool:
        """Whether both are of one record, cut alike."""
        return (self.place, self.count, self.digest) == (other.place, other.count, other.digest)


def is_part(data: bytes | memoryview) -> bool:
    """Whether a record is a part, of any version."""
    return kind_of(data) == b"P"


def cut(record: bytes, place: Place, most: int, settings: Settings) -> list[bytes]:
    """A record in parts of at most `most` bytes each. A record that is no longer than that stays as it is."""
    if len(record) <= most:
        return [record]
    count = -(-len(record) // (most - OVERHEAD))
    size = -(-len(record) // count)  # all but equal, so that length and number of parts say where each begins
    count = -(-len(record) // size)
    digest, view = _digest(record), memoryview(record)
    return [
        pack(
            b"P", VERSION, settings.fingerprint,
            [_HEAD.pack(*place, number, count, digest), view[number * size : (number + 1) * size]],
        )
        for number in range(count)
    ]  # fmt: skip


def _digest(record: bytes) -> bytes:
    return blake2b(record, digest_size=DIGEST_BYTES).digest()


@dataclass(slots=True, eq=False)
class Series:
    """The parts of one record that have come, in order. begin: offset of the first one."""

    begin: int
    parts: list[Part] = field(default_factory=list)

    def add(self, part: Part) -> bool:
        """Add a part if it is the next one. Returns whether it is."""
        if part.number != len(self.parts) or (self.parts and not part.same(self.parts[0])):
            return False
        self.parts.append(part)
        return True

    @property
    def record(self) -> bytes | None:
        """The record; None while parts are missing.

        Raises:
            FormatError: the parts are damaged.
        """
        if len(self.parts) < self.parts[0].count:
            return None
        record = b"".join([part.data for part in self.parts])
        if _digest(record) != self.parts[0].digest:
            raise FormatError("the parts of a record are damaged: together they are another record")
        return record


class Adjacent:
    """Puts the parts of a partition together, if they follow each other with nothing between them. Other parts count
    for nothing: their writer notices by their offsets, and writes all of them again.

    Attributes:
        begin: offset of the first part of a record whose other parts may follow; None: there is none.
    """

    def __init__(self, settings: Settings) -> None:
        self.begin: int | None = None
        self._settings = settings
        self._series: Series | None = None
        self._next = 0

    def add(self, offset: int, data: bytes) -> tuple[int, bytes] | None:
        """Take the next record of the partition. Returns where the whole record begins, and its bytes; None for a part
        that is not the last one, or does not count.

        Raises:
            FormatError: a part cannot be read.
        """
        series, self._series, self.begin = self._series, None, None
        if not is_part(data):
            return offset, data
        part = Part.decode(data, self._settings)
        if series is None or self._next != offset or not series.add(part):
            series = Series(offset)
            if not series.add(part):
                return None
        if (record := series.record) is not None:
            return series.begin, record
        self._series, self.begin, self._next = series, series.begin, offset + 1
        return None
