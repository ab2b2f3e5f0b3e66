"""The provisional rows of a shard, by the blocks of the log that they belong to (see `provisional`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.index.postings.memtable import Memtable
from stream_lsh.index.resolution import States
from stream_lsh.index.rows.decisions import RowDecisions, decide, write_decisions
from stream_lsh.index.rows.deleted_rows import ALONE
from stream_lsh.index.rows.keys import Hashes
from stream_lsh.index.rows.layout import (
    DELETED,
    FLAGS,
    GROUP,
    KIND_BITS,
    NEAR,
    OF,
    REPRESENTATIVE,
    SEQ,
    SIMILARITY,
    UNIQUE,
    Rows,
)
from stream_lsh.index.rows.row_file import Shape
from stream_lsh.index.segments.erased_rows import Keyed
from stream_lsh.index.segments.segment import post_provisional_rows
from stream_lsh.settings.model import Settings


def facts(block: int, first: int, second: int) -> dict[str, Any]:
    """`ProvisionalRows.facts` of a shard that is not open."""
    return {"block": block, "rows": [first, second]}


class ProvisionalRows:
    """The rows from `first` on are provisional: those of the latest block of the log, and of the block before it.

    Args:
        rows: rows of the shard.
        known: `facts`; None for a shard that begins with the row `base`.

    Attributes:
        block: number of the latest block, -1 before the first.
        older, newer: postings of the two blocks.
    """

    def __init__(self, settings: Settings, rows: Rows, known: dict[str, Any] | None, base: int) -> None:
        known = known or {"block": -1, "rows": [base, base]}
        self._rows = rows
        self._size = settings.block
        self.block: int = known["block"]
        most = settings.most_rows * settings.block * (settings.signing.bands + 2)
        self.older, self.newer = (Memtable.of(max(1, most)) for _ in range(2))
        for table, first in zip((self.older, self.newer), known["rows"], strict=True):
            table.begin(first)

    @property
    def first(self) -> int:
        """The first provisional row."""
        return int(self.older.first)

    @property
    def second(self) -> int:
        """The first row of the latest block."""
        return int(self.newer.first)

    @property
    def facts(self) -> dict[str, Any]:
        """What reopening the shard needs."""
        return facts(self.block, self.first, self.second)

    def enter(self, block: int, count: int) -> None:
        """A block begins with the row `count`. The older of the two previous blocks is resolved."""
        self.older, self.newer = self.newer, self.older
        if block > self.block + 1:
            self.older.begin(count)
        self.newer.begin(count)
        self.block = block

    def judged(
        self, rows: NDArray[np.int64], kinds: NDArray[np.int64], of: NDArray[np.uint64],
        similarities: NDArray[np.float64], groups: NDArray[np.int64],
    ) -> None:  # fmt: skip
        """Write the decisions about provisional rows, see `decisions.write_decisions`."""
        write_decisions(self._rows.recent, rows - int(self._rows.base), kinds, of, similarities, groups)

    def choose_representatives(self, first: int, representatives: NDArray[np.bool_]) -> None:
        """Decide which of the representative rows from `first` on represent their groups."""
        rows = first - int(self._rows.base) + np.arange(len(representatives))
        decide(self._rows.recent, rows, np.where(representatives, UNIQUE, NEAR))

    def decisions(
        self, others: States, names: Sequence[bytes], representatives: NDArray[np.int64], hashes: Hashes
    ) -> RowDecisions:
        """The decisions about the rows that are resolved when the next block begins, see `Shard.tell`."""
        base = int(self._rows.base)
        provisional = self._rows.recent[self.first - base : self.second - base]
        is_representative = provisional[:, FLAGS] & np.uint64(REPRESENTATIVE) != 0
        rows, seqs = np.flatnonzero(~is_representative), provisional[:, SEQ].astype(np.int64)
        place = np.searchsorted(seqs[rows], others.seq)
        there = np.flatnonzero(seqs[rows][np.minimum(place, len(rows) - 1)] == others.seq) if len(rows) else place[:0]
        left = np.flatnonzero(is_representative & ~np.isin(seqs, representatives))
        found, rows = others.at(there), np.concatenate((rows[place[there]], left))
        names, of = [*(names[i] for i in there.tolist()), *[b""] * len(left)], np.zeros(len(rows), np.uint64)
        dropped = [i for i, name in enumerate(names) if name]
        of[dropped] = hashes.of_ids([names[i] for i in dropped])[:, 0]
        of[len(there) :] = provisional[left, OF]
        kinds = np.concatenate((found.kind, np.full(len(left), NEAR)))
        similarities = np.concatenate((found.similarity, np.zeros(len(left))))
        groups = np.concatenate((found.group, provisional[left, GROUP].astype(np.int64)))
        order = np.argsort(rows)
        return RowDecisions(
            self.first, self.second, self.first + rows[order], kinds[order], of[order], similarities[order],
            groups[order], [names[i] for i in order.tolist()],
        )  # fmt: skip

    def unused_representatives(self, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        """The representative rows that no document will be compared with, of those that are resolved when the next
        block begins, as `DeletedRows.enter` takes them: others were chosen, or their documents were deleted since.

        Args:
            chosen: numbers of the chosen representatives.
        """
        base, total, deleted_rows = int(self._rows.base), int(self._rows.total), self._rows.deleted_rows
        provisional = self._rows.recent[self.first - base : self.second - base]
        at = np.flatnonzero(provisional[:, FLAGS] & np.uint64(REPRESENTATIVE) != 0)
        seqs, of, groups = (provisional[at, column].astype(np.int64) for column in (SEQ, OF, GROUP))
        there = of >= int(deleted_rows.first)  # the others have left the window
        unused = ~np.isin(seqs, chosen)
        unused[there] |= deleted_rows.deleted(of[there])
        columns = of, self.first + at, np.full(len(at), total), seqs, groups, np.full(len(at), ALONE)
        return np.column_stack(columns)[unused]

    def states(self) -> States:
        """The state of the provisional rows. Their places in the log are their `seq`; those of representative rows are
        the first places of their blocks."""
        rows = self._rows
        provisional = rows.recent[self.first - int(rows.base) : int(rows.total) - int(rows.base)]
        flags = provisional[:, FLAGS]
        blocks = self.block - (self.first + np.arange(len(provisional)) < self.second)
        places = np.where(
            flags & np.uint64(REPRESENTATIVE) != 0, blocks * self._size, provisional[:, SEQ].astype(np.int64)
        )
        documents = flags & np.uint64(DELETED) == 0
        places, provisional = places[documents], provisional[documents]
        seqs, groups = (provisional[:, column].astype(np.int64) for column in (SEQ, GROUP))
        kinds = (provisional[:, FLAGS] >> KIND_BITS & np.uint64(0xFF)).astype(np.int64)
        return States(seqs, places, kinds, np.ascontiguousarray(provisional[:, SIMILARITY]).view(np.float64), groups)

    def post_again(self, row: int, keyed: Keyed, shape: Shape) -> None:
        """Post the provisional rows from `row` on again."""
        base, count = int(self._rows.base), int(self._rows.total)
        for table, end in ((self.older, self.second), (self.newer, count)):
            at, last = max(row, int(table.first)), min(end, count)
            if at < last:
                post_provisional_rows(self._rows.recent[at - base : last - base], at, table, keyed, shape)
