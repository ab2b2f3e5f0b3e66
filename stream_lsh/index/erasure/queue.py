"""The erase queue: deleted and replaced versions that wait for their erasing. Entries are facts of the store, ordered
by the time at which they are due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.index.store.rocksdb import Store

WAITING = "erase/"  # followed by: time at which it is due, shard, number of rows, index
ERASED_VERSIONS = "erased"  # number of erased versions
FACT = 1024  # most versions of a fact
# Values of `begins`: no row was dropped for the version; the row is a representative row, which has no version of its
# own.
NONE_DROPPED, REPRESENTATIVE_ROW = -1, -2

Version = tuple[int, int]
"""Number of its group, and `seq`."""


@dataclass(slots=True, eq=False)
class QueueEntry:
    """An entry of the erase queue: versions of one shard.

    Attributes:
        name: name of the fact.
        due, since: when the versions are due, and when they were deleted or replaced, in seconds since 1970.
        rows: int64[n], the rows to erase, ascending.
        begins, ends: int64[n]; rows that were dropped for a version, and have its id in their verdict, are in [begin,
            end).
        seqs, groups: int64[n], of each version.
        deleted: bool[n], whether the version's id was deleted (otherwise it was replaced).
        left: bool[n], whether the row is still to be erased.
        versions: number of rows that are not representative rows.
        there: number of rows of the shard when the first of the versions was deleted.
        letters_erased: the dead letters of these ids are erased.
        swept: everything is erased; only the entry is left.
    """

    name: str
    due: int
    shard: int
    since: int
    rows: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    seqs: NDArray[np.int64]
    groups: NDArray[np.int64]
    deleted: NDArray[np.bool_]
    left: NDArray[np.bool_]
    versions: int
    there: int
    letters_erased: bool = False
    swept: bool = False

    def waits(self, now: float) -> bool:
        """Whether it is too early to erase the versions. A deletion that is further in the future than versions wait
        was recorded by a wrong clock: they are due, too."""
        return abs(now - self.since) < self.due - self.since


def facts_of(
    versions: NDArray[np.int64], shard: int, now: int, after: int, *, named: bool
) -> Iterator[tuple[str, list[Any]]]:
    """Names and facts of deleted versions.

    Args:
        versions: as `deleted_rows.DeletedRows.versions` has them.
        named: the ids of these versions may be in the rows of documents that were dropped for them.
    """
    own = versions.copy()
    own[:, 1] = np.where((versions[:, 1] >= 0) & named, versions[:, 1] + 1, NONE_DROPPED)
    representatives = versions[(versions[:, 1] >= 0) & (versions[:, 1] != versions[:, 0])]
    representatives[:, 0], representatives[:, 1] = representatives[:, 1], REPRESENTATIVE_ROW
    all = np.concatenate((own, representatives))
    all = all[np.argsort(all[:, 2], kind="stable")]
    for at in range(0, len(all), FACT):
        part, due = all[at : at + FACT], now + after
        yield f"{WAITING}{due:012d}/{shard}/{part[0, 2]}/{at}", [now, *part.T.tolist()]


def queue_entries(store: Store) -> Iterator[QueueEntry]:
    """The erase queue of an index, the entry that is due first in front."""
    for name, fact in store.items(WAITING):
        yield of_fact(name, fact)


def of_fact(name: str, fact: Any) -> QueueEntry:
    """Decode a fact."""
    due, shard, there, _ = name.removeprefix(WAITING).split("/")
    rows, begins, ends, seqs, groups, deleted = (np.array(column, np.int64) for column in fact[1:])
    left, version = np.ones(len(rows), np.bool_), begins != REPRESENTATIVE_ROW
    return QueueEntry(
        name, int(due), int(shard), fact[0], rows, begins, ends, seqs, groups, version & (deleted != 0), left,
        int(version.sum()), int(there),
    )  # fmt: skip


def in_rows(due: Sequence[QueueEntry], begin: int, end: int, *, named: bool) -> Iterator[tuple[QueueEntry, int]]:
    """What is left of these entries in the rows [begin, end), ordered by row: a text frame is then rewritten once.

    Args:
        named: yield the versions whose ids other rows may have, instead of all others.
    """
    places = [
        np.flatnonzero(item.left & (item.rows >= begin) & (item.rows < end) & ((item.begins >= 0) == named))
        for item in due
    ]  # fmt: skip
    rows, ats = np.concatenate([item.rows[at] for item, at in zip(due, places, strict=True)]), np.concatenate(places)
    of = np.repeat(np.arange(len(due)), [len(at) for at in places])
    for k in np.argsort(rows, kind="stable").tolist():
        yield due[of[k]], int(ats[k])
