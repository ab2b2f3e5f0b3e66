"""What can be asked of an index: similar documents, single documents, groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.api.answers import KINDS, known_id, matches_of
from stream_lsh.api.group import Group, Member, StoredDocument
from stream_lsh.api.group_table import GroupTable, Order
from stream_lsh.api.guard import Guard
from stream_lsh.api.verdict import Match
from stream_lsh.documents.builder import Builder
from stream_lsh.documents.columns import Columns, Fields
from stream_lsh.documents.document import Document, plain_id
from stream_lsh.documents.fields import id_text
from stream_lsh.documents.python_values import unboxed
from stream_lsh.documents.refused import Refused, kind_of
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.stored import Stored, stored
from stream_lsh.errors import UsageError
from stream_lsh.index.reader import IndexReader
from stream_lsh.judging.verdicts import judge, reasons
from stream_lsh.settings.model import Settings

Wanted = str | bytes | int | Sequence[str] | Set[str] | Mapping[str, float] | Sequence[float] | NDArray[Any]
"""What can be looked for: a text, or what the index has instead: a set, weights, a vector or bits."""
BATCH = 1024


class Questions:
    """What can be asked of an index.

    Attributes:
        settings: those of the index.
    """

    def __init__(self, engine: Engine, guard: Guard) -> None:
        self._engine = engine
        self._index = engine.index
        self._guard = guard
        self.settings = engine.settings

    def query(self, text: Wanted, within: Mapping[str, str | int | None] | None = None) -> list[Match]:
        """Documents that are similar to a text, the best first. Nothing is stored.

        Args:
            text: a text, or what the index has instead: a set, weights by element, a vector or bits.
            within: the values of `match_within`, as in a `Document`.

        Raises:
            TypeError: `text` is not what the index compares.
            UsageError: `text` cannot be compared (it is empty, too large, or has other dimensions), or a value of
                `match_within` is missing.
            StoreError: as in `process`.

        Examples:
            >>> with Deduplicator(Settings(threshold=0.6)) as deduplicator:
            ...     text = "The museum opens again on Saturday after a winter of repairs to its roof"
            ...     _ = list(deduplicator.process([Document("a", text)]))
            ...     print(deduplicator.query(text + " and walls"))
            [Match(id='a', seq=0, similarity=0.8571428571428571, evidence={})]
        """
        (found,) = self.query_batch([text], within)
        return found

    def query_batch(
        self, texts: Iterable[Wanted], within: Mapping[str, str | int | None] | None = None
    ) -> list[list[Match]]:
        """The answers of `query` to many texts, in their order. This is faster than a call for each text.

        Args:
            texts, within: as in `query`; the values of `match_within` are those of all texts.

        Raises:
            TypeError, UsageError, StoreError: as in `query`; then there is no answer at all.
        """
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            raise TypeError(f"texts is a {type(texts).__name__}, not an iterable of texts")
        iterator, answers = iter(texts), list[list[Match]]()
        while some := list(islice(iterator, BATCH)):
            found = asked(self.settings, self._engine.fields, some, within)
            with self._guard.whole():
                answers += similar(self._index, found, self._engine.seq)
        return answers

    def get(self, id: str | int) -> StoredDocument | None:
        """The document with an id; None if there is none, or if it has left the window.

        Raises:
            TypeError: the id is neither a string nor an integer.
            StoreError: as in `process`.

        Examples:
            >>> with Deduplicator() as deduplicator:
            ...     _ = list(deduplicator.process([Document("a", "The museum opens again after a winter of repairs.")]))
            ...     document = deduplicator.get("a")
            ...     print(document.kind, document.text)
            unique The museum opens again after a winter of repairs.
        """
        with self._guard.whole():
            found = self._stored(id)
            if found is None:
                return None
            (shard, row), document = found
            text = None
            if self.settings.verify == "exact":
                text = self._index.text(shard, row).decode("utf-8", "surrogatepass")
            return StoredDocument(
                known_id(document.id), document.seq, None if document.kind is None else KINDS[document.kind],
                known_id(document.of) if document.of else None, document.similarity, document.group, document.time,
                text, document.kept,
            )  # fmt: skip

    def __contains__(self, id: str | int) -> bool:
        """Whether the index has a document with an id."""
        with self._guard.whole():
            return self._stored(id) is not None

    def _stored(self, id: str | int) -> tuple[tuple[int, int], Stored] | None:
        try:
            text = id_text(plain_id(id))
        except Refused:  # it is too long
            return None
        shard, row = self._index.look_up([text])[0].tolist()
        return None if row < 0 else ((shard, row), stored(self._engine, shard, row))

    def __len__(self) -> int:
        """Number of documents in the index."""
        with self._guard.whole():
            return self._index.count

    def groups(self, order: Order = "largest", limit: int | None = None) -> list[Group]:
        """Groups of two members and more.

        Args:
            order: "largest": by live members; "newest": by the numbers of the groups, the latest first.
            limit: so many at most.

        Raises:
            TypeError: the limit is no integer. UsageError: it is negative, or there is no such order.
            StoreError: the index keeps no groups; or as in `process`.

        Examples:
            >>> text = "The museum opens again on Saturday after a winter of repairs to its roof"
            >>> with Deduplicator(Settings(threshold=0.6)) as deduplicator:
            ...     _ = list(deduplicator.process([Document("a", text), Document("b", text + " and walls")]))
            ...     for group in deduplicator.groups():
            ...         print(group.representative.id, [member.id for member in deduplicator.members(group)])
            ...     print(deduplicator.group_of("b") == group)
            a ['a', 'b']
            True
        """
        if order not in ("largest", "newest"):
            raise UsageError(f"order = {order!r}: there are 'largest' and 'newest'")
        if limit is not None and (limit := integer("limit", limit)) < 0:
            raise UsageError(f"limit = {limit}: it is a number of groups, 0 or more; None is all")
        with self._guard.whole():
            return GroupTable(self._engine).first(order, limit)

    def group_of(self, id: str | int) -> Group | None:
        """The group of the document with an id, also if it is its only member; None if there is no such document.

        Raises:
            TypeError: the id is neither a string nor an integer.
            StoreError: the index keeps no groups; or as in `process`.
        """
        with self._guard.whole():
            table, found = GroupTable(self._engine), self._stored(id)
            return None if found is None else table.of(found[1])

    def members(self, group: Group | int) -> list[Member]:
        """The members of a group, in the order of arrival, and those that were deleted or replaced.

        Args:
            group: a group, or its number, which verdicts have.

        Raises:
            TypeError: it is neither a group nor an integer.
            UsageError: there is no such group, or its number was given and it has only one member.
            StoreError: the index keeps no groups; or as in `process`.
        """
        group = group if isinstance(group, Group) else integer("group", group)
        with self._guard.whole():
            return list(GroupTable(self._engine).members(group))


def integer(name: str, value: object) -> int:
    """An argument that is an integer, of NumPy too. Raises TypeError."""
    plain = unboxed(value)
    if not isinstance(plain, int) or isinstance(plain, bool):
        raise TypeError(f"{name} is {kind_of(plain)}, not an integer")
    return plain


def asked(
    settings: Settings, fields: Fields, texts: Sequence[Wanted], within: Mapping[str, str | int | None] | None
) -> Columns:  # fmt: skip
    """What is looked for, as documents; see `Questions.query`.

    Raises:
        TypeError, UsageError: as `Questions.query`.
    """
    item, builder = settings.item, Builder(fields)
    kind = item.kind if item is not None else "set" if settings.set_field is not None else "text"
    for text in texts:
        if text is None:
            raise TypeError(f"the {kind} to look for is None")
        builder.add(Document(0, within=within, **{kind: text}))  # type: ignore[arg-type]
    found = builder.columns()
    for rejection in found.rejected.values():
        raise UsageError(rejection.detail)
    return found


def similar(index: IndexReader, found: Columns, seq: int) -> list[list[Match]]:
    """Documents that are similar to each of these, the best first. seq: number of the next document.

    Raises:
        UsageError: one cannot be compared.
    """
    signed = index.sign(found, want_texts=False)
    seqs = np.full(len(found), seq)
    judgement = judge(index.query(signed), found.ids, seqs, index.settings.max_matches, index)
    for rejection in reasons(judgement, signed.rejected).values():
        raise UsageError(rejection.detail)
    return [list(matches_of(judgement, index, i)) for i in range(len(found))]
