"""Which groups end under a window, and when: a function of the log, whatever the batches are.

Nobody joins a group whose first member has left the window, and a window later its last member has left it too. That is
looked at in slots of stream time, and a few numbers for each that the log goes on by: a feed that was dense is no pause
when it goes. (With every document, where each number is one's; on Kafka a frame takes 4,096, however few it has.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream_lsh.index.segments.window import slot_of

AT_ONCE = 4
"""Numbers of documents that may have founded a group, for each number: what has to go is caught up with."""


class Ending:
    """How far groups have ended.

    Args:
        window: ms. slots: as it told them; None = no document yet.

    Attributes:
        reached: groups with a smaller number have ended. last: number of the last document, -1 before the first.
    """

    def __init__(
        self, window: int, slots: Sequence[Sequence[int]] | None = None, reached: int = 0, last: int = -1
    ) -> None:
        self._slot = slot_of(window)
        self._slots = 2 * -(-window // self._slot)  # of two windows
        # From that of the oldest group on that may be there.
        self._marks = np.array(slots or [[-1, 0]], np.int64)
        self.reached, self.last = reached, last

    @property
    def slots(self) -> list[list[int]]:
        """What it goes on from beside `reached` and `last`: slots, and the number of the first document of each."""
        marks: list[list[int]] = self._marks.tolist()
        return marks

    @property
    def due(self) -> int:
        """Groups with a smaller number have ended or are about to."""
        return int(self._marks[0, 1])

    def enter(self, log: NDArray[np.int64], seqs: NDArray[np.int64]) -> NDArray[np.int64]:
        """`reached` before each of the next documents int64[n], which have these stream times and numbers,
        ascending."""
        slots = log // self._slot
        begins = np.flatnonzero(np.diff(slots, prepend=self._marks[-1, 0]) > 0)
        marks = np.column_stack([slots[begins], seqs[begins]])
        if self._marks[-1, 0] < 0:  # whether stream time had begun for those before the first time, batches decide
            marks[:1, 1] = 0
        self._marks = np.concatenate([self._marks, marks])
        oldest = np.searchsorted(self._marks[:, 0], slots - self._slots)
        steps = AT_ONCE * (seqs - self.last)
        reached = steps + np.minimum(self.reached, np.minimum.accumulate(self._marks[oldest, 1] - steps))
        if len(log):
            self._marks = self._marks[oldest[-1] :]
            self.reached, self.last = int(reached[-1]), int(seqs[-1])
        return reached
