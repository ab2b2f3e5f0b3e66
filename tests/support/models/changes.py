"""What a window, updates and deletions mean, in plain Python: every document is compared with every one that it sees,
exhaustively.

Nothing of the engine is used, but for the shard that an id is in: no signatures, no buckets, no segments. So it
holds where all that is similar is found and no limit is met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median_low
from typing import Any, NamedTuple

import orjson

from stream_lsh.index.batch import owners
from stream_lsh.settings.model import Settings


class Verdict(NamedTuple):
    """matches: (id, number, similarity), the best first. replaces: number of the version that it removed;
    new_representative: id and number of what stands for the group now. new_representatives: with several shards, group,
    id and number of those that stand for theirs from this record on. supersedes: the id of the one whose place it
    takes."""

    kind: str
    first_kind: str | None = None
    duplicate_of: Any = None
    similarity: float | None = None
    group: int | None = None
    matches: Sequence[tuple[Any, int, float]] = ()
    replaces: int | None = None
    new_representative: tuple[Any, int] | None = None
    new_representatives: Sequence[tuple[int, Any, int]] = ()
    supersedes: Any = None


@dataclass(eq=False)
class Seen:
    """A version of a document in the log: id, text, event time (None: it has none); stream time, number and verdict.

    kept: it stands for its group, from the beginning or as a new representative. live: neither replaced nor deleted.
    dropped_for: the version that its verdict names. shard, block: where it is stored, and since which block of the log
    it stands. rank: the higher, the better. dropped: number of the record by which it was dropped or superseded.
    superseded: whose place it has taken. source: where one of each is kept; otherwise None.
    """

    id: Any
    text: str
    time: int | None
    log: int
    seq: int
    verdict: Verdict = field(default=Verdict("unique"))
    kept: bool = False
    live: bool = True
    dropped_for: Seen | None = None
    shard: int = 0
    block: int = 0
    rank: float = 0
    dropped: int = -1
    superseded: Seen | None = None
    source: Any = None

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(self.text.split())


Compare = Callable[[Seen, Seen], float]


@dataclass
class Deletion:
    """That an id was deleted: stream time, and the first event time that is not older."""

    log: int
    time: int | None


class Model:
    """window: of stream time, 0 = nothing is forgotten. update: an id with another text replaces the version before it.
    shards, block: several that keep get the removals and the decisions when the second block after it begins.
    compare: how similar two are, the Jaccard similarity of their words if nothing else is said. stays: whether
    a document is kept beside a similar one that it contains. keep: which copy is kept. per_source: one of each
    source."""

    def __init__(
        self, window: int, threshold: float, *, unique: bool, update: bool = False, shards: int = 1, block: int = 0,
        compare: Compare | None = None, stays: Callable[[Seen, Seen], bool] | None = None, keep: str = "first",
        per_source: bool = False,
    ) -> None:  # fmt: skip
        self.stays, self.keep, self.per_source = stays, keep, per_source
        self.compare, self.by_words = compare or _jaccard, compare is None
        self.window, self.threshold, self.unique, self.update = window, threshold, unique, update
        self.shards, self.block, self.at, self.records = shards, block, 0, 0  # records: their number
        self.removed: list[tuple[int, int]] = []  # blocks and groups of removed representatives
        self.lost: list[tuple[int, int, int]] = []  # all of these, and by which record
        self.stored: list[Seen] = []  # oldest first
        self._met: list[Seen] = []  # of these, those that are not known to be removed
        self.newest: dict[Any, Seen | Deletion] = {}  # what is known of an id
        self.times: list[int] = []
        self.log = -1

    def judge(
        self, seq: int, id: Any, text: str, time: int | None, stamp: int | None = None, rank: float = 0,
        source: Any = None,
    ) -> Verdict:  # fmt: skip
        """The verdict on the next document. stamp: by which stream time goes on, where that is not its own time. rank:
        with keep = "best". source: it counts where each keeps a copy."""
        if not text.split():  # nor does its time count
            return Verdict("rejected", new_representatives=self._representatives())
        self._go_on(time if stamp is None else stamp)
        representatives = self._representatives()
        return self._judge(seq, id, text, time, rank, source if self.per_source else None)._replace(
            new_representatives=representatives
        )

    def _judge(self, seq: int, id: Any, text: str, time: int | None, rank: float, source: Any) -> Verdict:
        old = self._known(id)
        if isinstance(old, Seen) and old.text == text and old.source == source:
            kind, _, of, similarity, group = old.verdict[:5]
            if of is None:  # the document that it superseded is not named again
                similarity = None
            if self.unique and self.update and self._went(old, of, group):
                of = similarity = None
            return Verdict("redelivered", kind, of, similarity, group)
        if isinstance(old, Seen) and not self.update:
            return Verdict("rejected")
        if old is not None and _before(time, old.time):
            return Verdict("outdated")
        new = Seen(id, text, time, self.log, seq, block=self.at, source=source)
        if self.shards > 1:
            (new.shard,) = owners([orjson.dumps(id)], self.shards).tolist()
        new.rank = {"longest": len(text), "newest": seq, "best": rank}.get(self.keep, 0)
        new.verdict = self._verdict(new, without=old)
        if isinstance(old, Seen):
            new.kept = new.verdict.kind == "unique"
            if (
                self.unique
                and old.kept
                and new.kept
                and old.source == source
                and self.compare(new, old) >= self.threshold
            ):  # it stays in its place
                old.live = False
                new.verdict = new.verdict._replace(
                    group=old.verdict.group, replaces=old.seq, supersedes=None, similarity=None
                )
                new.superseded = None
            else:
                representative = self._goes(old, seq)
                if representative is not None:
                    new.verdict = self._verdict(new)
                new.verdict = new.verdict._replace(replaces=old.seq, new_representative=representative)
        new.kept = new.verdict.kind == "unique"
        if not new.kept:
            new.dropped = seq
        if new.superseded is not None:
            new.superseded.kept, new.superseded.dropped = False, seq
        self.stored.append(new)
        self._met.append(new)
        self.newest[id] = new
        assert not self.unique or self._one_for_each_group()
        return new.verdict

    def delete(self, seq: int, id: Any, time: int | None, stamp: int | None = None) -> Verdict:
        """The verdict on the next record, that an id is deleted."""
        self._go_on(time if stamp is None else stamp)
        representatives = self._representatives()
        return self._delete(seq, id, time)._replace(new_representatives=representatives)

    def _delete(self, seq: int, id: Any, time: int | None) -> Verdict:
        old = self._known(id)
        if not isinstance(old, Seen):
            if time is not None and (old is None or old.time is None or time > old.time):
                self.newest[id] = Deletion(self.log, time)
            return Verdict("deleted")
        if _before(time, old.time):
            return Verdict("outdated")
        bounds = [bound for bound in (time, None if old.time is None else old.time + 1) if bound is not None]
        self.newest[id] = Deletion(self.log, max(bounds, default=None))
        return Verdict("deleted", group=old.verdict.group, replaces=old.seq, new_representative=self._goes(old, seq))

    def _went(self, old: Seen, of: Any, group: int | None) -> bool:
        """Whether another version has come under the id that a verdict names, or a deletion. Several shards notice that
        its group has lost its representative since, when the new one is decided."""
        if not self.block:
            return self._known(of) not in (None, old.dropped_for)
        return any(lost == group and seq > old.seq and block < self.at - 3 for block, lost, seq in self.lost)

    def _go_on(self, time: int | None) -> None:
        if time is not None:
            self.times = [*self.times, time][-64:]
            self.log = max(self.log, median_low(self.times))

    def _sees(self, log: int) -> bool:
        return not self.window or self.log - log <= self.window

    def _visible(self) -> Sequence[Seen]:
        """What can be met, the oldest first."""
        self._met = [seen for seen in self._met if seen.live and self._sees(seen.log)]
        return self._met

    def _known(self, id: Any) -> Seen | Deletion | None:
        known = self.newest.get(id)
        return known if known is not None and self._sees(known.log) else None

    def _goes(self, old: Seen, seq: int) -> tuple[Any, int] | None:
        """A version goes; its representative, if it is known at once."""
        old.live = False
        group = old.verdict.group
        if not (self.unique and old.kept) or group is None:
            return None
        if self.block:
            self.removed.append((self.at, group))
            self.lost.append((self.at, group, seq))
            return None
        representative = self._representative_of(group)
        return None if representative is None else (representative.id, representative.seq)

    def _representatives(self) -> Sequence[tuple[int, Any, int]]:
        """Those that stand for their groups from this record on, with which a block may begin."""
        place, self.records = self.records, self.records + 1
        if not self.block or place // self.block == self.at:
            return ()
        self.at = place // self.block
        due = sorted(group for block, group in self.removed if block < self.at - 1)
        self.removed = [(block, group) for block, group in self.removed if block >= self.at - 1]
        return tuple(
            (group, representative.id, representative.seq)
            for group in due
            if (representative := self._representative_of(group)) is not None
        )

    def _representative_of(self, group: int) -> Seen | None:
        """The next representative of a group: its member that was dropped first. Each of several shards takes the
        oldest one that it has."""
        members = [m for m in self._visible() if m.verdict.group == group and m.dropped >= 0]
        representative = min(members, key=lambda member: member.seq if self.block else member.dropped, default=None)
        if representative is not None:
            representative.kept, representative.block = True, self.at
        return representative

    def _verdict(self, new: Seen, without: Any = None) -> Verdict:
        """That on a new document, by what it is compared with; one may be invisible."""
        seen = [other for other in self._visible() if other is not without]
        parts = [[other for other in seen if other.shard == shard] for shard in range(self.shards)]
        if self.keep != "first":  # what a shard knows as kept may be superseded: several find what one finds
            parts = [list(seen)]
        similar = [pair for part in parts for pair in self._similar(new, part)]
        if not similar:
            return Verdict("unique", group=new.seq if self.unique else None)
        similar.sort(key=lambda pair: pair[0].seq)
        matches = sorted((-value, other.seq, other.id) for other, value in similar)
        listed = tuple((id, seq, -value) for value, seq, id in matches)
        if self.unique and (self.per_source or self.stays is not None):
            similar = [pair for pair in similar if pair[0].source == new.source]
            similar = [pair for pair in similar if self.stays is None or not self.stays(new, pair[0])]
            if not similar:
                return Verdict("unique", group=new.seq, matches=listed)
        better = [pair for pair in similar if pair[0].rank >= new.rank]
        new.superseded = None  # the one of an earlier attempt is not
        if not better:
            other, value = next((pair for pair in similar if pair[0].text == new.text), similar[0])
            new.superseded = other
            return Verdict("unique", None, None, value, other.verdict.group, listed, supersedes=other.id)
        similar = better
        kind = "exact_duplicate" if any(other.text == new.text for other, _ in similar) else "near_duplicate"
        oldest, value = similar[0]
        new.dropped_for = oldest
        return Verdict(kind, None, oldest.id, value, oldest.verdict.group, listed)

    def _similar(self, new: Seen, seen: Sequence[Seen]) -> list[tuple[Seen, float]]:
        """What is found in one shard."""
        n, similar = len(new.words), list[tuple[Seen, float]]()
        for other in seen:  # what is much longer or shorter is left out: it shares no more than the shorter one has
            m = len(other.words)
            if self.by_words and min(n, m) / max(n, m) < self.threshold:
                continue
            if (value := self.compare(new, other)) >= self.threshold:
                similar.append((other, value))
        if not self.unique:
            return similar
        kept = [pair for pair in similar if pair[0].kept]
        if self.keep != "first" or not self.block:
            known = kept
        else:
            known = [pair for pair in kept if pair[0].block < self.at - 1]
        same = [pair for pair in known if pair[0].text == new.text and pair[0].source == new.source][:1]
        if same and (self.keep == "newest" or same[0][0].rank >= new.rank):
            return same
        return known if any(other.source == new.source for other, _ in known) else kept

    def _one_for_each_group(self) -> bool:
        groups = [seen.verdict.group for seen in self._visible() if seen.kept]
        return len(groups) == len(set(groups))


def model_of(
    settings: Settings, compare: Compare | None = None, stays: Callable[[Seen, Seen], bool] | None = None
) -> Model:
    """What the index with these settings is compared with."""
    return Model(
        settings.window_ms, settings.least, unique=settings.compare_with == "kept", update=settings.updates,
        shards=settings.shards, block=settings.block, compare=compare,
        stays=stays, keep=settings.keep, per_source=settings.keep_per is not None,
    )  # fmt: skip


def _before(time: int | None, known: int | None) -> bool:
    return time is not None and known is not None and time < known


def _jaccard(one: Seen, other: Seen) -> float:
    shared = len(one.words & other.words)
    return shared / (len(one.words) + len(other.words) - shared)
