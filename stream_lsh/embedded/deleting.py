"""Deletions by hand: ids, against an index, outside its feeds. An interrupted run resumes after them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from stream_lsh.documents.builder import columns
from stream_lsh.documents.document import Document
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.erasure import ENDING_SECONDS, erase_due
from stream_lsh.embedded.groups import NO_GROUPS, opened
from stream_lsh.embedded.output_paths import check_outputs
from stream_lsh.embedded.preparation import prepare
from stream_lsh.embedded.sink import PlaceOf, Sink, removals
from stream_lsh.embedded.source_positions import SourcePositions
from stream_lsh.errors import StoreError, UsageError
from stream_lsh.index.index import Index
from stream_lsh.judging.verdicts import Judgement
from stream_lsh.settings.model import Settings

BATCH = 2048


def delete(
    ids: Iterable[str | int],
    folder: Path,
    unique: str | None = None,
    groups: str | None = None,
    erase_hours: float | None = 24,
) -> Iterator[Judgement]:
    """Delete documents from the index in a folder. Returns the outcome once it is committed.

    Args:
        unique: output of the kept documents; gets a line for each deleted one. groups: output of group events; gets
            the changes. erase_hours: as in `Settings`.

    Raises:
        StreamLshError: ids reported before it are deleted. The same holds for KeyboardInterrupt.
    """
    outputs = {name: path for name, path in (("unique", unique), ("groups", groups)) if path is not None}
    check_outputs({f"--{name}": path for name, path in outputs.items()}, folder=folder)
    with ExitStack() as stack:
        prepare()
        index = Index(Settings(erase_hours=erase_hours), folder, now=time.time(), clock=time.monotonic)
        stack.callback(index.close)
        if index.settings.on_conflict != "update":
            raise UsageError(
                f"nothing can be deleted from the index in {folder}, whose documents stay as they are (on_conflict = "
                "reject): feed them into a new one with dedup --on-conflict update"
            )
        engine = Engine(index, opened(index, False, None))
        if engine.groups is None and groups is not None:
            raise StoreError(NO_GROUPS.format(folder))
        sink = Sink.of(outputs, engine.job["outputs"], bool(engine.job["open"]), folder, index.settings.verify)
        stack.callback(sink.close)
        iterator, place_of = iter(ids), SourcePositions(index).of
        while some := list(islice(iterator, BATCH)):
            judgement = _deleted(some, engine, sink, place_of)
            _commit(engine, sink)
            yield judgement
        if outputs:
            sink.finish()
            _commit(engine, sink)
        sink.close()
        erase_due(index, time.time(), ENDING_SECONDS)


def _deleted(ids: Sequence[str | int], engine: Engine, sink: Sink, place_of: PlaceOf) -> Judgement:
    """Delete some, and write the lines of their outputs."""
    found = columns([Document(id, deleted=True) for id in ids])
    for i, rejection in found.rejected.items():
        raise UsageError(f"{str(ids[i])[:100]}: {rejection.detail}")
    judged = engine.add(found)
    judgement, events = judged.judgement, judged.events
    sink.put("unique", b"".join([line for _, line in removals(judgement, place_of)]))
    for lines in events.lines(found.ids, judgement.seqs) if events is not None else ():
        sink.put("groups", lines)
    return judgement


def _commit(engine: Engine, sink: Sink) -> None:
    now = time.time()
    engine.commit({"outputs": sink.checkpoint(True, int(now))}, now=now)
