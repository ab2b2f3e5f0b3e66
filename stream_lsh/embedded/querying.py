"""Inputs against an index to which nothing is added: the verdict that each document would get as the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

import orjson

from stream_lsh.documents.columns import Position, Rejection
from stream_lsh.embedded.engine import checked
from stream_lsh.embedded.feed import open_input, total_bytes
from stream_lsh.embedded.lines import Batch
from stream_lsh.embedded.output_paths import check_outputs
from stream_lsh.embedded.outputs import STANDARD, Output, check_free
from stream_lsh.embedded.pipeline import chain
from stream_lsh.embedded.preparation import prepare
from stream_lsh.embedded.report import PROGRESS_SECONDS, Counts, Progress, Summary
from stream_lsh.errors import StreamLshError
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
    *,
    overwrite: bool = False,
) -> Summary:
    """Write a verdict for every document of the inputs, in their order, a line each; they are not compared with each
    other. The index is seen as it was committed last; another process may be writing to it.

    Args:
        settings: what is not given is the index's own. inputs: files, folders or "-". output: a file, or "-".
        overwrite: replace a file that is there.

    Raises:
        StreamLshError: with the verdicts before the error written; likewise KeyboardInterrupt and BrokenPipeError.
    """
    check_output(output, inputs, folder, overwrite=overwrite)
    prepare(settings)
    index = Index(settings, folder, read_only=True)
    try:
        return query_with(index, inputs, output, progress)
    finally:
        index.close()


def check_output(
    output: str, inputs: Sequence[str], folder: Path, *, overwrite: bool, config: Path | None = None
) -> None:  # fmt: skip
    """Check where the verdicts go, before anything is done. folder: of the index. config: the file of the settings.

    Raises:
        UsageError: it is a file that is read, or in an index. OutputError: a file is there that is to be kept.
    """
    check_outputs({"--output": output}, inputs, folder=folder, read={"--config": config})
    if output != STANDARD:
        check_free(output, overwrite)


def query_with(
    index: IndexReader, inputs: Sequence[str], output: str, progress: Callable[[Progress], None]
) -> Summary:  # fmt: skip
    """`query` with an open index, after `check_output`."""
    own = index.settings
    time = own.time_field if own.on_conflict == "update" else None  # which may make a document outdated
    named = own.source_field if own.keep_per is not None else None
    fields = replace(own.document_fields, time_field=time, source_field=named, deleted_field=None, envelope=None)
    opened = [open_input(name, fields) for name in inputs]
    for source in opened:
        source.check()
    counts, started = Counts(), monotonic()
    shown = started

    def show() -> None:
        read = sum(source.raw_position for source in opened)
        progress(counts.progress(read, total_bytes(opened), monotonic() - started))

    with closing(Output.standard() if output == STANDARD else Output.create(output, overwrite=True)) as target:
        batches = (batch for source in opened for batch in source.batches(Position()))
        stage, stop = chain(batches, lambda batch: (batch, index.sign(batch, want_texts=False)))
        try:
            for item in stage.each(_WAIT):
                if item is not None:
                    judged = checked(index, *item)
                    target.write(_lines(judged.judgement, item[0], judged.reasons))
                    counts.add(judged.judgement, [rejection.reason for rejection in judged.reasons.values()])
                if monotonic() - shown >= PROGRESS_SECONDS and counts.documents:
                    shown = monotonic()
                    show()
        except BaseException:
            with suppress(StreamLshError, OSError):  # the first error is the one to report
                target.finish()
            raise
        finally:
            stop()
        target.finish()
        show()
    return counts.summary(
        index_documents=index.count, seconds=monotonic() - started, compare_with=own.compare_with
    )  # fmt: skip


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
