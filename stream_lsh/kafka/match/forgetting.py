"""The window of a shard that follows a changelog: its segments, and the first changelog offset that is needed. Pure.

Every frame is sent to every shard, so a segment begins with the same frame in all changelogs. Once a segment is
dropped, and no stored answer has rows of it, the changelog is needed from the first frame of the next segment on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.index.segments.window import Window
from stream_lsh.settings.model import Settings
from stream_lsh.wire.changes import Change, Seen

First = tuple[int, int]
"""Number and first row of a segment."""


@dataclass(slots=True)
class Begin:
    """The first frame of a segment (offset in signatures), and the offset of its change in the changelog, None if
    unknown."""

    frame: int
    place: int | None = None


class Forgetting:
    """The window up to some frame.

    Args:
        known: as `facts` gave it; None: no frame yet.
        last: offset of the last frame.

    Attributes:
        seen: the first row that new documents can match.
        needed: the first changelog offset that is needed, None if unknown. Readable from any thread.
    """

    def __init__(self, settings: Settings, known: Mapping[str, Any] | None, last: int) -> None:
        known = known or {"window": None, "begins": {}, "seen": 0, "ahead": None}
        self.window = Window(settings, known["window"])
        self.seen: int = known["seen"]
        self.needed: int | None = None
        self._begins = {int(number): Begin(*begin) for number, begin in known["begins"].items()}
        # At the start of the changelog: first row of its first change if that does not fit, and the latest `seen`.
        self._ahead: list[int] | None = known["ahead"]
        # (frame, oldest segment left): valid once that frame's change, which reports it, is in the changelog.
        self._told: deque[tuple[int, int]] = deque()
        self._tell(last)

    @property
    def facts(self) -> dict[str, Any]:
        """The state to be stored as JSON."""
        begins = {str(number): [begin.frame, begin.place] for number, begin in self._begins.items()}
        return {"window": self.window.facts, "begins": begins, "seen": self.seen, "ahead": self._ahead}

    def cut(
        self, frame: int, log: NDArray[np.int64], places: NDArray[np.int64], accepted: NDArray[np.bool_] | None
    ) -> NDArray[np.int64]:
        """Segments int64[n] of the documents of the next frame.

        Rows that were not accepted are no documents of the log: no segment begins with one. They belong to the segment
        of their neighbours.
        """
        if accepted is None:
            numbers = self.window.cut(log, places)
        elif accepted.any():
            numbers = self.window.cut(log[accepted], places[accepted])[np.maximum(np.cumsum(accepted) - 1, 0)]
        else:
            numbers = np.full(len(log), self.window.spans[-1].number if self.window.spans else 0)
        self._begun(frame, np.unique(numbers).tolist())
        return numbers

    def begin(self, place: int) -> None:
        """The changelog begins with a snapshot at the offset `place`, which has all segments so far."""
        self._ahead = None
        for begin in self._begins.values():
            begin.place = place

    def _begun(self, frame: int, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._begins.setdefault(number, Begin(frame))

    def behind(self, segments: NDArray[np.int64], firsts: Iterable[First], count: int) -> Seen:
        """The window's part of a frame's change.

        Args:
            segments: of the frame's documents.
            firsts: of the segments that the shard has rows of, ascending.
            count: rows of the shard.
        """
        expired = set(self.window.expired)
        self.seen = next((first for number, first in firsts if number not in expired), count)
        return Seen(self.seen, self.window.since(int(segments[0])))

    def follow(self, change: Change, place: int) -> None:
        """A change was applied; `place` is its offset in the changelog."""
        if change.seen is not None:
            self.window.follow(change.seen.spans)
            self.seen = change.seen.first
            self._begun(change.offset, [span.number for span in change.seen.spans])
        self.placed(change.offset, place)

    def ignored(self, change: Change, *, first: bool) -> None:
        """A change could not be applied. first: it is the first record of the changelog."""
        if change.seen is None:
            return
        if first:
            self._ahead = [change.first, change.seen.first]
        elif self._ahead is not None:
            self._ahead[1] = max(self._ahead[1], change.seen.first)

    @property
    def outlived(self) -> bool:
        """Whether the changelog, though it begins after the end of this store, has all rows that can still match."""
        return self._ahead is not None and self._ahead[1] >= self._ahead[0]

    def placed(self, frame: int, place: int) -> None:
        """The change of a frame has the offset `place` in the changelog."""
        for begin in self._begins.values():
            if begin.frame == frame and begin.place is None:
                begin.place = place
        while self._told and self._told[0][0] <= frame:
            oldest = self._begins.get(self._told.popleft()[1])
            if oldest is not None and oldest.place is not None:
                self.needed = oldest.place

    def forget(self, firsts: Iterable[First], ready: Callable[[int, int], bool], last: int) -> list[int]:
        """Drop expired segments, and return their numbers.

        Args:
            ready: whether a segment may be dropped, given its number and the first row of the next one.
            last: offset of the last frame.
        """
        firsts, expired = list(firsts), list[int]()
        for number in self.window.expired:
            behind = next((first for later, first in firsts if later > number), None)
            if behind is None or not ready(number, behind):
                break
            self.window.forget(number)
            expired.append(number)
        if expired:
            self._begins = {number: begin for number, begin in self._begins.items() if number > expired[-1]}
            self._tell(last)
        return expired

    def _tell(self, frame: int) -> None:
        """The change of this frame reports what is left."""
        if self.window.spans:
            self._told.append((frame, self.window.spans[0].number))
