"""What a window means, in plain Python: every document is compared with every one that it sees, exhaustively.

Nothing of the engine is used: no signatures, no buckets, no generations. So it holds where all that is similar is found
and no limit is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any


@dataclass
class Seen:
    """A document in the log: id, its words, event time (None: it has none); log time, number and verdict."""

    id: Any
    words: frozenset[str]
    text: str
    log: int
    seq: int
    verdict: tuple[Any, ...] = ()


class Model:
    """Verdicts as (kind, first kind, of, similarity, group, matches)."""

    def __init__(self, window: int, threshold: float, *, unique: bool) -> None:
        self.window, self.threshold, self.unique = window, threshold, unique
        self.stored: list[Seen] = []  # oldest first
        self.times: list[int] = []
        self.log = -1

    def judge(self, seq: int, id: Any, text: str, time: int | None) -> tuple[Any, ...]:
        """The verdict on the next document."""
        if not text.split():  # nor does its time count
            return "rejected", None, None, None, None, []
        if time is not None:
            self.times = [*self.times, time][-64:]
            self.log = max(self.log, median_low(self.times))
        visible = [other for other in self.stored if self.log - other.log <= self.window]
        before = next((other for other in visible if other.id == id), None)
        if before is not None:
            if before.text != text:
                return "rejected", None, None, None, None, []
            kind, _, *first, _ = before.verdict
            return "redelivered", kind, *first, []
        new = Seen(id, frozenset(text.split()), text, self.log, seq)
        among = [other for other in visible if not self.unique or other.verdict[0] == "unique"]
        similar = [(other, _jaccard(new, other)) for other in among]
        similar = [(other, value) for other, value in similar if value >= self.threshold]
        if self.unique and any(other.text == text for other, _ in similar):
            similar = [(other, value) for other, value in similar if other.text == text]
        new.verdict = self._verdict(new, similar)
        self.stored.append(new)
        return new.verdict

    def _verdict(self, new: Seen, similar: Sequence[tuple[Seen, float]]) -> tuple[Any, ...]:
        if not similar:
            return "unique", None, None, None, new.seq if self.unique else None, []
        kind = "exact_duplicate" if any(other.text == new.text for other, _ in similar) else "near_duplicate"
        oldest, value = similar[0]
        matches = sorted(((-value, other.seq, other.id) for other, value in similar))
        return kind, None, oldest.id, value, oldest.verdict[4], [(id, seq, -value) for value, seq, id in matches]


def _jaccard(one: Seen, other: Seen) -> float:
    return len(one.words & other.words) / len(one.words | other.words)
