"""What is left of an erased version: a row without hashes and signature, and the keys of its postings.

Postings of deleted rows stay until their segment is deleted. Keys are hashes, which cannot be computed from a blank
row. The store keeps them as values, from which the postings of erased rows can be rebuilt.
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

PAGE = 1 << 14  # rows; all rows of a value are in one page
_PART = 64  # rows whose keys are made at a time, where a row has any number of keys
_HEAD = struct.Struct("<II")  # number of rows, keys of each


class Keyed:
    """The keys of the postings of a shard's rows.

    Args:
        segment_of: the number of the segment of a row.
        sampler: makes the sampled keys; None where keys are bands only.
    """

    def __init__(
        self, store: Store, shard: int, shape: Shape, hashes: Hashes, segment_of: Callable[[int], int],
        sampler: SampledKeys | None = None,
    ) -> None:  # fmt: skip
        self._store = store
        self._shard = shard
        self._shape = shape
        self._hashes = hashes
        self._segment_of = segment_of
        self.sampler = sampler

    def keys(self, block: NDArray[np.uint64], row: int) -> Keys:
        """Keys of rows uint64[n, width] of one segment, the first of which is `row`.

        Raises:
            DamagedError: the keys of an erased row are missing.
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
        sets = self.sampler.sets(block, row) if self.sampler else None
        return self._keys(block, sets)

    def lasting(self, block: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The keys uint64[n, k] that rows need once they are deleted. Sampled keys are not among them: deleted rows are
        not counted as containment candidates."""
        return self._keys(block, None)[0].reshape(len(block), -1)

    def _keys(self, block: NDArray[np.uint64], sets: Keys | None) -> Keys:
        texts, ids = (np.ascontiguousarray(block[:, at : at + 2]) for at in (TEXT, ID))
        return self._hashes.keys(self._shape.signatures(block), texts, ids, sets)

    def parts(self, block: NDArray[np.uint64], row: int) -> Iterator[tuple[int, int]]:
        """Cut a block into parts [first, last) whose texts fit into memory."""
        step = _PART if self.sampler else max(1, len(block))
        for first in range(0, len(block), step):
            yield first, min(first + step, len(block))


def kept(store: Store, shard: int, segment: int, row: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint64]]]:
    """The erased rows int64[n] of a segment, ascending, and their keys uint64[n, k], from the page of `row` on.

    Raises:
        DamagedError: a value cannot be read.
    """
    for _, value in store.rows_of(ERASED_KEYS, shard, segment, row // PAGE * PAGE):
        try:
            yield kept_in(value)
        except (struct.error, ValueError):
            raise _damaged(store, shard) from None


def kept_in(value: bytes) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Decode a value of `keep`.

    Raises:
        ValueError, struct.error: it is damaged.
    """
    n, k = _HEAD.unpack_from(value)
    rows = np.frombuffer(value, np.int64, n, _HEAD.size)
    return rows, np.frombuffer(value, np.uint64, n * k, _HEAD.size + rows.nbytes).reshape(n, k)


def erased_of(store: Store, shard: int, segment: int, row: int = 0) -> NDArray[np.int64]:
    """The erased rows of a segment from the page of `row` on, ascending."""
    return np.sort(np.concatenate([NONE, *(rows for rows, _ in kept(store, shard, segment, row))]))


def keep(shard: int, segment: int, rows: NDArray[np.int64], keys: NDArray[np.uint64]) -> dict[bytes, bytes]:
    """The value with the keys uint64[n, k] of at least one row; the rows are ascending and of one page."""
    value = b"".join((_HEAD.pack(*keys.shape), rows.tobytes(), keys.tobytes()))
    return {rows_key(ERASED_KEYS, shard, segment, int(rows[0])): value}


def blanked(store: Store, shard: int, segment: int, rows: NDArray[np.int64], signature_at: int) -> dict[bytes, bytes]:
    """The stored values of a segment's rows in which these rows, ascending, are blank."""
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
