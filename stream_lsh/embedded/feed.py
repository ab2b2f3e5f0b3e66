"""The inputs of a job, one after the other, and what the index remembers of each: where it was read to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stream_lsh.documents.columns import Batch, Fields, Position
from stream_lsh.embedded.folders import FolderInput
from stream_lsh.embedded.inputs import Input, InputIdentity, LineInput
from stream_lsh.errors import InputError
from stream_lsh.index.store.rocksdb import Store


@dataclass(slots=True)
class Source:
    """One input of this run. reached: where it has been read to, at first by earlier runs; done: to its end. documents,
    rejected: of all runs that have read it."""

    input: Input
    identity: InputIdentity | None
    reached: Position
    done_before: bool
    done: bool = False
    documents: int = 0
    rejected: int = 0

    def fact(self) -> tuple[str, dict[str, Any]] | None:
        """The name and value under which the index remembers it, None for a pipe."""
        if self.identity is None:
            return None
        identity = self.identity
        value = {
            "path": identity.path, "head": identity.head, "head_bytes": identity.head_bytes, "size": identity.size,
            "offset": self.reached.offset, "line": self.reached.line, "done": self.done, "left": self.input.left,
            "documents": self.documents, "rejected": self.rejected,
        }  # fmt: skip
        return _name(identity.path), value


class Feed:
    """All inputs of a job, checked, with the positions that the index remembers.

    growing: what can be read again may be a file that somebody is writing: its last line may not be whole yet.

    Raises:
        InputError: for what cannot be read, or is not the file that was being read when a run was interrupted.
    """

    def __init__(self, arguments: Sequence[str], fields: Fields, store: Store, *, growing: bool = False) -> None:
        self.sources = [_source(open_input(argument, fields), store) for argument in arguments]
        self.pipes = any(source.identity is None for source in self.sources)
        for source in self.sources:
            source.input.growing = growing and source.identity is not None

    def batches(self) -> Iterator[tuple[Source, Batch]]:
        """The documents that the index has not seen yet."""
        for source in self.sources:
            if not source.done_before:
                for batch in source.input.batches(source.reached):
                    yield source, batch

    @property
    def total(self) -> int | None:
        """Raw bytes of all inputs, None if one is a pipe."""
        sizes = [source.input.size for source in self.sources if not source.done_before]
        return None if any(size is None for size in sizes) else sum(size or 0 for size in sizes)

    @property
    def read(self) -> int:
        """Raw bytes read so far."""
        return sum(source.input.raw_position for source in self.sources)


def check_inputs(arguments: Sequence[str]) -> None:
    """Raise InputError for an input that cannot be read: before an index is opened, or anything compiled, for it."""
    for argument in arguments:
        open_input(argument, Fields()).check()


def open_input(argument: str, fields: Fields) -> Input:
    """The input that an argument of the command line means; nothing is read yet."""
    folder = argument != "-" and Path(argument).is_dir()
    return FolderInput(argument, fields) if folder else LineInput(argument, fields)


def _source(input: Input, store: Store) -> Source:
    input.check()
    identity = input.identity()
    if identity is None:
        return Source(input, None, Position(), False)
    known = store.named(_name(identity.path))
    if known is None:
        return Source(input, identity, Position(), False)
    before = InputIdentity(known["path"], known["head"], known["head_bytes"], known["size"])
    if input.matches(before):
        unchanged = known["done"] and identity.size == known["size"]
        if unchanged:
            input.left = known.get("left", 0)
        position = Position(known["offset"], known["line"])
        counts = known.get("documents", 0), known.get("rejected", 0)
        return Source(input, identity, position, unchanged, False, *counts)
    if not known["done"]:
        raise InputError(
            f"{input.name} is not the file that the interrupted run was reading (it had come to line {known['line']}, "
            "and the beginning is another now): put that file back, or give the new one another name."
        )
    return Source(input, identity, Position(), False)  # another file under an old name


def _name(path: str) -> str:
    return "input/" + hashlib.sha256(str(Path(path)).encode("utf-8", "surrogateescape")).hexdigest()[:32]
