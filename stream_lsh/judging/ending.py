"""The end of groups under a window: a function of the log, whatever the batches.

No document joins a group whose first member has left the window, and one window later its last member has left it too.
Groups end in steps: by slots of stream time, and only a few group numbers for each number that the log advances. The
end of a dense part of the feed therefore causes no pause. (Embedded, each document is a number; on Kafka a frame takes
4,096 numbers, however few documents it has.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream_lsh.index.segments.window import slot_of

AT_ONCE = 4
"""Group numbers that can end for each number of the log: faster than new ones begin, so that ending catches up."""


class Ending:
    """How far groups have ended.

    Args:
        window: ms.
        slots: as `slots` gave them; None = no document yet.

    Attributes:
        reached: groups with a smaller number have ended.
        last: number of the last document, -1 before the first.
    """

    def __init__(
        self, window: int, slots: Sequence[Sequence[int]] | None = None, reached: int = 0, last: int = -1
    ) -> None:
        self._slot = slot_of(window)
        self._slots = 2 * -(-window // self._slot)  # number of slots in two windows
        # From the slot of the oldest group that may exist.
        self._marks = np.array(slots or [[-1, 0]], np.int64)
        self.reached, self.last = reached, last

    @property
    def slots(self) -> list[list[int]]:
        """Its state besides `reached` and `last`: slots of stream time, and the number of the first document of
        each."""
        marks: list[list[int]] = self._marks.tolist()
        return marks

    @property
    def due(self) -> int:
        """Groups with a smaller number have ended or are about to."""
        return int(self._marks[0, 1])

    def enter(self, log: NDArray[np.int64], seqs: NDArray[np.int64]) -> NDArray[np.int64]:
        """`reached` before each of the next documents: int64[n].

        Args:
            log: int64[n], stream times in ms.
            seqs: int64[n], numbers, ascending.
        """
        slots = log // self._slot
        begins = np.flatnonzero(np.diff(slots, prepend=self._marks[-1, 0]) > 0)
        marks = np.column_stack([slots[begins], seqs[begins]])
        # For documents before the first event time it depends on batches whether stream time has begun.
        if self._marks[-1, 0] < 0:
            marks[:1, 1] = 0
        self._marks = np.concatenate([self._marks, marks])
        oldest = np.searchsorted(self._marks[:, 0], slots - self._slots)
        steps = AT_ONCE * (seqs - self.last)
        reached = steps + np.minimum(self.reached, np.minimum.accumulate(self._marks[oldest, 1] - steps))
        if len(log):
            self._marks = self._marks[oldest[-1] :]
            self.reached, self.last = int(reached[-1]), int(seqs[-1])
        return reached
