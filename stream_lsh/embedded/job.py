"""The whole job in one process: inputs, sign, match, judge, outputs; committed together, resumable at any point."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from stream_lsh.alerts.rules import Rule
from stream_lsh.documents.erased_letters import FILE as DEAD_LETTERS
from stream_lsh.embedded.engine import Engine, Judged
from stream_lsh.embedded.erasure import ENDING_SECONDS
from stream_lsh.embedded.feed import Argument, Feed, Source, check_inputs
from stream_lsh.embedded.groups import GROUPS
from stream_lsh.embedded.journal import Journal
from stream_lsh.embedded.last_choice import LastChoice, write_again
from stream_lsh.embedded.lines import Batch
from stream_lsh.embedded.pipeline import Stage, chain
from stream_lsh.embedded.published import published
from stream_lsh.embedded.report import PROGRESS_SECONDS, Counts, InputCount, Progress, Rejected, Summary, WindowReport
from stream_lsh.embedded.signals import postponed
from stream_lsh.embedded.sink import Sink
from stream_lsh.embedded.source_positions import SourcePositions
from stream_lsh.embedded.table_output import schema_of
from stream_lsh.embedded.targets import Missing, missing_of, targets_of
from stream_lsh.embedded.temporary import temporary_folder
from stream_lsh.errors import StoreError, StreamLshError
from stream_lsh.index.batch import SignedBatch
from stream_lsh.index.index import Index
from stream_lsh.index.store.files import disk_bytes
from stream_lsh.judging.verdicts import Kind
from stream_lsh.settings.model import Settings

COMMIT_SECONDS = 0.5  # longest time between commits, and so what a crash makes a run do again
COMMIT_DOCUMENTS = 16384  # most documents between commits: they are held in memory until then

_Item = tuple[Source, Batch, SignedBatch]


@dataclass(frozen=True)
class Job:
    """One run over some inputs.

    Args:
        inputs: files, folders, "-", or what opens an input. outputs: `unique`, `pairs`, `verdicts`, `groups`, `alerts`,
            `dead_letters` to a path or "-", and a table of `unique` also to an address. With `groups` or `alerts` a new
            index keeps groups; one that keeps them does so in every run.
        folder: of the persistent index; without it a temporary one. Dead letters that have no output go there.
        overwrite: replace output files that are there, but not from this index (without `folder` they always are).
        only_new: write what no finished run has decided; else an output that lacks lines of the inputs gets them, too.
        rules: of `alerts`. groups: a new index keeps them, None: if it can; with `groups` or `alerts` it does anyway.
        no_groups: an index that keeps them is refused. final: `unique` gets the documents that are kept at the end.

    A commit is one atomic write after the outputs are on disk: the new rows, the position in each input, and the length
    of each output. A killed run therefore resumes as if it had not been interrupted.
    """

    settings: Settings
    inputs: Sequence[Argument]
    outputs: Mapping[str, str]
    folder: Path | None = None
    _: KW_ONLY
    overwrite: bool = False
    only_new: bool = False
    rules: Sequence[Rule] = ()
    groups: bool | None = False
    no_groups: bool = False
    final: bool = False

    def run(self, progress: Callable[[Progress], None] = lambda _: None) -> Summary:
        """Run to the end of the inputs.

        Raises:
            StreamLshError: with everything before the error written and committed; likewise KeyboardInterrupt and
                BrokenPipeError.
        """
        if self.folder is not None:
            return self._run(self.folder, progress)
        with temporary_folder() as folder:
            return self._run(Path(folder), progress)

    def _run(self, folder: Path, progress: Callable[[Progress], None]) -> Summary:
        check_inputs(self.inputs)
        persistent = self.folder is not None
        watched = "alerts" in self.outputs
        engine = Engine.open(
            self.settings, folder, durable=persistent, resuming=True,
            groups=True if watched or "groups" in self.outputs else self.groups, rules=self.rules if watched else None,
        )  # fmt: skip
        index, job = engine.index, engine.job
        with _closing(index), ExitStack() as opened:
            if self.no_groups and engine.groups is not None:
                raise StoreError(GROUPS.format(folder))
            feed = Feed(
                self.inputs, engine.fields, index.store, opened, folders=job["folders"], growing=persistent,
                only_new=self.only_new,
            )  # fmt: skip
            outputs = dict(self.outputs)
            at_addresses = published(outputs, folder, overwrite=self.overwrite or not persistent)
            outputs |= {name: str(output.path) for name, output in at_addresses.items()}
            if persistent and "dead_letters" not in outputs:
                outputs["dead_letters"] = str(folder / DEAD_LETTERS)
            inputs, keep = [source.input for source in feed.sources], engine.settings.keep
            lines = not self.final  # `unique` also has lines about documents that are not kept any more
            schema = schema_of(
                outputs, inputs, updates=lines and engine.settings.updates, supersedes=lines and keep != "first"
            )
            journal = Journal(index) if persistent or self.final else None
            final = LastChoice(outputs, engine, feed.sources, overwrite=self.overwrite) if self.final else None
            targets = targets_of(outputs, job["outputs"], folder, overwrite=self.overwrite)
            missing: Sequence[Missing] = ()
            if journal is not None and persistent:
                of = job["first"] if job["open"] else None
                missing = missing_of(targets, feed, journal, only_new=self.only_new, job=of)
            sink = Sink(
                targets, job["outputs"], bool(job["open"]), self.folder, self.settings.verify,
                schema if final is None else None,
            )  # fmt: skip
            try:
                if feed.moved:
                    engine.commit(facts=feed.moved)
                run = _Run(engine, feed, sink, journal, progress, persistent, persistent and not self.final)
                summary = run.go(self.folder, missing)
                if final is not None and journal is not None:
                    final.write(journal, self.settings.verify, schema)
            finally:
                sink.close()
            for output in at_addresses.values():
                output.put()

            def begins(since: int) -> None:
                if journal is not None:
                    journal.erase(since)
                engine.erase_served(since)

            # What commits have not come to. The rest is erased by the next run.
            index.erase(time.time(), begins=begins, seconds=ENDING_SECONDS)
        return summary


@contextmanager
def _closing(index: Index) -> Iterator[None]:
    """Close the index at the end; if closing fails too, the first error is the one to report."""
    try:
        yield
    except BaseException:
        with suppress(StreamLshError):
            index.close()
        raise
    index.close()


@dataclass
class _Run:
    """The loop of a job, and what it has to remember. sync: wait for the disk at every commit. once: what is committed
    is not read again."""

    _engine: Engine
    _feed: Feed
    _sink: Sink
    _journal: Journal | None
    _progress: Callable[[Progress], None]
    _sync: bool
    _once: bool

    def __post_init__(self) -> None:
        engine, index, job = self._engine, self._engine.index, self._engine.job
        self._index = index
        self._first: int = job["first"] if job["open"] else engine.seq  # number of this job's first document
        self._again = 0  # documents of which something was written again
        self._committed_seq = engine.seq
        self._resumed_from: int = job["done_in_job"] if job["open"] else 0
        self._jumps = index.window.jumps if index.window is not None else 0  # until now
        self._places = SourcePositions(index)
        self._counts = Counts()
        self._started = self._committed = self._shown = time.monotonic()
        self._dirty = False
        self._torn = False
        self._moved: dict[int, Source] = {}  # sources that were read since the last commit
        self._current: Source | None = None

    def go(self, folder: Path | None, missing: Sequence[Missing]) -> Summary:
        already = tuple(source.input.name for source in self._feed.sources if source.done_before)
        finished = len(already) == len(self._feed.sources)
        if finished and not missing:
            self._sink.finish()
            self._sink.settle()
            return self._summary(already, folder)
        if finished and not self._sink.files({name for _, names in missing for name in names}):
            with postponed() as check_signals:  # a pipe cannot be read again: there is nothing to remember
                self._write(missing, check_signals)
            return self._summary(already, folder)
        for source in self._feed.sources:
            source.written = {mark: line for mark, line in source.written.items() if self._sink.is_known(mark)}
            if not source.done_before and source.began[1] != self._first:
                source.began = source.reached.line, self._first
        self._commit(open=True)
        self._release(self._feed.sources)
        error: BaseException | None = None
        with postponed() as check_signals, ExitStack() as stages:
            try:
                if missing:
                    self._write_again(missing, check_signals)
                stage, stop = chain(self._feed.batches(), self._sign)
                stages.callback(stop)
                self._loop(stage, check_signals)
            except BaseException as caught:
                error = caught
            finally:
                stages.close()
            self._close(error)
            if error is not None:
                raise error  # here: a signal of the last moment does not take its place
        return self._summary(already, folder)

    def _write_again(self, missing: Sequence[Missing], check_signals: Callable[[], None]) -> None:
        """Write what outputs lack. Only all of it counts: what is broken off is cut off by the next run."""
        self._torn = True
        self._write(missing, check_signals)
        self._torn = False
        self._moved = {id(source): source for source in self._feed.sources}
        self._commit(open=True)

    def _write(self, missing: Sequence[Missing], check_signals: Callable[[], None]) -> None:
        assert self._journal is not None
        inputs = {source.name: source.input for source in self._feed.sources if source.name is not None}
        write_again(missing, inputs, self._journal, self._sink, check_signals)
        self._again = sum(len(entry.kept) for entry, _ in missing)

    def _sign(self, item: tuple[Source, Batch]) -> _Item:
        return *item, self._index.sign(item[1])

    def _loop(self, stage: Stage[_Item], check_signals: Callable[[], None]) -> None:
        check_signals()
        for item in stage.each(COMMIT_SECONDS / 2):
            if item is not None:
                self._take(*item)
            now = time.monotonic()
            due = now - self._committed >= COMMIT_SECONDS or self._engine.seq - self._committed_seq >= COMMIT_DOCUMENTS
            if self._dirty and (due or self._index.full):
                self._commit(open=True)
            if now - self._shown >= PROGRESS_SECONDS and self._counts.documents:
                self._shown = now
                self._show()
            check_signals()

    def _take(self, source: Source, batch: Batch, signed: SignedBatch) -> None:
        if self._current is not None and self._current is not source:
            self._current.done = True
            self._moved[id(self._current)] = self._current
        self._current = source
        # From here to the end nothing may be committed: a commit sees all of a batch or nothing.
        self._torn = True
        judged = self._engine.add(batch, signed)
        self._places.add(batch, judged.found)
        removals, lines = self._sink.write(batch, judged, self._places.of)
        if self._journal is not None and source.name is not None:
            kept, seq = judged.judgement.kinds == Kind.UNIQUE, int(judged.judgement.seqs[0])
            self._journal.add(source.name, seq, source.reached, batch.lines.position, kept, removals, lines)
        self._sink.piped |= source.name is None
        self._count(source, batch, judged)
        source.reached = batch.lines.position
        self._moved[id(source)] = source
        self._dirty = True
        self._torn = False
        if pause := self._index.pause * len(batch) / 1000:  # merges have to keep up
            time.sleep(pause)

    def _count(self, source: Source, batch: Batch, judged: Judged) -> None:
        reasons = judged.reasons
        self._counts.add(judged.judgement, [reasons[i].reason for i in sorted(reasons)])
        source.documents += len(batch)
        source.rejected += len(reasons)
        if reasons and self._counts.first_rejected is None:
            i = min(reasons)
            self._counts.first_rejected = Rejected(
                batch.input, int(batch.lines.numbers[i]), reasons[i].reason, reasons[i].detail, batch.lines.raw(i)
            )

    def _commit(self, *, open: bool) -> None:
        # If it is broken off (a second Ctrl-C, a full disk), only the disk has its outcome: another commit would
        # speak of rows that are not there.
        self._torn = True
        now = time.time()
        if (since := self._index.erasing_since) is not None:
            self._sink.let_go(since)
            if self._journal is not None:
                self._journal.erase(since)
        values: dict[bytes, bytes | None] = {**self._places.take()}
        if self._journal is not None:
            for source in self._moved.values():
                if source.anew and source.name is not None:
                    values |= self._journal.forget(source.name)
                    source.anew = False
            values |= self._journal.take(int(now))
        for source in self._moved.values():
            source.written |= dict.fromkeys(self._sink.marks, source.reached.line)
        job = {
            "open": open,
            "first": self._first,
            "done_in_job": self._resumed_from + self._counts.documents if open else 0,
            "outputs": self._sink.checkpoint(self._sync, int(now)),
        }
        facts = {name: fact for source in self._moved.values() for name, fact in source.facts().items()}
        self._engine.commit(job, facts, values, now=now)
        self._release(self._moved.values())
        self._torn = False
        self._moved = {}
        self._committed = time.monotonic()
        self._committed_seq = self._engine.seq
        self._dirty = False

    def _release(self, sources: Iterable[Source]) -> None:
        for source in sources if self._once else ():
            source.input.committed(source.reached)

    def _close(self, error: BaseException | None) -> None:
        """The last commit. After an error the job stays open. The next run resumes from here, or from the commit before
        if the error was in the middle of a batch or a commit. A pipe cannot be read again: then the files are
        completed."""
        complete = error is None
        if self._torn:
            return
        if complete:
            for source in self._feed.sources:
                if not source.done_before:
                    source.done = True
                    self._moved[id(source)] = source
        try:
            if complete or self._feed.pipes or not self._sync:
                self._sink.finish()
            self._commit(open=not complete)
            self._sink.settle()
        except (StreamLshError, OSError):
            # The first error is the one to report; what was not committed is done again by the next run.
            if complete:
                raise

    def _show(self) -> None:
        seconds = time.monotonic() - self._started
        self._progress(self._counts.progress(self._feed.read, self._feed.total, seconds))

    def _window(self) -> WindowReport | None:
        window, length = self._index.window, self._index.settings.window
        if window is None or length is None:
            return None
        return WindowReport(length, window.shown, window.jumps - self._jumps)

    def _summary(self, already: Iterable[str], folder: Path | None) -> Summary:
        self._show()
        return self._counts.summary(
            index_documents=self._index.count,
            index_bytes=disk_bytes(folder) if folder is not None else None,
            seconds=time.monotonic() - self._started,
            resumed_from=self._resumed_from,
            already_done=tuple(already),
            unfinished={source.input.name: source.input.left for source in self._feed.sources if source.input.left},
            compare_with=self._index.settings.compare_with,
            window=self._window(),
            alerts=self._engine.alerts.counts if self._engine.alerts is not None else None,
            folder=str(folder) if folder is not None else None,
            again=self._again,
            inputs=tuple(InputCount(one.input.name, one.documents, one.rejected) for one in self._feed.sources),
        )
