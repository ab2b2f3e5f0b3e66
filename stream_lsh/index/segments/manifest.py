"""The manifest of a shard: number of committed rows, the files that have them, checksums of flushes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import orjson

from stream_lsh.index.rows.deleted_rows import DELETED_ROWS
from stream_lsh.index.rows.row_file import flush_name
from stream_lsh.index.segments.segments import Segments
from stream_lsh.index.store.rocksdb import ROWS, Range, Store, name_key, rows_key

BATCH = 4096
"""Most documents of a batch, and most rows of a value."""


class Manifest:
    """The manifest of a shard, and what the next commit has to write with it.

    Args:
        base: first row of a shard that has no manifest.

    Attributes:
        rows, deleted_rows: number of committed rows, and of the deleted rows among them.
        provisional: `ProvisionalRows.facts` at that commit; None where the shard has no provisional rows.
        segments: their lines, as they were when the manifest was read.
    """

    def __init__(self, store: Store, shard: int, base: int) -> None:
        known: Mapping[str, Any] = store.named(f"shard/{shard}") or {"rows": base, "segments": []}
        self.rows: int = known["rows"]
        self.deleted_rows: int = known.get(DELETED_ROWS, 0)
        self.provisional: dict[str, Any] | None = known.get("provisional")
        self.segments: list[dict[str, Any]] = known["segments"]
        self.first: int = self.segments[0]["first"] if self.segments else self.rows
        self._shard = shard
        self._flushes: dict[bytes, bytes] = {}
        self._left: list[Range] = []  # key ranges of deleted segments
        self._passed = self.first  # rows before this one have no values in the store

    @property
    def in_files(self) -> int:
        """The first row that was in no file when the manifest was read."""
        return _in_files(self.segments, self.first)

    def flushed(self, segment: int, first: int, last: int, crc: int) -> None:
        """Rows of a segment, counted from its first, are in its file."""
        value = orjson.dumps({"last": last, "crc": crc})
        self._flushes[name_key(flush_name(self._shard, segment, first))] = value

    def flushes(self) -> dict[bytes, bytes]:
        """The checksums of flushes since the last call. The store may also have some of flushes that were not
        committed."""
        values, self._flushes = self._flushes, {}
        return values

    def forget(self, segment: int) -> None:
        """A segment is deleted."""
        left = ranges_of(self._shard, segment)
        self._flushes = {key: v for key, v in self._flushes.items() if not any(a <= key < b for a, b in left)}
        self._left += left

    def take(self, segments: Segments) -> tuple[dict[bytes, bytes], list[Range]]:
        """The values to write, and the ranges of keys that are obsolete with them."""
        # Without a segment that begins behind it: the segment has no document yet, and documents of an earlier segment
        # may follow.
        known = [g.manifest() for g in segments if g.first < self.rows]
        facts: dict[str, Any] = {"rows": self.rows, "segments": known}
        if self.deleted_rows:
            facts[DELETED_ROWS] = self.deleted_rows
        if self.provisional is not None:
            facts["provisional"] = self.provisional
        values = {name_key(f"shard/{self._shard}"): orjson.dumps(facts)}
        values.update(self.flushes())  # also when closing: each committed run needs the checksum of its rows
        ranges, self._left = self._left, []
        in_files = _in_files(known, 0)
        if self.provisional is not None:  # provisional rows may share a value with the last flushed row
            in_files -= BATCH - 1
        if in_files > self._passed:
            self._passed = in_files
            number = segments.number_of(max(in_files, segments[0].first))
            end = rows_key(ROWS, self._shard, number, in_files)
            ranges.append((rows_key(ROWS, self._shard, 0, 0), end))
        return values, ranges


def ranges_of(shard: int, segment: int) -> list[Range]:
    """The keys of a shard's segment that are in no column family of the segment."""
    flushed = name_key(flush_name(shard, segment, 0))[:-1]
    return [
        (flushed, flushed[:-1] + b"0"),  # "0" is the character behind "/"
        (rows_key(ROWS, shard, segment, 0), rows_key(ROWS, shard, segment + 1, 0)),
    ]


def _in_files(known: list[dict[str, Any]], base: int) -> int:
    """The first row that is in no file, by the segments of the manifest."""
    for item, later in zip_longest(known, known[1:]):
        base = item["first"] + (item["runs"][-1]["last"] if item["runs"] else 0)
        if later is not None and base < later["first"]:
            break
    return base
