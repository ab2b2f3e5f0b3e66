"""How far a frame is behind the last one that the judge has committed. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

MOST = 4096  # commits that are remembered


@dataclass(frozen=True, slots=True)
class Behind:
    """What later frames have.

    Attributes:
        documents: at most so many documents have verdicts in later frames.
        seconds: since the first of these verdicts was seen, 0 if there is none.
    """

    documents: int
    seconds: float


class Lag:
    """The commits of the judge that were seen, oldest first: last frame, documents until there, and time of seeing."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int, float]] = deque(maxlen=MOST)

    def note(self, last: int, documents: int, now: float) -> None:
        """Note a commit. now: seconds, of the clock that `behind` is given."""
        if not self._seen or last > self._seen[-1][0]:
            self._seen.append((last, documents, now))

    def behind(self, frame: int, now: float) -> Behind:
        """How far this frame is behind. Later calls are for this frame or later ones."""
        while len(self._seen) > 1 and self._seen[1][0] <= frame:
            self._seen.popleft()
        later = [seen for seen in self._seen if seen[0] > frame]
        if not later:
            return Behind(0, 0.0)
        before = self._seen[0][1] if self._seen[0][0] <= frame else 0
        return Behind(later[-1][1] - before, now - later[0][2])
