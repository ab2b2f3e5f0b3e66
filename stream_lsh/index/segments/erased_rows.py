"""What is left of an erased version: a row without hashes and signature, and its number in the list of erased rows.

Postings that are rebuilt are without those of erased versions: no limit counts deleted rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError
from stream_lsh.index.rows.keys import Hashes, Keys
from stream_lsh.index.rows.layout import ID, TEXT
from stream_lsh.index.rows.row_file import NONE, Shape, blank, packed, unpacked
from stream_lsh.index.segments.sampled_keys import SampledKeys
from stream_lsh.index.store.rocksdb import ERASED_ROWS, ROWS, Store, rows_key

PAGE = 1 << 14  # rows; all rows of a value are in one page
_PART = 64  # rows whose keys are made at a time, where a row has any number of keys
_HEAD = struct.Struct("<II")  # number of rows, 0


class Keyed:
    """The keys of the postings of a shard's rows.

    Args:
        sampler: makes the sampled keys; None where keys are bands only.
    """

    def __init__(self, shape: Shape, hashes: Hashes, sampler: SampledKeys | None = None) -> None:
        self._shape = shape
        self._hashes = hashes
        self.sampler = sampler

    def keys(self, block: NDArray[np.uint64], row: int) -> Keys:
        """Keys of rows uint64[n, width] of one segment, the first of which is `row`. An erased row is posted at most
        under that of its id (`insert.replay`)."""
        sets = self.sampler.sets(block, row) if self.sampler else None
        texts, ids = (np.ascontiguousarray(block[:, at : at + 2]) for at in (TEXT, ID))
        return self._hashes.keys(self._shape.signatures(block), texts, ids, sets)

    def parts(self, block: NDArray[np.uint64]) -> Iterator[tuple[int, int]]:
        """Cut a block into parts [first, last) whose texts fit into memory."""
        step = _PART if self.sampler else max(1, len(block))
        for first in range(0, len(block), step):
            yield first, min(first + step, len(block))


def erased_of(store: Store, shard: int, segment: int, page: int | None = None) -> NDArray[np.int64]:
    """The erased rows of a segment, or of its part of a page, ascending.

    Raises:
        DamagedError: a value cannot be read.
    """
    try:
        values = store.rows_of(ERASED_ROWS, shard, segment, (page or 0) * PAGE)
        mine = takewhile(lambda item: page is None or item[0] < (page + 1) * PAGE, values)
        return np.sort(np.concatenate([NONE, *(listed(value) for _, value in mine)]))
    except (struct.error, ValueError):
        raise DamagedError(
            f"{store.path}: the list of erased rows of shard {shard} is damaged; restore the folder from a backup"
        ) from None


def listed(value: bytes) -> NDArray[np.int64]:
    """Decode a value of `listing`.

    Raises:
        ValueError, struct.error: it is damaged.
    """
    return np.frombuffer(value, np.int64, _HEAD.unpack_from(value)[0], _HEAD.size)


def listing(shard: int, segment: int, rows: NDArray[np.int64]) -> dict[bytes, bytes]:
    """The value that lists at least one erased row; the rows are ascending and of one page."""
    return {rows_key(ERASED_ROWS, shard, segment, int(rows[0])): _HEAD.pack(len(rows), 0) + rows.tobytes()}


def blanked(store: Store, shard: int, segment: int, rows: NDArray[np.int64], signature_at: int) -> dict[bytes, bytes]:
    """The stored values of a segment's rows in which these rows, ascending, are blank."""
    values = dict[bytes, bytes]()
    begin = next((row for row, _ in store.rows_of(ROWS, shard, segment)), None)
    at = len(rows) if begin is None else int(np.searchsorted(rows, begin))
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
