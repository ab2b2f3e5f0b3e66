"""What a run tells its user: while it goes on, and at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stream_lsh.judging.verdicts import Judgement, Kind


@dataclass(frozen=True, slots=True)
class Progress:
    """A run under way. bytes_total: of the inputs as they lie on disk, None for pipes; seconds: since the start."""

    documents: int
    duplicates: int
    rejected: int
    redelivered: int
    pairs: int
    bytes_read: int
    bytes_total: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Summary:
    """A finished (or interrupted) run.

    truncated: documents whose matches are not all listed. unread: entries of full buckets that were not compared.
    resumed_from: documents done by earlier runs of an interrupted job. already_done: inputs that were finished before.
    """

    documents: int
    unique: int
    near_duplicates: int
    exact_duplicates: int
    redelivered: int
    rejected: dict[str, int]
    pairs: int
    truncated: int
    unread: int
    index_documents: int
    index_bytes: int | None
    seconds: float
    resumed_from: int
    already_done: tuple[str, ...]
    state: str | None


@dataclass
class Counts:
    """Running totals of one run."""

    documents: int = 0
    kinds: list[int] = field(default_factory=lambda: [0] * len(Kind))
    rejected: dict[str, int] = field(default_factory=dict)
    pairs: int = 0
    truncated: int = 0

    def add(self, judgement: Judgement, reasons: list[str]) -> None:
        self.documents += len(judgement.ids)
        for kind, count in enumerate(np.bincount(judgement.kinds, minlength=len(Kind)).tolist()):
            self.kinds[kind] += count
        for reason in reasons:
            self.rejected[reason] = self.rejected.get(reason, 0) + 1
        self.pairs += len(judgement.older_ids)
        self.truncated += int(np.count_nonzero(judgement.truncated))

    @property
    def duplicates(self) -> int:
        return self.kinds[Kind.NEAR_DUPLICATE] + self.kinds[Kind.EXACT_DUPLICATE]
