"""What the store of an index holds of its groups (docs/internals/formats.md): keys, values, and how they are read.

Keys are a letter and, big endian, the group (uint64) and what distinguishes the values of one group.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.pending import Readable
from stream_lsh.index.store.rocksdb import FIRST_MEMBERS, GROUP, MEMBERS, REMOVED_MEMBERS, SOURCES
from stream_lsh.judging.groups import Group
from stream_lsh.judging.verdicts import Kind

FACT = "groups"
MEMBER = np.dtype(
    [("seq", "<i8"), ("time", "<i8"), ("similarity", "<f8"), ("id", "<u2"), ("source", "<u2"), ("kind", "u1")]
)  # id, source: their lengths in bytes
FIRST_MEMBER = np.dtype([("seq", "<i8"), ("time", "<i8"), ("source", "<u2")])
SUPERSEDED = -1
"""In place of the number of the document that removed a version: it was superseded, and is live. In place of the event
time is the number of the document that superseded it."""
_COUNT = struct.Struct("<I")
_ONE, _TWO = struct.Struct(">cQ"), struct.Struct(">cQQ")
_DEPARTURE = struct.Struct("<qq")  # number and event time of the document that made it go; behind it the id

Block = tuple[NDArray[Any], list[bytes]]
"""Rows of FIRST_MEMBER, and the sources."""


@dataclass(frozen=True, slots=True)
class Member:
    """A document of a group, as one of its versions; id and source as JSON text, a similarity only if it was dropped.

    removed_by: number of the document that deleted or replaced it, None if it is live; removed_at: the event time of
    that document. update: it replaced the version before it.
    """

    seq: int
    id: bytes
    time: int
    source: bytes
    kind: Kind
    similarity: float | None
    removed_by: int | None = None
    removed_at: int = NO_TIME
    update: bool = False


@dataclass(frozen=True, slots=True)
class MemberRemovals:
    """The versions that left a group.

    by: for each version, number and event time of the document that deleted or replaced it. kept: the ids of those that
    were representatives, also of superseded documents. updates: the numbers of these documents; a member with such a
    number replaced a version.
    """

    by: Mapping[int, tuple[int, int]]
    kept: Mapping[int, bytes]
    updates: Set[int]

    def of(self, seq: int) -> tuple[int | None, int, bool]:
        """For a version: `removed_by`, `removed_at` and `update` of `Member`."""
        removed_by, removed_at = self.by.get(seq, (None, NO_TIME))
        return removed_by, removed_at, seq in self.updates


def row_key(group: int) -> bytes:
    """The key of a group's row."""
    return _ONE.pack(GROUP, group)


def first_members_key(seq: int) -> bytes:
    """The key of a block of kept documents, by its first; or what is to be looked for."""
    return _ONE.pack(FIRST_MEMBERS, seq)


def source_key(group: int, source: bytes) -> bytes:
    """The key that says that a group has a source which its row does not name."""
    return _ONE.pack(SOURCES, group) + source


def members_key(group: int, seq: int) -> bytes:
    """The key of members of a group, by the first of them."""
    return _TWO.pack(MEMBERS, group, seq)


def member_removal_key(group: int, seq: int) -> bytes:
    """The key of a version that left a group."""
    return _TWO.pack(REMOVED_MEMBERS, group, seq)


def member_removals_prefix(group: int) -> bytes:
    """The beginning of all keys of `member_removal_key` of a group."""
    return _ONE.pack(REMOVED_MEMBERS, group)


def member_removal(by: int, time: int, id: bytes) -> bytes:
    """What is known of such a version: number and event time of the document that removed it; the id if it was kept."""
    return _DEPARTURE.pack(by, time) + id


def parse_member_removal(key: bytes, value: bytes) -> tuple[int, int, int, bytes]:
    """Number of the version of such a key and value; number and event time of the document that removed it; the id."""
    return _TWO.unpack(key)[2], *_DEPARTURE.unpack_from(value), value[_DEPARTURE.size :]


def group_of(key: bytes) -> int:
    """The group of a key of members or their removals."""
    return int(_TWO.unpack(key)[1])


def number_of(key: bytes) -> int:
    """The group of the key of a row."""
    return int(_ONE.unpack(key)[1])


def row(store: Readable, group: int) -> Group | None:
    """The row of a group, None if it has none."""
    value = store.value(row_key(group))
    return None if value is None else Group.of_json(value)


def rows(store: Readable, begin: int = 0, end: int | None = None) -> Iterator[Group]:
    """The rows of groups with these numbers, in order."""
    last = None if end is None else row_key(end)
    for key, value in store.scan(GROUP, row_key(begin)):
        if last is not None and key >= last:
            return
        yield Group.of_json(value)


def member_removals(store: Readable, group: int) -> MemberRemovals:
    """The versions that left a group."""
    by, kept = dict[int, tuple[int, int]](), dict[int, bytes]()
    for key, value in store.scan(member_removals_prefix(group)):
        seq, document, time, id = parse_member_removal(key, value)
        if document != SUPERSEDED:
            by[seq] = document, time
        if id:
            kept[seq] = id
    return MemberRemovals(by, kept, {document for document, _ in by.values()})


def dropped(store: Readable, group: int, after: int = -1) -> Iterator[Member]:
    """The documents with larger numbers than `after` that were dropped for a group, in the order of the log."""
    removed = member_removals(store, group)
    prefix = _ONE.pack(MEMBERS, group)
    begin = None if after < 0 else store.last(members_key(group, after))
    start = begin[0] if begin is not None and begin[0].startswith(prefix) else b""
    for _, value in store.scan(prefix, start):
        found, ids, sources = decoded(value, MEMBER, "id", "source")
        columns = (found[name].tolist() for name in ("seq", "time", "similarity", "kind"))
        for seq, time, similarity, kind, id, source in zip(*columns, ids, sources, strict=True):
            if seq > after:
                yield Member(seq, id, time, source, Kind(kind), similarity, *removed.of(seq))


def most_similar(store: Readable, group: int) -> float:
    """The highest similarity with which a document was dropped for a group; -1 if there is none."""
    blocks = store.scan(_ONE.pack(MEMBERS, group))
    found = [np.frombuffer(members_in(value), MEMBER)["similarity"].max() for _, value in blocks]
    return float(max(found, default=-1.0))


def kept(store: Readable, group: Group, after: int = -1) -> Iterator[Member]:
    """The representatives of a group so far with larger numbers than `after`, in the order of the log, with those that
    were dropped at first."""
    removed = member_removals(store, group.group)
    for seq, id in sorted({group.seq: group.id, **removed.kept}.items()):
        if seq > after:
            time, source = first_member(store, seq)
            yield Member(seq, id, time, source, Kind.UNIQUE, None, *removed.of(seq))


def members(store: Readable, group: Group, after: int = -1) -> Iterator[Member]:
    """All members with larger numbers than `after` that a group has had, in the order of the log, the first member
    first."""
    both = heapq.merge(
        dropped(store, group.group, after), kept(store, group, after), key=attrgetter("seq")
    )  # of equals the first
    for _, (first, *_) in groupby(both, key=attrgetter("seq")):
        yield first


def block_of(store: Readable, seq: int) -> tuple[bytes, bytes] | None:
    """Key and value of the block that has a kept document, if there is one."""
    found = store.last(first_members_key(seq))
    return found if found is not None and found[0][:1] == FIRST_MEMBERS else None


def in_block(block: Block, seq: int) -> tuple[int, bytes]:
    """Event time and source of a kept document, if the block has it."""
    first_members, sources = block
    at = int(np.searchsorted(first_members["seq"], seq))
    if at < len(first_members) and first_members["seq"][at] == seq:
        return int(first_members["time"][at]), sources[at]
    return NO_TIME, b""


def first_member(store: Readable, seq: int) -> tuple[int, bytes]:
    """Event time and source of a kept document."""
    found = block_of(store, seq)
    return (NO_TIME, b"") if found is None else in_block(decoded(found[1], FIRST_MEMBER, "source"), seq)


def source_of(store: Readable, group: int, seq: int) -> bytes:
    """The source of a member of a group as JSON text, b"" if it has none."""
    found = store.last(members_key(group, seq))
    if found is not None and found[0].startswith(_ONE.pack(MEMBERS, group)):
        members, sources = decoded(found[1], MEMBER, "id", "source")[::2]
        at = int(np.searchsorted(members["seq"], seq))
        if at < len(members) and members["seq"][at] == seq:
            source: bytes = sources[at]
            return source
    return first_member(store, seq)[1]


def lengths(texts: Sequence[bytes]) -> NDArray[np.int64]:
    """Their numbers of bytes."""
    return np.fromiter(map(len, texts), np.int64, len(texts))


def encoded(found: NDArray[Any], texts: Sequence[bytes]) -> bytes:
    """Rows, with the texts whose lengths they have: column by column."""
    return b"".join((_COUNT.pack(len(found)), found.tobytes(), *texts))


def members_in(value: bytes) -> bytes:
    """The rows of MEMBER in a value of members."""
    (count,) = _COUNT.unpack_from(value)
    return value[_COUNT.size : _COUNT.size + count * MEMBER.itemsize]


def decoded(value: bytes, kind: np.dtype[Any], *texts: str) -> Any:
    """The rows of a value, and a list for each column that has lengths of texts."""
    (count,) = _COUNT.unpack_from(value)
    found = np.frombuffer(value, kind, count, _COUNT.size)
    lists, at = [], _COUNT.size + found.nbytes
    for name in texts:
        ends = (at + np.cumsum(found[name], dtype=np.int64)).tolist()
        lists.append([value[begin:end] for begin, end in zip([at, *ends], ends, strict=False)])
        at = ends[-1] if ends else at
    return found, *lists
