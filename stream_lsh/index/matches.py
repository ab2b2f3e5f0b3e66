"""What was found for a batch, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

OF_MATCHES = 5  # so many columns have a line a match, the others one a document


@dataclass(frozen=True, slots=True)
class Matches:
    """What one shard found for a batch of n documents: parallel arrays of m matches in the order of documents, then
    arrays of n.

    kind, of, of_seq, of_similarity, group: the verdict as this shard alone would give it, and the first one of a
    redelivered document (`layout.UNKNOWN` if it is not known); of, of_seq: row and number, -1 if there is none
    (`layout.WENT_SINCE`: not any more). known: row with the same id, or -1. more: matches that were not listed;
    incomplete: what was not compared. went [n, WENT]: number of the version that was deleted or replaced, whether it
    was kept, row and number of its heir, the group that it was in, whether the new one is like it; -1 where there is
    none. heirs [h, 4]: where heirs are chosen late, the document that begins the block, group, row and number of who
    may stand for it from there on, or does.
    """

    document: NDArray[np.int64]
    row: NDArray[np.int64]
    seq: NDArray[np.int64]
    similarity: NDArray[np.float64]
    same_text: NDArray[np.bool_]
    status: NDArray[np.int64]
    known: NDArray[np.int64]
    row_of: NDArray[np.int64]
    kind: NDArray[np.int64]
    of: NDArray[np.int64]
    of_seq: NDArray[np.int64]
    of_similarity: NDArray[np.float64]
    group: NDArray[np.int64]
    more: NDArray[np.int64]
    incomplete: NDArray[np.int64]
    went: NDArray[np.int64]
    heirs: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 4), np.int64))

    def between(self, start: int, stop: int) -> Matches:
        """Of the matches those of the documents [start, stop)."""
        at = slice(*np.searchsorted(self.document, (start, stop)).tolist())
        names = [field.name for field in fields(self)][:OF_MATCHES]
        heirs = self.heirs[(start <= self.heirs[:, 0]) & (self.heirs[:, 0] < stop)]
        return replace(self, **{name: getattr(self, name)[at] for name in names}, heirs=heirs)

    @classmethod
    def joined(cls, parts: Sequence[tuple[int, int, Matches]]) -> Matches:
        """Of a batch that was matched in parts: start, stop, and what was found for the documents between."""
        if len(parts) == 1:
            return parts[0][2]
        names = [field.name for field in fields(cls)][:-1]
        found = {name: [getattr(part, name) for _, _, part in parts] for name in names[:OF_MATCHES]}
        of = {name: [getattr(part, name)[start:stop] for start, stop, part in parts] for name in names[OF_MATCHES:]}
        heirs = np.concatenate([part.heirs for _, _, part in parts])
        return cls(**{name: np.concatenate(columns) for name, columns in (found | of).items()}, heirs=heirs)
