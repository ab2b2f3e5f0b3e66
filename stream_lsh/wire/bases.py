"""Snapshot records: a snapshot of a shard in its changelog, after which older changes are deleted.
docs/internals/formats.md has the sections.

A snapshot has a record that begins it, records with the stored values of all rows at that time, and a record
that ends it. Ordinary changes come between them. A reader that begins with the first record has everything behind the
last.
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
from stream_lsh.wire.changes import Change
from stream_lsh.wire.envelope import Sections, join_values, kind_of, pack

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
        deleted_rows: the marked ones of these rows (`deleted_rows.newly_marked`).
        facts: where a snapshot begins: `segments`, their numbers and first rows; `answered`, the last frame whose
            reply is not needed any more; with a window `window`, its state. Where it ends: `erased`, the number of
            erased versions, and `at`, when it began (seconds since 1970).
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
        sections = Sections(b"B", VERSION, settings.fingerprint, data)
        shard, *mark, key = sections.numbers(_HEAD)
        values, deleted, facts = sections.values(), sections.column(np.int64), sections.next()
        sections.end()
        try:
            return cls(shard, key, Mark(*mark), values, deleted, orjson.loads(facts))
        except orjson.JSONDecodeError as error:
            raise FormatError(f"a snapshot record is damaged: {error}") from None


def record_of(data: bytes, settings: Settings) -> Base | Change:
    """A record of a changelog, whole. Raises FormatError as the `decode` of both."""
    return Base.decode(data, settings) if is_base(data) else Change.decode(data, settings)


def is_base(data: bytes | memoryview) -> bool:
    """Whether a record is a snapshot record of any version."""
    return kind_of(data) == b"B"
