"""The matches of a batch, in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.columns import Rejection

NO_REPRESENTATIVES = np.empty((0, 4), np.int64)
NO_EVIDENCE = np.empty(0, np.object_)
OF_MATCHES = 7  # the first columns have one entry for each match, the others one for each document


@dataclass(slots=True)  # not frozen: that takes ten times as long to make
class Matches:
    """What one shard found for a batch of n documents, in parallel arrays. The first seven have m entries, one for each
    match, ordered by document. The others have n entries.

    Attributes:
        effect: what a match does to its document if it is with a kept one (`layout.DROPS` …).
        held: int64[m, 2], row and group of each match in the shard, also where `row` is another number.
        status: what became of a document: NEW, REDELIVERED … (`layout`).
        known: row with the same id, or -1.
        row_of: row that the document became, or -1.
        kind, of, of_seq, of_similarity, group: the verdict by this shard alone, or the first verdict of a redelivered
            document (UNKNOWN if the shard does not have it). `of` and `of_seq` are row and number of the oldest match:
            -1 if there is none, REPLACED_SINCE if it was deleted or replaced since.
        more: number of matches that are not listed.
        not_compared: buckets and candidates that were not compared.
        removed: int64[n, REMOVED_COLUMNS], the version that was deleted or replaced: its number; whether it was a
            representative; row and number of the new representative; its group; whether the new version is similar to
            it. -1 where there is none.
        representatives: int64[h, 4], where representatives are provisional: the document that begins the block, the
            group, row and number of a possible representative from there on, or of the chosen one.
        evidence: bytes[m], see `families.family.Explains`; empty if the measure has none.
        failed: documents that have raised an unforeseen exception in this shard, by place.
    """

    document: NDArray[np.int64]
    row: NDArray[np.int64]
    seq: NDArray[np.int64]
    similarity: NDArray[np.float64]
    same_text: NDArray[np.bool_]
    effect: NDArray[np.int64]
    held: NDArray[np.int64]
    status: NDArray[np.int64]
    known: NDArray[np.int64]
    row_of: NDArray[np.int64]
    kind: NDArray[np.int64]
    of: NDArray[np.int64]
    of_seq: NDArray[np.int64]
    of_similarity: NDArray[np.float64]
    group: NDArray[np.int64]
    more: NDArray[np.int64]
    not_compared: NDArray[np.int64]
    removed: NDArray[np.int64]
    representatives: NDArray[np.int64] = field(default_factory=lambda: NO_REPRESENTATIVES)
    evidence: NDArray[np.object_] = field(default_factory=lambda: NO_EVIDENCE)
    failed: Mapping[int, Rejection] = field(default_factory=dict)

    def between(self, start: int, stop: int) -> Matches:
        """The matches of the documents [start, stop)."""
        at = slice(*np.searchsorted(self.document, (start, stop)).tolist())
        names = [field.name for field in fields(self)][:OF_MATCHES]
        representatives = self.representatives[
            (start <= self.representatives[:, 0]) & (self.representatives[:, 0] < stop)
        ]
        return replace(
            self,
            **{name: getattr(self, name)[at] for name in names},
            representatives=representatives,
            evidence=self.evidence[at],
        )

    @classmethod
    def joined(cls, parts: Sequence[tuple[int, int, Matches]]) -> Matches:
        """Join parts of a batch: start, stop, and the matches of the documents [start, stop)."""
        if len(parts) == 1:
            return parts[0][2]
        names = [field.name for field in fields(cls)][:-3]
        found = {name: [getattr(part, name) for _, _, part in parts] for name in names[:OF_MATCHES]}
        of = {name: [getattr(part, name)[start:stop] for start, stop, part in parts] for name in names[OF_MATCHES:]}
        representatives, evidence = (
            np.concatenate([getattr(part, name) for _, _, part in parts]) for name in ("representatives", "evidence")
        )
        columns = {name: np.concatenate(columns) for name, columns in (found | of).items()}
        failed = {i: why for _, _, part in parts for i, why in part.failed.items()}
        return cls(**columns, representatives=representatives, evidence=evidence, failed=failed)


def shortlist(matches: Matches, most: int) -> Matches:
    """The best `most` matches of each document; the others are counted in `more`. A large group of copies has many
    thousands.

    With `max_matches` <= most, `judging.verdicts.judge` gives the same verdicts as from all matches: kind, group and
    oldest match have columns of their own.
    """
    n, document = len(matches.more), matches.document
    counts = np.bincount(document, minlength=n)
    if not len(document) or counts.max() <= most:
        return matches
    starts = np.cumsum(counts) - counts
    best = np.lexsort((matches.seq, -matches.similarity, document))
    keep = np.zeros(len(document), np.bool_)
    keep[best[np.arange(len(best)) - starts[document[best]] < most]] = True
    columns = {field.name: getattr(matches, field.name)[keep] for field in fields(matches)[:OF_MATCHES]}
    left = np.bincount(columns["document"], minlength=n)
    evidence = matches.evidence[keep] if len(matches.evidence) else matches.evidence
    return replace(matches, **columns, more=matches.more + counts - left, evidence=evidence)
