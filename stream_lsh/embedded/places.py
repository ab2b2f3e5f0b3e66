"""Where an heir's line is: the places of rows in files, folders and pipes."""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.columns import Batch
from stream_lsh.index import places
from stream_lsh.index.index import Index


class Places:
    """The places of an index that is being written: lines and bytes in its inputs."""

    def __init__(self, index: Index) -> None:
        self._places = places.Places(index.shards[0], index.store)  # so far there is one where something goes
        self.take = self._places.take

    def add(self, batch: Batch, row_of: NDArray[np.int64]) -> None:
        """Remember those documents of a batch that became rows (-1: none)."""
        self._places.add(json.dumps(batch.input).encode(), row_of, batch.line_numbers, batch.offsets)

    def of(self, row: int) -> bytes | None:
        """Where a row stood, as JSON; None if it came from no input."""
        found = self._places.of(row)
        return None if found is None else b'{"input":%b,"line":%d,"offset":%d}' % found
