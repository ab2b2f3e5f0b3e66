"""The tables of groups that a store must give: a scan of all its rows and members."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from stream_lsh.embedded.group_ranking import DAY, Ranking
from stream_lsh.embedded.group_store import FACT, dropped, row_key, rows
from stream_lsh.index.store.rocksdb import Store

T = TypeVar("T")
MINUTE = 60_000
ASKED = [
    (order, since, limit)
    for order in ("largest", "newest", "growing")
    for since in (None, 0, 20 * MINUTE, 3 * 60 * MINUTE, 100 * DAY)
    for limit in (1, 5, None)
]


def scanned(store: Store, order: str, since: int | None, limit: int | None) -> list[tuple[int, int | None]]:
    """Groups and their joins, from all rows and members."""
    fact = store.named(FACT)
    since = DAY if since is None and order == "growing" else since
    after = None if since is None else fact.get("now", fact["latest"]) - since
    found = []
    for group in rows(store, fact.get("ended", 0)):
        if after is not None and group.last < after:
            continue
        joined = None
        if after is not None:
            joined = sum(member.time >= after and not member.update for member in dropped(store, group.group))
        first = {"largest": group.live_members, "newest": group.group, "growing": joined}[order]
        found.append((first, -group.group, joined))
    found.sort(key=lambda each: each[:2], reverse=True)
    return [(-group, joined) for _, group, joined in found[:limit]]


def check_tables(store: Store, rankings: Iterable[Ranking]) -> None:
    """Compare all tables with a scan."""
    for asked in ASKED:
        wanted = scanned(store, *asked)
        for ranking in rankings:
            found = ranking.first(*asked)  # type: ignore[arg-type]
            assert [(row.group.group, row.joined_since) for row in found] == wanted, asked
            assert all(row.stored == store.value(row_key(row.group.group)) for row in found)


def batches(records: list[T], size: int) -> Iterator[list[T]]:
    """Records, so many at a time."""
    return (records[at : at + size] for at in range(0, len(records), size))
