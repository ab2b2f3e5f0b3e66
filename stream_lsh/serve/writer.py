"""The only thread that uses the index: it takes waiting work together, judges it in order, and commits once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from stream_lsh.documents.builder import columns
from stream_lsh.documents.columns import Columns, Rejection
from stream_lsh.documents.document import Document
from stream_lsh.documents.lines import parse_lines
from stream_lsh.embedded.engine import Engine, Judged
from stream_lsh.embedded.lines import Lines
from stream_lsh.errors import StreamLshError, UsageError
from stream_lsh.judging.verdicts import deletion
from stream_lsh.serve.answers import answers, verdict_lines
from stream_lsh.serve.disk import is_full
from stream_lsh.serve.opening import Opening

BATCH = 2048  # documents that are judged together
COMMIT_SECONDS = 0.5  # longest time until documents with an early answer are committed
IDLE_SECONDS = 2.0  # without work, after which it continues erasing


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to the documents of a request.

    Attributes:
        lines: one JSON object per document.
        rejected: reasons of rejected documents, by position.
        late: where a verdict will be that is not there in time, by position.
    """

    lines: Sequence[bytes]
    rejected: Mapping[int, Rejection]
    late: Mapping[int, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Add:
    """Documents to be judged and stored. durable: answer after the commit."""

    lines: Lines
    durable: bool = True

    def __len__(self) -> int:
        return len(self.lines.starts)


@dataclass(slots=True, eq=False)
class Check:
    """Documents to be judged, each as if it were the next one."""

    lines: Lines

    def __len__(self) -> int:
        return len(self.lines.starts)


@dataclass(slots=True, eq=False)
class Delete:
    """Documents to be deleted."""

    ids: Sequence[str | int]
    durable: bool = True

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(slots=True, eq=False)
class Look:
    """A function that reads the index."""

    read: Callable[[Engine], Any]

    def __len__(self) -> int:
        return 1


Work = Add | Check | Delete | Look


@dataclass(slots=True, eq=False)
class _Waiting:
    """Work in the queue, and its result."""

    work: Work
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


@dataclass(slots=True)
class Round:
    """The batches of one commit in order, with their verdicts as `dedup` writes them."""

    judged: list[tuple[Judged, list[bytes]]] = field(default_factory=list)


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
        self._committed = committed
        self._failed = failed
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._round = Round()  # added, but not committed yet
        self._last = time.monotonic()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self.waiting = 0  # documents without an answer; used in the event loop

    @property
    def _engine(self) -> Engine:
        return self._opening.engine

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
        self.waiting += len(work)
        self._queue.put(waiting)
        try:
            return await waiting.future  # a disconnect of the client does not cancel the work
        finally:
            self.waiting -= len(work)

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
                if not self._opening.failed(error):
                    self._refuse(error)
                    return
                if self._ended:  # the end may have been taken already
                    self._queue.put(None)

    def _write(self) -> None:
        """Do what is in the queue, until the end. After an error the engine cannot be used any more."""
        while (taken := self._next()) is not None:
            if taken:
                self._work(taken)
            if self._round.judged and time.monotonic() - self._last >= COMMIT_SECONDS:
                self._commit([])
            elif not taken:
                self._engine.erase()
            self._opening.recover()
        if self._round.judged:
            self._commit([])

    def _next(self) -> list[_Waiting] | None:
        """The waiting work that is judged together. Empty if none arrives for a while, or until a commit is due; None
        at the end."""
        patience = max(0.0, self._last + COMMIT_SECONDS - time.monotonic()) if self._round.judged else IDLE_SECONDS
        try:
            first = self._queue.get(timeout=patience)
        except Empty:
            return []
        if first is None:
            return None
        taken, documents = [first], len(first.work)
        while documents < BATCH:
            try:
                waiting = self._queue.get_nowait()
            except Empty:
                break
            if waiting is None:  # the end is handled by the next call
                self._queue.put(None)
                break
            taken.append(waiting)
            documents += len(waiting.work)
        return taken

    def _work(self, taken: Sequence[_Waiting]) -> None:
        pause = 0.0
        try:
            for kind, same in groupby(taken, key=lambda waiting: type(waiting.work)):
                if kind is Look:
                    self._look(same)
                else:
                    self._judge(list(same))
            pause = self._engine.index.pause * sum(len(w.work) for w in taken if isinstance(w.work, Add)) / 1000
            late, early = _parted(taken)
            self._tell(early)
            if late or (self._engine.index.full and not self._opening.read_only):
                self._commit(late)
        except BaseException as error:
            told = self._opening.disk.problem() if is_full(error) else error
            for waiting in taken:
                waiting.error = waiting.error or told
            self._tell(taken)
            raise
        if pause:  # lets merges keep up
            time.sleep(pause)

    def _look(self, waitings: Iterator[_Waiting]) -> None:
        for waiting in waitings:
            assert isinstance(waiting.work, Look)
            try:
                waiting.result = waiting.work.read(self._engine)
            except Exception as error:
                waiting.error = error

    def _judge(self, waitings: list[_Waiting]) -> None:
        """Judge requests of one kind together, or one by one if that fails."""
        only_looking = isinstance(waitings[0].work, Check)
        if self._opening.read_only and not only_looking:  # they were accepted before the disk was full
            for waiting in waitings:
                waiting.error = self._opening.disk.problem()
            return
        found = self._columns([waiting.work for waiting in waitings])
        try:
            judged = self._engine.check(found) if only_looking else self._engine.add(found)
        except UsageError as error:  # nothing has changed
            if len(waitings) == 1:
                waitings[0].error = error
                return
            for waiting in waitings:
                self._judge([waiting])
            return
        verdicts = verdict_lines(judged)
        if not only_looking:
            self._round.judged.append((judged, verdicts))
        deletions = isinstance(waitings[0].work, Delete)
        said, at = list(map(deletion, verdicts)) if deletions else answers(verdicts, judged, self._engine.index), 0
        for waiting in waitings:
            end = at + len(waiting.work)
            waiting.result = Answers(said[at:end], {i - at: w for i, w in judged.reasons.items() if at <= i < end})
            at = end

    def _columns(self, works: Sequence[Work]) -> Columns:
        if isinstance(works[0], Delete):
            ids = [id for work in works if isinstance(work, Delete) for id in work.ids]
            return columns([Document(id, deleted=True) for id in ids])
        lines = joined([work.lines for work in works if isinstance(work, Add | Check)])
        return parse_lines(lines.data, lines.starts, lines.ends, self._engine.fields, rejected=lines.rejected)

    def _commit(self, late: Sequence[_Waiting]) -> None:
        self._engine.commit()
        self._last = time.monotonic()
        done, self._round = self._round, Round()
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
        while (waiting := self._queue.get()) is not None:
            waiting.error = error
            self._tell([waiting])


def _parted(waitings: Sequence[_Waiting]) -> tuple[list[_Waiting], list[_Waiting]]:
    """Splits work into what waits for the commit and what does not."""
    late: list[_Waiting] = []
    early: list[_Waiting] = []
    for waiting in waitings:
        durable = isinstance(waiting.work, Add | Delete) and waiting.work.durable
        (late if durable and waiting.error is None else early).append(waiting)
    return late, early


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


def joined(parts: Sequence[Lines]) -> Lines:
    """Lines concatenated. Their numbers and offsets are dropped."""
    if len(parts) == 1:
        return parts[0]
    at = np.cumsum([0, *(len(part.data) for part in parts)])
    places = np.cumsum([0, *(len(part.starts) for part in parts)])
    starts = np.concatenate([part.starts + begin for part, begin in zip(parts, at, strict=False)])
    ends = np.concatenate([part.ends + begin for part, begin in zip(parts, at, strict=False)])
    rejected = {
        i + int(place): why for part, place in zip(parts, places, strict=False) for i, why in part.rejected.items()
    }  # fmt: skip
    none = np.empty(0, np.int64)
    return Lines(b"".join(part.data for part in parts), starts, ends, none, none, rejected, parts[-1].position)
