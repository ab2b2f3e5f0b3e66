"""The erase queue: deleted and replaced versions that wait for their erasing. Entries are facts of the store in a
column family of their own, ordered by the time at which they are due. Memory has only the versions of one pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.index.store.rocksdb import QUEUE_NAMES, Store, name_key

ERASED_VERSIONS = "erased"  # number of erased versions
FACT = 1024  # most versions of a fact
PASS_VERSIONS, PASS_ENTRIES = 1 << 19, 1 << 16  # most of a pass: 40 MB
# Values of `begins`: no row was dropped for the version; the row is a representative row, which has no version of its
# own.
NONE_DROPPED, REPRESENTATIVE_ROW = -1, -2

Version = tuple[int, int]
"""Number of its group, and `seq`."""


class Place(NamedTuple):
    """An entry without its versions: its name, when they are due, their shard, and how many rows this had when the
    last of them was deleted."""

    name: str
    due: int
    shard: int
    there: int

    def waits(self, now: float, after: int) -> bool:
        """Whether it is too early to erase the versions, which are due `after` seconds later than they were deleted. A
        deletion that is further in the future was recorded by a wrong clock: it is due, too."""
        return abs(now - self.due + after) < after


class QueueEntry(NamedTuple):
    """An entry of the erase queue: versions of one shard.

    Attributes:
        since: when they were deleted or replaced, in seconds since 1970.
        versions: int64[6, n]: rows to erase; first and last row (not included) of those that were dropped for a version
            and have its id in their verdict; seqs and groups of the versions; 1 if the version's id was deleted.
    """

    place: Place
    since: int
    versions: NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Pass:
    """The versions that are erased in one pass over the rows.

    Attributes:
        places: of their entries.
        since: when the latest of them was deleted or replaced, in seconds since 1970.
        shards: int64[n], ascending.
        rows: int64[n], ascending in each shard.
        begins, ends, seqs, groups: int64[n], and deleted: bool[n], see `QueueEntry.versions`.
    """

    places: list[Place]
    since: int
    shards: NDArray[np.int64]
    rows: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    seqs: NDArray[np.int64]
    groups: NDArray[np.int64]
    deleted: NDArray[np.bool_]


def count(begins: NDArray[np.int64]) -> int:
    """How many of some rows are no representative rows, by their `begins`."""
    return int((begins != REPRESENTATIVE_ROW).sum())


def facts_of(
    versions: NDArray[np.int64], shard: int, now: int, after: int, *, named: bool
) -> Iterator[tuple[str, list[Any]]]:
    """Names and facts of deleted versions.

    Args:
        versions: as `deleted_rows.DeletedRows.versions` has them.
        named: the ids of these versions may be in the rows of documents that were dropped for them.
    """
    own = versions[versions[:, 5] < 2]
    own[:, 1] = np.where((own[:, 1] >= 0) & named, own[:, 1] + 1, NONE_DROPPED)
    representatives = versions[(versions[:, 1] >= 0) & (versions[:, 1] != versions[:, 0])]
    representatives[:, 0], representatives[:, 1] = representatives[:, 1], REPRESENTATIVE_ROW
    all = np.concatenate((own, representatives))
    all = all[np.argsort(all[:, 2], kind="stable")]
    for at in range(0, len(all), FACT):
        part, due = all[at : at + FACT], now + after
        yield f"{QUEUE_NAMES}{due:012d}/{shard}/{part[-1, 2]}/{part[0, 0]}", [now, *part.T.tolist()]


def nothing_left(shard: int, there: int, now: int, after: int) -> dict[str, Any]:
    """The entry of a shard that has no version of a deleted id, though its changelog has the id. there, now, after: as
    in `Place` and `facts_of`."""
    return {f"{QUEUE_NAMES}{now + after:012d}/{shard}/{there}/-": [now, *([] for _ in range(6))]}


def place_of(name: str) -> Place:
    """The entry with this name."""
    due, shard, there, _ = name.removeprefix(QUEUE_NAMES).split("/")
    return Place(name, int(due), int(shard), int(there))


def places(store: Store, start: str = "") -> Iterator[Place]:
    """The entries of the queue, the one that is due first in front; from the name `start` on."""
    return map(place_of, store.names(QUEUE_NAMES, start))


def behind_window(store: Store, first: int) -> list[str]:
    """The names of entries of which nothing is left: all their rows are before `first`, the first row of the shard. An
    entry that a wrong clock, or the same second, has put behind a later one waits for that."""
    return [place.name for place in takewhile(lambda place: place.there <= first, places(store))]


def queue_entries(store: Store) -> Iterator[QueueEntry]:
    """The same with their versions."""
    for name, value in store.items(QUEUE_NAMES):
        yield entry_of(name, value)


def entry_of(name: str, value: Sequence[Any]) -> QueueEntry:
    """The entry with this name and fact."""
    return QueueEntry(place_of(name), value[0], np.array(value[1:], np.int64).reshape(6, -1))


def latest_deletion(store: Store, default: float) -> float:
    """When the versions that are due last were deleted, in seconds since 1970."""
    last = store.last(name_key(f"{QUEUE_NAMES}~"))
    return default if last is None else float(orjson.loads(last[1])[0])


def next_pass(store: Store, start: str, now: float, before: int | None = None, last: str | None = None) -> Pass | None:
    """The versions that are erased next: those of the first entries that are due. None if there are none.

    Args:
        start: entries before this name are left out.
        before: only entries made when the shard had fewer rows.
        last: the last entry, if the pass is an earlier one.
    """
    entries: list[QueueEntry] = []
    size = 0
    for place in places(store, start):
        if place.due > now or size >= PASS_VERSIONS or len(entries) == PASS_ENTRIES:
            break
        if last is not None and place.name > last:
            break
        if before is None or place.there < before:  # the values of the others are not read
            entries.append(entry_of(place.name, store.named(place.name)))
            size += entries[-1].versions.shape[1]
    if not entries:
        return None
    shards = np.repeat([entry.place.shard for entry in entries], [entry.versions.shape[1] for entry in entries])
    all = np.concatenate([entry.versions for entry in entries], axis=1)
    order = np.lexsort((all[0], shards))
    rows, begins, ends, seqs, groups, deleted = (column[order] for column in all)
    return Pass(
        [entry.place for entry in entries], max(entry.since for entry in entries), shards[order], rows, begins, ends,
        seqs, groups, (begins != REPRESENTATIVE_ROW) & (deleted != 0),
    )  # fmt: skip
