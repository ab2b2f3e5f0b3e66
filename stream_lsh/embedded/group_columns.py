"""What the order of groups and filters depend on, in columns: number, members and event times."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.times import NO_TIME

# In a JSON string the quotes would be escaped.
_ROW = re.compile(rb',"total_members":(\d+),"live_members":(\d+),"first":([^,]*),"last":([^,]*),"sources":')
SIZES = ("total", "live", "first", "last")
_FIRST_CAPACITY = 1024


def sizes_of(row: bytes) -> tuple[int, int, int, int]:
    """The sizes of a stored row: members ever, live members, and earliest and latest event time (NO_TIME without)."""
    found = _ROW.search(row)
    assert found is not None, row
    total, live, first, last = found.groups()
    return int(total), int(live), _time(first), _time(last)


def _time(text: bytes) -> int:
    return NO_TIME if text == b"null" else int(text)


class Columns:
    """The columns of groups. A group keeps its place until `compact`. 56 bytes a group.

    Attributes:
        size: number of places.
        numbers: of the groups, by place.
        totals: members ever. live: live members, 0: there is no row any more.
        first, last: earliest and latest event times in ms, NO_TIME without one.
    """

    totals: NDArray[np.int64]
    live: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]

    def __init__(self) -> None:
        self._numbers = np.empty(_FIRST_CAPACITY, np.int64)
        self._sizes = np.empty((len(SIZES), _FIRST_CAPACITY), np.int64)
        self._sorted = np.empty(0, np.int64)  # the numbers, ascending
        self._places = np.empty(0, np.int64)  # of these
        self._resize(0)

    def _resize(self, size: int) -> None:
        self.size, self.numbers = size, self._numbers[:size]
        self.totals, self.live, self.first, self.last = self._sizes[:, :size]

    def places_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of groups, -1 for unknown ones."""
        if not self.size:
            return np.full(len(numbers), -1)
        at = np.minimum(np.searchsorted(self._sorted, numbers), self.size - 1)
        return np.where(self._sorted[at] == numbers, self._places[at], -1)

    def put(self, numbers: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        """Add groups or change them. numbers: int64[n], each once. sizes: int64[4, n], as `sizes_of`."""
        places = self.places_of(numbers)
        new = (places < 0) & (sizes[1] > 0)
        if new.any():
            places[new] = np.arange(self.size, self.size + np.count_nonzero(new))
            self._extend(numbers[new], places[new])
        there = places >= 0
        self._sizes[:, places[there]] = sizes[:, there]

    def _extend(self, numbers: NDArray[np.int64], places: NDArray[np.int64]) -> None:
        size = self.size + len(numbers)
        if size > len(self._numbers):
            more = max(size, len(self._numbers) * 3 // 2) - len(self._numbers)
            self._numbers = np.concatenate([self._numbers, np.empty(more, np.int64)])
            self._sizes = np.concatenate([self._sizes, np.empty((len(SIZES), more), np.int64)], axis=1)
        self._numbers[self.size : size] = numbers
        self._resize(size)
        order = np.argsort(numbers)
        at = np.searchsorted(self._sorted, numbers[order])
        self._sorted = np.insert(self._sorted, at, numbers[order])
        self._places = np.insert(self._places, at, places[order])

    def compact(self, ended: int) -> NDArray[np.int64]:
        """Forget groups without a row, and those with smaller numbers than `ended`. Returns the new places by the old
        ones, -1 for forgotten ones."""
        kept = (self.live > 0) & (self.numbers >= ended)
        moved = np.where(kept, np.cumsum(kept) - 1, -1)
        self._numbers, self._sizes = self.numbers[kept], self._sizes[:, : self.size][:, kept]
        self._resize(len(self._numbers))
        self._places = np.argsort(self._numbers)
        self._sorted = self._numbers[self._places]
        return moved
