"""Where a new representative's line is: the places of rows in files, folders and pipes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from stream_lsh.embedded.lines import Batch
from stream_lsh.index import source_positions
from stream_lsh.index.index import Index
from stream_lsh.index.matches import Matches


class SourcePositions:
    """The source positions of an index that is being written: lines and bytes in its inputs. Empty where no document
    can become a new representative."""

    def __init__(self, index: Index) -> None:
        representatives = index.settings.updates and index.settings.compare_with == "kept"
        self._shards = [
            source_positions.ShardSourcePositions(shard, index.store) for shard in index.shards if representatives
        ]

    def add(self, batch: Batch, found: Sequence[Matches]) -> None:
        """Remember those documents of a batch that became rows in some shard."""
        name = json.dumps(batch.input).encode()
        for mine, matches in zip(self._shards, found, strict=bool(self._shards)):
            mine.add(name, matches.row_of, batch.lines.numbers, batch.lines.offsets)

    def of(self, shard: int, row: int) -> bytes | None:
        """The source position of a row of a shard, as JSON; None if it has no input."""
        found = self._shards[shard].of(row)
        return None if found is None else b'{"input":%b,"line":%d,"offset":%d}' % found

    def take(self) -> dict[bytes, bytes]:
        """The values that the next commit of the index has to write."""
        return {key: value for mine in self._shards for key, value in mine.take().items()}
