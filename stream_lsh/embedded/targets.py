"""The outputs of a job before they are opened: the path of each, the lines that it has, and those that it lacks."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stream_lsh.documents.erased_letters import FILE as DEAD_LETTERS
from stream_lsh.embedded.feed import Feed, Source
from stream_lsh.embedded.journal import Entry, Journal
from stream_lsh.embedded.moves import beside
from stream_lsh.embedded.outputs import STANDARD, OutputState, file_at, is_nowhere, is_there
from stream_lsh.embedded.table_output import part_of
from stream_lsh.errors import OutputError, StoreError

Missing = tuple[Entry, Sequence[str]]
"""An entry of the journal, and the outputs that lack its lines."""


@dataclass(frozen=True, slots=True)
class Target:
    """An output.

    place: its name in the index. there: its state to resume from; None: it begins anew. mark: of its content, a new one
    where it begins anew. part: that state is of `table_output.part_of`. lost: it
    lacks lines of pipes, which cannot be read again. complete: it never lacks lines (the
    index's own dead letters, /dev/null). overwrite: other content is replaced.
    """

    name: str
    path: str
    place: str
    there: OutputState | None
    mark: str
    part: bool = False
    lost: bool = False
    complete: bool = False
    overwrite: bool = False

    @property
    def title(self) -> str:
        """Its name in a message."""
        return "standard output" if self.path == STANDARD else self.path


def targets_of(paths: Mapping[str, str], known: Mapping[str, Any], folder: Path, *, overwrite: bool) -> list[Target]:
    """The outputs of an index, with the recorded state of each.

    Args:
        paths: names to a path or "-". known: the recorded states of outputs, by place. folder: of the index.
        overwrite: a file with something else in it begins anew.

    Raises:
        OutputError: a file that the index has written has something else in it.
    """
    found = []
    for name, path in paths.items():
        place = place_of(path)
        record = known.get(place) or {}
        before = unpacked(record)
        part = bool(record.get("part"))
        file = part_of(path) if part else path
        there = before if before is not None and is_there(file, before, strict=not overwrite) else None
        mark = record["mark"] if there is not None and record.get("name") == name else None
        lost = there is None and bool(record.get("piped"))
        if lost and path == STANDARD:  # another file, or a pipe, has lost nothing
            place_now = file_at(path)
            lost = place_now is not None and record.get("file") == list(place_now)
        complete = place == place_of(str(folder / DEAD_LETTERS)) or is_nowhere(path)
        found.append(Target(name, path, place, there, mark or secrets.token_hex(8), part, lost, complete, overwrite))
    return found


def moved_outputs(known: Mapping[str, Any], folders: Sequence[str]) -> dict[str, Any]:
    """The recorded states of outputs by place, after outputs have moved together with the index.

    folders: in which the index has been, the present one last.
    """
    found = dict(known)
    for place, record in known.items():
        for folder in folders[-2::-1] if place != STANDARD else ():
            now = beside(place, folder, folders[-1])
            if now not in found and _has_all(now, record):
                found[now] = found.pop(place)
                break
    return found


def _has_all(place: str, record: Mapping[str, Any]) -> bool:
    """Whether a file has all that was written to an output."""
    with suppress(OutputError):
        state = unpacked(record)
        return state is not None and is_there(part_of(place) if record.get("part") else place, state)
    return False


def missing_of(
    targets: Iterable[Target], feed: Feed, journal: Journal, *, only_new: bool, job: int | None
) -> list[Missing]:
    """The lines that outputs lack, from the decisions of the index, in the order of the log.

    Args:
        only_new: leave out decisions from before the run that resumes. job: number of the first document of that run,
            None if it begins now.

    Raises:
        StoreError: a missing line cannot be written again; the message says what to do.
    """
    open = [target for target in targets if not target.complete]
    if feed.pipes and not only_new:
        for target in open:
            if target.lost:
                raise StoreError(
                    f"{target.title} lacks lines of documents from a pipe or standard input, which cannot be read "
                    "again. Put the file back"
                    f"{', append with >> instead of >' if target.path == STANDARD else ''}, or add --only-new to "
                    "write only new lines."
                )
    lacking: list[tuple[Target, Source, int]] = []  # and the line from which on
    for source in feed.sources:
        start = 0
        if only_new:
            start = source.began[0] if job is not None and source.began[1] == job else source.reached.line
        for target in open:
            line = max(start, source.written.get(target.mark, source.first))
            if source.name is not None and line < source.reached.line:
                lacking.append((target, source, line))
    if not lacking:
        return []
    known: dict[str, list[Entry]] = {str(source.name): [] for _, source, _ in lacking}
    for entry in journal.entries():
        if entry.input in known:
            known[entry.input].append(entry)
    found: dict[int, tuple[Entry, list[str]]] = {}
    for target, source, line in lacking:
        for entry in _lacked(target, source, line, known[str(source.name)]):
            found.setdefault(entry.seq, (entry, []))[1].append(target.name)
    return [found[seq] for seq in sorted(found)]


def _lacked(target: Target, source: Source, line: int, known: Sequence[Entry]) -> list[Entry]:
    """The entries of an input from a line on, which an output lacks. Raises StoreError if one is not known any more."""
    entries = []
    for entry in known:
        if entry.begin.line == line:
            entries.append(entry)
            line = entry.end.line
    what = (
        f"{target.title} cannot be written again: it lacks the lines for {source.input.name} (to line "
        f"{source.reached.line:,})"
    )
    remedy = "Add --only-new to go on with what is new, or feed all into a new index."
    if line != source.reached.line:
        raise StoreError(
            f"{what}, which the index does not have: the window has passed it, something that was deleted has been "
            f"erased, or the input had lost lines before they were read. {remedy}"
        )
    if target.name == "unique" and entries[0].begin.offset < source.input.start.offset:
        raise StoreError(f"{what}, of which the first {source.input.start.line:,} were removed from it. {remedy}")
    if any(target.name not in entry.lines for entry in entries):
        flag = f"--{target.name.replace('_', '-')}"
        raise StoreError(f"{what}, which were never made: {flag} was not asked for when it was read. {remedy}")
    return entries


def place_of(path: str) -> str:
    """The name of an output in the index."""
    return STANDARD if path == STANDARD else os.path.realpath(path)


def packed(state: OutputState) -> dict[str, Any]:
    """A state as JSON."""
    return {
        "length": state.length, "tail": base64.b64encode(state.tail).decode(), "end": state.end, "since": state.since,
    }  # fmt: skip


def unpacked(value: Any) -> OutputState | None:
    """What `packed` gave.

    Raises:
        OutputError: it is damaged.
    """
    if not value:
        return None
    try:
        size, digest = value.get("end", (0, ""))
        tail = base64.b64decode(value["tail"])
        return OutputState(value["length"], tail, (int(size), str(digest)), value.get("since", 0))
    except (KeyError, TypeError, ValueError) as error:
        raise OutputError(
            f"the index's record of an output is damaged ({error}); start with an empty index folder"
        ) from None
