"""The table of groups of an index, and the members of one, for `stream-lsh groups`."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stream_lsh.embedded.group_store import FACT, Member, dropped, members, row, rows
from stream_lsh.embedded.groups import NO_GROUPS
from stream_lsh.embedded.information import reading
from stream_lsh.errors import StoreError, UsageError
from stream_lsh.index.segments.identity import check_format
from stream_lsh.index.store.rocksdb import Store
from stream_lsh.judging.groups import Group, time_text

Order = Literal["largest", "newest", "growing"]
DAY = 24 * 3600 * 1000
NO_TIMES = "the documents of the index in {} have no event times: {} needs them; feed it again with --time-field FIELD"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table. joined_since: members that joined within the given time; None if no time was given."""

    group: Group
    joined_since: int | None

    @property
    def json(self) -> bytes:
        """The row as a JSON object."""
        return (
            self.group.json
            if self.joined_since is None
            else self.group.json[:-1] + b',"joined_since":%d}' % self.joined_since
        )


def table(folder: Path, order: Order = "largest", since: int | None = None, limit: int | None = None) -> list[Row]:
    """Rows of the groups, the first ones of an order.

    Args:
        order: by live members; by the number of the first member, the latest first; or by the members that joined
            within `since`. since: milliseconds before the latest event time, or before stream time after it was set
            back; only groups that a member joined since then. Default for "growing": a day.

    Raises:
        StoreError: there is no index, or it keeps no groups. UsageError: there are no event times, which this needs.
    """
    with reading_groups(folder) as (store, fact):
        latest = fact.get("now", fact["latest"])
        if since is None and order == "growing":
            since = DAY
        if since is not None and latest is None:
            raise UsageError(NO_TIMES.format(folder, "--since" if order != "growing" else "--order growing"))
        after = None if since is None else (latest or 0) - since
        found = (
            Row(group, None if after is None else _grown(store, group, after))
            for group in rows(store, fact.get("ended", 0))
            if after is None or group.last >= after
        )
        return _first(found, order, limit)


def _first(found: Iterator[Row], order: Order, limit: int | None) -> list[Row]:
    def key(row: Row) -> tuple[int, int]:
        return {
            "largest": (row.group.live_members, -row.group.group),
            "newest": (row.group.group, 0),
            "growing": (row.joined_since or 0, -row.group.group),
        }[order]

    if limit is None:
        return sorted(found, key=key, reverse=True)
    return heapq.nlargest(limit, found, key)


def _grown(store: Store, group: Group, after: int) -> int:
    """Members that a group got from a time on, without its first member and new versions of members."""
    return sum(member.time >= after and not member.update for member in dropped(store, group.group))


def is_representative(group: Group, member: Member) -> bool:
    """Whether a member is the representative of its group."""
    return member.seq == group.seq and member.removed_by is None


def member_json(group: Group, member: Member) -> bytes:
    """A member as a JSON object."""
    return b'{"group":%d,"id":%b,"seq":%d,"kind":"%b","similarity":%b,"time":%b,"source":%b%b%b}' % (
        group.group, member.id, member.seq, member.kind.label.encode(),
        b"null" if member.similarity is None else repr(member.similarity).encode(), time_text(member.time).encode(),
        member.source or b"null",
        b"" if member.removed_by is None else b',"removed_by":%d,"removed_at":%b' % (member.removed_by,
        time_text(member.removed_at).encode()),
        b',"representative":true' if is_representative(group, member) else b"",
    )  # fmt: skip


@contextmanager
def whole(folder: Path, number: int) -> Iterator[tuple[Group, Iterator[Member]]]:
    """The row of a group, and all members it has had, the first member first.

    Raises:
        StoreError: there is no index, or it keeps no groups. UsageError: there is no such group.
    """
    with reading_groups(folder) as (store, fact):
        group = row(store, number) if number >= fact.get("ended", 0) else None
        if group is None:
            raise UsageError(
                f"there is no group {number}: a group has the number (seq) of the document that founded it, and there "
                "is one from its second member on, until a window ends it; stream-lsh groups lists them"
            )
        yield group, members(store, group)


@contextmanager
def reading_groups(folder: Path) -> Iterator[tuple[Store, Mapping[str, Any]]]:
    """The store of an index that keeps groups, and what it says of them: `latest` event time, `source_field`.

    Raises:
        StoreError: there is no index, or it keeps no groups.
    """
    with reading(folder) as store:
        index, fact = store.named("index"), store.named(FACT)
        if index is not None:
            check_format(index, store.path)
        if fact is None:
            raise StoreError(NO_GROUPS.format(folder))
        yield store, fact
