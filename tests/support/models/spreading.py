"""What updates, deletions and a window make of groups, in plain Python: every row counted anew.

Nothing of the engine is used but how long stream time is cut into (`stream_lsh.index.segments.window`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stream_lsh.index.segments.window import LEAST, SHARE
from stream_lsh.judging.ending import AT_ONCE
from support.models.changes import Verdict

NAMED = 16


@dataclass
class Version:
    """A version of a document, in its group. member: it came as a new one, and replaced no version."""

    seq: int
    id: Any
    time: int | None
    source: Any
    member: bool
    removed_by: int | None = None


@dataclass
class Spread:
    """A group: all versions in order, its representative, and how many events there were."""

    number: int
    versions: list[Version]
    representative: Version
    version: int = 0
    created: int = 0  # the document with which it got a row
    ended: bool = False

    @property
    def members(self) -> list[tuple[Any, ...]]:
        """All versions that there are or were since it has a row."""
        return [
            (v.seq, v.id, v.time, v.source, v.removed_by, v is self.representative and v.removed_by is None)
            for v in self.versions if v.removed_by is None or v.removed_by >= self.created
        ]  # fmt: skip

    @property
    def row(self) -> dict[str, Any]:
        times = [version.time for version in self.versions if version.time is not None]
        sources = list(dict.fromkeys(version.source for version in self.versions if version.source is not None))
        live, first = [version for version in self.versions if version.removed_by is None], self.representative
        return {
            "group": self.number,
            "representative": {"id": None if first.removed_by else first.id, "seq": first.seq},
            "version": self.version, "total_members": sum(version.member for version in self.versions),
            "live_members": len(live),
            "first": min(times, default=None), "last": max(times, default=None), "sources": len(sources),
            "first_sources": sources[:NAMED],
        }  # fmt: skip


@dataclass
class Spreading:
    """All groups."""

    groups: dict[int, Spread] = field(default_factory=dict)
    where: dict[int, Spread] = field(default_factory=dict)  # the group of each version

    @property
    def table(self) -> dict[int, dict[str, Any]]:
        return {number: group.row for number, group in self.groups.items() if group.version and not group.ended}

    def before(self, verdict: Verdict) -> tuple[bool, int | None]:
        """Of the version that goes with a verdict, which was not told yet, whether it was kept, and its group."""
        if verdict.replaces is None:
            return False, None
        group = self.where[verdict.replaces]
        return group.representative.seq == verdict.replaces, group.number

    def step(
        self, seq: int, id: Any, verdict: Verdict, time: int | None, source: Any, reached: int = 0
    ) -> list[dict[str, Any]]:
        """The events of a document. reached: groups with a smaller number have ended before it."""
        events = []
        for group in self.groups.values():
            if group.number < reached and not group.ended:
                if group.version:
                    group.version += 1
                    events.append({"event": "ended", "seq": seq, "id": id, **group.row, "live_members": 0})
                group.ended = True
        for number, _, representative in verdict.new_representatives:
            group = self.groups[number]
            if not group.ended:
                group.representative = next(version for version in group.versions if version.seq == representative)
                assert group.representative.removed_by is None
                group.version += 1
                events.append({"event": "representative_changed", "seq": seq, "id": id, **group.row})
        happened: list[tuple[str, Spread]] = []
        old = None if verdict.replaces is None else self.where[verdict.replaces]
        stays = old is not None and verdict.kind != "deleted" and old.number == verdict.group
        new = Version(seq, id, time, source, member=not stays)
        if old is not None:
            what = self._goes(old, verdict, seq)
            if not stays:
                happened.append((what, old))
        if verdict.kind in ("unique", "near_duplicate", "exact_duplicate"):
            if verdict.group == seq:
                self.groups[seq] = Spread(seq, [new], new)
            else:
                group = self.groups[verdict.group or 0]
                if not group.version and not stays:  # while it was alone, how it came and how it is now count
                    group.created = seq
                    group.versions = [*group.versions[:1], *group.versions[1:][-1:]]
                group.versions.append(new)
                happened.append(("updated" if stays else "joined", group))
                if verdict.kind == "unique":
                    group.representative = new
            self.where[seq] = self.groups[verdict.group or 0]
        for what, group in happened:
            if group.ended or not (group.version or what == "joined"):
                continue
            group.version += 1
            group.ended = group.row["live_members"] == 0
            reported = "ended" if group.ended else "created" if group.version == 1 else what
            events.append({"event": reported, "seq": seq, "id": id, **group.row})
        return events

    @staticmethod
    def _goes(group: Spread, verdict: Verdict, seq: int) -> str:
        version = next(version for version in group.versions if version.seq == verdict.replaces)
        assert version.removed_by is None
        version.removed_by = seq
        if verdict.new_representative is None:
            return "left"
        group.representative = next(
            version for version in group.versions if version.seq == verdict.new_representative[1]
        )
        assert group.representative.removed_by is None
        return "representative_changed"


def reached(log: Sequence[int], seqs: Sequence[int], window: int) -> list[int]:
    """Groups with which numbers have ended before each document, slot by slot."""
    slot = max(window // SHARE, LEAST)
    begin = next((time for time in log if time >= 0), 0)
    log = [max(time, begin) for time in log]  # it begins with the first event time
    reached, out = 0, []
    begins = [0, *seqs[1:]]  # numbers before the first one are nobody's
    for i, now in enumerate(log):
        old = now // slot - 2 * -(-window // slot)
        due = next(seq for seq, time in zip(begins, log, strict=True) if time // slot >= old)
        reached = min(reached + AT_ONCE * (seqs[i] - (seqs[i - 1] if i else -1)), max(reached, due))
        assert reached <= seqs[i]
        out.append(reached)
    return out
