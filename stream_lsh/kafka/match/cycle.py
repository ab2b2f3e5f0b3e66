"""The snapshots (cycles) of a changelog, up to some record. Pure.

A snapshot counts if everything after it can continue from it: it begins right after the change of the frame that it
names, has all rows in order, and has an end mark. Then nothing before it is needed, and what it has erased is nowhere
after it. An interrupted snapshot, or one of a former owner of the shard, does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stream_lsh.wire.bases import BEGINS, ENDS, Mark


@dataclass(slots=True)
class Begun:
    """A snapshot in progress.

    Attributes:
        offset: of its first record.
        frame: the frame after which it begins.
        next: the next row that it must have.
        last: the row after its last one.
    """

    offset: int
    frame: int
    next: int
    last: int


@dataclass(slots=True)
class Cycle:
    """The snapshots up to some offset. Stored as JSON.

    Attributes:
        last_frame: the last frame whose change is in the changelog, None if unknown.
        begun: the snapshot in progress.
        cleaned: first offset of the last snapshot that counts, None if there is none.
        at: when that one began, seconds since 1970.
        taking: the frame of the snapshot from which this shard is being built; None if it is not, or is complete.
    """

    last_frame: int | None
    begun: Begun | None = None
    cleaned: int | None = None
    at: int = 0
    taking: int | None = None

    @classmethod
    def of(cls, known: Mapping[str, Any]) -> Cycle:
        """From what was stored."""
        begun = known["begun"]
        return cls(**{**known, "begun": begun and Begun(**begun)})

    def change(self, frame: int, predecessor: int, *, first: bool = False) -> None:
        """The next record is the change of a frame. first: the changelog begins with it."""
        if self.last_frame is None or first or predecessor == self.last_frame:
            self.last_frame = frame

    def take(self, frame: int) -> None:
        """The changelog, and with it this shard, begins with a snapshot after this frame."""
        self.last_frame = self.taking = frame

    def interrupt(self) -> None:
        """There are records of another owner. The snapshot in progress does not count."""
        self.begun = None

    def unfinished(self, began: Mark | None) -> tuple[Mark, int] | None:
        """The snapshot in progress, if it can be continued from a row on: its first record, and the row.

        Args:
            began: the first record of the latest snapshot, if it is known.
        """
        begun = self.begun
        if begun is None or began is None or self.taking is not None:
            return None
        if (begun.frame, begun.last) != (began.frame, began.last) or begun.next == began.first:
            return None  # what comes before the rows may be missing
        return began, begun.next

    def base(self, offset: int, mark: Mark) -> bool:
        """The next record is a snapshot record. Returns whether it completes a snapshot that counts."""
        begun = self.begun
        if mark.part == BEGINS:
            self.begun = Begun(offset, mark.frame, mark.first, mark.last) if mark.frame == self.last_frame else None
        elif begun is not None and begun.frame == mark.frame:
            if mark.part == ENDS:
                self.begun = None
                if begun.next == begun.last == mark.last:
                    self.cleaned = begun.offset
                    if self.taking == mark.frame:
                        self.taking = None
                    return True
            elif mark.first == begun.next:
                begun.next = mark.last
        return False
