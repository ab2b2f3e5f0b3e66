"""The shingles of rows, made from their texts: sampled keys cannot be computed from the rows themselves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stream_lsh.index.postings.memtable import Memtable, post_all
from stream_lsh.index.rows import layout
from stream_lsh.index.rows.keys import Hashes, Keys, ends_of
from stream_lsh.index.rows.texts import ALL, Texts

Shingle = Callable[[bytes, NDArray[np.int64]], Keys]


class SampledKeys:
    """Makes the shingle sets of a shard's rows from their texts."""

    def __init__(self, texts: Texts, shingle: Shingle) -> None:
        self._texts = texts
        self._shingle = shingle

    def sets(self, block: NDArray[np.uint64], row: int) -> Keys:
        """The shingles of rows uint64[n, width], the first of which is `row`, and their offsets. A representative row
        has the shingles of its representative. Rows that are posted only under id and text hash have none."""
        flags = block[:, layout.FLAGS]
        representatives = flags & np.uint64(layout.REPRESENTATIVE) != 0
        rows = np.where(representatives, block[:, layout.OF].astype(np.int64), row + np.arange(len(block)))
        unmet = layout.DELETED | layout.DROPPED | layout.COPY | layout.CERTAIN | layout.ERASED
        idle = np.where(representatives, layout.ERASED, unmet).astype(np.uint64)
        there = np.flatnonzero(flags & idle == 0)
        asked: NDArray[np.int64] = np.unique(rows[there])
        place = np.searchsorted(asked, rows[there]).tolist()
        texts = self._texts.read(asked.tolist(), ALL)
        shingles, offsets = self._shingle(b"".join(texts[k] for k in place), ends_of([texts[k] for k in place]))
        sizes = np.zeros(len(block), np.int64)
        sizes[there] = np.diff(offsets)
        return shingles, np.concatenate(([0], np.cumsum(sizes)))

    def of(self, row: int) -> NDArray[np.uint64]:
        """The shingles of a row."""
        text = bytes(self._texts.read([row], 1)[0])
        shingles, _ = self._shingle(text, ends_of([text]))
        return shingles


def post_sample(
    memory: Memtable, hashes: Hashes, row: int, shingles: NDArray[np.uint64], scope: NDArray[np.uint64]
) -> None:
    """Post the last row under a sample of these shingles. scope: uint64[1], the hash of the scope."""
    keys = hashes.sample(shingles, scope)
    memory.reserve(len(keys))
    post_all(memory, keys, row - int(memory.first))
