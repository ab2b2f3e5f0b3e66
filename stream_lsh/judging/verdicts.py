"""Verdicts on documents, from the matches of all shards, in the order of the log (docs/reference/outputs.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby
from operator import itemgetter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.columns import Rejection
from stream_lsh.index.matches import NO_EVIDENCE, Matches
from stream_lsh.index.rows import layout


class Kind(IntEnum):
    """The kind of a verdict."""

    UNIQUE = 0
    NEAR_DUPLICATE = 1
    EXACT_DUPLICATE = 2
    REDELIVERED = 3
    REJECTED = 4
    DELETED = 5
    OUTDATED = 6

    @property
    def label(self) -> str:
        return self.name.lower()


assert [Kind.UNIQUE, Kind.NEAR_DUPLICATE, Kind.EXACT_DUPLICATE] == [layout.UNIQUE, layout.NEAR, layout.EXACT]
_LABELS = [kind.label.encode() for kind in Kind]
_ZERO = np.zeros(1, np.int64)
_NO_ROWS = np.full((1024, 2), -1)
_NO_ROWS.flags.writeable = False
_NOWHERE = np.empty(0, np.int64)
_NO_REPRESENTATIVES = np.empty((0, 5), np.int64)
ID_REUSED = Rejection("id_reused", "the id was there before with another text")
EMPTY = Rejection("empty", "nothing of the text is left to compare after normalisation")


class Names(Protocol):
    """The ids of rows, as JSON text; read only where an output has them."""

    def id_of(self, shard: int, row: int) -> bytes:
        """The id of a row."""

    def first_of(self, shard: int, row: int) -> bytes:
        """The id of the oldest match of a row's document, b"" if there was none."""


@dataclass(slots=True)  # not frozen: that takes ten times as long to make
class Judgement:
    """Verdicts on n documents.

    Attributes:
        ids: as JSON text.
        seqs: int64[n], the documents' numbers.
        kinds: uint8[n] of `Kind`.
        first_kinds: uint8[n], for redelivered documents the kind of the first verdict, otherwise UNKNOWN.
        reused: bool[n], rejected because the id has another text.
        of: int64[n, 2], shard and row of the oldest match, -1 if there is none. Of a kept document the match that it
            supersedes. Of a redelivered document its own shard and row, unless the match was deleted since.
        of_seqs: int64[n], number of the oldest match.
        similarities: float64[n], with the oldest match.
        groups: int64[n], -1 = none.
        starts: int64[n + 1], where each document's matches begin, the best first.
        matched_shards, matched_rows, matched_seqs, matched_similarities: [m], of all listed matches.
        truncated: int64[n], number of matches that are not listed.
        not_compared: int64[n], buckets and candidates that were not compared.
        replaces: int64[n], number of the version that was deleted or replaced, -1 = none.
        was_representative: bool[n], whether that version was a representative.
        left: int64[n], the group of that version.
        representatives: int64[n, 2], shard and row of the new representative.
        representative_seqs: int64[n], number of the new representative, -1 = none.
        names: ids of rows.
        later: int64[h, 5], representatives that are decided later: the document that begins a block; group; shard, row
            and number of the representative from there on. Ordered by document and group.
        evidence: bytes[m] as in `Matches`, or empty.
        failed: why documents were rejected after an exception in matching, by place.
    """

    ids: Sequence[bytes]
    seqs: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    first_kinds: NDArray[np.uint8]
    reused: NDArray[np.bool_]
    of: NDArray[np.int64]
    of_seqs: NDArray[np.int64]
    similarities: NDArray[np.float64]
    groups: NDArray[np.int64]
    starts: NDArray[np.int64]
    matched_shards: NDArray[np.int64]
    matched_rows: NDArray[np.int64]
    matched_seqs: NDArray[np.int64]
    matched_similarities: NDArray[np.float64]
    truncated: NDArray[np.int64]
    not_compared: NDArray[np.int64]
    replaces: NDArray[np.int64]
    was_representative: NDArray[np.bool_]
    left: NDArray[np.int64]
    representatives: NDArray[np.int64]
    representative_seqs: NDArray[np.int64]
    names: Names
    later: NDArray[np.int64] = field(default_factory=lambda: _NO_REPRESENTATIVES)
    evidence: NDArray[np.object_] = field(default_factory=lambda: NO_EVIDENCE)
    failed: Mapping[int, Rejection] = field(default_factory=dict)

    def of_kind(self, kind: Kind) -> NDArray[np.int64]:
        """The places of the documents with a kind of verdict."""
        if kind not in self.kinds.tobytes():
            return _NOWHERE
        found: NDArray[np.int64] = (self.kinds == np.uint8(kind)).nonzero()[0]  # numpy is slow with an enumeration
        return found

    @property
    def superseding(self) -> NDArray[np.int64]:
        """The places of the documents that supersede another one."""
        found: NDArray[np.int64] = np.flatnonzero((self.kinds == np.uint8(Kind.UNIQUE)) & (self.of[:, 1] >= 0))
        return found

    @property
    def removals(self) -> NDArray[np.int64]:
        """The documents by which a representative was deleted or replaced, where its id is not that of a kept document
        any more, or its group has a new representative."""
        there = (self.kinds == np.uint8(Kind.UNIQUE)) & (self.representative_seqs < 0)
        found: NDArray[np.int64] = np.flatnonzero(self.was_representative & ~there)
        return found

    def matched_ids(self) -> list[bytes]:
        """The ids of the m matches."""
        id_of = self.names.id_of
        return [id_of(s, r) for s, r in zip(self.matched_shards.tolist(), self.matched_rows.tolist(), strict=True)]

    def oldest(self, i: int) -> bytes:
        """The id of `duplicate_of` or `supersedes` in the verdict on document i, b"" if there is none."""
        shard, row = self.of[i].tolist()
        again = int(self.kinds[i]) == Kind.REDELIVERED
        if row < 0 or (again and self.first_kinds[i] == layout.UNKNOWN):
            return b""
        return (self.names.first_of if again else self.names.id_of)(shard, row)

    def representative(self, i: int) -> bytes:
        """The id of the new representative in the verdict on document i, b"" if there is none."""
        shard, row = self.representatives[i].tolist()
        return b"" if row < 0 else self.names.id_of(shard, row)

    def later_representative(self, i: int, group: int) -> tuple[bytes, int]:
        """Id and number of the new representative of a group that is decided before document i."""
        first, last = np.searchsorted(self.later[:, 0], (i, i + 1))
        _, _, shard, row, seq = self.later[first + np.searchsorted(self.later[first:last, 1], group)].tolist()
        return self.names.id_of(shard, row), seq


def judge(
    found: Sequence[Matches], ids: Sequence[bytes], seqs: NDArray[np.int64], max_matches: int, names: Names
) -> Judgement:
    """Join the matches of all shards into verdicts.

    Args:
        found: one entry for each shard.
        seqs: int64[n], the documents' numbers.
        max_matches: number of best matches to list, 0 = all.
    """
    n, first = len(ids), found[0]
    status, known, owner, removed = first.status, first.known, np.zeros(n, np.int64), first.removed
    if len(found) > 1:
        status, known, removed = status.copy(), known.copy(), removed.copy()
        # A document is new to each shard except the one that stores it, where its id may be known.
        for shard, matches in enumerate(found):
            theirs = (matches.status != layout.NEW) & (matches.status != layout.INVALID) | (matches.removed[:, 0] >= 0)
            status[theirs], known[theirs], owner[theirs] = matches.status[theirs], matches.known[theirs], shard
            removed[theirs] = matches.removed[theirs]
    kinds = _reduced(np.maximum, [m.kind for m in found]).astype(np.uint8)
    truncated, not_compared = (
        _reduced(np.add, [m.more for m in found]),
        _reduced(np.add, [m.not_compared for m in found]),
    )
    of, of_seqs, similarities = _oldest(found)
    first_kinds, groups, reused = np.empty(n, np.uint8), first.group, np.zeros(n, np.bool_)
    first_kinds.fill(layout.UNKNOWN)
    all_new = status.tolist().count(layout.NEW) == n
    if not all_new:
        new, reused = status == layout.NEW, status == layout.ID_REUSED
        truncated, not_compared, groups = truncated.copy(), not_compared.copy(), groups.copy()
        of_seqs, similarities = of_seqs.copy(), similarities.copy()
        others, again, deleted = ~new, status == layout.REDELIVERED, status == layout.ID_DELETED
        kinds[others], truncated[others], not_compared[others] = Kind.REJECTED, 0, 0
        kinds[again], kinds[deleted], kinds[status == layout.OUTDATED] = Kind.REDELIVERED, Kind.DELETED, Kind.OUTDATED
        groups[others], of[others], of_seqs[others] = layout.NO_GROUP, -1, -1
        groups[deleted] = removed[deleted, layout.LEFT - layout.REPLACES]
        of[again] = _pairs(owner[again], known[again])
        for shard, matches in enumerate(found):
            theirs = again & (owner == shard)
            first_kinds[theirs], groups[theirs] = matches.kind[theirs], matches.group[theirs]
            of[theirs & (matches.of == layout.REPLACED_SINCE)] = -1
            similarities[theirs] = matches.of_similarity[theirs]

    document, row, seq, similarity = first.document, first.row, first.seq, first.similarity
    numbers, evidence = np.zeros(len(document), np.int64), first.evidence
    if len(found) > 1:
        numbers = np.arange(len(found)).repeat([len(m.document) for m in found])
        document, row, seq = (np.concatenate([getattr(m, name) for m in found]) for name in ("document", "row", "seq"))
        similarity = np.concatenate([m.similarity for m in found])
        evidence = np.concatenate([m.evidence for m in found])
    starts = np.zeros(n + 1, np.int64)
    if len(document):
        keep = np.arange(len(document)) if all_new else np.flatnonzero(new[document])
        order = keep[np.lexsort((seq[keep], -similarity[keep], document[keep]))]
        counts = np.bincount(document[order], minlength=n)
        starts[1:] = np.cumsum(counts)
        if max_matches:
            rank = np.arange(len(order)) - starts[document[order]]
            order = order[rank < max_matches]
            truncated = truncated + np.maximum(counts - max_matches, 0)
            starts[1:] = np.cumsum(np.minimum(counts, max_matches))
        numbers, row, seq, similarity = numbers[order], row[order], seq[order], similarity[order]
        evidence = evidence[order] if len(evidence) else evidence
    replaces, _, rows, representative_seqs, left, _ = removed.T
    was_representative, representatives = np.zeros(n, np.bool_), _NO_ROWS[:n]
    if replaces.tolist().count(-1) < n:
        was_representative = removed[:, 1] > 0
    if n > len(_NO_ROWS) or rows.tolist().count(-1) < n:
        representatives = _rows(None if len(found) == 1 else owner, rows)
    return Judgement(
        ids, seqs, kinds, first_kinds, reused, of, of_seqs, similarities, groups, starts, numbers,
        row, seq, similarity, truncated, not_compared, replaces, was_representative, left, representatives,
        representative_seqs, names, _later(found), evidence,
        {i: why for m in found for i, why in m.failed.items() if m.status[i] == layout.FAILED},
    )  # fmt: skip


def _oldest(found: Sequence[Matches]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Shard and row int64[n, 2] of each document's oldest match, its number (-1 = none), and the similarity."""
    of, seqs, similarities = _rows(None, found[0].of), found[0].of_seq, found[0].of_similarity
    for shard, matches in enumerate(found[1:], 1):
        older = (matches.of >= 0) & ((of[:, 1] < 0) | (matches.of_seq < seqs))
        of[older] = _pairs(np.full(int(older.sum()), shard), matches.of[older])
        seqs, similarities = np.where(older, matches.of_seq, seqs), np.where(older, matches.of_similarity, similarities)
    return of, seqs, similarities


def _later(found: Sequence[Matches]) -> NDArray[np.int64]:
    """The representatives that are decided later, of all shards."""
    if not sum([len(m.representatives) for m in found]):
        return _NO_REPRESENTATIVES
    later = np.concatenate([np.insert(m.representatives, 2, shard, axis=1) for shard, m in enumerate(found)])
    return later[np.lexsort((later[:, 1], later[:, 0]))]


def _reduced(operation: np.ufunc, columns: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The columns of all shards, reduced to one."""
    total: NDArray[np.int64] = columns[0] if len(columns) == 1 else operation.reduce(columns)
    return total


def _rows(shards: NDArray[np.int64] | None, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Shards (None: the first one) and rows as int64[n, 2], the shard -1 where there is no row."""
    return _pairs(np.minimum(rows, _ZERO) if shards is None else np.where(rows < 0, -1, shards), rows)


def _pairs(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Two columns as int64[n, 2]; `np.stack` takes longer than all the rest for a single document."""
    found = np.empty((len(first), 2), np.int64)
    found[:, 0], found[:, 1] = first, second
    return found


def reasons(judgement: Judgement, rejected: Mapping[int, Rejection]) -> dict[int, Rejection]:
    """Why documents were rejected: in parsing or signing (`rejected`), or in matching."""
    found = {**rejected, **judgement.failed}
    for i in judgement.of_kind(Kind.REJECTED).tolist():
        if i not in found:
            found[i] = ID_REUSED if judgement.reused[i] else EMPTY
    return found


def verdicts(judgement: Judgement) -> list[bytes]:
    """The verdict on each document as a JSON object without its closing brace, so that the caller can append to it."""
    j = judgement
    out = []
    starts, matched, seqs = j.starts.tolist(), j.matched_ids(), j.matched_seqs.tolist()
    evidence = j.evidence if len(j.evidence) else [b""] * len(matched)
    removed = np.flatnonzero(j.replaces >= 0).tolist()
    columns = (j.seqs, j.kinds, j.groups, j.of[:, 1], j.similarities, j.truncated, j.not_compared)
    for i, (id, seq, kind, group, row, similarity, truncated, not_compared) in enumerate(
        zip(j.ids, *(column.tolist() for column in columns), strict=True)
    ):
        first = b""
        of, similar, superseded = b"null", b"null", b""
        if row >= 0 and (named := j.oldest(i)):
            of, similar = named, _number(similarity)
            if kind == Kind.UNIQUE:
                of, superseded = b"null", b',"supersedes":' + named
        if kind == Kind.REDELIVERED:
            first = b',"first_kind":%b' % _label(int(j.first_kinds[i]))
        matches = b",".join(
            [
                b'{"id":%b,"seq":%d,"similarity":%b%b}'
                % (matched[m], seqs[m], _number(j.matched_similarities[m]), evidence[m])
                for m in range(starts[i], starts[i + 1])
            ]
        )
        out.append(
            b'{"id":%b,"seq":%b,"kind":"%b"%b,"duplicate_of":%b,"similarity":%b,"group":%b,"matches":[%b]%b%b%b'
            % (
                id, b"%d" % seq if seq >= 0 else b"null", _LABELS[kind], first, of, similar,
                b"%d" % group if group >= 0 else b"null", matches,
                b',"truncated":%d' % truncated if truncated else b"",
                b',"not_compared":%d' % not_compared if not_compared else b"",
                superseded,
            )
        )  # fmt: skip
    for i in removed:
        out[i] += b',"replaces":%d' % j.replaces[i]
        if j.representative_seqs[i] >= 0:
            out[i] += b',"new_representative":{"id":%b,"seq":%d}' % (j.representative(i), j.representative_seqs[i])
    for i, representatives in groupby(j.later.tolist(), key=itemgetter(0)):
        standing = [
            b'{"group":%d,"id":%b,"seq":%d}' % (group, j.names.id_of(shard, row), seq)
            for _, group, shard, row, seq in representatives
        ]
        out[i] += b',"new_representatives":[%b]' % b",".join(standing)
    return out


def _label(kind: int) -> bytes:
    return b"null" if kind == layout.UNKNOWN else b'"%b"' % _LABELS[kind]


def pairs(judgement: Judgement, verified: str) -> list[tuple[int, bytes, bytes]]:
    """The pairs: place of the newer document, id of the older one, and the pair as a JSON object without its closing
    brace.

    Args:
        verified: "exact" or "signature".
    """
    j = judgement
    if not len(j.matched_rows):
        return []
    tail = b',"verified":"%b"' % verified.encode()
    documents, seqs = np.repeat(np.arange(len(j.ids)), np.diff(j.starts)).tolist(), j.seqs.tolist()
    return [
        (
            i, older,
            b'{"older":%b,"newer":%b,"older_seq":%d,"newer_seq":%d,"similarity":%b%b%b'
            % (older, j.ids[i], seq, seqs[i], _number(similarity), rests_on, tail),
        )
        for i, older, seq, similarity, rests_on in zip(
            documents, j.matched_ids(), j.matched_seqs.tolist(), j.matched_similarities.tolist(),
            j.evidence if len(j.evidence) else [b""] * len(documents), strict=True,
        )
    ]  # fmt: skip


def verdict_lines(judgement: Judgement) -> bytes:
    """The verdicts as JSON lines."""
    return b"".join([verdict + b"}\n" for verdict in verdicts(judgement)])


def deletion(verdict: bytes) -> bytes:
    """The verdict on a deletion, with the field `deleted`: whether there was something to delete."""
    return b'%b,"deleted":%b}' % (verdict[:-1], b"true" if b',"replaces":' in verdict else b"false")


def pair_lines(judgement: Judgement, verified: str) -> bytes:
    """The pairs as JSON lines. verified: "exact" or "signature"."""
    return b"".join([pair + b"}\n" for _, _, pair in pairs(judgement, verified)])


def _number(value: float) -> bytes:
    return repr(float(value)).encode()
