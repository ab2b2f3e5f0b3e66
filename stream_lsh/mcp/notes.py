"""The tools: what an agent can do with the notes of an index."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Literal

from stream_lsh import Deduplicator, Document, Match
from stream_lsh.errors import UsageError
from stream_lsh.families.family import signer_of
from stream_lsh.mcp import MEASURES
from stream_lsh.mcp.answers import Added, Checked, Compared, Deleted, Found, Group, Groups, Members, Note, Similar
from stream_lsh.mcp.scope import Id, Scope
from stream_lsh.serve.comparing import Span, compare

BEGINNING = 500  # characters of a text in lists
PARTS, PART = 20, 200  # of a comparison: how many, and characters of each
MOST = 100  # rows of an answer
MOST_GROUPS = 20_000  # of all scopes that are looked through for those of one: about 0.2 s


class Notes:
    """The notes of one scope in an index.

    Args:
        deduplicator: the index, with texts, `measure = "jaccard"` or `"containment"`, and `commit="manual"`.

    Raises:
        UsageError: the index compares something else.
    """

    def __init__(self, deduplicator: Deduplicator, scope: Scope) -> None:
        settings = deduplicator.settings
        if settings.measure not in MEASURES or settings.set_field is not None:
            raise UsageError(f"the index compares no texts (measure = {settings.measure}): notes are texts")
        self._index = deduplicator
        self._scope = scope
        self._signer = signer_of(settings.signing)

    def check(self, text: str) -> Checked:
        """Whether a note like this is there already. Nothing is stored."""
        found = self._similar(text, MOST)
        return Checked(new=not found, similar=found)

    def add(self, text: str, id: Id | None = None) -> Added:
        """Store a note, and say whether a similar one is there. A note with the same id and another text is replaced.
        Without id it gets a new one."""
        stored, shown = self._names(uuid.uuid4().hex if id is None else id)
        document = Document(stored, text, within=self._scope.within or None)
        (verdict,) = self._index.process([document])
        self._index.commit()
        if verdict.kind == "rejected":
            raise UsageError(f"the note was not stored: {verdict.detail}")
        kind: Literal["unique", "near_duplicate", "exact_duplicate", "redelivered"] = verdict.kind  # type: ignore[assignment]
        similar = self._found(verdict.matches)
        new = kind == "unique" and not similar  # with `keep` a note that ranks higher than similar ones is unique
        return Added(id=shown, kind=kind, group=verdict.group, new=new, similar=similar)

    def similar(self, text: str, limit: int = 10) -> Similar:
        """Notes that are similar to a text, the most similar first. Nothing is stored."""
        return Similar(similar=self._similar(text, limit))

    def get(self, id: Id) -> Note:
        """A note with its whole text."""
        stored, shown = self._names(id)
        found = self._index.get(stored)
        if found is None:
            raise UsageError(f"there is no note {id!r}")
        of = None if found.duplicate_of is None else self._scope.shown(found.duplicate_of)
        return Note(id=shown, text=found.text, kind=found.kind, duplicate_of=of, group=found.group)

    def compare(self, first: Id, second: Id) -> Compared:
        """How similar two notes are, by their ids, and what only one of them says."""
        texts = [self._text(first), self._text(second)]
        found, least = compare(self._signer, *texts), self._index.settings.least
        apart = [list(_between(text, spans)) for text, spans in zip(texts, found.spans, strict=True)]
        return Compared(
            similarity=found.similarity, threshold=least, near_duplicates=found.similarity >= least,
            only_in_first=apart[0], only_in_second=apart[1],
        )  # fmt: skip

    def groups(self, order: Literal["largest", "newest"] = "largest", limit: int = 10) -> Groups:
        """Groups of two notes and more."""
        _within(limit)
        asked = min(limit + 1, MOST_GROUPS)
        while True:
            found = self._index.groups(order, asked)
            ours = [
                (group, one.id)
                for group in found
                if (one := group.representative) is not None and group.live_members > 1 and self._scope.has(one.id)
            ]
            if len(ours) > limit or len(found) < asked or asked == MOST_GROUPS:
                break
            asked = min(16 * asked, MOST_GROUPS)
        return Groups(
            groups=[
                Group(group=group.group, notes=group.live_members, representative=self._row(id, 1.0))
                for group, id in ours[:limit]
            ],
            more=len(ours) > limit or len(found) == asked,
        )

    def members(self, group: int, offset: int = 0) -> Members:
        """The notes of a group, at most 100 at a time. offset: how many to leave out."""
        if offset < 0:
            raise UsageError(f"offset = {offset}: 0 or more")
        try:
            found = self._index.members(group)
        except UsageError:
            found = []
        live = [
            (member.id, member.similarity or 1.0)
            for member in found
            if member.id is not None and member.removed_by is None
        ]
        if not any(self._scope.has(id) for id, _ in live):
            raise UsageError(f"there is no group {group}")
        end = offset + MOST
        return Members(members=[self._row(*member) for member in live[offset:end]], more=max(len(live) - end, 0))

    def delete(self, id: Id) -> Deleted:
        """Delete a note."""
        stored, shown = self._names(id)
        verdict = self._index.delete(stored)
        self._index.commit()
        return Deleted(id=shown, deleted=verdict.replaces is not None)

    def _names(self, id: Id) -> tuple[Id, Id]:
        """The ids of a note: in the index, and as it is shown."""
        if id == "":
            raise UsageError("the id is empty")
        names = self._scope.stored(id)
        stored = next((name for name in names if name in self._index), names[0])
        shown = self._scope.shown(stored)
        assert shown is not None, "it has the prefix"
        return stored, shown

    def _similar(self, text: str, limit: int) -> list[Found]:
        _within(limit)
        return self._found(self._index.query(text, self._scope.within or None)[:limit])

    def _found(self, matches: Sequence[Match]) -> list[Found]:
        return [self._row(match.id, match.similarity) for match in matches]

    def _row(self, stored: Id, similarity: float) -> Found:
        """A row of a list, with the beginning of the text."""
        found = self._index.get(stored)
        text = None if found is None or found.text is None else found.text[:BEGINNING]
        return Found(id=self._scope.shown(stored), similarity=similarity, text=text)

    def _text(self, id: Id) -> str:
        if (text := self.get(id).text) is None:
            raise UsageError("the index keeps no texts (verify = signature), so that it cannot compare two notes")
        return text


def _within(limit: int) -> None:
    if not 1 <= limit <= MOST:
        raise UsageError(f"limit = {limit}: from 1 to {MOST}")


def _between(text: str, spans: Sequence[Span]) -> Iterator[str]:
    """What no span covers, from the beginning; at most PARTS parts of PART characters."""
    begin, told = 0, 0
    for start, end in [*spans, (len(text), len(text))]:
        part = text[begin:start].strip()
        begin = end
        if part and told < PARTS:
            told += 1
            yield part[:PART]
