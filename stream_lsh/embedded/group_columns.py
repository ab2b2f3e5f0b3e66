"""What the order of groups depends on, in columns: number, live members and latest event time."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.times import NO_TIME

# In a JSON string the quotes would be escaped.
_ROW = re.compile(rb',"total_members":(\d+),"live_members":(\d+),"first":[^,]*,"last":([^,]*),"sources":')
_FIRST_CAPACITY = 1024


def sizes_of(row: bytes) -> tuple[int, int, int]:
    """Members ever, live members, and latest event time (NO_TIME without one) of a stored row."""
    found = _ROW.search(row)
    assert found is not None, row
    total, live, last = found.groups()
    return int(total), int(live), NO_TIME if last == b"null" else int(last)


class Columns:
    """The columns of groups. A group keeps its place until `compact`. 40 bytes a group.

    Attributes:
        size: number of places.
    """

    def __init__(self) -> None:
        self.size = 0
        self._numbers = np.empty(_FIRST_CAPACITY, np.int64)
        self._live = np.empty(_FIRST_CAPACITY, np.int64)
        self._last = np.empty(_FIRST_CAPACITY, np.int64)
        self._sorted = np.empty(0, np.int64)  # the numbers, ascending
        self._places = np.empty(0, np.int64)  # of these

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Numbers of the groups, by place."""
        return self._numbers[: self.size]

    @property
    def live(self) -> NDArray[np.int64]:
        """Live members, 0: there is no row any more."""
        return self._live[: self.size]

    @property
    def last(self) -> NDArray[np.int64]:
        """Latest event times in ms, NO_TIME without one."""
        return self._last[: self.size]

    def places_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of groups, -1 for unknown ones."""
        if not self.size:
            return np.full(len(numbers), -1)
        at = np.minimum(np.searchsorted(self._sorted, numbers), self.size - 1)
        return np.where(self._sorted[at] == numbers, self._places[at], -1)

    def put(self, numbers: NDArray[np.int64], live: NDArray[np.int64], last: NDArray[np.int64]) -> None:
        """Add groups or change them; each number is given once."""
        places = self.places_of(numbers)
        new = (places < 0) & (live > 0)
        if new.any():
            places[new] = np.arange(self.size, self.size + np.count_nonzero(new))
            self._extend(numbers[new], places[new])
        there = places >= 0
        self._live[places[there]], self._last[places[there]] = live[there], last[there]

    def _extend(self, numbers: NDArray[np.int64], places: NDArray[np.int64]) -> None:
        size = self.size + len(numbers)
        if size > len(self._numbers):
            capacity = max(size, len(self._numbers) * 3 // 2)
            self._numbers, self._live, self._last = (
                np.concatenate([column, np.empty(capacity - len(column), np.int64)])
                for column in (self._numbers, self._live, self._last)
            )
        self._numbers[self.size : size] = numbers
        self.size = size
        order = np.argsort(numbers)
        at = np.searchsorted(self._sorted, numbers[order])
        self._sorted = np.insert(self._sorted, at, numbers[order])
        self._places = np.insert(self._places, at, places[order])

    def compact(self, ended: int) -> NDArray[np.int64]:
        """Forget groups without a row, and those with smaller numbers than `ended`. Returns the new places by the old
        ones, -1 for forgotten ones."""
        kept = (self.live > 0) & (self.numbers >= ended)
        moved = np.where(kept, np.cumsum(kept) - 1, -1)
        self._numbers, self._live, self._last = self.numbers[kept], self.live[kept], self.last[kept]
        self.size = len(self._numbers)
        self._places = np.argsort(self._numbers)
        self._sorted = self._numbers[self._places]
        return moved
