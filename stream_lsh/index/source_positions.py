"""Source positions of a shard's rows: where the text of a new representative is, which the index does not store.

A value has the rows of one input and one segment of one commit, and is deleted with the segment. Values are small, so
that reading one for a new representative is cheap. The last one read is cached, because representatives are often asked
for in order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import groupby

import numpy as np
import zstandard
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError
from stream_lsh.index.shard import Shard
from stream_lsh.index.store.rocksdb import PLACES, Store, rows_key

ROWS = 4096  # most rows of a value

Place = tuple[bytes, int, int]
"""Name of an input, and two numbers for the position in it."""
_Part = tuple[int, bytes, NDArray[np.int64]]
"""Segment, input, and int64[3, n]: rows and their two numbers."""


class ShardSourcePositions:
    """Source positions of a shard that is open for writing. `take` gives what the commit has to write."""

    def __init__(self, shard: Shard, store: Store) -> None:
        self._shard = shard
        self._store = store
        self._parts: list[_Part] = []  # since the last commit
        self._firsts: list[int] = []
        self._read: _Part | None = None  # the last one read

    def add(self, name: bytes, row_of: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
        """Add positions of documents of an input; row_of: the rows that they became, -1 = none."""
        stored = np.flatnonzero(row_of >= 0)
        places = np.stack((row_of[stored], first[stored], second[stored]))
        while places.shape[1]:
            row = int(places[0, 0])
            number = self._shard.segments.number_of(row)
            here = int(np.searchsorted(places[0], self._shard.segments.end_of(row)))
            self._parts.append((number, name, places[:, :here]))
            self._firsts.append(row)
            places = places[:, here:]

    def of(self, row: int) -> Place | None:
        """The source position of a row; None if it is not from an input."""
        if self._firsts and row >= self._firsts[0]:
            _, name, places = self._parts[bisect_right(self._firsts, row) - 1]
        else:
            number = self._shard.segments.number_of(row)
            known = self._read
            if known is None or known[0] != number or not known[2][0, 0] <= row <= known[2][0, -1]:
                found = self._store.before(PLACES, self._shard.number, number, row)
                if found is None:
                    return None
                known = self._read = number, *self._decoded(found[1], number)
            _, name, places = known
        at = int(np.searchsorted(places[0], row))
        if at == places.shape[1] or places[0, at] != row:
            return None
        return name, int(places[1, at]), int(places[2, at])

    def take(self) -> dict[bytes, bytes]:
        """The values for the next commit."""
        values = dict(self._values())
        self._parts, self._firsts = [], []
        return values

    def _values(self) -> Iterator[tuple[bytes, bytes]]:
        compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
        for (number, name), parts in groupby(self._parts, key=lambda part: part[:2]):
            every = np.concatenate([part[2] for part in parts], axis=1)
            for begin in range(0, every.shape[1], ROWS):
                places = every[:, begin : begin + ROWS]
                steps = np.diff(places, axis=1, prepend=0)
                key = rows_key(PLACES, self._shard.number, number, int(places[0, 0]))
                yield key, name + b"\n" + compressor.compress(steps.tobytes())

    def _decoded(self, value: bytes, segment: int) -> tuple[bytes, NDArray[np.int64]]:
        name, _, packed = value.partition(b"\n")
        try:
            steps = np.frombuffer(zstandard.ZstdDecompressor().decompress(packed), np.int64).reshape(3, -1)
        except (zstandard.ZstdError, ValueError) as error:
            raise DamagedError(
                f"{self._store.path}: the source positions of segment {segment} are damaged "
                f"({error}); restore the folder from a backup"
            ) from None
        return name, np.cumsum(steps, axis=1)
