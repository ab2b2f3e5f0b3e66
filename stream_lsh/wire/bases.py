"""Base records: what a shard holds, said anew in its changelog, so that the changes before can go (docs/formats.md).

A cleaning cycle is a record that begins it, records with what is stored of all rows that there are then, and one that
ends it, with ordinary changes between them. Who begins to read with the first one has everything behind the last.

Sections of a base record ("B", version 2), little endian:
 0 shard, part (0 begins a cycle, 1 rows, 2 ends it), offset in the signatures topic of the last frame applied when the
   cycle began, first row, row behind the last one (of the record; in the first and the last one of all), before: what
   went when there were fewer rows than that is erased, all int64; the index's key (16 bytes)
 1 ends of the keys uint32; 2 keys; 3 ends of the values; 4 values: as in a change, and facts of what waits to be erased
 5 int64, the rows that are dead, each with its mark in the last two bits; 6 JSON
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
    """What a base record is: `part` of the cycle that began behind this frame, with the rows [first, last); before:
    what went when there were fewer rows is erased."""

    part: int
    frame: int
    first: int
    last: int
    before: int


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """A base record.

    values: by key of the store. dead: who is dead of these rows (`deleted_rows.died`). facts: with which a cycle begins
    `segments`, their numbers and first rows, and `answered`, the last frame whose answer nobody can ask for any
    more; with which it ends `erased`, how many versions are, and `at`, when it began (seconds since 1970).
    """

    shard: int
    key: bytes
    mark: Mark
    values: Mapping[bytes, bytes] = field(default_factory=dict)
    dead: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    facts: Mapping[str, Any] = field(default_factory=dict)

    def encode(self, settings: Settings) -> bytes:
        head = _HEAD.pack(self.shard, *self.mark, self.key)
        sections = [head, *join_values(self.values), self.dead, orjson.dumps(self.facts)]
        return pack(b"B", VERSION, settings.fingerprint, sections)

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> Base:
        """Read a base record.

        Raises:
            FormatError: naming what is wrong, and the remedy.
        """
        sections = unpack(b"B", VERSION, settings.fingerprint, data)
        if len(sections) != 7 or len(sections[0]) != _HEAD.size:
            raise FormatError(f"a base record is damaged: it has {len(sections)} parts")
        values = split_values(sections[1:5], "base record")
        shard, *mark, key = _HEAD.unpack(sections[0])
        try:
            facts = orjson.loads(sections[6])
        except orjson.JSONDecodeError as error:
            raise FormatError(f"a base record is damaged: {error}") from None
        return cls(shard, key, Mark(*mark), values, column(sections[5], np.int64), facts)


def is_base(data: bytes | memoryview) -> bool:
    """Whether a record is a base record, of whatever version."""
    return kind_of(data) == b"B"
