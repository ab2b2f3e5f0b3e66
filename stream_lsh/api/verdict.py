"""What is said of a document: the verdict, its matches and its pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Kind = Literal[
    "unique", "near_duplicate", "exact_duplicate", "redelivered", "rejected", "deleted", "outdated"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Match:
    """An earlier document that is similar.

    Attributes:
        id: of that document.
        seq: its number.
        similarity: how similar it is, from the threshold to 1.
        evidence: what the similarity rests on, where more is known than a number: passages of quotations, terms of
            stories.
    """

    id: str | int
    seq: int
    similarity: float
    evidence: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two near-duplicates.

    Attributes:
        older, newer: their ids, in the order of arrival.
        older_seq, newer_seq: their numbers.
        similarity: how similar they are.
        verified: "exact", or "signature" where the similarity is estimated.
    """

    older: str | int
    newer: str | int
    older_seq: int
    newer_seq: int
    similarity: float
    verified: str


class Representative(NamedTuple):
    """The document of a group that new documents are compared with: its id and number."""

    id: str | int
    seq: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one document.

    Attributes:
        id: id of the document; None if it has no valid id.
        seq: number of the document, from 0 on, in the order of arrival.
        kind: `unique`, `near_duplicate`, `exact_duplicate`, `redelivered`, `deleted`, `outdated` or `rejected`.
        first_kind: of a redelivered document, the kind of its first verdict. `duplicate_of`, `similarity` and `group`
            are then those of the first verdict.
        duplicate_of: id of the oldest match.
        similarity: similarity with the oldest match.
        group: number of the group: that of its first member. None with `compare_with = "all"`.
        matches: similar documents, the best first.
        truncated: number of matches that are not listed.
        not_compared: number of buckets and candidates that were not compared.
        reason: of a rejected document, one of the reasons of dead letters.
        verified: "exact", or "signature" if similarities are estimated.
        replaces: number of the version that was replaced or deleted.
        new_representative: the document that now represents the group, if that version was the representative.
        new_representatives: with several shards, group, id and number of each document that represents its group from
            this document on.
        supersedes: id of the kept document whose place this one takes, with `keep`. `similarity` is that with it.
        detail: a sentence that says why the document was rejected, is outdated, deleted nothing, or was not compared
            with everything. None if there is nothing to explain.
    """

    id: str | int | None
    seq: int
    kind: Kind
    first_kind: Kind | None
    duplicate_of: str | int | None
    similarity: float | None
    group: int | None
    matches: tuple[Match, ...]
    truncated: int
    not_compared: int
    reason: str | None
    verified: str
    replaces: int | None = None
    new_representative: Representative | None = None
    new_representatives: tuple[tuple[int, str | int, int], ...] = ()
    supersedes: str | int | None = None
    detail: str | None = None

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The near-duplicate pairs that the document makes."""
        if self.id is None:  # it was rejected
            return ()
        return tuple(
            Pair(match.id, self.id, match.seq, self.seq, match.similarity, self.verified) for match in self.matches
        )
