"""An index that is being written, by whoever has documents: verdicts, groups and alerts, committed together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stream_lsh.alerts.rules import Rule
from stream_lsh.documents.columns import Columns, Fields, Rejection
from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.alerts import check_fields, watching
from stream_lsh.embedded.groups import opened
from stream_lsh.embedded.job import check_times
from stream_lsh.embedded.warming import warm_up
from stream_lsh.errors import StateError, UsageError
from stream_lsh.index.index import Index
from stream_lsh.index.layout import DELETION, VALID
from stream_lsh.judging.events import Events
from stream_lsh.judging.verdicts import Judgement, judge, reasons
from stream_lsh.settings import Settings


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a batch. reasons: why documents were rejected, by place. events: what they did to groups, None if
    the index keeps none. alerts: as JSON lines."""

    judgement: Judgement
    reasons: dict[int, Rejection]
    events: Events | None
    alerts: bytes


class Engine:
    """An index, its groups and its alerts. What is added counts with the next commit; for one thread.

    Args:
        settings: those that are not given are the index's own. folder: of the index, made if missing. groups: a new
            index keeps them, None: if it can; rules: of alerts, which need groups.

    Attributes:
        seq: number of the next document. fields: where a document's parts stand in its JSON. torn: a batch or a commit
            was broken off: nothing may be added any more.

    Raises:
        StateError: the folder is in use, damaged, made with other settings, or an interrupted run is to go on first.
        UsageError: the settings do not say what is needed.
    """

    def __init__(
        self, settings: Settings, folder: Path, *, groups: bool | None = False, rules: Sequence[Rule] = ()
    ) -> None:
        if not (folder / "db" / "CURRENT").exists():  # before an index is made
            check_times(settings)
            if rules:
                check_fields(rules, settings.time_field, settings.source_field)
        self.index = index = Index(settings, folder, now=time.time())
        try:
            self.settings = own = index.settings
            check_times(own)
            self._job: dict[str, Any] = index.store.named("job") or {"done_in_job": 0, "outputs": {}}
            if self._job.get("open"):
                raise StateError(
                    f"the index in {folder} belongs to an interrupted run of the command line; finish that run first, "
                    "or use another folder"
                )
            self._groups = opened(index, True if rules else groups, settings.source_field)
            self._alerts = watching(index, self._groups, rules) if rules and self._groups is not None else None
        except BaseException:
            index.close()
            raise
        self.fields = Fields(
            own.id_field, own.text_field, own.time_field, own.set_field, own.max_document_bytes,
            self._groups.source_field if self._groups is not None else None, timed=own.window is None,
            match_within=own.match_within, deleted_field=own.deleted_field,
        )  # fmt: skip
        self.seq: int = self._job.get("next_seq", 0)
        self.torn = False

    @property
    def keeps_groups(self) -> bool:
        return self._groups is not None

    def add(self, columns: Columns) -> Judged:
        """Judge documents and store them.

        Raises:
            UsageError: they cannot be judged by this index; nothing has changed.
        """
        index, signed = self.index, self.index.sign(columns)
        seqs = np.arange(self.seq, self.seq + len(columns))
        self.torn = True  # a commit sees all of a batch or nothing
        try:
            found = index.match(signed, seqs, clock=int(1000 * time.time()))
        except UsageError:  # nothing has changed
            self.torn = False
            raise
        judgement = judge(found, columns.ids, seqs, self.settings.max_matches, index)
        events, alerts = None, b""
        if self._groups is not None:
            events = self._groups.add(judgement, columns.times, signed.documents.log, columns.sources)
            if self._alerts is not None:
                times = np.where(signed.documents.what & np.uint8(VALID | DELETION) != 0, columns.times, NO_TIME)
                alerts = self._alerts.add(judgement, times, signed.documents.log, columns.sources, events)
        self.seq += len(columns)
        self.torn = False
        return Judged(judgement, reasons(judgement, columns.rejected), events, alerts)

    def check(self, columns: Columns) -> Judged:
        """The verdicts that documents would get if each came next; nothing is stored."""
        found = self.index.query(self.index.sign(columns, want_texts=False), known=True)
        seqs = np.full(len(columns), -1, np.int64)
        judgement = judge(found, columns.ids, seqs, self.settings.max_matches, self.index)
        return Judged(judgement, reasons(judgement, columns.rejected), None, b"")

    def commit(self) -> None:
        """Make everything up to now durable, in one atomic step."""
        self.torn = True
        self._job |= {"next_seq": self.seq, "open": False, "time": int(time.time())}
        facts: dict[str, Any] = {"job": self._job}
        more, values, ranges = self._groups.take() if self._groups is not None else ({}, {}, [])
        if self._alerts is not None:
            more.update(self._alerts.take())
        self.index.commit({**facts, **more}, values, ranges, now=time.time())
        self.torn = False

    def erase(self) -> None:
        """Go on with erasing what is due; to be called now and then where nothing is committed. Cheap if nothing is."""
        self.index.erase(time.time(), everything=False)

    def warm_up(self, stopped: Callable[[], bool]) -> None:
        """Compile, or load, what is needed to answer; stopped: whether that is not wanted any more."""
        warm_up(self.settings, stopped)
        self.index.look_up([b'""'])

    def close(self) -> None:
        """Close without committing."""
        self.index.close()
