"""The ids of one shard's rows, as JSON text: recent ones in memory, earlier ones read from the store."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError
from stream_lsh.index.store import IDS, Store, rows_key

BLOCK = 512  # ids in one value
CACHED = 65536  # ids read from the store that stay in memory
_COUNT = struct.Struct("<I")


class Ids:
    """Ids by row; rows are added in order."""

    def __init__(self, store: Store, shard: int) -> None:
        self._store = store
        self._shard = shard
        self._base = 0  # row of the first id in `_recent`
        self._recent: list[bytes] = []
        self._stored = lru_cache(CACHED)(self._read_stored)

    def add(self, ids: Iterable[bytes]) -> None:
        self._recent.extend(ids)

    def take(self, first: int) -> dict[bytes, bytes]:
        """Values with the ids from row `first` on, for the store."""
        values = {}
        for at in range(first, self._base + len(self._recent), BLOCK):
            ids = self._recent[at - self._base : at - self._base + BLOCK]
            ends = np.cumsum([len(i) for i in ids]).astype(np.uint32)
            values[rows_key(IDS, self._shard, at)] = b"".join((_COUNT.pack(len(ids)), ends.tobytes(), *ids))
        return values

    def forget(self, before: int) -> None:
        """Drop ids of rows before `before` from memory; they are in the store."""
        del self._recent[: before - self._base]
        self._base = before

    def restore(self, first: int, last: int) -> None:
        """Have the ids of the rows [first, last) in memory, from the store."""
        self._base, self._recent = first, []
        while first < last:
            start, value, ends, body = self._open(first)
            bounds = [body, *(ends + np.uint32(body)).tolist()]
            ids = [value[a:b] for a, b in pairwise(bounds)]
            self._recent.extend(ids[first - start :][: last - first])
            first = start + len(ids)

    def read(self, row: int) -> bytes:
        """The id of a row."""
        return self._recent[row - self._base] if row >= self._base else self._stored(row)

    def _read_stored(self, row: int) -> bytes:
        first, value, ends, body = self._open(row)
        at = row - first
        return value[body + (int(ends[at - 1]) if at else 0) : body + int(ends[at])]

    def _open(self, row: int) -> tuple[int, bytes, NDArray[np.uint32], int]:
        """The value that holds a row's id: its first row, its bytes, the ids' ends and where the ids begin."""
        first, value = self._store.holding(IDS, self._shard, row)
        try:
            (n,) = _COUNT.unpack_from(value)
            ends = np.frombuffer(value, np.uint32, n, _COUNT.size)
        except (struct.error, ValueError):
            n, ends = 0, np.empty(0, np.uint32)
        body = _COUNT.size + ends.nbytes
        if not first <= row < first + n or len(value) != body + int(ends[-1]):
            raise DamagedError(
                f"{self._store.path}: the ids from row {first} of shard {self._shard} are damaged; "
                "restore the folder from a backup"
            )
        return first, value, ends, body
