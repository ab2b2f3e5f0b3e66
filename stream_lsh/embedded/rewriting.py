"""Writing outputs again: from the inputs, and what the journal says of their documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from stream_lsh.embedded.inputs import Input
from stream_lsh.embedded.journal import Entry, Journal
from stream_lsh.embedded.lines import Lines
from stream_lsh.embedded.sink import Removal, Sink
from stream_lsh.embedded.targets import Missing
from stream_lsh.errors import InputError


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
