"""The tables of groups that a store must give: a scan of all its rows and members."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from stream_lsh.documents.fields import id_text
from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.group_query import GroupQuery, Moment, Order, Page, SourceFilter
from stream_lsh.embedded.group_ranking import DAY, Ranking
from stream_lsh.embedded.group_store import FACT, dropped, members, row_key, rows
from stream_lsh.index.store.rocksdb import Store

MINUTE = 60_000
FILTERS: list[tuple[Order, int | None, int | None, str | None, int, float]] = [
    ("largest", None, None, None, 0, 0.9),
    ("newest", None, None, "outlet 3", 0, 0),
    ("largest", None, 20 * MINUTE, "outlet 5", 4, 0),
    ("newest", 3 * 60 * MINUTE, 60 * MINUTE, None, 3, 0.95),
    ("growing", None, None, "no outlet", 0, 0),
    ("growing", 100 * DAY, 10 * MINUTE, "outlet 7", 0, 0),
]
T = TypeVar("T")
ASKED = [
    (order, since, limit)
    for order in ("largest", "newest", "growing")
    for since in (None, 0, 20 * MINUTE, 3 * 60 * MINUTE, 100 * DAY)
    for limit in (1, 5, None)
]


def scanned(
    store: Store, order: str, since: int | None, limit: int | None, until: int | None = None, source: str | None = None,
    min_total: int = 0, least: float = 0,
) -> list[tuple[int, int | None]]:  # fmt: skip
    """Groups and their joins, from all rows and members."""
    fact = store.named(FACT)
    latest = fact.get("now", fact["latest"])
    end = math.inf if until is None else latest - until
    if since is None and order == "growing":
        since = DAY + (until or 0)
    after = None if since is None else latest - since
    found = []
    for group in rows(store, fact.get("ended", 0)):
        if group.total_members < min_total or (after is not None and group.last < after):
            continue
        if until is not None and not NO_TIME != group.first <= end:
            continue
        if source is not None and id_text(source) not in {member.source for member in members(store, group)}:
            continue
        if least and max((member.similarity or 0 for member in dropped(store, group.group)), default=0) < least:
            continue
        joined = None
        if after is not None:
            joined = sum(after <= member.time <= end and not member.update for member in dropped(store, group.group))
        first = {"largest": group.live_members, "newest": group.group, "growing": joined}[order]
        found.append((first, -group.group, joined))
    found.sort(key=lambda each: each[:2], reverse=True)
    return [(-group, joined) for _, group, joined in found[:limit]]


def check_tables(store: Store, rankings: Iterable[Ranking]) -> None:
    """Compare all tables, and pages of tables, with a scan. Without event times only those that need none."""
    fact = store.named(FACT)
    timed = fact.get("now", fact["latest"]) is not None
    for asked in ASKED:
        if not timed and (asked[0] == "growing" or asked[1] is not None):
            continue
        wanted = scanned(store, *asked)
        for ranking in rankings:
            found = ranking.first(*asked)  # type: ignore[arg-type]
            assert [(row.group.group, row.joined_since) for row in found] == wanted, asked
            assert all(row.stored == store.value(row_key(row.group.group)) for row in found)
    for order, since, until, source, min_total, least in FILTERS:
        if not timed and (order == "growing" or since is not None or until is not None):
            continue
        wanted = scanned(store, order, since, None, until, source, min_total, least)
        first, last = (None if time is None else Moment(time, before_latest=True) for time in (since, until))
        named = None if source is None else SourceFilter.of(source)
        query = GroupQuery(order, first, last, named, min_total, least, limit=3)
        for ranking in rankings:
            found = [row for page in walked(ranking, query) for row in page.rows]
            assert [(row.group.group, row.joined_since) for row in found] == wanted, query


def walked(ranking: Ranking, query: GroupQuery) -> Iterator[Page]:
    """All pages of a table from a page on."""
    while True:
        page = ranking.page(query)
        yield page
        if page.next is None:
            return
        query = replace(query, after=page.next)


def batches(records: list[T], size: int) -> Iterator[list[T]]:
    """Records, so many at a time."""
    return (records[at : at + size] for at in range(0, len(records), size))
