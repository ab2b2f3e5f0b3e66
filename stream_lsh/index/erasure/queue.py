"""Versions that were deleted or replaced and wait to be erased: facts of the store, by when they are due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.index.store.rocksdb import Store

WAITING = "erase/"  # and when it is due, shard, and rows there were: versions to be erased
ERASED_VERSIONS = "erased"  # how many versions were
FACT = 1024  # versions of a fact
# In the place of the first row that may have been dropped for a version: there is none; the row is none of a version.
NONE_DROPPED, STAND_IN = -1, -2

Version = tuple[int, int]
"""Group and number."""


@dataclass(slots=True, eq=False)
class Waiting:
    """Versions of a shard that are to be erased.

    name: of the fact. since, due: seconds since 1970, when they went and when they are due. rows; begins, ends: between
    which rows others may have been dropped for each, who have its id. seqs, groups: of each version. deleted:
    whether its id was. left: what is to be done. told: nobody has dead letters of them any more. versions: their
    number, without rows that only stood for a new representative. there: rows there were when the first of them went.
    swept: nothing of them is left, but that they are remembered here.
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
    told: bool = False
    swept: bool = False


def facts_of(
    went: NDArray[np.int64], shard: int, now: int, after: int, *, named: bool
) -> Iterator[tuple[str, list[Any]]]:
    """Names and facts of versions that went now, as `deleted_rows.DeletedRows.went` has them. named: others
    may have their ids."""
    own = went.copy()
    own[:, 1] = np.where((went[:, 1] >= 0) & named, went[:, 1] + 1, NONE_DROPPED)
    representatives = went[(went[:, 1] >= 0) & (went[:, 1] != went[:, 0])]
    representatives[:, 0], representatives[:, 1] = representatives[:, 1], STAND_IN
    all = np.concatenate((own, representatives))
    all = all[np.argsort(all[:, 2], kind="stable")]
    for at in range(0, len(all), FACT):
        part, due = all[at : at + FACT], now + after
        yield f"{WAITING}{due:012d}/{shard}/{part[0, 2]}/{at}", [now, *part.T.tolist()]


def waiting(store: Store) -> Iterator[Waiting]:
    """What is to be erased of an index, what is due first at first."""
    for name, fact in store.items(WAITING):
        yield of_fact(name, fact)


def of_fact(name: str, fact: Any) -> Waiting:
    """What a fact says."""
    due, shard, there, _ = name.removeprefix(WAITING).split("/")
    rows, begins, ends, seqs, groups, deleted = (np.array(column, np.int64) for column in fact[1:])
    left, version = np.ones(len(rows), np.bool_), begins != STAND_IN
    return Waiting(
        name, int(due), int(shard), fact[0], rows, begins, ends, seqs, groups, version & (deleted != 0), left,
        int(version.sum()), int(there),
    )  # fmt: skip


def in_rows(due: Sequence[Waiting], begin: int, end: int, *, named: bool) -> Iterator[tuple[Waiting, int]]:
    """What is left of these entries in some rows, in their order, so that whole frames are written anew at a time.
    named: those whose ids others may have; or all others."""
    places = [
        np.flatnonzero(item.left & (item.rows >= begin) & (item.rows < end) & ((item.begins >= 0) == named))
        for item in due
    ]  # fmt: skip
    rows, ats = np.concatenate([item.rows[at] for item, at in zip(due, places, strict=True)]), np.concatenate(places)
    of = np.repeat(np.arange(len(due)), [len(at) for at in places])
    for k in np.argsort(rows, kind="stable").tolist():
        yield due[of[k]], int(ats[k])
