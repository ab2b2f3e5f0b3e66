"""What is left of a version that was erased: a row without what its document said, and the keys it is posted under.

Postings of deleted rows stay until their segment goes. They are keyed hashes, which nobody makes of a blank row again,
so they are values of the store: postings can be rebuilt from rows that were erased, too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError
from stream_lsh.index.rows.keys import Hashes, Keys
from stream_lsh.index.rows.layout import ERASED, FLAGS, ID, TEXT
from stream_lsh.index.rows.row_file import NONE, Shape, blank, packed, unpacked
from stream_lsh.index.segments.sampled_keys import SampledKeys
from stream_lsh.index.store.rocksdb import ERASED_KEYS, ROWS, Store, rows_key

PAGE = 1 << 14  # rows: a value has only such of one page
_PART = 64  # rows whose keys are made at a time, where they may be any number
_HEAD = struct.Struct("<II")  # rows, keys of each


class Keyed:
    """The keys that the rows of a shard are posted under. segment_of: the number of the segment that a row
    belongs to. drawn: where keys are a sample of the shingles, who makes these."""

    def __init__(
        self, store: Store, shard: int, shape: Shape, hashes: Hashes, segment_of: Callable[[int], int],
        drawn: SampledKeys | None = None,
    ) -> None:  # fmt: skip
        self._store = store
        self._shard = shard
        self._shape = shape
        self._hashes = hashes
        self._segment_of = segment_of
        self.drawn = drawn

    def keys(self, block: NDArray[np.uint64], row: int) -> Keys:
        """Of rows uint64[n, width] of one segment, which are those from `row` on.

        Raises:
            DamagedError: those of a row that was erased are missing.
        """
        keys, starts = self.said(block, row)
        erased = row + np.flatnonzero(block[:, FLAGS] & np.uint64(ERASED))
        if len(erased):
            for rows, theirs in kept(self._store, self._shard, self._segment_of(row), int(erased[0])):
                if rows[0] >= row + len(block):
                    break
                here = (rows >= row) & (rows < row + len(block))
                at = starts[rows[here] - row + 1][:, None] - np.arange(theirs.shape[1], 0, -1)
                keys[at] = theirs[here]
                erased = np.setdiff1d(erased, rows)
            if len(erased):
                raise _damaged(self._store, self._shard)
        return keys, starts

    def said(self, block: NDArray[np.uint64], row: int) -> Keys:
        """The same, of rows none of which was erased."""
        sets = self.drawn.sets(block, row) if self.drawn else None
        return self._keys(block, sets)

    def lasting(self, block: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Those keys of rows that are needed when nobody meets them any more: uint64[n, k]. Sampled shingles are not:
        who is dead counts nowhere."""
        return self._keys(block, None)[0].reshape(len(block), -1)

    def _keys(self, block: NDArray[np.uint64], sets: Keys | None) -> Keys:
        texts, ids = (np.ascontiguousarray(block[:, at : at + 2]) for at in (TEXT, ID))
        return self._hashes.keys(self._shape.signatures(block), texts, ids, sets)

    def parts(self, block: NDArray[np.uint64], row: int) -> Iterator[tuple[int, int]]:
        """The rows of a block in parts, as many at a time as their texts allow."""
        step = _PART if self.drawn else max(1, len(block))
        for first in range(0, len(block), step):
            yield first, min(first + step, len(block))


def kept(store: Store, shard: int, segment: int, row: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint64]]]:
    """What was erased of a segment from about this row on: rows int64[n], ascending, and their keys uint64[n, k].

    Raises:
        DamagedError: it cannot be read.
    """
    for _, value in store.rows_of(ERASED_KEYS, shard, segment, row // PAGE * PAGE):
        try:
            yield kept_in(value)
        except (struct.error, ValueError):
            raise _damaged(store, shard) from None


def kept_in(value: bytes) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """What `keep` was given.

    Raises:
        ValueError, struct.error: it is damaged.
    """
    n, k = _HEAD.unpack_from(value)
    rows = np.frombuffer(value, np.int64, n, _HEAD.size)
    return rows, np.frombuffer(value, np.uint64, n * k, _HEAD.size + rows.nbytes).reshape(n, k)


def erased_of(store: Store, shard: int, segment: int, row: int = 0) -> NDArray[np.int64]:
    """The rows of a segment from about this one on that were erased, ascending."""
    return np.sort(np.concatenate([NONE, *(rows for rows, _ in kept(store, shard, segment, row))]))


def keep(shard: int, segment: int, rows: NDArray[np.int64], keys: NDArray[np.uint64]) -> dict[bytes, bytes]:
    """The value with the keys uint64[n, k] of rows of one page, at least one, ascending."""
    value = b"".join((_HEAD.pack(*keys.shape), rows.tobytes(), keys.tobytes()))
    return {rows_key(ERASED_KEYS, shard, segment, int(rows[0])): value}


def blanked(store: Store, shard: int, segment: int, rows: NDArray[np.int64], signature_at: int) -> dict[bytes, bytes]:
    """The values of the rows of a segment in which these, ascending, are blank, as far as the store has them."""
    values, at = dict[bytes, bytes](), 0
    while at < len(rows):
        found, stop = store.before(ROWS, shard, segment, int(rows[at])), at + 1
        if found is not None:
            block = unpacked(found[1]).copy()
            here = rows[at : np.searchsorted(rows, found[0] + len(block))] - found[0]
            if len(here):
                block[here] = blank(block[here], signature_at)
                values[rows_key(ROWS, shard, segment, found[0])] = packed(block)
                stop = at + len(here)
        at = stop
    return values


def _damaged(store: Store, shard: int) -> DamagedError:
    return DamagedError(
        f"{store.path}: the keys of rows of shard {shard} that were erased are damaged; restore the folder from a "
        "backup"
    )
