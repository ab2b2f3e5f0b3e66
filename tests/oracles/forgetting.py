"""What a window, updates and deletions mean, in plain Python: every document is compared with every one that it sees,
exhaustively.

Nothing of the engine is used: no signatures, no buckets, no generations. So it holds where all that is similar is found
and no limit is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median_low
from typing import Any, NamedTuple

HEIRS = 256  # of a group so many members, the oldest that are seen, are looked at for an heir, behind the last one


class Verdict(NamedTuple):
    """matches: (id, number, similarity), the best first. replaces: number of the version that went with it; heir: id
    and number of who stands for the group now."""

    kind: str
    first_kind: str | None = None
    of: Any = None
    similarity: float | None = None
    group: int | None = None
    matches: Sequence[tuple[Any, int, float]] = ()
    replaces: int | None = None
    heir: tuple[Any, int] | None = None


@dataclass(eq=False)
class Seen:
    """A version of a document in the log: id, text, event time (None: it has none); log time, number and verdict.

    kept: it stands for its group, from the beginning or as an heir. living: neither replaced nor deleted. dropped_for:
    the version that its verdict names.
    """

    id: Any
    text: str
    time: int | None
    log: int
    seq: int
    verdict: Verdict = field(default=Verdict("unique"))
    kept: bool = False
    living: bool = True
    dropped_for: Seen | None = None

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(self.text.split())


@dataclass
class Deletion:
    """That an id was deleted: log time, and the first event time that is not older."""

    log: int
    time: int | None


class Model:
    """window: of log time, 0 = nothing is forgotten. update: an id with another text replaces the version before it."""

    def __init__(self, window: int, threshold: float, *, unique: bool, update: bool = False) -> None:
        self.window, self.threshold, self.unique, self.update = window, threshold, unique, update
        self.stored: list[Seen] = []  # oldest first
        self.newest: dict[Any, Seen | Deletion] = {}  # what is known of an id
        self.heirs: dict[int | None, int] = {}  # by group the number of the last one
        self.times: list[int] = []
        self.log = -1

    def judge(self, seq: int, id: Any, text: str, time: int | None) -> Verdict:
        """The verdict on the next document."""
        if not text.split():  # nor does its time count
            return Verdict("rejected")
        self._go_on(time)
        old = self._known(id)
        if isinstance(old, Seen) and old.text == text:
            kind, _, of, similarity, group = old.verdict[:5]
            # Another version has come under the id that it names, or a deletion.
            if self.unique and self.update and self._known(of) not in (None, old.dropped_for):
                of = similarity = None
            return Verdict("redelivered", kind, of, similarity, group)
        if isinstance(old, Seen) and not self.update:
            return Verdict("rejected")
        if old is not None and _before(time, old.time):
            return Verdict("outdated")
        new = Seen(id, text, time, self.log, seq)
        new.verdict = self._verdict(new, without=old)
        if isinstance(old, Seen):
            new.kept = new.verdict.kind == "unique"
            if self.unique and old.kept and new.kept and _jaccard(new, old) >= self.threshold:  # it stays in its place
                old.living = False
                new.verdict = new.verdict._replace(group=old.verdict.group, replaces=old.seq)
            else:
                heir = self._goes(old)
                new.verdict = self._verdict(new)._replace(replaces=old.seq, heir=heir)
        new.kept = new.verdict.kind == "unique"
        self.stored.append(new)
        self.newest[id] = new
        assert not self.unique or self._one_for_each_group()
        return new.verdict

    def delete(self, seq: int, id: Any, time: int | None) -> Verdict:
        """The verdict on the next record, that an id is deleted."""
        self._go_on(time)
        old = self._known(id)
        if not isinstance(old, Seen):
            if time is not None and (old is None or old.time is None or time > old.time):
                self.newest[id] = Deletion(self.log, time)
            return Verdict("deleted")
        if _before(time, old.time):
            return Verdict("outdated")
        bounds = [bound for bound in (time, None if old.time is None else old.time + 1) if bound is not None]
        self.newest[id] = Deletion(self.log, max(bounds, default=None))
        return Verdict("deleted", group=old.verdict.group, replaces=old.seq, heir=self._goes(old))

    def _go_on(self, time: int | None) -> None:
        if time is not None:
            self.times = [*self.times, time][-64:]
            self.log = max(self.log, median_low(self.times))

    def _sees(self, log: int) -> bool:
        return not self.window or self.log - log <= self.window

    def _known(self, id: Any) -> Seen | Deletion | None:
        known = self.newest.get(id)
        return known if known is not None and self._sees(known.log) else None

    def _goes(self, old: Seen) -> tuple[Any, int] | None:
        """A version goes; its heir."""
        old.living = False
        if not (self.unique and old.kept):
            return None
        group = [m for m in self.stored if m.verdict.group == old.verdict.group and m.verdict.kind != "unique"]
        behind = self.heirs.get(old.verdict.group, -1)
        group = [m for m in group if self._sees(m.log) and m.seq > behind]
        heir = next((m for m in group[:HEIRS] if m.living), None)
        if heir is None:
            return None
        self.heirs[old.verdict.group] = heir.seq
        heir.kept = True
        return heir.id, heir.seq

    def _verdict(self, new: Seen, without: Any = None) -> Verdict:
        """That on a new document, by what it is compared with; one may be invisible."""
        seen = [other for other in self.stored if other.living and other is not without and self._sees(other.log)]
        seen = [other for other in seen if other.kept or not self.unique]
        similar = [(other, value) for other in seen if (value := _jaccard(new, other)) >= self.threshold]
        if self.unique:
            similar = [pair for pair in similar if pair[0].text == new.text][:1] or similar
        if not similar:
            return Verdict("unique", group=new.seq if self.unique else None)
        kind = "exact_duplicate" if any(other.text == new.text for other, _ in similar) else "near_duplicate"
        oldest, value = similar[0]
        new.dropped_for = oldest
        matches = sorted((-value, other.seq, other.id) for other, value in similar)
        listed = tuple((id, seq, -value) for value, seq, id in matches)
        return Verdict(kind, None, oldest.id, value, oldest.verdict.group, listed)

    def _one_for_each_group(self) -> bool:
        groups = [seen.verdict.group for seen in self.stored if seen.living and seen.kept]
        return len(groups) == len(set(groups))


def _before(time: int | None, known: int | None) -> bool:
    return time is not None and known is not None and time < known


def _jaccard(one: Seen, other: Seen) -> float:
    return len(one.words & other.words) / len(one.words | other.words)
