"""A table as an output of kept documents: their rows with all columns and types.

CSV grows by rows, as lines do. Parquet and Arrow files end with a footer, to which nothing can be appended. Their rows
are first appended to a file beside the output, PATH.part, which a run can resume to the row. At the end of the run they
are written as the table, which takes the place of PATH at once. A later run with the same output reads the rows back.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stream_lsh.documents.arrow_fields import pyarrow
from stream_lsh.embedded.inputs import Input
from stream_lsh.embedded.outputs import Output, OutputState, check_free, refused, state_of
from stream_lsh.embedded.table_input import TableInput
from stream_lsh.embedded.tables import DELIMITERS, PARQUET, open_table, table_suffix
from stream_lsh.errors import OutputError, UsageError
from stream_lsh.index.store.files import sync_folder

PART = ".part"
HELD_BYTES = 8 << 20
"""Rows of about so many bytes are held before they are written."""
GROUP_BYTES = 32 << 20
_LENGTH = 8


def schema_of(outputs: Mapping[str, str], inputs: Sequence[Input], *, updates: bool, supersedes: bool = False) -> Any:
    """The schema of the output `unique` if that is a table, otherwise None.

    Args:
        outputs: names to paths. updates: whether versions are replaced and deleted. supersedes: whether kept
            documents are superseded while it is written.

    Raises:
        UsageError: an output cannot be a table, or not one of these inputs.
    """
    tables = {name: path for name, path in outputs.items() if table_suffix(path) is not None}
    for name, path in tables.items():
        if name != "unique":
            raise UsageError(f"--{name.replace('_', '-')} {path}: only --unique can be a table; name it .jsonl")
    if not tables:
        return None
    path, first = tables["unique"], None
    if updates:
        raise UsageError(f"--unique {path}: a table has no place for the lines of deleted documents; name it .jsonl")
    if supersedes:
        raise UsageError(f"--unique {path}: a table has no place for the lines of superseded documents; add --final")
    for source in inputs:
        if not isinstance(source, TableInput):
            raise UsageError(
                f"--unique {path}: {source.name} is no table, and its documents have no columns; name the output .jsonl"
            )
        schema = source.table.schema
        first = (source.name, schema) if first is None else first
        if not schema.equals(first[1]):
            here, there = ({str(column).replace("\n", " ") for column in one} for one in (schema, first[1]))
            only = "; ".join(
                f"{name} has {', '.join(sorted(columns))}"
                for name, columns in ((source.name, here - there), (first[0], there - here)) if columns
            )  # fmt: skip
            raise UsageError(
                f"--unique {path}: the inputs have different columns ({only or 'in another order'}). Write an output "
                "for each, or one named .jsonl"
            )
    assert first is not None
    _check_types(path, first[1])
    return first[1]


def part_of(path: str) -> str:
    """The file that has the rows of a table until the run ends."""
    return path + PART


class TableOutput:
    """The rows of kept documents. name, regular: as of `Output`.

    Args:
        there: its state to resume from; None: it begins anew. part: the state is that of PATH.part. indexed: an index
            knows the state.

    Raises:
        OutputError: a file is in the way, or is not what was written.
    """

    regular = True

    def __init__(
        self, path: str, schema: Any, there: OutputState | None, *, part: bool, overwrite: bool, indexed: bool
    ) -> None:
        self.name = path
        self._schema, self._indexed = schema, indexed
        suffix = table_suffix(path)
        assert suffix is not None
        self._delimiter = DELIMITERS.get(suffix)
        self._held: list[Any] = []
        self._size = 0
        self._complete: OutputState | None = None  # the state of the table, if nothing was added to it
        self._rows: Output | None = None
        if self._delimiter is not None:
            self._rows = Output.create(path, overwrite) if there is None else Output.resume(path, there)
            self._empty = there is None or (there.length == 0 and not there.tail)
        elif there is not None and not part:
            Output.resume(path, there).close()  # cuts off what was appended to the table
            self._complete = there
        elif there is not None:
            self._rows = Output.resume(part_of(path), there)
        else:
            check_free(path, overwrite)
            self._rows = Output.create(part_of(path), overwrite=True)
        if self._rows is not None:
            self._rows.whole = True

    @property
    def part(self) -> bool:
        """Whether its state is that of PATH.part."""
        return self._delimiter is None and self._complete is None

    def write_rows(self, rows: Any) -> None:
        """Append rows, a record batch.

        Raises:
            OutputError: they cannot be written.
        """
        if not rows.num_rows:
            return
        if self._complete is not None:
            self._reopen()
        self._held.append(rows)
        self._size += rows.nbytes
        if self._size >= HELD_BYTES:
            self._flush()

    def write(self, data: bytes) -> None:
        """Lines have no place in a table."""
        raise AssertionError(self.name)

    def _flush(self) -> None:
        if self._rows is None or not (self._held or (self._delimiter is not None and self._empty)):
            return
        pa = pyarrow()
        buffer, held = io.BytesIO(), pa.Table.from_batches(self._held, self._schema)
        if self._delimiter is not None:
            options = pa.csv.WriteOptions(include_header=self._empty, delimiter=self._delimiter)
            pa.csv.write_csv(held, buffer, options)
            self._rows.write(buffer.getvalue())
            self._empty = False
        else:
            with pa.ipc.new_stream(buffer, self._schema) as writer:
                writer.write_table(held.combine_chunks())
            self._rows.write(len(buffer.getbuffer()).to_bytes(_LENGTH, "little") + buffer.getvalue())
        self._held, self._size = [], 0

    def checkpoint(self, sync: bool, now: int = 0) -> OutputState:
        """The state to resume from, as that of `Output`."""
        self._flush()
        if self._complete is not None:
            return self._complete
        assert self._rows is not None
        return self._rows.checkpoint(sync, now)

    def let_go(self, time: int) -> None:
        """An index with a table as an output deletes nothing that would have to be erased."""

    def finish(self) -> None:
        """Complete the table.

        Raises:
            OutputError: it cannot be written.
        """
        if self._rows is None:
            return
        self._flush()
        self._rows.finish()
        if self._delimiter is not None or self._complete is not None:
            return
        temporary = Path(f"{self.name}.tmp")
        try:
            self._write_table(temporary)
            temporary.replace(self.name)
            sync_folder(Path(self.name).parent)
            self._complete = state_of(self.name)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise refused("write", self.name, error) from None

    def _write_table(self, path: Path) -> None:
        """The rows of PATH.part in groups, which depend on the rows alone."""
        pa = pyarrow()
        batches = list(_frames(pa, part_of(self.name)))
        # They are in the file, not in memory. An Arrow file has one dictionary for a column.
        rows = pa.Table.from_batches(batches, self._schema).unify_dictionaries()
        size = _group_rows(rows)
        with path.open("wb") as file:
            with _writer(pa, file, self.name, self._schema) as writer:
                for begin in range(0, rows.num_rows, size):
                    writer.write_table(rows.slice(begin, size).combine_chunks())
            file.flush()
            os.fsync(file.fileno())

    def _reopen(self) -> None:
        """Read the rows of the complete table back, to add to them."""
        pa = pyarrow()
        table = open_table(self.name, lambda: pa.OSFile(self.name))
        if not table.schema.equals(self._schema):
            raise OutputError(
                f"{self.name} has other columns than what is to be added now: name another file for the output."
            )
        self._rows, self._complete = Output.create(part_of(self.name), overwrite=True), None
        self._rows.whole = True
        for part in table.parts(0):
            self.write_rows(part.rows)

    def settle(self) -> None:
        """After a commit: remove what a complete table makes superfluous."""
        if self._complete is not None:
            with suppress(OSError):
                Path(part_of(self.name)).unlink()

    def close(self) -> None:
        """Close without completing the table."""
        if self._rows is not None:
            self._rows.close()
        if not self._indexed and self._delimiter is None:
            with suppress(OSError):
                Path(part_of(self.name)).unlink()


def _frames(pa: Any, path: str) -> Iterator[Any]:
    """The record batches of PATH.part: each after its length, a stream of Arrow IPC."""
    if not Path(path).stat().st_size:
        return
    whole = pa.memory_map(path).read_buffer()
    at = 0
    while at < whole.size:
        size = int.from_bytes(whole.slice(at, _LENGTH).to_pybytes(), "little")
        yield from pa.ipc.open_stream(whole.slice(at + _LENGTH, size))
        at += _LENGTH + size


def _group_rows(rows: Any) -> int:
    """Rows of a group of about GROUP_BYTES, from the first thousand."""
    first = rows.slice(0, 1024).combine_chunks()
    size = max(1, int(first.nbytes) // max(1, len(first)))
    return 1 << max(0, min(17, (GROUP_BYTES // size).bit_length() - 1))


def _writer(pa: Any, file: Any, name: str, schema: Any) -> Any:
    if table_suffix(name) in PARQUET:
        return pa.parquet.ParquetWriter(file, schema, compression="zstd")
    return pa.ipc.new_stream(file, schema) if name.lower().endswith(".arrows") else pa.ipc.new_file(file, schema)


def _check_types(path: str, schema: Any) -> None:
    """Raise UsageError if a file of this kind cannot hold a column."""
    pa = pyarrow()
    for column in schema:
        one, nothing = pa.schema([column]), io.BytesIO()
        try:
            if table_suffix(path) in DELIMITERS:
                pa.csv.write_csv(one.empty_table(), nothing)
            else:
                _writer(pa, nothing, path, one).close()
        except pa.ArrowException as error:
            raise UsageError(
                f'--unique {path}: a file of this kind cannot hold the column "{column.name}" of the type '
                f"{column.type} ({' '.join(str(error).split())[:100]}); name the output .jsonl, or of another kind"
            ) from None
