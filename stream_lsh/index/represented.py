"""Dropped and superseded documents of a shard that represent their groups now, as the kept one was deleted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_lsh.index.rows.deleted_rows import MARK_REPRESENTATIVE
from stream_lsh.index.rows.layout import DROPPED, FLAGS, OF, REPRESENTATIVE
from stream_lsh.index.shard import Shard

_AT_ONCE = 1 << 14  # marks read at a time


def represented(shard: Shard) -> NDArray[np.int64]:
    """Their rows, ascending."""
    found, deleted_rows = [np.empty(0, np.int64)], shard.rows.deleted_rows
    for first in range(shard.first, shard.count, _AT_ONCE):
        rows = np.arange(first, min(first + _AT_ONCE, shard.count))
        rows = rows[deleted_rows.marks_of(rows) == MARK_REPRESENTATIVE]
        if len(rows):
            block = shard.stored.at(rows)
            chosen = block[:, FLAGS] & np.uint64(DROPPED | REPRESENTATIVE) == np.uint64(REPRESENTATIVE)
            others = block[chosen, OF].astype(np.int64)
            others = others[others >= shard.first]
            found.append(others[~deleted_rows.deleted(others)])
    return np.unique(np.concatenate(found))
