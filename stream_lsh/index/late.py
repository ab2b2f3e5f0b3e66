"""The rows of a shard whose fate is not known yet, by the blocks of the log that they came in (`undecided`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.index.erased import Keyed
from stream_lsh.index.generation import post_undecided_rows
from stream_lsh.index.layout import FLAGS, GROUP, KIND_BITS, SEQ, SIMILARITY, Rows
from stream_lsh.index.memory import Memory
from stream_lsh.index.settling import Fates
from stream_lsh.index.told import tell
from stream_lsh.settings import Settings


def facts(block: int, first: int, second: int) -> dict[str, Any]:
    """As `Late.facts`, of a shard that is not open."""
    return {"block": block, "rows": [first, second]}


class Late:
    """Rows from `first` on are undecided: those of the block of the log that began last, and of the one before it.

    Args:
        rows: the shard's. known: as `facts` gave it, None of a shard that begins with the row `base`.

    Attributes:
        block: the one that began last, -1 before the first. older, newer: the postings of the two blocks.
    """

    def __init__(self, settings: Settings, rows: Rows, known: dict[str, Any] | None, base: int) -> None:
        known = known or {"block": -1, "rows": [base, base]}
        self._rows = rows
        self.block: int = known["block"]
        self.older, self.newer = (Memory.of(max(1, settings.block * (settings.signing.bands + 2))) for _ in range(2))
        for table, first in zip((self.older, self.newer), known["rows"], strict=True):
            table.begin(first)

    @property
    def first(self) -> int:
        """The first row that is undecided."""
        return int(self.older.first)

    @property
    def second(self) -> int:
        """The first row of the block that began last."""
        return int(self.newer.first)

    @property
    def facts(self) -> dict[str, Any]:
        """What is to be known of it when the shard is opened again."""
        return facts(self.block, self.first, self.second)

    def enter(self, block: int, count: int) -> None:
        """A block begins, with the row `count`: the older of the two before is decided."""
        self.older, self.newer = self.newer, self.older
        if block > self.block + 1:
            self.older.begin(count)
        self.newer.begin(count)
        self.block = block

    def judged(
        self, rows: NDArray[np.int64], kinds: NDArray[np.int64], of: NDArray[np.uint64],
        similarities: NDArray[np.float64], groups: NDArray[np.int64],
    ) -> None:  # fmt: skip
        """What became of undecided rows, see `told.tell`."""
        tell(self._rows.recent, rows - int(self._rows.base), kinds, of, similarities, groups)

    def fates(self) -> Fates:
        """What became of the undecided rows; their numbers are their places, as nothing else is known of these."""
        rows = self._rows
        waiting = rows.recent[self.first - int(rows.base) : int(rows.total) - int(rows.base)]
        seqs, groups = (waiting[:, column].astype(np.int64) for column in (SEQ, GROUP))
        kinds = (waiting[:, FLAGS] >> KIND_BITS & np.uint64(0xFF)).astype(np.int64)
        return Fates(seqs, seqs, kinds, np.ascontiguousarray(waiting[:, SIMILARITY]).view(np.float64), groups)

    def post_again(self, row: int, keyed: Keyed) -> None:
        """Post the rows in memory from `row` on again, as far as they are undecided."""
        base, count = int(self._rows.base), int(self._rows.total)
        for table, end in ((self.older, self.second), (self.newer, count)):
            at, last = max(row, int(table.first)), min(end, count)
            if at < last:
                post_undecided_rows(self._rows.recent[at - base : last - base], at, table, keyed)
