"""The only thread that uses the index: it takes waiting work together, judges it in order, and commits once.

Reads are answered between the parts of this work."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any

from stream_lsh.documents.builder import columns
from stream_lsh.documents.columns import Columns, Rejection
from stream_lsh.documents.document import Document
from stream_lsh.documents.lines import parse_lines
from stream_lsh.embedded.engine import Engine, Judged
from stream_lsh.errors import StreamLshError, UsageError
from stream_lsh.index.rows.layout import SEQ
from stream_lsh.index.segments.stream_time import BEFORE
from stream_lsh.judging.verdicts import deletion
from stream_lsh.serve.answers import answers, verdict_lines
from stream_lsh.serve.conditions import Condition
from stream_lsh.serve.disk import is_full
from stream_lsh.serve.opening import Opening
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.reads import READ_SECONDS, Reads
from stream_lsh.serve.retries import Retries, rejections
from stream_lsh.serve.work import Add, Answers, Check, Delete, Look, Round, Work, joined
from stream_lsh.tracing import tracer
from stream_lsh.wire.source import Headers
from stream_lsh.wire.trace_context import no_trace

BATCH = 2048  # documents that are committed together
PART = 256  # of these, judged together while reads are expected: smaller parts take more time in all
COMMIT_SECONDS = 0.5  # longest time until documents with an early answer are committed
IDLE_SECONDS = 2.0  # without work, after which it continues erasing


@dataclass(slots=True, eq=False)
class _Waiting:
    """Work in the queue, and its result."""

    work: Work
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None

    @property
    def reads(self) -> bool:
        """Whether it is answered between parts of other work."""
        return isinstance(self.work, Look) or (isinstance(self.work, Check) and len(self.work) == 1)


class _Turn(Enum):
    """In the queue: reads are waiting."""

    READ = 0


class Writer:
    """The writer thread, from `start` to `stop`.

    Args:
        committed: called in the event loop after each commit, with what was added.
        failed: called in the event loop with the error after which the index cannot be written any more.
    """

    def __init__(
        self, opening: Opening, committed: Callable[[Round], None], failed: Callable[[BaseException], None]
    ) -> None:
        self._opening = opening
        self._retries = self._retries_of()
        self._committed = committed
        self._failed = failed
        self._queue: SimpleQueue[_Waiting | _Turn | None] = SimpleQueue()
        self._reads: Reads[_Waiting] = Reads()
        self._round = Round()  # added, but not committed yet
        self._last = time.monotonic()
        self._ended = False
        self._tracer = tracer()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self.waiting = 0  # documents without an answer; used in the event loop
        self.reading = 0  # reads without one

    @property
    def _engine(self) -> Engine:
        return self._opening.engine

    def _retries_of(self) -> Retries:
        """The keys that the index has, and their answers."""
        return Retries(self._engine.index.store, self._engine.settings.erase_hours)

    def start(self) -> None:
        """Start the thread. Called in the event loop that gets the answers."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def do(self, work: Work) -> Any:
        """The result of some work, in its turn.

        Raises:
            StreamLshError: the work failed, or the index cannot be written any more.
        """
        if self._ended:
            raise StreamLshError("the service has stopped")
        if self._thread.ident is None:
            raise StreamLshError("the service is starting")
        waiting = _Waiting(work, self._loop.create_future())
        if waiting.reads:
            return await self._read_later(waiting)
        self.waiting += len(work)
        self._queue.put(waiting)
        try:
            return await waiting.future  # a disconnect of the client does not cancel the work
        finally:
            self.waiting -= len(work)

    async def _read_later(self, waiting: _Waiting) -> Any:
        self.reading += 1
        self._reads.put(waiting, waiting.work.ids if isinstance(waiting.work, Look) else frozenset())
        self._queue.put(_Turn.READ)
        try:
            return await waiting.future
        finally:
            self.reading -= 1

    async def stop(self) -> None:
        """Finish the queued work, commit, and end."""
        self._ended = True
        self._queue.put(None)
        if self._thread.ident is not None:  # it was started
            await asyncio.to_thread(self._thread.join)

    # -- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                self._write()
                return
            except BaseException as error:
                self._round = Round()  # it was not committed
                self._reads.release()
                try:
                    if not self._opening.failed(error):
                        raise error
                    self._retries = self._retries_of()
                except BaseException as last:
                    self._refuse(last)
                    return
                if self._ended:  # the end may have been taken already
                    self._queue.put(None)

    def _write(self) -> None:
        """Do what is in the queue, until the end. After an error the engine cannot be used any more."""
        while (taken := self._next()) is not None:
            if taken:
                self._work(taken)
            late = self._round.judged and time.monotonic() - self._last >= COMMIT_SECONDS
            if late or (not taken and self._retries.due and not self._opening.read_only):
                self._commit([])
            elif not taken:
                self._engine.erase()
            self._recover()
        if self._round.judged:
            self._commit([])

    def _next(self) -> list[_Waiting] | None:
        """The waiting work that is judged together. Empty if none arrives for a while, or until a commit is due; None
        at the end."""
        first: _Waiting | _Turn | None = _Turn.READ
        end = self._last + COMMIT_SECONDS if self._round.judged else time.monotonic() + IDLE_SECONDS
        while first is _Turn.READ:  # however many reads come
            self._read()
            if (left := end - time.monotonic()) <= 0:
                return []
            try:
                first = self._queue.get(timeout=left)
            except Empty:
                return []
        if first is None:
            while self._reads:
                self._read()
            return None
        assert isinstance(first, _Waiting)
        taken, documents = [first], len(first.work)
        while documents < BATCH:
            try:
                waiting = self._queue.get_nowait()
            except Empty:
                break
            if waiting is None:  # the end is handled by the next call
                self._queue.put(None)
                break
            if isinstance(waiting, _Waiting):
                taken.append(waiting)
                documents += len(waiting.work)
        return taken

    def _work(self, taken: Sequence[_Waiting]) -> None:
        pause = 0.0
        try:
            for same in _together(taken):
                if unanswered := [waiting for waiting in same if not self._answered(waiting)]:
                    self._judge(unanswered)
            pause = self._engine.index.pause * sum(len(w.work) for w in taken if isinstance(w.work, Add)) / 1000
            late = [waiting for waiting in taken if waiting.work.durable and waiting.error is None]
            self._tell([waiting for waiting in taken if not waiting.work.durable or waiting.error is not None])
            if late or (self._engine.index.full and not self._opening.read_only):
                self._commit(late)
        except BaseException as error:
            told = self._opening.disk.problem() if is_full(error) else error
            for waiting in taken:
                waiting.error = waiting.error or told
            self._tell(taken)
            raise
        end = time.monotonic() + pause  # lets merges keep up
        while (left := end - time.monotonic()) > 0:
            self._read()
            time.sleep(min(left, READ_SECONDS / 4))

    def _read(self) -> None:
        """Answer reads, for a while."""
        end = time.monotonic() + READ_SECONDS
        while time.monotonic() < end and (taken := self._reads.take()):
            try:
                for kind, same in groupby(taken, key=lambda waiting: type(waiting.work)):
                    if kind is Look:
                        self._look(same)
                    else:
                        self._judge(list(same))
            except BaseException as error:
                for waiting in taken:
                    waiting.error = waiting.error or error
                raise
            finally:
                self._tell(taken)
        if self._reads:
            self._queue.put(_Turn.READ)

    def _answered(self, waiting: _Waiting) -> bool:
        """Whether work has its answer already: that of an earlier request with its key, or that its condition is not
        met."""
        work = waiting.work
        try:
            lines = None if work.retry is None else self._retries.answer(work.retry)
            if lines is not None:
                waiting.result = Answers(lines, rejections(lines), repeated=True)
            elif work.condition is not None:
                self._check(work.condition, self._columns([work]))
        except Problem as problem:
            waiting.error = problem
        return waiting.result is not None or waiting.error is not None

    def _check(self, condition: Condition, found: Columns) -> None:
        """Raise Problem if a document does not meet a condition. A rejected one changes nothing."""
        if found.rejected:
            return
        shard, row = self._engine.index.look_up(found.ids)[0].tolist()
        condition.check(None if row < 0 else int(self._engine.index.words(shard, row)[SEQ]))

    def _look(self, waitings: Iterable[_Waiting]) -> None:
        for waiting in waitings:
            assert isinstance(waiting.work, Look)
            try:
                waiting.result = waiting.work.read(self._engine)
            except Exception as error:
                waiting.error = error

    def _judge(self, waitings: list[_Waiting]) -> None:
        """Judge requests of one kind together, or one by one if that fails."""
        deletions, only_looking = (isinstance(waitings[0].work, kind) for kind in (Delete, Check))
        if not only_looking and not self._recover():  # they were accepted before the disk was full
            for waiting in waitings:
                waiting.error = self._opening.disk.problem()
            return
        works, began = [waiting.work for waiting in waitings], time.monotonic()
        found, traces = self._columns(works), _traces(works)
        durable = any(work.durable for work in works)
        said: list[bytes] = []
        reasons: dict[int, Rejection] = {}
        try:
            for judged in self._parts(found, only_looking, traces):
                verdicts = verdict_lines(judged)
                if not only_looking:
                    self._round.judged.append((judged, verdicts))
                if durable:
                    self._reads.keep_back(judged.judgement.ids)
                reasons.update((len(said) + i, why) for i, why in judged.reasons.items())
                said += map(deletion, verdicts) if deletions else answers(verdicts, judged, self._engine.index)
        except UsageError as error:  # nothing has changed
            if len(waitings) == 1:
                waitings[0].error = error
                return
            for waiting in waitings:
                self._judge([waiting])
            return
        if self._tracer is not None and not only_looking:
            facts = {"stream_lsh.documents": len(found)}
            self._tracer.ended("write", time.monotonic() - began, traces, facts)
        at = 0
        for waiting in waitings:
            end = at + len(waiting.work)
            waiting.result = Answers(said[at:end], {i - at: w for i, w in reasons.items() if at <= i < end})
            if waiting.work.retry is not None:
                self._retries.add(waiting.work.retry, said[at:end])
            at = end

    def _parts(self, found: Columns, only_looking: bool, traces: Sequence[Headers]) -> Iterator[Judged]:
        """Judge documents part by part, and answer reads in between. What the engine may refuse is one part, so that
        nothing has changed if it does.

        Raises:
            UsageError: the engine refuses the first part.
        """
        engine, window = self._engine, self._engine.index.window
        refusable = bool(found.deleted) and engine.settings.on_conflict == "reject"
        whole = refusable or (window is not None and window.shown == BEFORE)
        size = PART if self._reads.expected and not whole else len(found)
        for begin in range(0, max(len(found), 1), max(size, 1)):
            if begin:
                self._read()
            part = found.part(begin, min(begin + size, len(found)))
            trace_of = traces[begin : begin + size].__getitem__ if traces else no_trace
            yield engine.check(part) if only_looking else engine.add(part, trace_of=trace_of)

    def _recover(self) -> bool:
        """Open the index for writing again if it was closed and there is room. Returns whether it can be written."""
        if self._opening.recover():
            self._retries = self._retries_of()
        return not self._opening.read_only

    def _columns(self, works: Sequence[Work]) -> Columns:
        if isinstance(works[0], Delete):
            ids = [id for work in works if isinstance(work, Delete) for id in work.ids]
            return columns([Document(id, deleted=True) for id in ids])
        lines = joined([work.lines for work in works if isinstance(work, Add | Check)])
        fields = replace(self._engine.fields, envelope=None)  # requests have documents, not events
        return parse_lines(lines.data, lines.starts, lines.ends, fields, rejected=lines.rejected)

    def _commit(self, late: Sequence[_Waiting]) -> None:
        if not self._opening.read_only:  # otherwise all answers are of earlier commits
            self._engine.commit({}, *self._retries.take())
        self._last = time.monotonic()
        done, self._round = self._round, Round()
        self._reads.release()
        self._call(self._committed, done)
        self._tell(late)

    def _tell(self, waitings: Sequence[_Waiting]) -> None:
        if waitings:
            self._call(_answer, waitings)

    def _call(self, function: Callable[[Any], None], value: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed, and no request waits any more
            self._loop.call_soon_threadsafe(function, value)

    def _refuse(self, error: BaseException) -> None:
        """After an error of the index: fail all waiting and all later work."""
        self._call(self._failed, error)
        self._ended = True
        waiting: _Waiting | _Turn | None = _Turn.READ
        while waiting is not None:
            failed = [waiting] if isinstance(waiting, _Waiting) else []
            while taken := self._reads.take():
                failed += taken
            for each in failed:
                each.error = error
            self._tell(failed)
            waiting = self._queue.get()


def _traces(works: Sequence[Work]) -> list[Headers]:
    """The trace contexts of documents, of each; none if no document has one."""
    return [work.trace for work in works for _ in range(len(work))] if any(work.trace for work in works) else []


def _together(waitings: Sequence[_Waiting]) -> Iterator[list[_Waiting]]:
    """Neighbours that can be judged together: of one kind, without conditions, and no two with the same key."""
    some: list[_Waiting] = []
    names: set[str] = set()
    for waiting in waitings:
        work, before = waiting.work, some[-1].work if some else waiting.work
        conditional = work.condition is not None or before.condition is not None
        name = None if work.retry is None else work.retry.name
        if some and (type(work) is not type(before) or conditional or name in names):
            yield some
            some, names = [], set()
        some.append(waiting)
        names |= set() if name is None else {name}
    if some:
        yield some


def _answer(waitings: Sequence[_Waiting]) -> None:
    for waiting in waitings:
        if waiting.future.done():
            continue
        if waiting.error is None:
            waiting.future.set_result(waiting.result)
        else:
            error = waiting.error
            waiting.future.set_exception(error if isinstance(error, Exception) else StreamLshError(repr(error)))
            waiting.future.exception()  # marks it as retrieved if the client has disconnected
