"""Taking documents: batches of a sequence, of a feed or of a table, and their commits."""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import islice
from typing import Any

import orjson

from stream_lsh.api.answers import verdicts_of
from stream_lsh.api.arrow import Rows, VerdictTable
from stream_lsh.api.guard import Guard, uninterrupted
from stream_lsh.api.questions import BATCH, Questions
from stream_lsh.api.verdict import Verdict
from stream_lsh.documents.builder import Builder
from stream_lsh.documents.columns import Columns
from stream_lsh.documents.document import Document
from stream_lsh.embedded.engine import Engine, Judged
from stream_lsh.embedded.pipeline import Stage
from stream_lsh.errors import UsageError
from stream_lsh.index.batch import SignedBatch
from stream_lsh.index.index import Index

COMMIT_SECONDS = 0.4  # and the commit itself takes less than a tenth of a second
SIGNERS = 2  # parts of a table that are signed at the same time: signing takes as long as all the rest
AHEAD = 256  # documents of a feed that wait for the next batch
_Given = Document | Mapping[str, Any]
feeding: ContextVar[tuple[Feeding, ...]] = ContextVar("feeding", default=())  # that a feed's thread is ahead of


class _Batch:
    """A batch of documents whose verdicts are being delivered. left: verdicts not delivered. pause: seconds that the
    caller is to wait. jumped: whether its times advance by more than the window."""

    verdicts: Sequence[Any] = ()
    left = 0
    pause = 0.0
    jumped = False


class Feeding(Questions):
    """What takes documents, batch by batch, and commits them.

    Args:
        automatic: whether it commits by itself.
    """

    def __init__(self, engine: Engine, guard: Guard, *, automatic: bool) -> None:
        super().__init__(engine, guard)
        self._automatic = automatic
        self._facts: bytes = orjson.dumps(self._index.store.named("facts") or {})
        self._committed = time.monotonic()
        self._timer: threading.Timer | None = None  # there while something waits to be committed by itself
        self._uncommitted = False
        self._under_way: set[_Batch] = set()

    def _verdicts(self, documents: Iterator[_Given], size: int | None) -> Iterator[Verdict]:
        count, least = 0, 1 if size is None else min(size, BATCH)  # with fewer documents a batch is the last
        with _batches(documents if size is not None else self._ahead(documents), size) as some:
            while True:
                self._guard.check_process()  # where the thread of a feed is, too
                builder, error = self._taken(some, count)
                count += len(builder)
                if len(builder):
                    batch = _Batch()
                    try:
                        self._judge(builder.columns(), batch)
                        if batch.jumped:
                            warnings.warn(
                                f"stream time jumped by more than the window of {self.settings.window}, and the "
                                "documents before are forgotten: if event times were wrong, set it back with "
                                "set_stream_time",
                                RuntimeWarning, stacklevel=2,
                            )  # fmt: skip
                        for verdict in batch.verdicts:
                            batch.left -= 1
                            yield verdict
                    finally:
                        batch.left = 0  # a caller that breaks off does not want the rest
                        self._under_way.discard(batch)
                    if batch.pause:  # merges have to keep up
                        time.sleep(batch.pause)
                if error is not None:
                    raise error
                if len(builder) < least:
                    return

    def _ahead(self, documents: Iterator[_Given]) -> Iterator[_Given]:
        """The documents of a feed, for its thread."""
        feeding.set((*feeding.get(), self))
        yield from documents

    def _taken(self, some: Callable[[], Iterable[_Given]], count: int) -> tuple[Builder, Exception | None]:
        """The next documents, and the error that ended them. count: those before."""
        builder = Builder(self._engine.fields)
        try:
            for document in some():
                try:
                    builder.add(document)
                except TypeError as error:
                    return builder, TypeError(f"document {count + len(builder)} (counted from 0): {error}")
        except Exception as error:
            return builder, error
        return builder, None

    def _process_rows(self, rows: Rows) -> Any:
        verdicts = VerdictTable(rows.no_ids)
        with ThreadPoolExecutor(SIGNERS, "sign") as pool:  # the next parts are signed while one is matched
            ahead: deque[tuple[Columns, Future[SignedBatch]]] = deque()
            for columns, ids in rows.parts():
                verdicts.add_ids(ids)
                ahead.append((columns, pool.submit(self._index.sign, columns)))
                if len(ahead) > SIGNERS:
                    self._judge_rows(*ahead.popleft(), verdicts)
            while ahead:
                self._judge_rows(*ahead.popleft(), verdicts)
        return verdicts.table()

    def _judge_rows(self, columns: Columns, signed: Future[SignedBatch], verdicts: VerdictTable) -> None:
        batch = _Batch()
        try:
            self._judge(columns, batch, signed.result(), verdicts.of)
        finally:
            batch.left = 0
            self._under_way.discard(batch)
        if batch.pause:
            time.sleep(batch.pause)

    def _judge(
        self, found: Columns, batch: _Batch, signed: SignedBatch | None = None,
        answers: Callable[[Judged, Index], Sequence[Any]] = verdicts_of,
    ) -> None:  # fmt: skip
        """signed: the documents, if they are already. answers: what is made of the verdicts, one for each document."""
        guard = self._guard
        guard.check_process()
        self._index.compile()  # here Ctrl-C need not wait for it
        with guard.lock:
            guard.check()
            signed = self._index.sign(found) if signed is None else signed
            with uninterrupted():
                window, guard.torn = self._index.window, True  # a commit sees all of a batch or nothing
                jumps = window.jumps if window is not None else 0
                try:
                    judged = self._engine.add(found, signed)
                except UsageError:  # nothing has changed
                    guard.torn = False
                    raise
                batch.verdicts = answers(judged, self._index)
                batch.left = len(batch.verdicts)
                batch.pause = self._index.pause * len(batch.verdicts) / 1000
                batch.jumped = window is not None and window.jumps > jumps
                self._under_way.add(batch)
                self._uncommitted = True
                guard.torn = False
                if self._automatic and (self._index.full or time.monotonic() - self._committed >= COMMIT_SECONDS):
                    self._commit()
                elif self._automatic and self._timer is None:
                    self._timer = threading.Timer(COMMIT_SECONDS, self._commit_by_itself)
                    with suppress(RuntimeError):  # the interpreter ends
                        self._timer.start()

    def _commit(self, facts: bytes | None = None) -> None:
        self._guard.torn = True
        self._engine.commit(facts={} if facts is None else {"facts": orjson.loads(facts)})
        self._guard.torn = False
        self._facts = facts or self._facts
        self._committed, self._uncommitted = time.monotonic(), False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _commit_by_itself(self) -> None:
        """What the timer calls, in a thread of its own."""
        guard = self._guard
        with guard.lock:
            if threading.current_thread() is not self._timer or guard.closed or guard.torn:
                return
            try:
                self._commit()
            except Exception as error:  # the next call says so
                guard.failure = error


@contextmanager
def _batches(documents: Iterator[_Given], size: int | None) -> Iterator[Callable[[], Iterable[_Given]]]:
    """What gives the documents of the next batch, none at the end: so many, or as many as have arrived."""
    if size is not None:
        yield lambda: islice(documents, min(size, BATCH))
        return
    feed = Stage(zip(documents), "documents", AHEAD)  # in tuples: None would be no item
    try:
        yield lambda: [document for (document,) in feed.take(BATCH)]
    finally:
        feed.stop()
