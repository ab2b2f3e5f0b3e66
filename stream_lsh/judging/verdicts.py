"""Matches of all shards -> one verdict a document, in the order of the log (docs/formats.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.columns import Rejection
from stream_lsh.index import layout
from stream_lsh.index.shard import Matches


class Kind(IntEnum):
    """What a document is."""

    UNIQUE = 0
    NEAR_DUPLICATE = 1
    EXACT_DUPLICATE = 2
    REDELIVERED = 3
    REJECTED = 4

    @property
    def label(self) -> str:
        return self.name.lower()


_LABELS = [kind.label.encode() for kind in Kind]
ID_REUSED = Rejection("id_reused", "the id was there before with another text")
EMPTY = Rejection("empty", "nothing of the text is left to compare after normalisation")


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdicts on n documents; matches are columns of m entries, document after document, best first.

    Attributes:
        ids: the documents' ids as JSON text. seqs: int64[n], their numbers.
        kinds: uint8[n] of `Kind`. starts: int64[n + 1], where each document's matches begin.
        older_ids, older_seqs, similarities: the matches. oldest: int64[n], position among all matches found (-1: none),
        oldest_ids, oldest_similarities: of the oldest match of each document that has one, by document.
        truncated: int64[n], matches that are not listed. id_reused: documents rejected because their id has another
            text.
    """

    ids: Sequence[bytes]
    seqs: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    starts: NDArray[np.int64]
    older_ids: list[bytes]
    older_seqs: NDArray[np.int64]
    similarities: NDArray[np.float64]
    oldest: dict[int, tuple[bytes, float]]
    truncated: NDArray[np.int64]
    id_reused: list[int]


def judge(
    found: Sequence[Matches],
    ids: Sequence[bytes],
    seqs: NDArray[np.int64],
    max_matches: int,
    id_of: Callable[[int, int], bytes],
) -> Judgement:
    """Join what the shards found.

    Args:
        found: one entry a shard. seqs: int64[n], the documents' numbers. max_matches: best matches listed, 0 = all.
        id_of: id of a row, by shard and row.
    """
    n = len(ids)
    status = np.minimum.reduce([_rank(matches.status) for matches in found])
    # Every shard sees every document as new; only its owner knows that the id was there before.
    for matches in found:
        known = (matches.status == layout.REDELIVERED) | (matches.status == layout.ID_REUSED)
        status[known] = matches.status[known]
    kinds = np.full(n, Kind.UNIQUE, np.uint8)
    kinds[status == layout.REDELIVERED] = Kind.REDELIVERED
    kinds[(status == layout.ID_REUSED) | (status == layout.INVALID)] = Kind.REJECTED
    reused = np.flatnonzero(status == layout.ID_REUSED).tolist()

    shard = np.concatenate([np.full(len(m.document), number, np.int64) for number, m in enumerate(found)])
    document, row, seq, similarity, same = (
        np.concatenate([getattr(m, name) for m in found])
        for name in ("document", "row", "seq", "similarity", "same_text")
    )
    if len(document):
        keep = np.flatnonzero(status[document] == layout.NEW)
        order = keep[np.lexsort((seq[keep], -similarity[keep], document[keep]))]
        shard, document, row, seq, similarity, same = (a[order] for a in (shard, document, row, seq, similarity, same))
    counts = np.bincount(document, minlength=n)
    kinds[counts > 0] = Kind.NEAR_DUPLICATE
    kinds[document[same]] = Kind.EXACT_DUPLICATE
    starts = np.concatenate(([0], np.cumsum(counts)))
    oldest = {}
    for i in np.flatnonzero(counts).tolist():
        at = starts[i] + int(np.argmin(seq[starts[i] : starts[i + 1]]))
        oldest[i] = (id_of(int(shard[at]), int(row[at])), float(similarity[at]))
    truncated = np.add.reduce([np.where(status == layout.NEW, m.more, 0) for m in found])
    if max_matches and len(document):
        rank = np.arange(len(document)) - starts[document]
        truncated = truncated + np.maximum(counts - max_matches, 0)
        listed = rank < max_matches
        shard, document, row, seq, similarity = (a[listed] for a in (shard, document, row, seq, similarity))
        starts = np.concatenate(([0], np.cumsum(np.minimum(counts, max_matches))))
    older_ids = [id_of(s, r) for s, r in zip(shard.tolist(), row.tolist(), strict=True)]
    return Judgement(ids, seqs, kinds, starts, older_ids, seq, similarity, oldest, truncated, reused)


def _rank(status: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.where(status == layout.INVALID, layout.INVALID, layout.NEW).astype(np.uint8)


def reasons(judgement: Judgement, rejected: Mapping[int, Rejection]) -> dict[int, Rejection]:
    """Why documents were rejected: in parsing (`rejected`), or in matching."""
    found = dict(rejected)
    for i in np.flatnonzero(judgement.kinds == Kind.REJECTED).tolist():
        if i not in found:
            found[i] = EMPTY if i not in judgement.id_reused else ID_REUSED
    return found


def verdicts(judgement: Judgement) -> list[bytes]:
    """The verdict on each document as a JSON object without its closing brace, so that more can be added."""
    j = judgement
    out = []
    starts = j.starts.tolist()
    for i, (id, seq, kind) in enumerate(zip(j.ids, j.seqs.tolist(), j.kinds.tolist(), strict=True)):
        label = _LABELS[kind]
        if i not in j.oldest:
            out.append(b'{"id":%b,"seq":%d,"kind":"%b","of":null,"similarity":null,"matches":[]' % (id, seq, label))
            continue
        of, similarity = j.oldest[i]
        matches = b",".join(
            [
                b'{"id":%b,"seq":%d,"similarity":%b}' % (j.older_ids[m], j.older_seqs[m], _number(j.similarities[m]))
                for m in range(starts[i], starts[i + 1])
            ]
        )
        truncated = b',"truncated":%d' % j.truncated[i] if j.truncated[i] else b""
        head = b'{"id":%b,"seq":%d,"kind":"%b","of":%b,"similarity":%b' % (id, seq, label, of, _number(similarity))
        out.append(b'%b,"matches":[%b]%b' % (head, matches, truncated))
    return out


def pairs(judgement: Judgement, verified: str) -> list[tuple[int, bytes, bytes]]:
    """The near-duplicate pairs: position of the newer document, id of the older one, and the pair as a JSON object
    without its closing brace; verified: "exact" or "signature"."""
    j = judgement
    if not j.older_ids:
        return []
    tail = b',"verified":"%b"' % verified.encode()
    documents, seqs = np.repeat(np.arange(len(j.ids)), np.diff(j.starts)).tolist(), j.seqs.tolist()
    return [
        (
            i, older,
            b'{"older":%b,"newer":%b,"older_seq":%d,"newer_seq":%d,"similarity":%b%b'
            % (older, j.ids[i], seq, seqs[i], _number(similarity), tail),
        )
        for i, older, seq, similarity in zip(
            documents, j.older_ids, j.older_seqs.tolist(), j.similarities.tolist(), strict=True
        )
    ]  # fmt: skip


def verdict_lines(judgement: Judgement) -> bytes:
    """The verdicts as JSON lines."""
    return b"".join([verdict + b"}\n" for verdict in verdicts(judgement)])


def pair_lines(judgement: Judgement, verified: str) -> bytes:
    """The near-duplicate pairs as JSON lines; verified: "exact" or "signature"."""
    return b"".join([pair + b"}\n" for _, _, pair in pairs(judgement, verified)])


def _number(value: float) -> bytes:
    return repr(float(value)).encode()
