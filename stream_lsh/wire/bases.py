"""Snapshot records: a snapshot of a shard in its changelog, after which older changes are deleted
(docs/internals/formats.md).

A snapshot has a record that begins it, records with the stored values of all rows at that time, and a record
that ends it. Ordinary changes come between them. A reader that begins with the first record has everything behind the
last.

Sections of a snapshot record ("B", version 2), little endian:

- 0: int64 each: shard; part (0 begins a snapshot, 1 has rows, 2 ends it); offset in the topic `signatures` of the last
  frame applied when the snapshot began; first row; row behind the last one (of the record; in the first and last
  record, of all); before. Then the index's key (16 bytes). Versions deleted when the shard had fewer rows than `before`
  are erased.
- 1: ends of the keys, uint32. 2: keys. 3: ends of the values. 4: values. Keys and values are as in a change, with facts
  of the erase queue.
- 5: int64, deleted rows, each with its mark in the last two bits.
- 6: JSON.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.errors import FormatError
from stream_lsh.hashing.siphash import KEY_BYTES
from stream_lsh.settings.model import Settings
from stream_lsh.wire.envelope import column, join_values, kind_of, pack, split_values, unpack

VERSION = 2
BEGINS, HAS_ROWS, ENDS = 0, 1, 2
_HEAD = struct.Struct(f"<qqqqqq{KEY_BYTES}s")


class Mark(NamedTuple):
    """What a snapshot record is: `part` of the snapshot that began behind `frame`, with the rows [first, last).
    Versions deleted when the shard had fewer rows than `before` are erased."""

    part: int
    frame: int
    first: int
    last: int
    before: int


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """A snapshot record.

    Attributes:
        values: by key of the store.
        deleted_rows: the deleted ones of these rows (`deleted_rows.newly_deleted`).
        facts: where a snapshot begins: `segments`, their numbers and first rows, and `answered`, the last frame whose
            reply is not needed any more. Where it ends: `erased`, the number of erased versions, and `at`, when it
            began (seconds since 1970).
    """

    shard: int
    key: bytes
    mark: Mark
    values: Mapping[bytes, bytes] = field(default_factory=dict)
    deleted_rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    facts: Mapping[str, Any] = field(default_factory=dict)

    def encode(self, settings: Settings) -> bytes:
        head = _HEAD.pack(self.shard, *self.mark, self.key)
        sections = [head, *join_values(self.values), self.deleted_rows, orjson.dumps(self.facts)]
        return pack(b"B", VERSION, settings.fingerprint, sections)

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> Base:
        """Read a snapshot record.

        Raises:
            FormatError: it cannot be read; the message has the cause and the remedy.
        """
        sections = unpack(b"B", VERSION, settings.fingerprint, data)
        if len(sections) != 7 or len(sections[0]) != _HEAD.size:
            raise FormatError(f"a snapshot record is damaged: it has {len(sections)} parts")
        values = split_values(sections[1:5], "snapshot record")
        shard, *mark, key = _HEAD.unpack(sections[0])
        try:
            facts = orjson.loads(sections[6])
        except orjson.JSONDecodeError as error:
            raise FormatError(f"a snapshot record is damaged: {error}") from None
        return cls(shard, key, Mark(*mark), values, column(sections[5], np.int64), facts)


def is_base(data: bytes | memoryview) -> bool:
    """Whether a record is a snapshot record of any version."""
    return kind_of(data) == b"B"
