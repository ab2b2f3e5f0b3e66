"""What was deleted or replaced, and is still on the disk: what there is of it, and having it erased."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_lsh.embedded.alert_journal import AlertJournal
from stream_lsh.embedded.group_erasing import still_named
from stream_lsh.embedded.groups import opened
from stream_lsh.embedded.journal import Journal
from stream_lsh.embedded.preparation import prepare
from stream_lsh.embedded.sink import Sink
from stream_lsh.embedded.stored_answers import erase_answers
from stream_lsh.index.erasure.queue import ERASED_VERSIONS, Version, count, queue_entries
from stream_lsh.index.index import Index
from stream_lsh.index.rows.ids import Ids
from stream_lsh.index.rows.layout import DELETED, FLAGS, GROUP, REPRESENTATIVE, SEQ
from stream_lsh.index.rows.row_file import NONE, RowFile, blank, unpacked
from stream_lsh.index.rows.texts import Texts
from stream_lsh.index.store.rocksdb import ROWS, Store
from stream_lsh.settings.model import Settings

ENDING_SECONDS = 5.0  # of erasing at the end of a run; the next one continues


class Erasure(NamedTuple):
    """erased, waiting: versions erased so far, and still in the queue. oldest, due: seconds since 1970, when the oldest
    version in the queue was deleted or replaced, and when the first is due; None if the queue is empty."""

    erased: int
    waiting: int
    oldest: int | None
    due: int | None


def erasure(store: Store) -> Erasure:
    """The progress of erasing in an index."""
    queued = [(count(entry.versions[1]), entry.since, entry.place.due) for entry in queue_entries(store)]
    waiting, since, due = zip(*queued, strict=True) if queued else ((), (), ())
    return Erasure(store.named(ERASED_VERSIONS) or 0, sum(waiting), min(since, default=None), min(due, default=None))


def remains(
    store: Store, shard: int, settings: Settings, segment: int, first: int, end: int, rows: RowFile,
    erased: NDArray[np.int64],
) -> Iterator[str]:  # fmt: skip
    """What is left of erased versions of a segment with the rows [first, end), but for those that wait to be; rows:
    its file; erased: what `erased_of` says."""
    exact, signature_at = settings.verify == "exact", rows.shape.signature_at
    queued = (entry.versions[0] for entry in queue_entries(store) if entry.place.shard == shard)
    waits = [rows[(rows >= first) & (rows < end)] for rows in queued]
    erased = np.setdiff1d(erased, np.concatenate([NONE, *waits]))
    ids, texts = Ids(store, shard, lambda _: segment), Texts(store, shard, lambda _: segment)
    ids.forget(end)  # all are to be read
    versions: list[Version] = []
    for row in erased[erased < end].tolist():
        if row - first < rows.flushed:
            block = rows.read(row - first, row - first + 1)
        else:
            begin, value = store.holding(ROWS, shard, segment, row)
            block = unpacked(value)[row - begin : row - begin + 1]
        version = not int(block[0, FLAGS]) & (DELETED | REPRESENTATIVE)
        if version:
            versions.append((int(block[0, GROUP]), int(block[0, SEQ])))
        found = [] if np.array_equal(block, blank(block, signature_at)) else ["row"]
        if version and ids.read(row) != b"null":
            found.append("id")
        if version and exact and len(texts.read([row], 1)[0]):
            found.append("text")
        if found:
            what = " and ".join(found)
            yield f"row {row} of shard {shard} was erased, but its {what} can still be read in {store.path}"
    if still_named(store, versions):
        yield f"ids that were erased of shard {shard} can still be read in what {store.path} has of groups"


def erase(folder: Path, *, everything: bool = False) -> Erasure:
    """Erase what is due from the index in a folder; everything: also what is not due yet.

    Raises:
        StoreError: another process has it, or it cannot be read. OutputError: it cannot be written.
    """
    prepare()
    index = Index(Settings(), folder, now=time.time())
    try:
        opened(index, False, None)
        if everything:
            erase_answers(index.store, float("inf"))
        erase_due(index, float("inf") if everything else time.time())
        return erasure(index.store)
    finally:
        index.close()


def erase_due(index: Index, now: float, seconds: float = float("inf")) -> None:
    """Erase all that is due from an index that is not fed now, and what an interrupted run has left in its folder.
    seconds: begin nothing after them."""
    index.erase(now, begins=partial(_erase_lines, index), seconds=seconds)


def _erase_lines(index: Index, since: int) -> None:
    """Erase what runs and services have left that was written by this time, in seconds since 1970."""
    AlertJournal(index.store).erase(since)
    erase_answers(index.store, since)
    if (job := index.store.named("job")) is not None:
        Journal(index).erase(since)
        known = job["outputs"]
        paths = {place: place for place, output in known.items() if output["tail"]}
        for place in [place for place in paths if not Path(place).exists()]:
            del paths[place], known[place]  # with the lines that were to be added to it
        sink = Sink.of(paths, known, True, index.folder, index.settings.verify)
        try:
            sink.let_go(since)
            marks = {place: {name: known[place].get(name) for name in ("name", "mark", "piped")} for place in paths}
            known = sink.checkpoint(True, 0)
            for place in paths:
                known[place] |= marks[place]
        finally:
            sink.close()
        index.commit({"job": {**job, "outputs": known}})
