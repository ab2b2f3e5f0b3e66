"""What the groups of an index add to its rows: the sources of documents, and how fast groups grew.

Groups are read one after the other. In memory: counts for each source, of at most MOST_SOURCES, the first groups, and
the event times of the group that is read.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.audit.rows import KEPT, ranks
from stream_lsh.audit.superseded import pairs_of
from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.group_store import (
    FACT,
    FIRST_MEMBER,
    MEMBER,
    decoded,
    group_of,
    member_removals,
    members_key,
    row,
)
from stream_lsh.embedded.pending import Readable
from stream_lsh.index.store.rocksdb import FIRST_MEMBERS, MEMBERS, Store
from stream_lsh.judging.verdicts import Kind

HOUR = 3_600_000
MOST_SOURCES = 1 << 18  # whose documents are counted apart
SHOWN = 50  # sources
FIRST_GROUPS = 20  # of each order
LEAST_OF_SOURCE = 20  # documents of a source whose share counts


@dataclass
class Groups:
    """What the groups say. Drops are those that are live.

    Attributes:
        source_field: the field of the source. kept, dropped: live documents by source, as JSON text.
        unnamed: live documents with a source beyond MOST_SOURCES.
        largest, fastest: drops, or drops within an hour, and the group.
        in_one_group: by source: the most drops in one group, and that group.
    """

    source_field: str | None
    kept: Counter[bytes] = field(default_factory=Counter)
    dropped: Counter[bytes] = field(default_factory=Counter)
    unnamed: int = 0
    largest: list[tuple[int, int]] = field(default_factory=list)
    fastest: list[tuple[int, int]] = field(default_factory=list)
    in_one_group: dict[bytes, tuple[int, int]] = field(default_factory=dict)

    def count(self, counts: Counter[bytes], sources: Iterable[bytes]) -> Counter[bytes]:
        """Count documents by source. Returns their numbers."""
        new = Counter(sources)
        for source, number in new.items():
            if source in self.kept or source in self.dropped or len(self.kept) + len(self.dropped) < MOST_SOURCES:
                counts[source] += number
            else:
                self.unnamed += number
        return new

    def documents(self, source: bytes) -> int:
        """Live documents of a source."""
        return self.kept[source] + self.dropped[source]

    def share(self, source: bytes) -> float:
        """The share of its documents that was dropped."""
        return self.dropped[source] / self.documents(source)

    @property
    def sources(self) -> list[bytes]:
        """Those with a name, the most drops first."""
        return sorted({*self.kept, *self.dropped} - {b""}, key=lambda source: (-self.dropped[source], source))

    def largest_shares(self) -> list[tuple[float, int, bytes]]:
        """The share of a source that was dropped in one group, the group, and the source; the largest first."""
        found = [
            (number / self.documents(source), group, source)
            for source, (number, group) in self.in_one_group.items()
            if source and self.documents(source) >= LEAST_OF_SOURCE
        ]
        return sorted(found, key=lambda one: (-one[0], *one[1:]))


def read_groups(store: Store, states: NDArray[np.uint8], superseded: NDArray[np.void]) -> Groups | None:
    """Read all groups of an index; None if it keeps none. states: of `Rows`. superseded: of `read_superseded`."""
    fact = store.named(FACT)
    if fact is None:
        return None
    found, replaced = Groups(fact["source_field"]), dict[int, list[tuple[int, bytes]]]()
    for _, value in store.scan(FIRST_MEMBERS):
        members, sources = decoded(value, FIRST_MEMBER, "source")
        now = _states_of(states, members["seq"])
        found.count(found.kept, (sources[i] for i in np.flatnonzero(now == KEPT).tolist()))
        late_ones = np.flatnonzero(now > KEPT)
        pairs = pairs_of(superseded, members["seq"][late_ones])
        late_ones, of = late_ones[pairs["by"] >= 0], pairs["group"][pairs["by"] >= 0]
        for i, group, time in zip(late_ones.tolist(), of.tolist(), members["time"][late_ones].tolist(), strict=True):
            replaced.setdefault(group, []).append((time, sources[i]))
    for group, values in groupby(store.scan(MEMBERS), key=lambda item: group_of(item[0])):
        late = replaced.get(group, [])
        times = [np.array([time for time, _ in late], np.int64)]
        counts = found.count(found.dropped, (source for _, source in late))
        for _, value in values:
            members, _, sources = decoded(value, MEMBER, "id", "source")
            now, was_kept = _states_of(states, members["seq"]), members["kind"] == np.uint8(Kind.UNIQUE)
            found.count(found.kept, (sources[i] for i in np.flatnonzero((now == KEPT) & ~was_kept).tolist()))
            live = np.flatnonzero((now > KEPT) & ~was_kept)
            times.append(members["time"][live])
            counts.update(found.count(found.dropped, (sources[i] for i in live.tolist())))
        if counts:
            _enter(found, group, np.concatenate(times), counts)
    return found


def _states_of(states: NDArray[np.uint8], seqs: NDArray[np.int64]) -> NDArray[np.uint8]:
    if not len(states):
        return np.zeros(len(seqs), np.uint8)
    there = (seqs >= 0) & (seqs < len(states))
    return np.where(there, states[np.where(there, seqs, 0)], np.uint8(0))


def _enter(found: Groups, group: int, times: NDArray[np.int64], counts: Counter[bytes]) -> None:
    for source, number in counts.items():
        if source in found.dropped and number > found.in_one_group.get(source, (0, 0))[0]:
            found.in_one_group[source] = number, group
    _push(found.largest, len(times), group)
    timed = np.sort(times[times != NO_TIME])
    if len(timed):
        within = np.arange(len(timed)) - np.searchsorted(timed, timed - HOUR, "right") + 1
        _push(found.fastest, int(within.max()), group)


def _push(heap: list[tuple[int, int]], number: int, group: int) -> None:
    """Add to a heap of the first groups, as pairs of number and -group: of equal ones the smaller group is first."""
    heapq.heappush(heap, (number, -group))
    if len(heap) > FIRST_GROUPS:
        heapq.heappop(heap)


def leading(heap: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The numbers and groups of such a heap, the largest number first."""
    return [(number, -group) for number, group in sorted(heap, reverse=True)]


def drops_of(
    store: Store, states: NDArray[np.uint8], superseded: NDArray[np.void], group: int, most: int
) -> tuple[list[bytes], NDArray[np.float64]]:
    """The ids of at most `most` random live drops of a group, and the similarities of all, ascending."""
    kept = member_removals(store, group).kept
    late = superseded[(superseded["group"] == group) & (_states_of(states, superseded["seq"]) > KEPT)]
    ids_of = [kept.get(seq, b"null") for seq in late["seq"].tolist()]
    chosen = heapq.nsmallest(most, zip(ranks(late["seq"]).tolist(), ids_of, strict=True))
    similarities = [late["similarity"]]
    for _, value in store.scan(members_key(group, 0)[:9]):
        members, ids, _ = decoded(value, MEMBER, "id", "source")
        live = (_states_of(states, members["seq"]) > KEPT) & (members["kind"] != np.uint8(Kind.UNIQUE))
        live = np.flatnonzero(live & ~np.isin(members["seq"], late["seq"]))
        similarities.append(members["similarity"][live])
        rank = ranks(members["seq"][live])
        lowest = np.argsort(rank)[:most].tolist()
        chosen = heapq.nsmallest(most, chosen + [(float(rank[i]), ids[int(live[i])]) for i in lowest])
    return [id for _, id in chosen], np.sort(np.concatenate(similarities))


def shown_groups(store: Readable, found: list[tuple[int, int]], name: str) -> Iterator[dict[str, Any]]:
    """Groups as the report shows them. name: of the number they are ordered by."""
    for number, group in leading(found):
        stored = row(store, group)
        if stored is not None:
            yield {
                "group": group, name: number, "live_members": stored.live_members,
                "representative": json.loads(stored.id),
                "first": None if stored.first == NO_TIME else stored.first,
                "last": None if stored.last == NO_TIME else stored.last, "sources": stored.sources,
            }  # fmt: skip
