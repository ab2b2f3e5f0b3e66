"""The groups that an index keeps, as they are now, what is not committed yet included."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal

from stream_lsh.api.answers import KINDS, known_id
from stream_lsh.api.group import Group, Member
from stream_lsh.api.verdict import Representative
from stream_lsh.documents.fields import id_value
from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded import group_store
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.group_table import is_representative
from stream_lsh.embedded.groups import Groups
from stream_lsh.embedded.stored import Stored
from stream_lsh.errors import StoreError, UsageError
from stream_lsh.judging import groups
from stream_lsh.judging.verdicts import Kind

Order = Literal["largest", "newest"]


class GroupTable:
    """The groups of an index.

    Raises:
        StoreError: it keeps none.
    """

    def __init__(self, engine: Engine) -> None:
        if engine.groups is None:
            raise StoreError(
                f"the index in {engine.index.folder} keeps no groups: they are kept from the first document on or not "
                "at all, and only with compare_with = 'kept'; feed it again into a new folder"
            )
        self._engine = engine
        self._groups: Groups = engine.groups

    def first(self, order: Order, limit: int | None) -> list[Group]:
        """The first groups of an order, at most `limit`: of the last commit, with those that have changed since."""

        def key(row: groups.Group) -> tuple[int, int]:
            return (row.group, 0) if order == "newest" else (row.live_members, -row.group)

        if limit == 0:
            return []
        changed = self._groups.changed
        rows = [*self._committed(order, limit, changed), *(row for row in changed.values() if row is not None)]
        rows.sort(key=key, reverse=True)
        return [_group(row) for row in rows[:limit]]

    def _committed(self, order: Order, limit: int | None, changed: Collection[int]) -> list[groups.Group]:
        """The first groups, at least `limit` of those that have not changed since the last commit."""
        ranking, ended, most = self._engine.rank(most_joins=0), self._groups.ended, limit
        while True:
            rows = [row.group for row in ranking.first(order, limit=most)]
            found = [row for row in rows if row.group >= ended and row.group not in changed]
            if most is None or limit is None or len(found) >= limit or len(rows) < most:
                return found
            most = 2 * most + len(changed)

    def of(self, document: Stored) -> Group | None:
        """The group of a document that is in the index; None if it is over."""
        assert document.group is not None, "the index has no groups"
        row = self._row(document.group)
        if row is not None:
            return _group(row)
        if document.seq != document.group:
            return None
        time, source = self._groups.first_member(document.seq)
        alone = groups.Group(document.group, document.id, document.seq)
        alone.take_in(time, source)
        return _group(alone)

    def members(self, group: Group | int) -> Iterator[Member]:
        """All versions that are or were members, in the order of arrival.

        Raises:
            UsageError: there is no such group.
        """
        number = group.group if isinstance(group, Group) else group
        row = self._row(number)
        if row is not None:
            for member in group_store.members(self._groups.view, row):
                yield _member(row, member)
        elif isinstance(group, Group) and group.total_members == 1 and group.representative is not None:
            id, seq = group.representative
            time, source = self._groups.first_member(seq)
            yield Member(id, seq, "unique", None, _time(time), _source(source), True, None, None)
        else:
            raise UsageError(
                f"there is no group {number}: a group has the number of its first member, and is in the table from its "
                "second member on, until all members are deleted or a window ends it"
            )

    def _row(self, number: int) -> groups.Group | None:
        known = self._groups.ended <= number < self._engine.seq
        return group_store.row(self._groups.view, number) if known else None


def _group(row: groups.Group) -> Group:
    representative = None if row.id == groups.NO_ID else Representative(known_id(row.id), row.seq)
    named = tuple(known_id(source) for source in row.first_sources)
    return Group(
        row.group, representative, row.total_members, row.live_members, _time(row.first), _time(row.last), row.sources,
        named,
    )  # fmt: skip


def _member(row: groups.Group, member: group_store.Member) -> Member:
    return Member(
        id_value(member.id), member.seq, KINDS[member.kind],
        None if member.kind == Kind.UNIQUE else member.similarity, _time(member.time), _source(member.source),
        is_representative(row, member), member.removed_by, _time(member.removed_at),
    )  # fmt: skip


def _time(time: int) -> int | None:
    return None if time == NO_TIME else time


def _source(source: bytes) -> str | int | None:
    return id_value(source) if source else None
