"""The groups of an index: their rows and members in its store, and what is folded since the last commit.

What is kept in memory is bounded: rows and blocks used last, and what the next commit writes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.group_store import (
    FACT,
    FOUNDER,
    MEMBER,
    Block,
    block_of,
    decoded,
    encoded,
    founders_key,
    in_block,
    lengths,
    members_key,
    row,
    row_key,
    rows,
    source_key,
)
from stream_lsh.errors import StateError, UsageError
from stream_lsh.index.index import Index
from stream_lsh.index.store import Range, Store
from stream_lsh.judging.ending import Ending
from stream_lsh.judging.groups import Events, Group, dropped, fold
from stream_lsh.judging.verdicts import Judgement, Kind

BLOCK = 512  # kept documents in a value
MOST_ROWS, MOST_BLOCKS, MOST_SOURCES = 65_536, 64, 262_144  # in memory, those used last
NO_GROUPS = (
    "the index in {} keeps no groups: they are kept from the beginning on or not at all; feed it again into a new "
    "folder with --groups FILE"
)

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


class _Shelf:
    """Rows, founders and sources of groups as they are now: in memory, or else in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.changed: dict[int, Group] = {}  # since the last commit
        self.kept: list[Block] = []  # blocks of kept documents since then
        self._firsts: list[int] = []
        self.sources: dict[bytes, bytes] = {}  # keys that are new since then
        self._rows = _Latest[int, Group](MOST_ROWS)
        self._blocks = _Latest[bytes, Block](MOST_BLOCKS)
        self._known = _Latest[bytes, bool](MOST_SOURCES)

    def rows(self, groups: Sequence[int]) -> dict[int, Group]:
        found = {}
        for number in groups:
            group = self.changed.get(number) or self._rows.use(number) or row(self._store, number)
            if group is not None:
                found[number] = group
        return found

    def founder(self, seq: int) -> tuple[int, bytes]:
        if self._firsts and seq >= self._firsts[0]:
            return in_block(self.kept[bisect_right(self._firsts, seq) - 1], seq)
        found = block_of(self._store, seq)
        if found is None:
            return NO_TIME, b""
        key, value = found
        block = self._blocks.use(key)
        if block is None:
            block = self._blocks[key] = decoded(value, FOUNDER, "source")
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
            block = np.empty(len(seqs[part]), FOUNDER)
            block["seq"], block["time"] = seqs[part], times[part]
            block["source"] = lengths(sources[part]) if sources else 0
            self.kept.append((block, sources[part] or [b""] * len(block)))
            self._firsts.append(int(seqs[begin]))

    def ending(self, begin: int, end: int) -> list[Group]:
        """The rows of groups with these numbers, in order; they are not there any more."""
        found = {group.group: group for group in rows(self._store, begin, end)}
        found.update((number, group) for number, group in self.changed.items() if begin <= number < end)
        for number in found:
            self.changed.pop(number, None)
            self._rows.pop(number, None)
        return [found[number] for number in sorted(found)]

    def committed(self) -> None:
        self._rows.update(self.changed)
        for number in self.changed:
            self._rows.move_to_end(number)
        self._rows.trim()
        self._known.update(dict.fromkeys(self.sources, True))
        self._known.trim()
        self.changed, self.kept, self._firsts, self.sources = {}, [], [], {}


class Groups:
    """The groups of an index that is being written. What is added counts with the commit that writes what `take` gives.

    Args:
        fact: what the index says of them.
    """

    def __init__(self, index: Index, fact: Mapping[str, Any]) -> None:
        self._index = index
        self._fact = dict(fact)
        self._shelf = _Shelf(index.store)
        self._members: list[tuple[NDArray[Any], NDArray[np.int64], list[bytes], list[bytes]]] = []
        self._ending = None
        if index.window is not None:
            self._ending = Ending(index.settings.window_ms, fact.get("slots"), fact.get("ended", 0))
        self._cleared: int = fact.get("cleared", 0)  # of smaller numbers nothing is in the store any more

    @property
    def source_field(self) -> str | None:
        """Where the documents' sources stand."""
        field: str | None = self._fact["source_field"]
        return field

    def founder(self, seq: int) -> tuple[int, bytes]:
        """Event time and source of a kept document, NO_TIME and b"" where there is none."""
        return self._shelf.founder(seq)

    def add(
        self, judgement: Judgement, times: NDArray[np.int64], log: NDArray[np.int64], sources: list[bytes]
    ) -> Events:
        """Fold a batch. times, log: int64[n], event times (NO_TIME for none) and, with a window, log times; sources: of
        all n, or nothing."""
        kept = np.flatnonzero(judgement.kinds == Kind.UNIQUE)
        if sources or (times[kept] != NO_TIME).any():
            self._shelf.keep(judgement.seqs[kept], times[kept], chosen(sources, kept))
        events = fold(judgement, times, sources, self._shelf)
        self._shelf.changed.update((group.group, group) for group in events.groups)
        places = dropped(judgement)
        if len(places):
            self._join(judgement, places, times, sources)
        accepted = np.flatnonzero(judgement.kinds <= Kind.EXACT_DUPLICATE)
        latest = int(times[accepted].max(initial=NO_TIME))
        if latest != NO_TIME:
            self._fact["latest"] = max(latest, self._fact.get("latest") or 0)
        return events if self._ending is None else replace(events, ended=self._end(self._ending, judgement.seqs, log))

    def _end(self, ending: Ending, seqs: NDArray[np.int64], log: NDArray[np.int64]) -> list[tuple[int, Group]]:
        """The groups that end, and the places of the documents before which they do."""
        begin = ending.reached
        reached = ending.enter(log, seqs)
        if ending.reached == begin:
            return []
        found = self._shelf.ending(begin, ending.reached)
        places = np.searchsorted(reached, [group.group for group in found], "right").tolist()
        return list(zip(places, found, strict=True))

    def _clear(self) -> list[Range]:
        """What the store has of groups that have ended, seldom: deleted ranges have their price, too."""
        ending, store = self._ending, self._index.store
        if ending is None or not self._cleared < ending.reached == ending.due:
            return []
        begin, end = self._cleared, ending.reached
        ranges = [
            (row_key(begin), row_key(end)), (members_key(begin, 0), members_key(end, 0)),
            (source_key(begin, b""), source_key(end, b"")),
        ]  # fmt: skip
        if (block := block_of(store, end)) is not None:
            ranges.append((founders_key(0), block[0]))
        self._cleared = end
        return ranges

    def _join(
        self, judgement: Judgement, places: NDArray[np.int64], times: NDArray[np.int64], sources: list[bytes]
    ) -> None:
        ids, named = chosen(judgement.ids, places), chosen(sources, places) or [b""] * len(places)
        members = np.empty(len(places), MEMBER)
        members["seq"], members["time"] = judgement.seqs[places], times[places]
        members["similarity"], members["kind"] = judgement.similarities[places], judgement.kinds[places]
        members["id"], members["source"] = lengths(ids), lengths(named)
        self._members.append((members, judgement.groups[places], ids, named))

    def take(self) -> tuple[dict[str, Any], dict[bytes, bytes], list[Range]]:
        """What the next commit of the index has to write: a fact, values by key, and ranges of keys that go."""
        shelf, ranges = self._shelf, self._clear()
        reached = self._ending.reached if self._ending is not None else 0
        values = {row_key(number): group.json for number, group in shelf.changed.items()}
        for block, sources in shelf.kept:
            if block["seq"][-1] >= reached:
                values[founders_key(int(block["seq"][0]))] = encoded(block, sources)
        first = source_key(reached, b"")
        values.update((key, value) for key, value in shelf.sources.items() if key >= first)
        values.update(self._chunks(reached))
        shelf.committed()
        self._members = []
        if (ending := self._ending) is not None:
            self._fact |= {"slots": ending.slots, "ended": ending.reached, "cleared": self._cleared}
        return {FACT: self._fact}, values, ranges

    def _chunks(self, reached: int) -> Iterator[tuple[bytes, bytes]]:
        """The new members of each group from this number on under one key: the group and the first of them."""
        if not self._members:
            return
        members, groups = (np.concatenate([batch[part] for batch in self._members]) for part in (0, 1))
        ids, sources = ([text for batch in self._members for text in batch[part]] for part in (2, 3))
        order = np.argsort(groups, kind="stable")
        members, groups, places = members[order], groups[order], order.tolist()
        begins = np.flatnonzero(np.diff(groups, prepend=-1)).tolist()
        for begin, end in zip(begins, [*begins[1:], len(groups)], strict=True):
            if groups[begin] < reached:
                continue
            at = places[begin:end]
            texts = [ids[i] for i in at] + [sources[i] for i in at]
            key = members_key(int(groups[begin]), int(members["seq"][begin]))
            yield key, encoded(members[begin:end], texts)


def chosen(texts: Sequence[bytes], places: NDArray[np.int64]) -> list[bytes]:
    """Those in these places; nothing of nothing."""
    return list(texts) if len(texts) in (0, len(places)) else [texts[i] for i in places.tolist()]


def opened(index: Index, wanted: bool, source_field: str | None) -> Groups | None:
    """The groups of an index that is being written, None if it keeps none.

    wanted: a new index is to keep them. source_field: as given for this run.

    Raises:
        UsageError: an index against `any` has none. StateError: there are documents already, or another source field.
    """
    fact = index.store.named(FACT)
    if fact is None and wanted:
        if index.settings.against != "unique":
            raise UsageError(
                "--groups: only under --against unique there are groups: what was dropped for one document"
            )
        if index.settings.on_same_id == "update":
            raise UsageError("--groups: so far an index keeps none whose documents are replaced (on_same_id = update)")
        if (index.store.named("job") or {}).get("next_seq"):
            raise StateError(NO_GROUPS.format(index.folder))
        fact = {"source_field": source_field, "latest": None}
    if fact is None:
        return None
    if source_field not in (None, fact["source_field"]):
        raise StateError(
            f"the groups of the index in {index.folder} have source_field = {fact['source_field']!r} "
            f"(now {source_field!r}); use that, leave it out, or use another folder"
        )
    return Groups(index, fact)
