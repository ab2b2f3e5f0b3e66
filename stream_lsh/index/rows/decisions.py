"""Decisions about rows of a shard, as values of the store.

The rows in the store are as they were when they were added. When a shard is opened, the decisions are written into
those of its rows that are in no file. The ids that rows were dropped for are always read from here.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError
from stream_lsh.index.rows.keys import ends_of
from stream_lsh.index.rows.layout import (
    DELETED,
    DROPPED,
    ERASED,
    FLAGS,
    GROUP,
    KIND_BITS,
    OF,
    REPRESENTATIVE,
    SEQ,
    SIMILARITY,
    UNIQUE,
    UNKNOWN,
)
from stream_lsh.index.store.rocksdb import DECISIONS, Store

_HEAD = struct.Struct("<QQ")  # row after the last one, number of dropped rows
_KIND_MASK, _DROPPED = np.uint64(0xFF) << KIND_BITS, np.uint64(DROPPED)
_DELETED, _REPRESENTATIVE, _ERASED = np.uint64(DELETED), np.uint64(REPRESENTATIVE), np.uint64(ERASED)


class RowDecisions(NamedTuple):
    """Decisions about the rows [first, last) of a segment. Listed are the d rows that were dropped; the others were
    kept, and are first members.

    Attributes:
        rows, kinds: int64[d].
        of, names: first word of the hash of the id that a row was dropped for, and the id; 0 and b"" for rows that stay
            in a group without a match.
        similarities: float64[d].
        groups: int64[d].
    """

    first: int
    last: int
    rows: NDArray[np.int64]
    kinds: NDArray[np.int64]
    of: NDArray[np.uint64]
    similarities: NDArray[np.float64]
    groups: NDArray[np.int64]
    names: list[bytes]

    def between(self, first: int, last: int) -> Self:
        """The decisions about the rows [first, last)."""
        at = slice(*np.searchsorted(self.rows, (first, last)).tolist())
        columns: tuple[Any, ...] = tuple(column[at] for column in self[2:])
        return type(self)(first, last, *columns)

    def name_of(self, row: int) -> bytes:
        """The id that a row was dropped for, b"" if it was kept."""
        at = int(np.searchsorted(self.rows, row))
        return self.names[at] if at < len(self.rows) and self.rows[at] == row else b""

    def encode(self) -> bytes:
        """The value; the row `first` is in its key."""
        return b"".join(
            (
                _HEAD.pack(self.last, len(self.rows)), self.rows.tobytes(), self.of.tobytes(),
                self.similarities.tobytes(), self.groups.tobytes(), ends_of(self.names).tobytes(),
                self.kinds.astype(np.uint8).tobytes(), *self.names,
            )
        )  # fmt: skip

    @classmethod
    def decode(cls, first: int, value: bytes) -> Self:
        """Decode a value of `encode`.

        Raises:
            ValueError, struct.error: it is damaged.
        """
        last, d = _HEAD.unpack_from(value)
        at, columns = _HEAD.size, list[Any]()
        for kind in (np.int64, np.uint64, np.float64, np.int64, np.int64, np.uint8):
            columns.append(np.frombuffer(value, kind, d, at))
            at += columns[-1].nbytes
        rows, of, similarities, groups, ends, kinds = columns
        names = [value[a:b] for a, b in pairwise([at, *(ends + at).tolist()])]
        return cls(first, last, rows, kinds.astype(np.int64), of, similarities, groups, names)

    def lay_over(self, block: NDArray[np.uint64], first: int) -> None:
        """Write the decisions into rows uint64[n, width], the first of which is the shard's row `first`. Erased rows
        stay blank."""
        mine = self.between(max(self.first, first), min(self.last, first + len(block)))
        kept = block[mine.first - first : mine.last - first]
        undo_decisions(kept)
        kept[:, FLAGS] &= ~_KIND_MASK  # UNIQUE (0) for all but the listed rows
        write_decisions(block, mine.rows - first, mine.kinds, mine.of, mine.similarities, mine.groups)
        kept[kept[:, FLAGS] & _ERASED != 0, SIMILARITY] = 0


def write_decisions(
    rows: NDArray[np.uint64], at: NDArray[np.int64], kinds: NDArray[np.int64], of: NDArray[np.uint64],
    similarities: NDArray[np.float64], groups: NDArray[np.int64],
) -> None:  # fmt: skip
    """Write decisions into the rows `at` of uint64[n, width]. of: uint64[d], hashes of the ids that they were dropped
    for, 0 for kept rows."""
    decide(rows, at, kinds)
    rows[at, OF], rows[at, SIMILARITY], rows[at, GROUP] = of, similarities.view(np.uint64), groups.view(np.uint64)


def decide(rows: NDArray[np.uint64], at: NDArray[np.int64], kinds: NDArray[np.int64]) -> None:
    """Write into the rows `at` of uint64[n, width] whether they were kept."""
    flags = rows[at, FLAGS] & ~(_KIND_MASK | _DROPPED)
    rows[at, FLAGS] = flags | kinds.astype(np.uint64) << KIND_BITS | (kinds != UNIQUE) * _DROPPED


def undo_decisions(rows: NDArray[np.uint64]) -> None:
    """Undo `write_decisions` in rows uint64[n, width]. Deletions never had decisions."""
    flags = rows[:, FLAGS]
    provisional_flags = np.where(flags & _DELETED != 0, flags, flags & ~_DROPPED | np.uint64(UNKNOWN) << KIND_BITS)
    rows[:, FLAGS], documents = provisional_flags, flags & (_DELETED | _REPRESENTATIVE) == 0
    rows[documents, OF] = rows[documents, SIMILARITY] = np.uint64(0)
    rows[documents, GROUP] = rows[documents, SEQ]


def stored_decisions(store: Store, shard: int, segment: int, row: int) -> RowDecisions | None:
    """The stored decisions that include a row of a segment; None if there are none.

    Raises:
        DamagedError: they cannot be read.
    """
    found = store.before(DECISIONS, shard, segment, row)
    known = None if found is None else read_decisions(store, shard, *found)
    return known if known is not None and row < known.last else None


def read_decisions(store: Store, shard: int, first: int, value: bytes) -> RowDecisions:
    """The decisions of a stored value that begins with this row. Raises as `stored_decisions`."""
    try:
        return RowDecisions.decode(first, value)
    except (struct.error, ValueError):
        raise DamagedError(
            f"{store.path}: the decisions from row {first} of shard {shard} on are damaged; restore the folder from a "
            "backup"
        ) from None


def lay_over(
    store: Store, shard: int, segment: int, rows: NDArray[np.uint64], first: int, begin: int, last: int
) -> None:
    """Write the stored decisions about the rows [begin, last), which are of one segment, into rows uint64[n, width],
    the first of which is the shard's row `first`.

    Raises:
        DamagedError: a decision is missing or cannot be read.
    """
    kinds = rows[begin - first : max(begin, last) - first, FLAGS] >> KIND_BITS & np.uint64(0xFF)
    for unknown in (begin + np.flatnonzero(kinds == UNKNOWN)).tolist():
        if unknown < begin:
            continue
        found = stored_decisions(store, shard, segment, unknown)
        if found is None:
            raise DamagedError(
                f"{store.path}: the decision about row {unknown} of shard {shard} is missing; restore the folder from "
                "a backup"
            )
        found.lay_over(rows, first)
        begin = found.last
