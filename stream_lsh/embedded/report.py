"""The report of a run: its progress, and its summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stream_lsh.judging.verdicts import Judgement, Kind

PROGRESS_SECONDS = 0.2  # between two reports


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
class WindowReport:
    """The window of an index. window: its length. The stream time (ms since 1970) is the end of the window. jumps:
    how often stream time advanced by more than the window at once in this run, and everything before left it."""

    window: str
    stream_time: int
    jumps: int


@dataclass(frozen=True, slots=True)
class Alerted:
    """Alerts of this run; groups and sources that rules, since the index was made, had to forget before their time."""

    alerts: int
    forgotten: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """A rejected document. raw: its line, or the beginning of it."""

    input: str
    line: int
    reason: str
    detail: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class InputCount:
    """An input, and how many documents of it were read and rejected, by all runs that read it (of a pipe: by this
    one)."""

    name: str
    documents: int
    rejected: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A finished (or interrupted) run.

    truncated: documents whose matches are not all listed. not_compared: documents that were not compared with all they
    met.
    resumed_from: documents done by earlier runs of an interrupted job. already_done: inputs that were finished before.
    unfinished: inputs whose last line is not whole yet, with the number of its bytes, which a later run will read.
    compare_with: "kept" or "all". window: None = nothing is forgotten. alerts: None =
    there are no rules. replaced: versions that an update replaced. inputs: what was read of each so far.
    first_rejected: of this run. again: documents of earlier runs of which something was written again.
    """

    documents: int
    unique: int
    near_duplicates: int
    exact_duplicates: int
    redelivered: int
    rejected: dict[str, int]
    pairs: int
    truncated: int
    not_compared: int
    index_documents: int
    seconds: float
    compare_with: str
    index_bytes: int | None = None
    resumed_from: int = 0
    already_done: tuple[str, ...] = ()
    unfinished: Mapping[str, int] = field(default_factory=dict)
    folder: str | None = None
    window: WindowReport | None = None
    alerts: Alerted | None = None
    deleted: int = 0
    outdated: int = 0
    replaced: int = 0
    inputs: tuple[InputCount, ...] = ()
    first_rejected: Rejected | None = None
    again: int = 0


@dataclass
class Counts:
    """Running totals of one run."""

    documents: int = 0
    kinds: list[int] = field(default_factory=lambda: [0] * len(Kind))
    rejected: dict[str, int] = field(default_factory=dict)
    pairs: int = 0
    truncated: int = 0
    not_compared: int = 0
    replaced: int = 0
    first_rejected: Rejected | None = None

    def add(self, judgement: Judgement, reasons: list[str]) -> None:
        self.documents += len(judgement.ids)
        for kind, count in enumerate(np.bincount(judgement.kinds, minlength=len(Kind)).tolist()):
            self.kinds[kind] += count
        for reason in reasons:
            self.rejected[reason] = self.rejected.get(reason, 0) + 1
        self.pairs += len(judgement.matched_rows)
        self.truncated += int(np.count_nonzero(judgement.truncated))
        self.not_compared += int(np.count_nonzero(judgement.not_compared))
        self.replaced += int(np.count_nonzero((judgement.replaces >= 0) & (judgement.kinds != Kind.DELETED)))

    def progress(self, bytes_read: int, bytes_total: int | None, seconds: float) -> Progress:
        return Progress(
            self.documents, self.duplicates, self.kinds[Kind.REJECTED], self.kinds[Kind.REDELIVERED], self.pairs,
            bytes_read, bytes_total, seconds,
        )  # fmt: skip

    def summary(self, **more: Any) -> Summary:
        """The summary with these totals. more: what `Summary` has besides them."""
        return Summary(
            documents=self.documents,
            unique=self.kinds[Kind.UNIQUE],
            near_duplicates=self.kinds[Kind.NEAR_DUPLICATE],
            exact_duplicates=self.kinds[Kind.EXACT_DUPLICATE],
            redelivered=self.kinds[Kind.REDELIVERED],
            rejected=self.rejected,
            pairs=self.pairs,
            truncated=self.truncated,
            not_compared=self.not_compared,
            deleted=self.kinds[Kind.DELETED],
            outdated=self.kinds[Kind.OUTDATED],
            replaced=self.replaced,
            first_rejected=self.first_rejected,
            **more,
        )

    @property
    def duplicates(self) -> int:
        return self.kinds[Kind.NEAR_DUPLICATE] + self.kinds[Kind.EXACT_DUPLICATE]
