"""The groups of a store in the orders of their table, kept up with commits.

In memory: columns of all groups, and the latest joins. The rest of a row is read from the store. A writer notes what it
has written, and a reader takes that over: neither waits for the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.group_columns import SIZES, Columns, sizes_of
from stream_lsh.embedded.group_joins import Joins, decoded_joins, joins_of, updater
from stream_lsh.embedded.group_query import GroupQuery, Moment, NoTimes, Order, Page, Place, Row
from stream_lsh.embedded.group_store import FACT, group_of, number_of, row_key
from stream_lsh.embedded.pending import Readable
from stream_lsh.errors import StoreError
from stream_lsh.index.store.rocksdb import GROUP, MEMBERS, REMOVED_MEMBERS, Store

DAY = 24 * 3600 * 1000
MOST_JOINS = 1 << 22
NO_TIMES = "the documents of the index in {} have no event times: {} needs them; feed it again with --time-field FIELD"
_AT_ONCE = 65_536  # rows that are parsed together
_LARGE = 65_536  # from which on few groups have as many members
_MOST_NOTED = 65_536  # values that a writer notes before it takes them over itself
_MOST_ANSWERS, _MOST_ROWS = 16, 1000  # answers that are kept until the next commit, and rows of one
MOST_READ = 4096  # rows that are read for a page with a filter that reads groups


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
        self._answers: dict[GroupQuery, Page] = {}
        with self._reading, store.snapshot(GROUP, lambda: self._begin(listening)) as view:
            self._read_rows(view)
            self._joins = Joins(most_joins, _horizon(self._columns.totals, self._columns.last, most_joins))
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
        """The first rows of an order, at most `limit`, as `page`. since: ms before the latest event time."""
        within = None if since is None else Moment(since, before_latest=True)
        return list(self.page(GroupQuery(order, within, limit=limit)).rows)

    def page(self, query: GroupQuery) -> Page:
        """Rows of the groups at the last commit. The latest event time is stream time after it was set back.

        Raises:
            UsageError: there are no event times, which this needs.
            StoreError: the store is closed, or cannot be read.
        """
        with self._reading:
            self._check_open()
            with self._store.snapshot(GROUP, self._hand_over) as view:
                self._take_over(self._handed)
                if (found := self._answers.get(query)) is None:
                    found = self._page(view, query)
                    if len(found.rows) <= _MOST_ROWS:
                        if len(self._answers) == _MOST_ANSWERS:
                            self._answers.clear()
                        self._answers[query] = found
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

    def _page(self, view: Readable, query: GroupQuery) -> Page:
        if not self._begun:
            return Page(())
        since, until = self._times_of(query)
        columns, there = self._columns, self._there
        if since is not None:
            there &= columns.last >= since
        if until is not None:
            there &= (columns.first <= until) & (columns.first != NO_TIME)
        if query.min_total > 1:
            there &= columns.totals >= query.min_total
        places = np.flatnonzero(there)
        if query.order == "growing":
            assert since is not None
            ranks = self._joined(view, places, since, until)
        else:
            ranks = (columns.live if query.order == "largest" else columns.numbers)[places]
        if query.after is not None:
            rank, number = query.after.rank, query.after.number
            behind = (ranks < rank) | ((ranks == rank) & (columns.numbers[places] > number))
            places, ranks = places[behind], ranks[behind]
        most = query.limit if not query.reads_groups or query.limit is None else max(query.limit, MOST_READ)
        chosen = _leading(ranks, columns.numbers[places], most)
        numbers = columns.numbers[places[chosen]].tolist()
        found: list[int] = []  # places in `chosen`
        rows: list[bytes] = []
        read = 0
        for number in numbers:
            if query.limit is not None and len(found) == query.limit:
                break
            row = view.value(row_key(number))
            if row is not None and query.passes(view, number, row):
                found.append(read)
                rows.append(row)
            read += 1
        counts: list[int] | list[None] = [None] * len(found)
        if since is not None:
            which = chosen[found]
            joined = ranks[which] if query.order == "growing" else self._joined(view, places[which], since, until)
            counts = joined.tolist()
        last = Place(int(ranks[chosen[read - 1]]), numbers[read - 1]) if 0 < read < len(places) else None
        return Page([Row(*row) for row in zip(rows, counts, strict=True)], last, since, until)

    def _times_of(self, query: GroupQuery) -> tuple[int | None, int | None]:
        """`since` and `until` in ms since 1970."""
        since, until = query.since, query.until
        if since is None and until is None and query.order != "growing":
            return None, None
        if self._latest is None:
            named = "--order growing" if query.order == "growing" else "--since"
            raise NoTimes(NO_TIMES.format(self._store.path.parent, named))
        end = None if until is None else until.at(self._latest)
        if since is None and query.order == "growing":
            return (self._latest if end is None else end) - DAY, end
        return None if since is None else since.at(self._latest), end

    def _joined(self, view: Readable, places: NDArray[np.int64], since: int, until: int | None) -> NDArray[np.int64]:
        """How many members joined the groups at these places from a time on, and up to another one."""
        if since >= self._joins.since:
            return self._joins.counts(since, until, self._columns.size)[places]
        numbers = self._columns.numbers[places]
        order = np.argsort(numbers)
        found = np.zeros(len(places), np.int64)
        for groups, times in joins_of(view, numbers[order]):
            counted = times >= since if until is None else (times >= since) & (times <= until)
            found += np.bincount(np.searchsorted(numbers[order], groups[counted]), minlength=len(places))
        back = np.empty_like(found)
        back[order] = found
        return back

    # -- the beginning ----------------------------------------------------------------------------------------------

    def _read_rows(self, view: Readable) -> None:
        found: dict[int, bytes | None] = {}

        def put() -> None:
            self._columns.put(*_columns_of(found))
            self._check_open()  # building takes a while
            found.clear()

        for key, value in view.scan(GROUP, row_key(self._ended)):
            found[number_of(key)] = value
            if len(found) == _AT_ONCE:
                put()
        put()

    def _read_joins(self, view: Readable) -> None:
        numbers = self._columns.numbers
        for groups, times in joins_of(view, np.sort(numbers[self._columns.last >= self._joins.since])):
            self._check_open()
            self._join(groups, times)
        self._joins.sort()


def _times(fact: Mapping[str, Any]) -> tuple[int | None, int]:
    """The latest event time, or stream time after it was set back; and the number before which groups have ended."""
    return fact.get("now", fact["latest"]), fact.get("ended", 0)


def _columns_of(rows: Mapping[int, bytes | None]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers, and sizes int64[4, n] of rows."""
    found = [(0, 0, 0, 0) if row is None else sizes_of(row) for row in rows.values()]
    return np.fromiter(rows, np.int64, len(rows)), np.array(found, np.int64).reshape(-1, len(SIZES)).T


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
