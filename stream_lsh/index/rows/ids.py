"""The ids of a shard's rows, as JSON text, each with the id of its oldest match. The latest are in memory, earlier ones
are read from the store."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import zstandard
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError
from stream_lsh.index.rows.decisions import stored_decisions
from stream_lsh.index.rows.keys import ends_of
from stream_lsh.index.store.rocksdb import IDS, Store, rows_key

BLOCK = 128  # most ids of a value: larger ones are hardly smaller on the disk, and take longer to decompress
CACHED = 65536  # ids read from the store that are cached
PLAIN = 32  # a value with fewer ids is not compressed: to make a compressor would take longer
_MOST_BYTES = 1 << 23  # of a value, decompressed
_COUNT = struct.Struct("<I")

Named = tuple[bytes, bytes]
"""The id of a row, and of its oldest match; b"" if there was none."""
_Opened = tuple[int, bytes, NDArray[np.uint32], int]


class Ids:
    """Ids by row. Rows are added in order.

    Args:
        segment_of: number of the segment of a row.
        told_later: what a row was dropped for may be decided after it is added.
    """

    def __init__(
        self, store: Store, shard: int, segment_of: Callable[[int], int], *, decided_later: bool = False
    ) -> None:
        self._decided_later = decided_later
        self._store = store
        self._shard = shard
        self._segment_of = segment_of
        self._base = 0  # row of the first id in `_recent` and `_of`
        self._recent: list[bytes] = []
        self._of: list[bytes] = []  # no tuples: Python would look for cycles in them
        self._stored = lru_cache(CACHED)(self._read_stored)
        self._opened: _Opened | None = None  # the value read last: rows are often asked for in order
        self._decompressor = zstandard.ZstdDecompressor()

    def add(self, ids: Sequence[bytes], of: Sequence[bytes], rows: Sequence[int], last: int) -> None:
        """Add the ids of documents and of their oldest matches. Rows before `last` that are not in `rows` have no
        document."""
        if last - self.last > len(ids):
            names, oldest = dict(zip(rows, ids, strict=True)), dict(zip(rows, of, strict=True))
            ids = [names.get(row, b"null") for row in range(self.last, last)]
            of = [oldest.get(row, b"") for row in range(self.last, last)]
        self._recent.extend(ids)
        self._of.extend(of)

    def name(self, rows: Sequence[int], of: Sequence[bytes]) -> None:
        """Set what rows in memory were dropped for."""
        for row, name in zip(rows, of, strict=True):
            self._of[row - self._base] = name

    @property
    def last(self) -> int:
        """The row after the last one added."""
        return self._base + len(self._recent)

    def take(self, first: int) -> dict[bytes, bytes]:
        """The values with the ids from row `first` on."""
        values, compressor = dict[bytes, bytes](), _Compressor()
        at, last = first, self.last
        while at < last:
            number, end = self._segment_of(at), min(at + BLOCK, last)
            while self._segment_of(end - 1) != number:  # a value belongs to one segment
                end -= 1
            names = [b""] * (2 * (end - at))
            names[::2], names[1::2] = (some[at - self._base : end - self._base] for some in (self._recent, self._of))
            values[rows_key(IDS, self._shard, number, at)] = compressor.value(names)
            at = end
        return values

    def without(self, rows: Collection[int], named: Collection[int]) -> dict[bytes, bytes]:
        """The stored values in which `rows` have no ids, and in which `rows` and `named` do not name their oldest
        matches. All of these rows are committed."""
        anew, end, erased = dict[bytes, list[bytes]](), 0, set(rows)
        for row in sorted({*rows, *named}):
            if row >= end:
                first, value, ends, body = self._open(row)
                names, end = _taken_apart(value, ends, body), first + len(ends) // 2
                anew[rows_key(IDS, self._shard, self._segment_of(row), first)] = names
            at = 2 * (row - first)
            names[at : at + 2] = b"null" if row in erased else names[at], b""
        compressor = _Compressor()
        return {key: compressor.value(names) for key, names in anew.items()}

    def erased(self, rows: Iterable[int], named: Iterable[int]) -> None:
        """The values of `without` are in the store."""
        for row in (row - self._base for row in named if row >= self._base):
            self._of[row] = b""
        for row in (row - self._base for row in rows if row >= self._base):
            self._recent[row], self._of[row] = b"null", b""
        self._stored.cache_clear()
        self._opened = None

    def forget(self, before: int) -> None:
        """Drop the ids of rows before this one from memory; they are in the store."""
        for some in (self._recent, self._of):
            del some[: max(0, before - self._base)]
        self._base = max(self._base, before)

    def restore(self, first: int, last: int) -> None:
        """Read the ids of the rows [first, last) from the store into memory."""
        self._base, self._recent, self._of = first, [], []
        while first < last:
            start, value, ends, body = self._open(first)
            names = _taken_apart(value, ends, body)
            begin, end = 2 * (first - start), 2 * (last - start)
            self._recent += names[begin:end:2]
            self._of += names[begin + 1 : end : 2]
            first = start + len(names) // 2

    def read(self, row: int) -> bytes:
        """The id of a row."""
        return self.named(row)[0]

    def named(self, row: int) -> Named:
        """The id of a row, and of its oldest match."""
        at = row - self._base
        return (self._recent[at], self._of[at]) if at >= 0 else self._stored(row)

    def _read_stored(self, row: int) -> Named:
        first, value, ends, body = self._open(row)
        at = 2 * (row - first)
        starts = [int(ends[k - 1]) if k else 0 for k in (at, at + 1)]
        name, of = (value[body + a : body + int(ends[at + k])] for k, a in enumerate(starts))
        if not of and self._decided_later:
            known = stored_decisions(self._store, self._shard, self._segment_of(row), row)
            of = b"" if known is None else known.name_of(row)
        return name, of

    def _open(self, row: int) -> _Opened:
        """The value that holds a row's id: its first row, its bytes, the ends of the ids, and where the ids begin."""
        if self._opened is not None and 0 <= row - self._opened[0] < len(self._opened[2]) // 2:
            return self._opened
        first, value = self._store.holding(IDS, self._shard, self._segment_of(row), row)
        try:
            value, ends, body = self._decoded(value)
        except (struct.error, ValueError, zstandard.ZstdError):
            ends, body = np.empty(0, np.uint32), 0
        if not first <= row < first + len(ends) // 2 or len(value) != body + int(ends[-1]):
            raise DamagedError(
                f"{self._store.path}: the ids from row {first} of shard {self._shard} are damaged; "
                "restore the folder from a backup"
            )
        self._opened = first, value, ends, body
        return self._opened

    def _decoded(self, value: bytes) -> tuple[bytes, NDArray[np.uint32], int]:
        """The bytes of a value, decompressed, the ends of the ids, and where the ids begin in the bytes."""
        if not value.startswith(zstandard.FRAME_HEADER):
            (n,) = _COUNT.unpack_from(value)
            ends = np.frombuffer(value, np.uint32, 2 * n, _COUNT.size)
            return value, ends, _COUNT.size + ends.nbytes
        if not 0 <= zstandard.frame_content_size(value) <= _MOST_BYTES:
            raise ValueError("no value of ids has this size")
        value = self._decompressor.decompress(value)
        (n,) = _COUNT.unpack_from(value)
        lengths = np.frombuffer(value, np.uint16, 2 * n, _COUNT.size)
        return value, lengths.cumsum(dtype=np.uint32), _COUNT.size + lengths.nbytes


class _Compressor:
    """Makes values. Its zstd compressor is made when it is needed."""

    def __init__(self) -> None:
        self._zstd: zstandard.ZstdCompressor | None = None

    def value(self, names: list[bytes]) -> bytes:
        """The value of some rows: the id of each, and the id of its oldest match. Lengths compress better than ends."""
        count = _COUNT.pack(len(names) // 2)
        if len(names) < 2 * PLAIN:
            return b"".join((count, ends_of(names).astype(np.uint32).tobytes(), *names))
        self._zstd = self._zstd or zstandard.ZstdCompressor(level=1, write_checksum=True)
        lengths = np.array([*map(len, names)], np.uint16)
        return self._zstd.compress(b"".join((count, lengths.tobytes(), *names)))


def _taken_apart(value: bytes, ends: NDArray[np.uint32], body: int) -> list[bytes]:
    """Decode the bytes of a value."""
    return [value[a:b] for a, b in pairwise([body, *(ends + np.uint32(body)).tolist()])]
