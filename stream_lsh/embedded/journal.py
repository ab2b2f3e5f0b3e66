"""The journal of an index: the decisions on the documents of each file, from which an output can be written again.

An entry covers the documents of one file in one commit: which of them were kept, and the lines that the outputs got. It
belongs to the segment of its documents and is removed with it. Erasing deletes all entries that are not younger than
the erased version, because their lines may name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import zstandard
from numpy.typing import NDArray

from stream_lsh.documents.columns import Position
from stream_lsh.errors import DamagedError
from stream_lsh.index.index import Index
from stream_lsh.index.store.rocksdb import JOURNAL, Range, Store, rows_key

NAMES = ("unique", "pairs", "verdicts", "groups", "alerts", "dead_letters")
"""Outputs. An entry is a value under shard 0 of its keys; lines of output i are one under i + 1. Of the unique
documents they are what the input does not say: which kept ones were deleted or replaced."""
_LAST = 1 << 63


@dataclass(frozen=True, slots=True)
class Entry:
    """seq: of its first document. input: the name of its file in the index. begin, end: where in it the documents are.
    kept: bool[n], which were. removals: positions of the documents before which `unique` has lines. lines: outputs that
    got lines. time: of the commit, seconds since 1970."""

    seq: int
    segment: int
    input: str
    begin: Position
    end: Position
    kept: NDArray[np.bool_]
    removals: Sequence[int]
    lines: Sequence[str]
    time: int


@dataclass(slots=True)
class _Part:
    """An entry that the next commit brings."""

    seq: int
    input: str
    begin: Position
    end: Position
    kept: list[NDArray[np.bool_]] = field(default_factory=list)
    removals: list[int] = field(default_factory=list)
    lines: dict[str, list[bytes]] = field(default_factory=dict)
    documents: int = 0


class Journal:
    """That of an index that is being written. What is added counts with the commit that writes what `take` gives."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._store: Store = index.store
        self._parts: list[_Part] = []
        self._erased = -1  # what was written by then is deleted

    def add(
        self, input: str, seq: int, begin: Position, end: Position, kept: NDArray[np.bool_],
        removals: Sequence[tuple[int, bytes]], lines: Mapping[str, bytes],
    ) -> None:  # fmt: skip
        """Add the documents of a batch.

        Args:
            kept: bool[n]. removals: lines of `unique` for deleted and replaced versions, each with the position of the
                document that follows it. lines: what the other outputs got.
        """
        part = self._parts[-1] if self._parts else None
        if part is None or part.input != input or part.seq + part.documents != seq:
            part = _Part(seq, input, begin, end)
            self._parts.append(part)
        part.end = end
        part.kept.append(kept)
        part.removals += [part.documents + i for i, _ in removals]
        for name, more in (("unique", b"".join([line for _, line in removals])), *lines.items()):
            part.lines.setdefault(name, []).append(more)
        part.documents += len(kept)

    def take(self, time: int) -> dict[bytes, bytes]:
        """The values that the next commit has to write; time: of it, seconds since 1970."""
        values: dict[bytes, bytes] = {}
        compressor = zstandard.ZstdCompressor(level=1)
        for part in self._parts:
            segment = self._segment(part.seq + part.documents - 1)
            head = {
                "input": part.input, "begin": [part.begin.offset, part.begin.line],
                "end": [part.end.offset, part.end.line], "documents": part.documents, "time": time,
                "removals": part.removals, "lines": list(part.lines),
            }  # fmt: skip
            bits = np.packbits(np.concatenate(part.kept))
            values[rows_key(JOURNAL, 0, segment, part.seq)] = orjson.dumps(head) + b"\n" + bits.tobytes()
            for name, pieces in part.lines.items():
                if any(pieces):
                    values[_lines_key(name, segment, part.seq)] = compressor.compress(b"".join(pieces))
        self._parts = []
        return values

    def _segment(self, seq: int) -> int:
        """The segment that the newest documents are in."""
        if self._index.window is None:
            return seq // self._index.settings.documents_of_a_segment
        return self._index.window.spans[-1].number if self._index.window.spans else 0

    def entries(self) -> Iterator[Entry]:
        """All that are there, in the order of the log."""
        for segment in self._store.segments():
            for seq, value in self._store.rows_of(JOURNAL, 0, segment):
                yield self._entry(segment, seq, value)

    def _entry(self, segment: int, seq: int, value: bytes) -> Entry:
        try:
            text, _, bits = value.partition(b"\n")
            head: dict[str, Any] = orjson.loads(text)
            kept = np.unpackbits(np.frombuffer(bits, np.uint8), count=head["documents"]).astype(np.bool_)
            return Entry(
                seq, segment, head["input"], Position(*head["begin"]), Position(*head["end"]), kept, head["removals"],
                head["lines"], head["time"],
            )  # fmt: skip
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise self._damaged(error) from None

    def lines(self, entry: Entry, name: str) -> bytes:
        """The lines that an output got for the documents of an entry."""
        value = self._store.value(_lines_key(name, entry.segment, entry.seq))
        try:
            return b"" if value is None else zstandard.ZstdDecompressor().decompress(value)
        except zstandard.ZstdError as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> DamagedError:
        return DamagedError(
            f"{self._store.path}: what was written to outputs is damaged ({error}); restore the folder from a backup, "
            "or add --only-new to go on without it"
        )

    def forget(self, input: str) -> dict[bytes, None]:
        """The keys of all that is known of a file, another one of which is there now: for the next commit to delete."""
        return {
            key: None
            for entry in self.entries() if entry.input == input
            for key in (
                rows_key(JOURNAL, 0, entry.segment, entry.seq),
                *(_lines_key(name, entry.segment, entry.seq) for name in entry.lines),
            )
        }  # fmt: skip

    def erase(self, time: int) -> None:
        """Delete all that was written by this time, seconds since 1970: it may name what is to be erased.

        Raises:
            OutputError: the disk is full, or refuses.
        """
        if time <= self._erased:
            return
        ends: dict[int, int] = {}
        for entry in self.entries():
            if entry.time > time:
                break
            ends[entry.segment] = entry.seq + 1
        first, self._erased = self._erased < 0, time
        ranges: list[Range] = [
            (rows_key(JOURNAL, shard, segment, 0), rows_key(JOURNAL, shard, segment, end))
            for segment, end in ends.items()
            for shard in range(len(NAMES) + 1)
        ]
        # What an earlier run has deleted may be on the disk still, if it was killed.
        segments = self._store.segments() if first else ends
        spans = [
            (rows_key(JOURNAL, 0, segment, 0), rows_key(JOURNAL, len(NAMES), segment, _LAST)) for segment in segments
        ]
        keys = [begin for begin, _ in spans]
        self._store.flush(keys)
        self._store.write({}, ranges=ranges)
        self._store.flush(keys)
        self._store.rewrite(spans)


def _lines_key(name: str, segment: int, seq: int) -> bytes:
    return rows_key(JOURNAL, NAMES.index(name) + 1, segment, seq)
