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
from stream_lsh.embedded.erasure import erase_due
from stream_lsh.embedded.groups import NO_GROUPS, opened
from stream_lsh.embedded.places import Places
from stream_lsh.embedded.preparation import prepare
from stream_lsh.embedded.sink import Sink, removal_lines
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
    with ExitStack() as stack:
        prepare()
        index = Index(Settings(erase_hours=erase_hours), folder, now=time.time())
        stack.callback(index.close)
        if index.settings.on_conflict != "update":
            raise UsageError(
                f"nothing can be deleted from the index in {folder}, whose documents stay as they are (on_conflict = "
                "reject): feed them into a new one with dedup --on-conflict update"
            )
        engine = Engine(index, opened(index, False, None))
        if engine.groups is None and groups is not None:
            raise StoreError(NO_GROUPS.format(folder))
        outputs = {name: path for name, path in (("unique", unique), ("groups", groups)) if path is not None}
        sink = Sink.of(outputs, engine.job["outputs"], bool(engine.job["open"]), folder, index.settings.verify)
        stack.callback(sink.close)
        deleting = _Deleting(engine, sink)
        iterator = iter(ids)
        while some := list(islice(iterator, BATCH)):
            yield deleting.take(some)
        if outputs:
            deleting.finish()
        sink.close()
        erase_due(index, time.time())


class _Deleting:
    """An index from which something is deleted, and its outputs."""

    def __init__(self, engine: Engine, sink: Sink) -> None:
        self._engine = engine
        self._sink = sink
        self._place_of = Places(engine.index).of

    def take(self, ids: Sequence[str | int]) -> Judgement:
        """Delete some, for good."""
        found = columns([Document(id, deleted=True) for id in ids])
        for i, rejection in found.rejected.items():
            raise UsageError(f"{str(ids[i])[:100]}: {rejection.detail}")
        judged = self._engine.add(found)
        judgement, events = judged.judgement, judged.events
        self._sink.put("unique", removal_lines(judgement, self._place_of))
        if events is not None:
            for lines in events.lines(found.ids, judgement.seqs):
                self._sink.put("groups", lines)
        self._commit()
        return judgement

    def finish(self) -> None:
        """Complete the output."""
        self._sink.finish()
        self._commit()

    def _commit(self) -> None:
        now = time.time()
        self._engine.commit({"outputs": self._sink.checkpoint(True, int(now))}, now=now)
