"""The groups of a store in the orders of their table, kept up with commits.

In memory: columns of all groups, and the latest joins. The rest of a row is read from the store. A writer notes what it
has written, and a reader takes that over: neither waits for the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stream_lsh.embedded.group_columns import Columns, sizes_of
from stream_lsh.embedded.group_joins import Joins, decoded_joins, joins_of, updater
from stream_lsh.embedded.group_store import FACT, group_of, number_of, row_key
from stream_lsh.embedded.pending import Readable
from stream_lsh.errors import StoreError, UsageError
from stream_lsh.index.store.rocksdb import GROUP, MEMBERS, REMOVED_MEMBERS, Store
from stream_lsh.judging.groups import Group

Order = Literal["largest", "newest", "growing"]
DAY = 24 * 3600 * 1000
MOST_JOINS = 1 << 22
NO_TIMES = "the documents of the index in {} have no event times: {} needs them; feed it again with --time-field FIELD"
_AT_ONCE = 65_536  # rows that are parsed together
_LARGE = 65_536  # from which on few groups have as many members
_MOST_NOTED = 65_536  # values that a writer notes before it takes them over itself
_MOST_ANSWERS, _MOST_ROWS = 16, 1000  # answers that are kept until the next commit, and rows of one


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table.

    Attributes:
        stored: the row as a JSON object.
        joined_since: members that joined within the given time; None if no time was given.
    """

    stored: bytes
    joined_since: int | None

    @property
    def group(self) -> Group:
        return Group.of_json(self.stored)

    @property
    def json(self) -> bytes:
        """The row as a JSON object, with `joined_since`."""
        if self.joined_since is None:
            return self.stored
        return b'%b,"joined_since":%d}' % (self.stored[:-1], self.joined_since)


@dataclass(slots=True)
class _Noted:
    """What commits have written.

    Attributes:
        rows: by group; None: it is deleted.
        members: groups and their new values.
        updates: groups, and numbers of documents that replaced a version there.
        times: the latest event time, and the end of groups; None: nothing is noted.
    """

    rows: dict[int, bytes | None] = field(default_factory=dict)
    members: list[tuple[int, bytes]] = field(default_factory=list)
    updates: set[tuple[int, int]] = field(default_factory=set)
    times: tuple[int | None, int] | None = None


class Ranking:
    """The groups of a store, built from what it has.

    Args:
        store: keeps groups. Another thread may write to it.
        most_joins: joins in memory; a table that needs older ones reads them from the store.
        listening: called before the next write: all commits from then on have to be noted.

    Raises:
        StoreError: the store cannot be read.
    """

    def __init__(
        self, store: Store, most_joins: int = MOST_JOINS, listening: Callable[[Ranking], None] = lambda _: None
    ) -> None:
        self._store = store
        self._reading = threading.Lock()  # of all below but `_noted`
        self._noted = _Noted()
        self._closed = False
        self._columns = Columns()
        self._changed = 0  # rows, since ended groups were last forgotten
        self._answers: dict[tuple[Order, int | None, int | None], list[Row]] = {}
        with self._reading, store.snapshot(GROUP, lambda: self._begin(listening)) as view:
            totals = self._read_rows(view)
            self._joins = Joins(most_joins, _horizon(totals, self._columns.last, most_joins))
            self._read_joins(view)

    def _begin(self, listening: Callable[[Ranking], None]) -> None:
        fact = self._store.named(FACT)
        self._begun = fact is not None
        self._latest, self._ended = _times(fact or {"latest": None})
        listening(self)

    # -- the writer -------------------------------------------------------------------------------------------------

    def note(self, values: Mapping[bytes, bytes | None], fact: Mapping[str, Any]) -> None:
        """Note a commit. To be called by `Store.write`, with what it has written.

        Args:
            values: the values by key. Values of members are new, and complete: none is noted twice.
            fact: what the store says of its groups.
        """
        noted = self._noted
        for key, value in values.items():
            kind = key[:1]
            if kind == GROUP:
                noted.rows[number_of(key)] = value
            elif kind == MEMBERS and value is not None:
                noted.members.append((group_of(key), value))
            elif kind == REMOVED_MEMBERS and value is not None:
                noted.updates.add((group_of(key), updater(key, value)))
        noted.times = _times(fact)
        if len(noted.rows) + len(noted.members) > _MOST_NOTED and self._reading.acquire(blocking=False):
            try:
                self._noted = _Noted()
                self._take_over(noted)
            finally:
                self._reading.release()

    # -- readers ----------------------------------------------------------------------------------------------------

    def first(self, order: Order = "largest", since: int | None = None, limit: int | None = None) -> list[Row]:
        """Rows of the groups at the last commit, the first ones of an order.

        Args:
            order: by live members; by the number of the first member, the latest first; or by the members that joined
                within `since`. since: milliseconds before the latest event time, or before stream time after it was set
                back; only groups that a member joined since then. Default for "growing": a day.

        Raises:
            UsageError: there are no event times, which this needs.
            StoreError: the store is closed, or cannot be read.
        """
        with self._reading:
            self._check_open()
            with self._store.snapshot(GROUP, self._hand_over) as view:
                self._take_over(self._handed)
                asked = order, since, limit
                if (found := self._answers.get(asked)) is None:
                    found = self._first(view, order, since, limit)
                    if len(found) <= _MOST_ROWS:
                        if len(self._answers) == _MOST_ANSWERS:
                            self._answers.clear()
                        self._answers[asked] = found
                return found

    def close(self) -> None:
        """Refuse readers from now on, and wait for the last one."""
        self._closed = True
        with self._reading:
            pass

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the index is closed")

    def _hand_over(self) -> None:
        """While the writer waits."""
        self._handed, self._noted = self._noted, _Noted()

    def _take_over(self, noted: _Noted) -> None:
        if noted.times is None:
            return
        self._answers.clear()
        self._begun = True
        self._latest, self._ended = noted.times
        columns = self._columns
        if noted.rows:
            columns.put(*_columns_of(noted.rows))
        if noted.members:
            groups, times = decoded_joins(noted.members, noted.updates)
            self._join(groups, times)
        self._changed += len(noted.rows)
        if self._changed > max(_AT_ONCE, columns.size // 2):
            self._changed = 0
            if columns.size > 2 * np.count_nonzero(self._there):
                self._joins.move(columns.compact(self._ended))

    def _join(self, groups: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        places = self._columns.places_of(groups)
        there = places >= 0
        self._joins.add(times[there], places[there])

    @property
    def _there(self) -> NDArray[np.bool_]:
        """Which places are groups now."""
        return (self._columns.live > 0) & (self._columns.numbers >= self._ended)

    def _first(self, view: Readable, order: Order, since: int | None, limit: int | None) -> list[Row]:
        if not self._begun:
            return []
        if since is None and order == "growing":
            since = DAY
        there, after = self._there, None
        if since is not None:
            if self._latest is None:
                named = "--since" if order != "growing" else "--order growing"
                raise UsageError(NO_TIMES.format(self._store.path.parent, named))
            after = self._latest - since
            there &= self._columns.last >= after
        places = np.flatnonzero(there)
        numbers = self._columns.numbers[places]
        joined = np.zeros(0, np.int64)
        if after is not None and order == "growing":
            joined = self._joined(view, places, after)
            chosen = _leading(joined, numbers, limit)
        else:
            chosen = _leading(self._columns.live[places] if order == "largest" else numbers, numbers, limit)
            if after is not None:
                joined = np.zeros(len(places), np.int64)
                joined[chosen] = self._joined(view, places[chosen], after)
        counts = [None] * len(chosen) if after is None else joined[chosen].tolist()
        return [
            Row(stored, count)
            for number, count in zip(numbers[chosen].tolist(), counts, strict=True)
            if (stored := view.value(row_key(number))) is not None
        ]

    def _joined(self, view: Readable, places: NDArray[np.int64], after: int) -> NDArray[np.int64]:
        """How many members joined the groups at these places from a time on."""
        if after >= self._joins.since:
            return self._joins.counts(after, self._columns.size)[places]
        numbers = self._columns.numbers[places]
        order = np.argsort(numbers)
        found = np.zeros(len(places), np.int64)
        for groups, times in joins_of(view, numbers[order]):
            at = np.searchsorted(numbers[order], groups[times >= after])
            found += np.bincount(at, minlength=len(places))
        back = np.empty_like(found)
        back[order] = found
        return back

    # -- the beginning ----------------------------------------------------------------------------------------------

    def _read_rows(self, view: Readable) -> NDArray[np.int64]:
        """Returns the members ever, by place."""
        parts: list[NDArray[np.int64]] = []
        found: list[tuple[int, int, int, int]] = []

        def put() -> None:
            numbers, totals, live, last = np.array(found, np.int64).reshape(-1, 4).T
            self._columns.put(numbers, live, last)
            self._check_open()  # building takes a while
            parts.append(totals.copy())
            found.clear()

        for key, value in view.scan(GROUP, row_key(self._ended)):
            found.append((number_of(key), *sizes_of(value)))
            if len(found) == _AT_ONCE:
                put()
        put()
        return np.concatenate(parts)

    def _read_joins(self, view: Readable) -> None:
        numbers = self._columns.numbers
        for groups, times in joins_of(view, np.sort(numbers[self._columns.last >= self._joins.since])):
            self._check_open()
            self._join(groups, times)
        self._joins.sort()


def _times(fact: Mapping[str, Any]) -> tuple[int | None, int]:
    """The latest event time, or stream time after it was set back; and the number before which groups have ended."""
    return fact.get("now", fact["latest"]), fact.get("ended", 0)


def _columns_of(rows: Mapping[int, bytes | None]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Numbers, live members and latest event times of rows."""
    found = [(0, 0, 0) if row is None else sizes_of(row) for row in rows.values()]
    _, live, last = np.array(found, np.int64).T
    return np.fromiter(rows, np.int64, len(rows)), live, last


def _horizon(totals: NDArray[np.int64], last: NDArray[np.int64], most: int) -> int:
    """The earliest time from which on at most so many members can have joined."""
    order = np.argsort(-last)
    members = np.cumsum(totals[order])
    cut = int(np.searchsorted(members, most, "right"))
    return Joins.EARLIEST if cut == len(order) else int(last[order[cut]]) + 1


def _ranked(values: NDArray[np.int64], rank: int) -> int:
    """The value with this rank, from 1 for the largest on. Values are not negative."""
    large = values[values >= _LARGE]
    if len(large) >= rank:
        return int(np.partition(large, len(large) - rank)[len(large) - rank])
    counts = np.bincount(values[values < _LARGE])  # many are equal, which `partition` is slow at
    from_above = np.cumsum(counts[::-1])
    return len(counts) - 1 - int(np.searchsorted(from_above, rank - len(large)))


def _leading(values: NDArray[np.int64], numbers: NDArray[np.int64], limit: int | None) -> NDArray[np.int64]:
    """The places of the largest values, the largest first; of equal ones those of the smallest numbers."""
    places = np.arange(len(values))
    if limit is not None and limit < len(values):
        least = _ranked(values, limit)
        above, equal = np.flatnonzero(values > least), np.flatnonzero(values == least)
        wanted = limit - len(above)
        if wanted < len(equal):
            equal = equal[np.argpartition(numbers[equal], wanted - 1)[:wanted]]
        places = np.concatenate([above, equal])
    return places[np.lexsort((numbers[places], -values[places]))]
