"""What a changelog has said of cleaning cycles, up to some record. Pure.

A cycle counts if everything behind it goes on from it: it began right behind the change of the frame that it names,
said all rows in their order, and ended. Then nothing before it is needed, and what it has erased is nowhere behind it.
One that was broken off, or that somebody has sent who was not the shard's owner any more, does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from stream_lsh.wire.bases import BEGINS, ENDS, Mark


@dataclass(slots=True)
class Begun:
    """A cycle under way: where its first record stands, behind which frame it began, which row it says next, and the
    one behind its last."""

    offset: int
    frame: int
    next: int
    last: int


class Cycle:
    """Cycles up to some offset.

    Args:
        known: as `facts` gave it; None = nothing was read, or by a version that knew none.

    Attributes:
        told: the last frame whose change stands in the changelog, None if that is not known. cleaned: where the last
        cycle that counts began, None if there was none. at: when that one began, seconds since 1970. taking:
        behind which frame the cycle began that this shard is taken from, None if it is not, or has all of it.
    """

    def __init__(self, known: Mapping[str, Any] | None, told: int | None) -> None:
        known = known or {"told": told, "begun": None, "cleaned": None, "at": 0, "taking": None}
        self.told: int | None = known["told"]
        self.cleaned: int | None = known["cleaned"]
        self.at: int = known["at"]
        self.taking: int | None = known["taking"]
        self._begun = Begun(**known["begun"]) if known["begun"] else None

    @property
    def facts(self) -> dict[str, Any]:
        """What it goes on from, ready for JSON."""
        begun = self._begun and asdict(self._begun)
        return {"told": self.told, "begun": begun, "cleaned": self.cleaned, "at": self.at, "taking": self.taking}

    @property
    def begun(self) -> bool:
        """Whether one is under way."""
        return self._begun is not None

    def change(self, frame: int, predecessor: int, *, first: bool = False) -> None:
        """The next record is the change of a frame; first: the changelog begins with it."""
        if self.told is None or first or predecessor == self.told:
            self.told = frame

    def take(self, frame: int) -> None:
        """The changelog begins with a cycle behind this frame, and this shard with it."""
        self.told = self.taking = frame

    def base(self, offset: int, mark: Mark) -> bool:
        """The next record is a base record; whether a cycle ends with it that counts."""
        begun = self._begun
        if mark.part == BEGINS:
            self._begun = Begun(offset, mark.frame, mark.first, mark.last) if mark.frame == self.told else None
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
