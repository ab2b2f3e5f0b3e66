"""Outputs written anew from the inputs; the last choice of a finished run (`--final`): what is kept at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.fields import dumped
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.feed import Source
from stream_lsh.embedded.inputs import Input
from stream_lsh.embedded.journal import Entry, Journal
from stream_lsh.embedded.lines import Lines
from stream_lsh.embedded.outputs import STANDARD, check_free, is_there
from stream_lsh.embedded.signals import postponed
from stream_lsh.embedded.sink import Removal, Sink
from stream_lsh.embedded.targets import Missing, moved_outputs, place_of, targets_of, unpacked
from stream_lsh.errors import InputError, StoreError, UsageError
from stream_lsh.index.represented import represented
from stream_lsh.index.rows.deleted_rows import MARK_LIVE
from stream_lsh.index.rows.layout import DELETED, DROPPED, FLAGS, REPRESENTATIVE, SEQ
from stream_lsh.index.shard import Shard
from stream_lsh.index.store.rocksdb import name_key
from stream_lsh.settings.model import Settings

FINAL = "final"
"""The name of a fact of the index: the state of each output of `--final`, by place."""
_AT_ONCE = 1 << 14  # rows read at a time


class LastChoice:
    """The output `unique` of a run that writes it at its end.

    Args:
        outputs: `unique` is taken out of them. overwrite: replace a file that is there, but not from this index.

    Raises:
        UsageError: these inputs or settings have no last choice. OutputError: the file is there.
    """

    def __init__(self, outputs: dict[str, str], engine: Engine, sources: Sequence[Source], *, overwrite: bool) -> None:
        _check(engine.settings, sources)
        if "unique" not in outputs:
            raise UsageError("--final is for the unique documents, which go nowhere; add --unique FILE")
        self._path = outputs.pop("unique")
        self._engine = engine
        self._sources = sources
        finals = moved_outputs(engine.index.store.named(FINAL) or {}, engine.job["folders"])
        known = unpacked(finals.get(place_of(self._path)))
        if self._path != STANDARD and not (known is not None and is_there(self._path, known, strict=not overwrite)):
            check_free(self._path, overwrite)

    def write(self, journal: Journal, verified: str, schema: Any) -> None:
        """Write the output. verified, schema: as of `Sink`.

        Raises:
            InputError: an input is not what was read before. OutputError: it cannot be written. StoreError: the index
                does not know all documents of the inputs any more.
        """
        store, now = self._engine.index.store, int(time.time())
        entries = self._entries(journal)
        targets = targets_of({"unique": self._path}, {}, self._engine.index.folder, overwrite=True)
        sink = Sink(targets, {}, False, None, verified, schema)
        try:
            with postponed() as check_signals:
                inputs = {str(source.name): source.input for source in self._sources}
                write_again(entries, inputs, journal, sink, check_signals)
            sink.finish()
            written = sink.checkpoint(True, now)
            store.write({name_key(FINAL): dumped({**(store.named(FINAL) or {}), **written})})
            sink.settle()
        finally:
            sink.close()

    def _entries(self, journal: Journal) -> list[Missing]:
        """The documents of the inputs that are kept now, as entries of the journal."""
        lines = {str(source.name): source.first for source in self._sources}
        seqs, found = _kept(self._engine.index.shards[0]), list[Missing]()
        for entry in journal.entries():
            if lines.get(entry.input) == entry.begin.line:
                lines[entry.input] = entry.end.line
                found.append((_choice(entry, seqs), ("unique",)))
        for source in self._sources:
            if lines[str(source.name)] != source.reached.line:
                raise StoreError(
                    f"--final: the index does not know any more where all documents of {source.input.name} are, "
                    "because something that was deleted has been erased; feed all into a new index"
                )
        return found


def _check(settings: Settings, sources: Sequence[Source]) -> None:
    """Raise UsageError if these inputs or settings have no last choice."""
    wrong = (
        "compare_with = 'all', which keeps every document" if settings.compare_with != "kept"
        else f"window = {settings.window!r}, which forgets what was kept" if settings.window is not None
        else f"shards = {settings.shards}" if settings.shards > 1
        else None
    )  # fmt: skip
    if wrong is not None:
        raise UsageError(f"--final cannot be used with {wrong}; leave out one of them")
    for source in sources:
        if source.name is None:
            raise UsageError(
                f"--final reads the inputs twice, and {source.input.name} can be read only once; use a file"
            )
        if source.first < source.input.start.line:
            raise StoreError(
                f"--final reads the inputs again, and the first {source.input.start.line:,} lines of "
                f"{source.input.name} were removed; feed what is there into a new index"
            )


def _choice(entry: Entry, seqs: NDArray[np.int64]) -> Entry:
    kept = np.zeros(len(entry.kept), np.bool_)
    first, last = np.searchsorted(seqs, (entry.seq, entry.seq + len(kept)))
    kept[seqs[first:last] - entry.seq] = True
    return replace(entry, kept=kept, removals=())


def _kept(shard: Shard) -> NDArray[np.int64]:
    """The numbers of the documents that are kept now, ascending."""
    found, others = [np.empty(0, np.int64)], represented(shard)
    for first in range(shard.first, shard.count, _AT_ONCE):
        rows = np.arange(first, min(first + _AT_ONCE, shard.count))
        block, marks = shard.stored.at(rows), shard.rows.deleted_rows.marks_of(rows)
        flags = block[:, FLAGS]
        own = (flags & np.uint64(DROPPED | DELETED | REPRESENTATIVE) == 0) & (marks == MARK_LIVE)
        found.append(block[own | np.isin(rows, others), SEQ].astype(np.int64))
    return np.unique(np.concatenate(found))


def write_again(
    missing: Sequence[Missing], inputs: Mapping[str, Input], journal: Journal, sink: Sink, check: Callable[[], None]
) -> None:
    """Write what outputs lack.

    Args:
        inputs: by their names in the index. check: called now and then, raises what ends it.

    Raises:
        InputError: an input cannot be read, or is not what was read before. OutputError.
    """
    with_unique: dict[str, list[Entry]] = {}
    for entry, names in missing:
        if "unique" in names:
            with_unique.setdefault(entry.input, []).append(entry)
    readers = {
        name: inputs[name].again([(entry.begin, entry.end) for entry in entries])
        for name, entries in with_unique.items()
    }
    for entry, names in missing:
        check()
        for name in names:
            if name == "unique":
                _write_unique(entry, inputs[entry.input], readers[entry.input], journal, sink)
            else:
                sink.put(name, journal.lines(entry, name))


def _write_unique(entry: Entry, input: Input, lines: Iterator[Lines], journal: Journal, sink: Sink) -> None:
    removed: list[Removal] = []
    if entry.removals:
        removed = list(zip(entry.removals, journal.lines(entry, "unique").splitlines(keepends=True), strict=True))
    done, documents = 0, len(entry.kept)
    while done < documents:
        part = next(lines, None)
        end = documents + 1 if part is None else done + len(part.starts)
        kept = np.flatnonzero(entry.kept[done:end])
        if part is None or end > documents or not part.rejected.keys().isdisjoint(kept.tolist()):
            raise InputError(
                f"{input.name} is not what was read before, behind line {entry.begin.line:,}, or max_document_bytes is "
                "smaller now: put both back as they were, or add --only-new."
            )
        here = [(i - done, line) for i, line in removed if done <= i < end]
        sink.put_kept(part, kept, here)
        done = end
