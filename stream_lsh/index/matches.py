"""What was found for a batch, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

OF_MATCHES = 5  # so many columns have a line a match, the others one a document


@dataclass(frozen=True, slots=True)
class Matches:
    """What one shard found for a batch of n documents: parallel arrays of m matches in the order of documents, then
    arrays of n.

    kind, of, of_seq, of_similarity, group: the verdict as this shard alone would give it, and the first one of a
    redelivered document (`layout.UNKNOWN` if it is not known); of, of_seq: row and number, -1 if there is none
    (`layout.WENT_SINCE`: not any more). known: row with the same id, or -1. more: matches that were not listed;
    not_compared: what was not compared. went [n, WENT]: number of the version that was deleted or replaced, whether it
    was kept, row and number of its representative, the group that it was in, whether the new one is like it; -1 where
    there is none. representatives [h, 4]: where representatives are chosen late, the document that begins the block,
    group, row and number of who may stand for it from there on, or does. evidence: what each match rests on
    (`families.family.Explains`), bytes[m],
    or empty: nothing is said of it.
    """

    document: NDArray[np.int64]
    row: NDArray[np.int64]
    seq: NDArray[np.int64]
    similarity: NDArray[np.float64]
    same_text: NDArray[np.bool_]
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
    went: NDArray[np.int64]
    representatives: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 4), np.int64))
    evidence: NDArray[np.object_] = field(default_factory=lambda: np.empty(0, np.object_))

    def between(self, start: int, stop: int) -> Matches:
        """Of the matches those of the documents [start, stop)."""
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
        """Of a batch that was matched in parts: start, stop, and what was found for the documents between."""
        if len(parts) == 1:
            return parts[0][2]
        names = [field.name for field in fields(cls)][:-2]
        found = {name: [getattr(part, name) for _, _, part in parts] for name in names[:OF_MATCHES]}
        of = {name: [getattr(part, name)[start:stop] for start, stop, part in parts] for name in names[OF_MATCHES:]}
        representatives, evidence = (
            np.concatenate([getattr(part, name) for _, _, part in parts]) for name in ("representatives", "evidence")
        )
        columns = {name: np.concatenate(columns) for name, columns in (found | of).items()}
        return cls(**columns, representatives=representatives, evidence=evidence)


def shortlist(matches: Matches, most: int) -> Matches:
    """Of each document's matches in a shard the best `most`; the others count as `more`. In a crowd of copies there are
    many thousands.

    `judging.verdicts.judge` with `max_matches` <= most says the same of it as of all of them, whatever other shards
    have found: kind, group and oldest match are columns of their own.
    """
    n, document = len(matches.more), matches.document
    counts = np.bincount(document, minlength=n)
    if not len(document) or counts.max() <= most:
        return matches
    starts = np.cumsum(counts) - counts
    best = np.lexsort((matches.seq, -matches.similarity, document))
    keep = np.zeros(len(document), np.bool_)
    keep[best[np.arange(len(best)) - starts[document[best]] < most]] = True
    columns = {
        name: getattr(matches, name)[keep] for name in ("document", "row", "seq", "similarity", "same_text")
    }  # fmt: skip
    left = np.bincount(columns["document"], minlength=n)
    evidence = matches.evidence[keep] if len(matches.evidence) else matches.evidence
    return replace(matches, **columns, more=matches.more + counts - left, evidence=evidence)
