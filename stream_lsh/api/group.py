"""A group, its members, and a document as it is stored."""

from __future__ import annotations

from dataclasses import dataclass

from stream_lsh.api.verdict import Kind, Representative


@dataclass(frozen=True, slots=True)
class Group:
    """A kept document with the documents that were dropped for it.

    Attributes:
        group: its number, which is that of its first member.
        representative: the document that newcomers are compared with; None if it was deleted and none took its place.
        total_members: how many members it has had.
        live_members: how many of them were not deleted or replaced.
        first, last: earliest and latest event time of its members, in ms since 1970; None without times.
        sources: how many sources its members have.
        first_sources: the first 16 of them.
    """

    group: int
    representative: Representative | None
    total_members: int
    live_members: int
    first: int | None
    last: int | None
    sources: int
    first_sources: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A version of a document that is, or was, a member of a group.

    Attributes:
        id: of the document; None if it was erased.
        seq: its number.
        kind: `unique` if it was kept, else what kind of duplicate it is.
        similarity: with the representative of that time; None if it was kept.
        time: event time in ms since 1970, None without one.
        source: its source, None without one.
        representative: whether newcomers are compared with it.
        removed_by: number of the document that deleted or replaced it, None if it is there.
        removed_at: event time of that document.
    """

    id: str | int | None
    seq: int
    kind: Kind
    similarity: float | None
    time: int | None
    source: str | int | None
    representative: bool
    removed_by: int | None
    removed_at: int | None


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as the index has it.

    Attributes:
        id: of the document.
        seq: its number.
        kind: of its first verdict; None while that is provisional, with several shards.
        of: id of the document that it was a duplicate of, None if it was none.
        similarity: with that one.
        group: number of its group. None with `compare_with = "all"`.
        time: event time in ms since 1970, None without one.
        text: what is compared, where it is kept (`verify = "exact"`). A vector is the base64 of its float32, bits are
            hexadecimal, a set has its elements separated by U+001F, and a set with weights is JSON.
        kept: whether newcomers are compared with it.
    """

    id: str | int
    seq: int
    kind: Kind | None
    duplicate_of: str | int | None
    similarity: float | None
    group: int | None
    time: int | None
    text: str | None
    kept: bool
