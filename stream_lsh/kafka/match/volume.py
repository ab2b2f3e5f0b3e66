"""How large the needed part of a changelog is, and how large a snapshot would be. Pure.

Every reader of a changelog counts its records, so the next owner knows. What deleted versions take is an estimate: a
change has the ids and texts of many rows, and their sizes are known as numbers of shingles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.index.rows.layout import DELETED, ERASED, FLAGS, REPRESENTATIVE, SIZE_BITS
from stream_lsh.index.rows.row_file import unpacked
from stream_lsh.index.store.rocksdb import FREQUENCIES, IDS, ROWS, TEXTS
from stream_lsh.wire.bases import BEGINS, Mark

BEGIN_SHARE = 1.6  # a snapshot begins when the changelog is so many times as large as the snapshot would be
PACE = 4  # bytes of a snapshot for each byte of the changes that are written meanwhile
ROW_WEIGHT = 8  # of an id, as a number of shingles

Amount = NDArray[np.int64]
"""int64[5] of some records: their bytes; bytes of rows and of what stays with them when a version is erased; bytes of
ids and texts; weight of the rows that have these; number of rows."""


def weights(flags: NDArray[np.uint64]) -> NDArray[np.int64]:
    """int64[n]: the weight of the ids and texts of rows, given their word FLAGS. A row that is erased keeps it."""
    documents = flags & np.uint64(DELETED | REPRESENTATIVE) == 0
    return np.where(documents, (flags >> SIZE_BITS).astype(np.int64) + ROW_WEIGHT, 0)


def amount_of(values: Mapping[bytes, bytes], size: int, *, snapshot: bool = False) -> Amount:
    """The amount of a record of `size` bytes, by its values. snapshot: every value is in the next snapshot, too."""
    rows = texts = weight = count = 0
    for key, value in values.items():
        if key[:1] == ROWS:
            flags = unpacked(value)[:, FLAGS]
            weight += int(weights(flags[flags & np.uint64(ERASED) == 0]).sum())
            count += len(flags)
        if key[:1] in (IDS, TEXTS):
            texts += len(value)
        elif snapshot or key[:1] != FREQUENCIES:
            rows += len(value)
    return np.array([size, rows, texts, weight, count], np.int64)


class Volume:
    """The amounts of a changelog up to some record.

    Args:
        known: as `facts` gave it; None: nothing was counted yet.
        counts: whether anything is counted.
    """

    def __init__(self, known: Mapping[str, Any] | None, *, counts: bool) -> None:
        self.counts = counts
        self._made: deque[tuple[int | Mark, Amount]] = deque()  # records that were made here and are not placed
        self._read = 0  # bytes that were read of the next record
        known = known or {"now": [0] * 5, "base": [0] * 5, "begun": [0] * 5, "taken": [0] * 5, "segments": {}}
        self._now = _amount(known["now"])  # of all changes, and the bytes of all records
        self._base = _amount(known["base"])  # the same where the needed part begins, without what its snapshot has
        self._begun = _amount(known["begun"])  # the same where the snapshot in progress begins
        self._taken = _amount(known["taken"])  # what that snapshot has so far
        self._segments = {int(number): _amount(there) for number, there in known["segments"].items()}

    @property
    def facts(self) -> dict[str, Any]:
        """The state to be stored as JSON."""
        return {
            "now": self._now.tolist(), "base": self._base.tolist(), "begun": self._begun.tolist(),
            "taken": self._taken.tolist(), "segments": {str(n): there.tolist() for n, there in self._segments.items()},
        }  # fmt: skip

    def made(self, what: int | Mark, values: Mapping[bytes, bytes], record: bytes) -> bytes:
        """Note a record that is to be sent, and return it. what: its frame, or what it is of a snapshot."""
        if self.counts:
            self._made.append((what, amount_of(values, len(record), snapshot=isinstance(what, Mark))))
        return record

    def placed(self, what: int | Mark) -> Amount:
        """The amount of a record that was made here. Those before it, if any, were read from the changelog."""
        while self._made:
            made, amount = self._made.popleft()
            if made == what:
                return amount
        return amount_of({}, 0)

    def forget_made(self) -> None:
        """Records that were made here are sent no more."""
        self._made.clear()

    def read(self, size: int) -> None:
        """A record of the changelog, or a part of one, was read."""
        self._read += size

    def whole(self, values: Mapping[bytes, bytes], *, snapshot: bool = False) -> Amount:
        """The amount of the record that was read, by the values that are new."""
        amount, self._read = amount_of(values if self.counts else {}, self._read, snapshot=snapshot), 0
        return amount

    def change(self, amount: Amount) -> None:
        """The next record is a change."""
        self._now += amount

    def snapshot(self, part: int, amount: Amount, *, counts: bool) -> None:
        """The next record is a snapshot record. counts: it completes a snapshot that counts."""
        if part == BEGINS:
            self._begun, self._taken = self._now.copy(), np.zeros_like(self._now)
        self._now[0] += amount[0]
        self._taken[1:] += amount[1:]
        if counts:
            self._base = self._begun - self._taken

    def follow(self, segments: Iterable[int]) -> None:
        """With a window: the segments that are left. The changelog is needed from the begin of the first one on."""
        numbers = sorted(segments)
        self._segments = {number: self._segments.get(number, self._now.copy()) for number in numbers}
        if numbers and (there := self._segments[numbers[0]])[0] > self._base[0]:
            self._base = there

    @property
    def size(self) -> int:
        """Bytes of the needed part."""
        return int((self._now - self._base)[0])

    def lives(self, waiting: int, rows: int, width: int) -> float:
        """About how many bytes a snapshot would have.

        Args:
            waiting: weight of the versions that it would erase.
            rows: how many rows the shard has; `width`: bytes of a row.
        """
        _, stay, texts, weight, count = (float(n) for n in self._now - self._base)
        kept = stay + texts * max(0.0, 1 - waiting / max(weight, 1))
        # Some of what was counted may have left the window. Records that a version before has read are not counted.
        return max(kept * min(1.0, rows / max(count, 1)), rows * width)


def _amount(known: Iterable[int]) -> Amount:
    return np.array([*known], np.int64)
