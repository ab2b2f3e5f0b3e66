"""Rows, kept documents and sources of groups as they are now: in memory, or else in the store.

What is kept in memory is bounded: rows and blocks used last, and what the next commit writes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.group_store import (
    FIRST_MEMBER,
    Block,
    block_of,
    decoded,
    in_block,
    lengths,
    row,
    rows,
    source_key,
)
from stream_lsh.index.store.rocksdb import Store
from stream_lsh.judging.groups import Group

BLOCK = 512  # kept documents in a value
MOST_ROWS, MOST_BLOCKS, MOST_SOURCES = 65_536, 64, 262_144  # in memory, those used last

K = TypeVar("K")
V = TypeVar("V")


class _Latest(OrderedDict[K, V], Generic[K, V]):
    """So many values, those used last."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def use(self, key: K) -> V | None:
        if key not in self:
            return None
        self.move_to_end(key)
        return self[key]

    def trim(self) -> None:
        while len(self) > self._most:
            self.popitem(last=False)


class GroupCache:
    """What is known of the groups in a store, and has changed since the last commit."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.changed: dict[int, Group | None] = {}  # since the last commit; None: it is not there any more
        self.kept: list[Block] = []  # blocks of kept documents since then
        self._firsts: list[int] = []
        self.sources: dict[bytes, bytes] = {}  # keys that are new since then
        self._rows = _Latest[int, Group](MOST_ROWS)
        self._blocks = _Latest[bytes, Block](MOST_BLOCKS)
        self._known = _Latest[bytes, bool](MOST_SOURCES)

    def rows(self, groups: Sequence[int]) -> dict[int, Group]:
        found = {}
        for number in groups:
            if number in self.changed:
                group = self.changed[number]
            else:
                group = self._rows.use(number) or row(self._store, number)
            if group is not None:
                found[number] = group
        return found

    def put(self, groups: Iterable[Group]) -> None:
        """Take changed rows. A row without live members is removed."""
        for group in groups:
            self.changed[group.group] = group if group.live_members else None

    def first_member(self, seq: int) -> tuple[int, bytes]:
        if self._firsts and seq >= self._firsts[0]:
            return in_block(self.kept[bisect_right(self._firsts, seq) - 1], seq)
        found = block_of(self._store, seq)
        if found is None:
            return NO_TIME, b""
        key, value = found
        block = self._blocks.use(key)
        if block is None:
            block = self._blocks[key] = decoded(value, FIRST_MEMBER, "source")
            self._blocks.trim()
        return in_block(block, seq)

    def has_source(self, group: int, source: bytes) -> bool:
        key = source_key(group, source)
        if key in self.sources or self._known.use(key):
            return True
        if found := self._store.value(key) is not None:
            self._known[key] = True
            self._known.trim()
        else:
            self.sources[key] = b""
        return found

    def keep(self, seqs: NDArray[np.int64], times: NDArray[np.int64], sources: list[bytes]) -> None:
        """Remember kept documents."""
        for begin in range(0, len(seqs), BLOCK):
            part = slice(begin, begin + BLOCK)
            block = np.empty(len(seqs[part]), FIRST_MEMBER)
            block["seq"], block["time"] = seqs[part], times[part]
            block["source"] = lengths(sources[part]) if sources else 0
            self.kept.append((block, sources[part] or [b""] * len(block)))
            self._firsts.append(int(seqs[begin]))

    def ending(self, begin: int, end: int) -> list[Group]:
        """The rows of groups with these numbers, in order; they are not there any more."""
        found = {group.group: group for group in rows(self._store, begin, end)}
        for number in [number for number in self.changed if begin <= number < end]:
            found.pop(number, None)
            if (group := self.changed.pop(number)) is not None:
                found[number] = group
        for number in found:
            self._rows.pop(number, None)
        return [found[number] for number in sorted(found)]

    def committed(self) -> None:
        for number, group in self.changed.items():
            self._rows.pop(number, None)
            if group is not None:
                self._rows[number] = group
        self._rows.trim()
        self._known.update(dict.fromkeys(self.sources, True))
        self._known.trim()
        self.changed, self.kept, self._firsts, self.sources = {}, [], [], {}
