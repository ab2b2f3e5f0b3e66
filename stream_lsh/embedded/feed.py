"""The inputs of a job, one after the other, and what the index remembers of each: where it was read to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from stream_lsh.documents.columns import Fields, Position
from stream_lsh.embedded.checksums import BLOCK
from stream_lsh.embedded.folders import FolderInput
from stream_lsh.embedded.inputs import Input, InputIdentity, LineInput
from stream_lsh.embedded.lines import Batch
from stream_lsh.embedded.moves import BLOCKS, INPUT, KnownInputs, blocks_of
from stream_lsh.embedded.remote import is_remote
from stream_lsh.embedded.table_input import TableInput, is_table
from stream_lsh.embedded.warc import SUFFIXES, WarcInput
from stream_lsh.errors import InputError
from stream_lsh.index.store.rocksdb import Store

CHUNK = 1024  # checksums of a value


class Openable(Protocol):
    """What opens an input of its own. Its string is the path of what is read."""

    def open(self, fields: Fields) -> Input:
        """The input; nothing is read yet."""


Argument = str | Openable


@dataclass(slots=True)
class Source:
    """One input of this run. name: in the index, None of a pipe. reached: where it has been read to, at first by
    earlier runs; done: to its end. documents, rejected: of all runs that have read it. blocks: checksums of the whole
    blocks that earlier runs have read. began: line at which the last run began, and the number of that run's first
    document. written: by the mark of an output, the line up to which it has this input's lines. first: the line at
    which the index has begun to read it. anew: there was another file at its path before.
    """

    input: Input
    name: str | None
    identity: InputIdentity | None
    reached: Position
    done_before: bool
    done: bool = False
    documents: int = 0
    rejected: int = 0
    blocks: Sequence[int] = ()
    began: tuple[int, int] = (0, 0)
    written: dict[str, int] = field(default_factory=dict)
    first: int = 0
    anew: bool = False
    _stored: int = 0  # of blocks read in this run the index has the checksums; negative: of fewer than `blocks`

    def facts(self) -> dict[str, Any]:
        """What the next commit has to write of it, by name; nothing of a pipe."""
        if self.identity is None:
            return {}
        name = self.name
        value = {
            **asdict(self.identity), "offset": self.reached.offset, "line": self.reached.line,
            "crc": self.reached.crc if self.input.checked else None, "done": self.done, "left": self.input.left,
            "documents": self.documents, "rejected": self.rejected, "began": self.began, "written": self.written,
            "first": self.first,
        }  # fmt: skip
        facts: dict[str, Any] = {f"{INPUT}{name}": value}
        if self.input.checked:
            before, now = len(self.blocks), self.reached.offset // BLOCK
            for chunk in range((before + self._stored) // CHUNK, -(-now // CHUNK)):
                begin, end = chunk * CHUNK, min(now, (chunk + 1) * CHUNK)
                new = self.input.checksums[max(0, begin - before) : max(0, end - before)]
                facts[f"{BLOCKS}{name}/{chunk:06d}"] = [*self.blocks[begin:end], *new]
            self._stored = now - before
        return facts


class Feed:
    """All inputs of a job, checked, with the positions that the index remembers.

    folders: in which the index has been. growing: a file may still be written to, and its last line may be incomplete.
    only_new: at a path that was read to its end there may be another file now, which is read from its beginning.
    opened: closes the inputs.

    Attributes:
        moved: what the index has to remember of inputs that are at another path now, by name.

    Raises:
        InputError: for what cannot be read, or is not the file that was read before.
    """

    def __init__(
        self,
        arguments: Sequence[Argument],
        fields: Fields,
        store: Store,
        opened: ExitStack,
        *,
        folders: Sequence[str],
        growing: bool = False,
        only_new: bool = False,
    ) -> None:
        inputs = [opened.enter_context(closing(open_input(argument, fields))) for argument in arguments]
        for input in inputs:
            input.check()
        identities = [input.identity() for input in inputs]
        known = KnownInputs(store, folders, {one.path: one.stamp for one in identities if one is not None})
        self.sources = [
            _source(input, identity, store, known, only_new) for input, identity in zip(inputs, identities, strict=True)
        ]
        self.moved = known.moved
        self.pipes = any(source.identity is None for source in self.sources)
        for source in self.sources:
            source.input.growing = growing and source.identity is not None
            if not growing:
                source.input.checked = False

    def batches(self) -> Iterator[tuple[Source, Batch]]:
        """The documents that the index has not seen yet."""
        for source in self.sources:
            if not source.done_before:
                for batch in source.input.batches(source.reached):
                    yield source, batch

    @property
    def total(self) -> int | None:
        """Raw bytes of all inputs, None if one is a pipe."""
        return total_bytes(source.input for source in self.sources if not source.done_before)

    @property
    def read(self) -> int:
        """Raw bytes read so far."""
        return sum(source.input.raw_position for source in self.sources)


def total_bytes(inputs: Iterable[Input]) -> int | None:
    """Raw bytes of all inputs, None if one is a pipe."""
    sizes = [input.size for input in inputs]
    return None if None in sizes else sum(size or 0 for size in sizes)


def check_inputs(arguments: Sequence[Argument]) -> None:
    """Raise InputError for an input that cannot be read: before an index is opened, or anything compiled, for it."""
    for argument in arguments:
        with closing(open_input(argument, Fields())) as opened:
            opened.check(columns=False)


def open_input(argument: Argument, fields: Fields) -> Input:
    """The input that an argument of the command line means; nothing is read yet. Raises InputError."""
    try:
        opened = _open(argument, fields)
    except OSError as error:
        raise InputError(f"cannot read {argument}: {error.strerror}.") from None
    if fields.envelope is not None and type(opened) is not LineInput:
        raise InputError(f"{argument}: events (envelope = {fields.envelope}) are read of JSON lines only.")
    return opened


def _open(argument: Argument, fields: Fields) -> Input:
    if not isinstance(argument, str):
        return argument.open(fields)
    folder = argument != "-" and Path(argument).is_dir()
    if not folder and is_remote(argument) and not is_table(argument):
        raise InputError(
            f"{argument}: of addresses only tables are read (.parquet, .arrow, .csv, .tsv); pipe other files: "
            "curl ADDRESS | stream-lsh dedup -"
        )
    return FolderInput(argument, fields) if folder else file_input(argument, fields)


def file_input(name: str, fields: Fields) -> Input:
    """The input for a file of this name, by its suffix, or for `-`."""
    if is_table(name):
        return TableInput(name, fields)
    return WarcInput(name, fields) if name.lower().endswith(SUFFIXES) else LineInput(name, fields)


def _source(
    input: Input, identity: InputIdentity | None, store: Store, inputs: KnownInputs, only_new: bool
) -> Source:  # fmt: skip
    if identity is None:
        return Source(input, None, None, Position(), False)
    input.checked = isinstance(input, LineInput)
    name, known = inputs.find(input, identity)
    if known is None:
        return _beginning(input, name, identity)
    before = InputIdentity(known["path"], known["head"], known["head_bytes"], known["size"])
    if input.matches(before):
        unchanged = known["done"] and identity.size == known["size"] and not input.live
        if unchanged:
            input.left = known.get("left", 0)
        position = Position(known["offset"], known["line"], known.get("crc") or 0)
        blocks: Sequence[int] = blocks_of(store, name, position)
        input.checked = input.checked and known.get("crc") is not None and len(blocks) == position.offset // BLOCK
        if input.checked and list(identity.stamp) != known["stamp"]:
            try:
                _check_unchanged(input, position, blocks, everything=identity.stamp[0] != known["stamp"][0])
            except InputError as error:
                if not input.live:
                    raise
                if not only_new:
                    raise InputError(f"{error} If its .state was lost, add --only-new.") from None
                return _beginning(input, name, identity, anew=True)
        first, written, stored = known.get("first", 0), known.get("written", {}), 0
        if position.offset < input.start.offset:
            if not only_new:
                raise InputError(
                    f"lines {position.line + 1:,} to {input.start.line:,} of {input.name} were removed before they "
                    "were read. Add --only-new to go on with what is there, or feed all into a new index."
                )
            found = _beginning(input, name, identity)
            position, blocks, stored = found.reached, found.blocks, -len(found.blocks)
        counts = known.get("documents", 0), known.get("rejected", 0)
        began: tuple[int, int] = tuple(known.get("began", (0, 0)))
        return Source(
            input, name, identity, position, unchanged, unchanged, *counts, blocks, began, written, first, False, stored
        )
    if not known["done"] and not (only_new and input.live):
        raise InputError(
            f"{input.name} is not the file that the interrupted run was reading (it had come to line {known['line']}, "
            f"and {input.changed}): put that file back, or give the new one another name"
            f"{', or add --only-new' if input.live else ''}."
        )
    if not only_new:
        raise InputError(
            f"{input.name} is not the file that was read before: {input.changed}. Put the file back as it "
            "was, or give the new one another name. If the name is used again for new documents, add --only-new: the "
            "file is read from its beginning, and outputs get what is new in it."
        )
    return _beginning(input, name, identity, anew=True)


def _beginning(input: Input, name: str, identity: InputIdentity, *, anew: bool = False) -> Source:
    """The source of an input from its first line on; of blocks that were removed nothing is known."""
    removed = [0] * (input.start.offset // BLOCK)
    first, stored = input.start.line, -len(removed)
    return Source(input, name, identity, input.start, False, blocks=removed, first=first, anew=anew, _stored=stored)


def _check_unchanged(input: Input, position: Position, blocks: Sequence[int], *, everything: bool) -> None:
    """Raise InputError if an input is not what was read before. everything: it is another file, all of which is
    compared; one to which something was added may be too long for that."""
    found = input.difference(position, blocks, everything=everything)
    if found is not None:
        raise InputError(
            f"{input.name} has changed where it was read before (to line {position.line:,}): its bytes from {found:,} "
            f"to {min(found + BLOCK, position.offset):,} are others now. Put the file back as it was, or give the new "
            "one another name, under which it is read from its beginning."
        )
