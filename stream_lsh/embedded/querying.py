"""Inputs against an index to which nothing is added: the verdict that each document would get as the next one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from stream_lsh.documents.columns import Position, Rejection
from stream_lsh.embedded.engine import checked
from stream_lsh.embedded.feed import open_input
from stream_lsh.embedded.inputs import Input
from stream_lsh.embedded.lines import Batch
from stream_lsh.embedded.outputs import STANDARD, Output, check_distinct
from stream_lsh.embedded.pipeline import chain
from stream_lsh.embedded.preparation import prepare
from stream_lsh.embedded.report import PROGRESS_SECONDS, Counts, Progress, Summary
from stream_lsh.errors import StreamLshError
from stream_lsh.index.batch import SignedBatch
from stream_lsh.index.index import Index
from stream_lsh.index.reader import IndexReader
from stream_lsh.judging.verdicts import Judgement, verdicts
from stream_lsh.settings.model import Settings

_WAIT = 0.2


def query(
    settings: Settings,
    inputs: Sequence[str],
    output: str,
    folder: Path,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Summary:
    """Write a verdict for every document of the inputs, in their order, a line each; they are not compared with each
    other. The index is seen as it was committed last; another process may be writing to it.

    Args:
        settings: what is not given is the index's own. inputs: files, folders or "-". output: a file, or "-".

    Raises:
        StreamLshError: with the verdicts before the error written; likewise KeyboardInterrupt and BrokenPipeError.
    """
    check_distinct({"--output": output}, inputs)
    prepare(settings)
    index = Index(settings, folder, read_only=True)
    try:
        return query_with(index, inputs, output, progress)
    finally:
        index.close()


def query_with(
    index: IndexReader, inputs: Sequence[str], output: str, progress: Callable[[Progress], None]
) -> Summary:  # fmt: skip
    """`query` with an open index."""
    own = index.settings
    time = own.time_field if own.on_conflict == "update" else None  # which may make a document outdated
    named = own.source_field if own.keep_per is not None else None
    fields = replace(own.document_fields, time_field=time, source_field=named, deleted_field=None, envelope=None)
    opened = [open_input(name, fields) for name in inputs]
    for source in opened:
        source.check()
    target = Output.standard() if output == STANDARD else Output.create(output, overwrite=True)
    try:
        return _Run(index, opened, target, progress).go()
    finally:
        target.close()


@dataclass
class _Run:
    _index: IndexReader
    _inputs: Sequence[Input]
    _output: Output
    _progress: Callable[[Progress], None]

    def __post_init__(self) -> None:
        self._counts = Counts()
        self._started = self._shown = time.monotonic()

    def go(self) -> Summary:
        batches = (batch for source in self._inputs for batch in source.batches(Position()))
        stage, stop = chain(batches, self._sign)
        try:
            while True:
                try:
                    item = stage.get(_WAIT)
                except StopIteration:
                    break
                if item is not None:
                    self._answer(*item)
                if time.monotonic() - self._shown >= PROGRESS_SECONDS and self._counts.documents:
                    self._show()
        except BaseException:
            with suppress(StreamLshError, OSError):  # the first error is the one to report
                self._output.finish()
            raise
        finally:
            stop()
        self._output.finish()
        self._show()
        return self._counts.summary(
            index_documents=self._index.count, seconds=time.monotonic() - self._started,
            compare_with=self._index.settings.compare_with,
        )  # fmt: skip

    def _sign(self, batch: Batch) -> tuple[Batch, SignedBatch]:
        return batch, self._index.sign(batch, want_texts=False)

    def _answer(self, batch: Batch, signed: SignedBatch) -> None:
        judged = checked(self._index, batch, signed)
        judgement, why = judged.judgement, judged.reasons
        self._output.write(_lines(judgement, batch, why))
        self._counts.add(judgement, [rejection.reason for rejection in why.values()])

    def _show(self) -> None:
        self._shown = time.monotonic()
        sizes = [source.size for source in self._inputs]
        total = None if any(size is None for size in sizes) else sum(size or 0 for size in sizes)
        read = sum(source.raw_position for source in self._inputs)
        self._progress(self._counts.progress(read, total, time.monotonic() - self._started))


def _lines(judgement: Judgement, batch: Batch, why: Mapping[int, Rejection]) -> bytes:
    """A verdict a line; of what is rejected with the reason and its place in the inputs."""
    lines = verdicts(judgement)
    for i, rejection in why.items():
        more = {
            "reason": rejection.reason, "detail": rejection.detail, "input": batch.input,
            "line": int(batch.lines.numbers[i]), "offset": int(batch.lines.offsets[i]),
        }  # fmt: skip
        lines[i] += b"," + orjson.dumps(more)[1:-1]
    return b"".join([line + b"}\n" for line in lines])
