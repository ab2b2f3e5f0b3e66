"""The snapshots (cycles) of a changelog, up to some record. Pure.

A snapshot counts if everything after it can continue from it: it begins right after the change of the frame that it
names, has all rows in order, and has an end mark. Then nothing before it is needed, and what it has erased is nowhere
after it. An interrupted snapshot, or one of a former owner of the shard, does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
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


class Cycle:
    """The snapshots up to some offset.

    Args:
        known: as `facts` gave it; None: nothing was read, or only by a version without snapshots.

    Attributes:
        last_frame: the last frame whose change is in the changelog, None if unknown.
        cleaned: first offset of the last snapshot that counts, None if there is none.
        at: when that one began, seconds since 1970.
        taking: the frame of the snapshot from which this shard is being built; None if it is not, or is complete.
    """

    def __init__(self, known: Mapping[str, Any] | None, last_frame: int | None) -> None:
        known = known or {"last_frame": last_frame, "begun": None, "cleaned": None, "at": 0, "taking": None}
        self.last_frame: int | None = known["last_frame"]
        self.cleaned: int | None = known["cleaned"]
        self.at: int = known["at"]
        self.taking: int | None = known["taking"]
        self._begun = Begun(**known["begun"]) if known["begun"] else None

    @property
    def facts(self) -> dict[str, Any]:
        """The state to be stored as JSON."""
        begun = self._begun and asdict(self._begun)
        return {
            "last_frame": self.last_frame,
            "begun": begun,
            "cleaned": self.cleaned,
            "at": self.at,
            "taking": self.taking,
        }

    @property
    def begun(self) -> bool:
        """Whether a snapshot is in progress."""
        return self._begun is not None

    def change(self, frame: int, predecessor: int, *, first: bool = False) -> None:
        """The next record is the change of a frame. first: the changelog begins with it."""
        if self.last_frame is None or first or predecessor == self.last_frame:
            self.last_frame = frame

    def take(self, frame: int) -> None:
        """The changelog, and with it this shard, begins with a snapshot after this frame."""
        self.last_frame = self.taking = frame

    def interrupt(self) -> None:
        """There are records of another owner. The snapshot in progress does not count."""
        self._begun = None

    def base(self, offset: int, mark: Mark) -> bool:
        """The next record is a snapshot record. Returns whether it completes a snapshot that counts."""
        begun = self._begun
        if mark.part == BEGINS:
            self._begun = Begun(offset, mark.frame, mark.first, mark.last) if mark.frame == self.last_frame else None
        elif begun is not None and begun.frame == mark.frame:
            if mark.part == ENDS:
                self._begun = None
                if begun.next == begun.last == mark.last:
                    self.cleaned = begun.offset
                    if self.taking == mark.frame:
                        self.taking = None
                    return True
            elif mark.first == begun.next:
                begun.next = mark.last
        return False
