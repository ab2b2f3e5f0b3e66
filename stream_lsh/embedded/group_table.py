"""The table of groups of an index, and the members of one, for `stream-lsh groups`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.group_query import MemberQuery, Moment, NoTimes, Order, Row
from stream_lsh.embedded.group_ranking import MOST_READ, Ranking
from stream_lsh.embedded.group_store import FACT, Member, members, row
from stream_lsh.embedded.groups import NO_GROUPS
from stream_lsh.embedded.information import reading
from stream_lsh.embedded.pending import Readable
from stream_lsh.errors import StoreError, UsageError
from stream_lsh.index.store.rocksdb import GROUP, Store
from stream_lsh.judging.groups import Group, time_text


def table(folder: Path, order: Order = "largest", since: int | None = None, limit: int | None = None) -> list[Row]:
    """Rows of the groups, as `Ranking.first`.

    Raises:
        StoreError: there is no index, or it keeps no groups. UsageError: there are no event times, which this needs.
    """
    with reading_groups(folder) as (store, _):
        return Ranking(store, most_joins=0).first(order, since, limit)


def group_json(store: Store, number: int, query: MemberQuery) -> tuple[bytes, int | None]:
    """A group with some of its members at the last commit, as JSON without the closing brace. Another thread may write
    to the store.

    Returns: also the number of the member behind which there are more; None if there are no more. Members are left out
        at the end if too many others were read for them.

    Raises:
        UsageError: there is no such group, or no event time, which the query needs.
        StoreError: the store is closed, or cannot be read.
    """
    fact: dict[str, Any] = {}
    with store.snapshot(GROUP, lambda: fact.update(store.named(FACT) or {})) as view:
        group, _ = found(view, number, fact.get("ended", 0))
        since, until = (_time(moment, fact) for moment in (query.since, query.until))
        source = query.source
        least, chosen, last, more = query.min_similarity, list[bytes](), query.after, False
        for place, member in enumerate(members(view, group, query.after)):
            if more := len(chosen) == query.limit or place == max(query.limit, MOST_READ):
                break
            last = member.seq
            if (
                (source is None or source.is_of(member.source))
                and (since is None or member.time >= since)
                and (until is None or NO_TIME != member.time <= until)
                and (least is None or (member.similarity is not None and member.similarity >= least))
            ):
                chosen.append(member_json(group, member))
        return b'%b,"members":[%b]' % (group.json[:-1], b",".join(chosen)), last if more else None


def _time(moment: Moment | None, fact: Mapping[str, Any]) -> int | None:
    if moment is None:
        return None
    latest: int | None = fact.get("now", fact.get("latest"))
    if latest is None:
        raise NoTimes("the documents of the index have no event times, which since and until need")
    return moment.at(latest)


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
        yield found(store, number, fact.get("ended", 0))


def found(store: Readable, number: int, ended: int) -> tuple[Group, Iterator[Member]]:
    """The same of a store, where groups with smaller numbers than `ended` have ended.

    Raises:
        UsageError: there is no such group.
    """
    group = row(store, number) if number >= ended else None
    if group is None:
        raise UsageError(
            f"there is no group {number}: a group has the number (seq) of its first member, and is there from its "
            "second member on, until a window ends it; stream-lsh groups lists them"
        )
    return group, members(store, group)


@contextmanager
def reading_groups(folder: Path) -> Iterator[tuple[Store, Mapping[str, Any]]]:
    """The store of an index that keeps groups, and what it says of them: `latest` event time, `source_field`.

    Raises:
        StoreError: there is no index, or it keeps no groups.
    """
    with reading(folder) as store:
        if (fact := store.named(FACT)) is None:
            raise StoreError(NO_GROUPS.format(folder))
        yield store, fact
