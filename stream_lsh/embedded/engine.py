"""An index that is being written, with its groups and alerts: verdicts on documents, and what makes them durable."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from stream_lsh.alerts.rules import Rule
from stream_lsh.documents.columns import Columns, Fields, Rejection
from stream_lsh.documents.engine_errors import shown_id
from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.alert_journal import AlertJournal
from stream_lsh.embedded.alerts import FACT as ALERTS
from stream_lsh.embedded.alerts import Alerts, check_fields
from stream_lsh.embedded.engine_errors import EngineErrors
from stream_lsh.embedded.group_ranking import MOST_JOINS, Ranking
from stream_lsh.embedded.group_store import FACT as GROUPS
from stream_lsh.embedded.groups import NO_GROUPS, Groups, opened
from stream_lsh.embedded.journal import Journal
from stream_lsh.embedded.moves import folders_of
from stream_lsh.embedded.preparation import prepare
from stream_lsh.embedded.stored_answers import erase_answers
from stream_lsh.embedded.targets import moved_outputs
from stream_lsh.errors import StoreError, StreamLshError, UsageError
from stream_lsh.index.batch import SignedBatch
from stream_lsh.index.index import Index
from stream_lsh.index.matches import Matches
from stream_lsh.index.reader import IndexReader
from stream_lsh.index.rows.layout import DELETION, VALID
from stream_lsh.index.segments.stream_time import set_back_from
from stream_lsh.index.store.files import is_index
from stream_lsh.judging.events import Events
from stream_lsh.judging.verdicts import Judgement, judge, reasons
from stream_lsh.settings.model import Settings
from stream_lsh.wire.trace_context import TraceOf, no_trace

NOTHING: Mapping[Any, Any] = MappingProxyType({})


@dataclass(slots=True)
class Judged:
    """What became of a batch. found: of each shard. reasons: why documents were rejected, by place. events: what they
    did to groups, None if the index keeps none. alerts: as JSON lines. sources: of the documents as JSON text, b"" for
    none; nothing where the index has no sources."""

    found: Sequence[Matches]
    judgement: Judgement
    reasons: dict[int, Rejection]
    events: Events | None
    alerts: bytes
    sources: Sequence[bytes] = ()


class Engine:
    """An index, its groups and its alerts. What is added counts with the next commit; for one thread. After an error
    in the middle of a batch nothing may be committed any more.

    Args:
        groups: those of the index, None if it keeps none.

    Attributes:
        settings: those of the index. seq: number of the next document. job: what the last commit said of the run that
            made it. journals_alerts: whether commits write alerts into the journal of the index. ranking: of the
            groups, None until `rank`.
    """

    journals_alerts = False

    def __init__(self, index: Index, groups: Groups | None = None, alerts: Alerts | None = None) -> None:
        self.index = index
        self.settings = index.settings
        self.groups = groups
        self.alerts = alerts
        self.ranking: Ranking | None = None
        known = index.store.named("job") or {}
        folders = folders_of(known.get("folders", ()), index.folder)
        self.job: dict[str, Any] = {
            "next_seq": 0, "open": False, "first": 0, "done_in_job": 0, **known,
            "folders": folders, "outputs": moved_outputs(known.get("outputs", {}), folders),
        }  # fmt: skip
        self.seq: int = self.job["next_seq"]
        self._answers_erased: int | None = None
        self._engine_errors = EngineErrors(logging.getLogger("stream_lsh.embedded"))

    @classmethod
    def open(
        cls, settings: Settings, folder: Path, *, durable: bool = True, resuming: bool = False,
        groups: bool | None = False, rules: Sequence[Rule] | None = None,
    ) -> Self:  # fmt: skip
        """That of a folder, which is made if it is missing.

        Args:
            settings: those that are not given are the index's own. durable: wait for the disk at every commit.
                resuming: it may be the index of an interrupted run. groups: a new index keeps them, None: if it can.
                rules: of alerts, which need groups; None = there are none.

        Raises:
            StoreError: the folder is in use, damaged, made with other settings, or an interrupted run is to go on
            first. UsageError: the settings do not say what is needed.
        """
        if not is_index(folder):  # before an index is made
            _check_times(settings)
            if rules is not None:
                check_fields(rules, settings.time_field, settings.source_field)
        prepare(settings)
        index = Index(settings, folder, durable=durable, now=time.time(), clock=time.monotonic)
        try:
            _check_times(index.settings)
            kept = opened(index, groups if rules is None else True, settings.source_field)
            watched = None
            if rules is not None and kept is not None:
                check_fields(rules, index.settings.time_field, kept.source_field)
                watched = Alerts(index.store, kept, rules, index.store.named(ALERTS) or {})
            engine = cls(index, kept, watched)
            if not resuming:
                engine.check_finished()
            return engine
        except BaseException:
            with suppress(StreamLshError):  # the first error is the one to report
                index.close()
            raise

    def check_finished(self) -> None:
        """Raise StoreError if an interrupted run is to go on first."""
        if self.job["open"]:
            raise StoreError(
                f"the index in {self.index.folder} belongs to an interrupted run of the command line; finish that run "
                "first, or use another folder"
            )

    @cached_property
    def fields(self) -> Fields:
        """The JSON fields that hold a document's parts."""
        source = self.settings.source_field if self.settings.keep_per is not None else None
        if self.groups is not None:
            source = self.groups.source_field
        return replace(self.settings.document_fields, source_field=source)

    def add(self, columns: Columns, signed: SignedBatch | None = None, trace_of: TraceOf = no_trace) -> Judged:
        """Judge documents and store them; signed: them, if they are already. trace_of: their trace contexts, for
        alerts.

        Raises:
            UsageError: they cannot be judged by this index; nothing has changed.
        """
        index, signed = self.index, self.index.sign(columns) if signed is None else signed
        seqs = np.arange(self.seq, self.seq + len(columns))
        found = index.match(signed, seqs, clock=int(1000 * time.time()))
        judgement = judge(found, columns.ids, seqs, self.settings.max_matches, index)
        events, alerts = None, b""
        if self.groups is not None:
            times = columns.times
            if times.tolist().count(NO_TIME) < len(times):
                times = np.where(signed.documents.what & np.uint8(VALID | DELETION) != 0, times, NO_TIME)
            shift = 0 if index.window is None else index.window.shift
            log, shift = self.groups.stream_times(seqs, times, signed.documents.log, shift)
            events = self.groups.add(judgement, times, log, columns.sources)
            if self.alerts is not None:
                alerts = self.alerts.add(judgement, log, shift, columns.sources, events)
                if self.journals_alerts:
                    self.alert_journal.add(alerts, trace_of, self.seq)
        self.seq += len(columns)
        if signed.rejected or judgement.failed:
            failed = {**signed.rejected, **judgement.failed}
            self._engine_errors.look(failed, lambda i: f"the document with the id {shown_id(columns.ids[i])}")
        return Judged(found, judgement, reasons(judgement, signed.rejected), events, alerts, columns.sources)

    def check(self, columns: Columns) -> Judged:
        """The verdict that each document would get as the next one. Nothing is stored."""
        return checked(self.index, columns)

    def set_back(self, time: int) -> None:
        """Set stream time back to `time`, ms since 1970; it counts with the next commit.

        Raises:
            UsageError: nothing counts by stream time; or it has not begun, or is not later.
        """
        window, groups = self.index.window, self.groups
        if window is not None:
            window.set_back(time)
        elif groups is not None:
            set_back_from(groups.shown, time)
        else:
            raise UsageError("stream time has effects only with a window or groups, and this index has neither")
        if groups is not None:
            groups.set_back(time)

    def commit(
        self,
        job: Mapping[str, Any] = NOTHING,
        facts: Mapping[str, Any] = NOTHING,
        values: Mapping[bytes, bytes | None] = NOTHING,
        *,
        now: float | None = None,
    ) -> None:
        """Make everything up to now durable, in one atomic step. job: what is to be known of the run. facts (JSON by
        name), values: of the store, beside those of the index, its groups and alerts. now: seconds since 1970."""
        now = time.time() if now is None else now
        self.job |= {"next_seq": self.seq, "time": int(now), **job}
        known, more, ranges = self.groups.take() if self.groups is not None else ({}, {}, [])
        if self.alerts is not None:
            known |= self.alerts.take()
        self._erase_lines()

        def written() -> None:
            if self.ranking is not None:
                self.ranking.note(more, known[GROUPS])

        alerts = self.alert_journal.take(int(1000 * now))
        self.index.commit(
            {**facts, "job": self.job, **known}, {**more, **alerts, **values}, ranges, now=now, written=written
        )
        if alerts:
            self.alert_journal.committed()

    def rank(self, most_joins: int = MOST_JOINS) -> Ranking:
        """The groups in the orders of their table, from now on up to date with commits. In any thread. most_joins: as
        in `Ranking`, if this is its first call.

        Raises:
            StoreError: the index keeps no groups, or its store cannot be read.
        """
        if self.groups is None and not self.index.read_only:
            raise StoreError(NO_GROUPS.format(self.index.folder))

        def listening(ranking: Ranking) -> None:
            self.ranking = ranking

        try:
            return self.ranking or Ranking(self.index.store, most_joins, listening)
        except BaseException:
            self.ranking = None
            raise

    def erase(self) -> None:
        """Go on with erasing what is due; to be called now and then where nothing is committed. Cheap if nothing is."""
        self._erase_lines()
        self.index.erase(time.time(), everything=False)

    def _erase_lines(self) -> None:
        """Erase what finished runs and services have left that may name what is being erased. An interrupted run does
        so itself."""
        since = self.index.erasing_since
        if since is not None:
            self.erase_served(since)
            if not self.job["open"]:
                self._journal.erase(since)

    def erase_served(self, since: int) -> None:
        """Erase what services have left that was written by this time, in seconds since 1970."""
        self.alert_journal.erase(since)
        if since != self._answers_erased:  # they are all read
            erase_answers(self.index.store, since)
            self._answers_erased = since

    @cached_property
    def alert_journal(self) -> AlertJournal:
        return AlertJournal(self.index.store)

    @cached_property
    def _journal(self) -> Journal:
        return Journal(self.index)

    def close(self) -> None:
        """Close without committing."""
        if self.ranking is not None:
            self.ranking.close()
        self.index.close()


def checked(index: IndexReader, columns: Columns, signed: SignedBatch | None = None) -> Judged:
    """The verdict that each document would get as the next one. Nothing is stored. signed: as in `Engine.add`."""
    signed = index.sign(columns, want_texts=False) if signed is None else signed
    found = index.query(signed, known=True)
    seqs = np.full(len(columns), -1, np.int64)
    judgement = judge(found, columns.ids, seqs, index.settings.max_matches, index)
    return Judged(found, judgement, reasons(judgement, signed.rejected), None, b"")


def _check_times(settings: Settings) -> None:
    """Raise UsageError if there is a window, and no field that says the time."""
    if settings.window is not None and settings.time_field is None:
        raise UsageError(
            f"window = {settings.window} counts by the times of the documents: name their field with "
            "time_field (--time-field)"
        )
