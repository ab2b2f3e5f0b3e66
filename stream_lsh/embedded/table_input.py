"""A table as an input: each row a document, its columns the fields."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.documents.arrow_columns import columns_of
from stream_lsh.documents.arrow_fields import check_columns, pyarrow
from stream_lsh.documents.columns import Columns, Fields, Position, Rejection
from stream_lsh.documents.dead_letters import KEPT_BYTES
from stream_lsh.embedded.inputs import Input, InputIdentity, LineInput, LineRange
from stream_lsh.embedded.lines import Lines
from stream_lsh.embedded.remote import RemoteFile, is_remote
from stream_lsh.embedded.tables import DELIMITERS, Part, Table, open_table, table_suffix

HEAD_BYTES = 4096
"""So many bytes at the beginning and at the end of a file, and its size, are its identity."""


class TableInput(Input):
    """Row n is line n, and its offset is the number of rows before it. A file does not change once it is read."""

    changed = "its rows are others now"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self._remote = is_remote(name)
        self._table: Table | None = None

    @property
    def table(self) -> Table:
        """The table, open. Raises InputError."""
        if self._table is None:
            self._table = open_table(self.name, self._open)
        return self._table

    def _open(self) -> Any:
        pa = pyarrow()
        if self._remote:
            return pa.PythonFile(RemoteFile(self.name), "r")
        # An Arrow file may be one batch, which is then not copied into memory.
        compressed = self.name.lower().endswith((".gz", ".xz", ".zst", ".parquet", ".pq"))
        return pa.OSFile(self.name) if compressed else pa.memory_map(self.name)

    def check(self, *, columns: bool = True) -> None:
        if not self._remote:
            LineInput(self.name, self.fields).check()
        table = self.table
        if columns:
            check_columns(table.schema, self.fields, self.name, cells=table.cells)

    def identity(self) -> InputIdentity | None:
        if self._remote:
            return InputIdentity(*self._identity(HEAD_BYTES), size=self.size or 0)
        return super().identity()

    def _identity(self, head_bytes: int) -> tuple[str, str, int]:
        if self._remote:
            return self.name, RemoteFile(self.name).version, head_bytes
        with Path(self.name).open("rb") as file:
            head = file.read(head_bytes)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - head_bytes))
            digest = hashlib.sha256(b"%d\0" % size + head + file.read(head_bytes)).hexdigest()
        return str(Path(self.name).resolve()), digest, head_bytes

    @property
    def size(self) -> int | None:
        return RemoteFile(self.name).bytes if self._remote else Path(self.name).stat().st_size

    def lines(self, position: Position) -> Iterator[Rows]:
        done, size = position.line, self.size or 0
        if self.table.rows is not None and self.table.rows < done:
            raise self._shrunk(f"{done} rows", self.table.rows)
        for part in self.table.parts(done):
            for piece in part.pieces(self.max_documents, self.max_bytes):
                rows = rows_of(piece, done)
                done = rows.position.line
                self.raw_position = int(size * self.table.read)
                yield rows

    def again(self, ranges: Sequence[LineRange]) -> Iterator[Rows]:
        for begin, end in ranges:
            done = begin.line
            for rows in self.lines(begin):
                count = min(len(rows.starts), end.line - done)
                yield rows if count == len(rows.starts) else rows_of(Part(rows.rows.slice(0, count)), done)
                done += count
                if done >= end.line:
                    break

    def parse(self, lines: Lines) -> Columns:
        assert isinstance(lines, Rows)
        first = int(lines.numbers[0])
        return columns_of(
            lines.rows, self.fields, input=self.name, first=first, rejected=lines.rejected, cells=self.table.cells
        )


@dataclass(frozen=True, slots=True, eq=False)
class Rows(Lines):
    """Rows of a table, a record batch. They have no bytes in `data`. refused: the bytes of rows that were rejected in
    reading, by place."""

    rows: Any
    refused: dict[int, bytes]

    def plain(self) -> Lines:
        data = json_lines(self.rows)
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)  # JSON has no line break within a line
        starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
        return Lines(data, starts, ends, self.numbers, self.offsets, self.rejected, self.position)

    def raw(self, i: int) -> bytes:
        return self.refused[i] if i in self.refused else json_lines(self.rows.slice(i, 1))[:-1]

    def original(self, i: int, why: Rejection) -> tuple[bytes, int | None]:
        raw = self.raw(i)
        return (raw[:KEPT_BYTES], len(raw)) if why.reason == "too_large" and len(raw) > KEPT_BYTES else (raw, None)

    def raw_lines(self, at: NDArray[np.int64]) -> bytes:
        return json_lines(taken(self.rows, at))


def is_table(name: str) -> bool:
    """Whether a file is a table, by its name; lines of JSON may be called CSV."""
    if (suffix := table_suffix(name)) not in DELIMITERS:
        return suffix is not None
    if is_remote(name):
        return True
    path = Path(name)
    head = LineInput(name, Fields()).head(HEAD_BYTES) if path.is_file() and os.access(path, os.R_OK) else b""
    begin = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return bool(begin) and not begin.startswith((b"{", b"["))


def rows_of(part: Part, done: int) -> Rows:
    """Rows of an input, behind `done` others."""
    numbers = np.arange(done + 1, done + part.rows.num_rows + 1)
    nothing = np.zeros(len(numbers), np.int64)
    position = Position(done + len(numbers), done + len(numbers))
    return Rows(
        b"", nothing, nothing, numbers, numbers - 1, {i: why for i, (why, _) in part.refused.items()}, position,
        part.rows, {i: raw for i, (_, raw) in part.refused.items()},
    )  # fmt: skip


def taken(rows: Any, at: NDArray[np.int64]) -> Any:
    """Some rows of a record batch, by place in ascending order."""
    pa = pyarrow()
    if len(at) == rows.num_rows:
        return rows
    try:
        return rows.take(pa.array(at))
    except pa.ArrowNotImplementedError:  # views, and runs of equal values
        breaks = np.flatnonzero(np.diff(at) != 1) + 1
        runs = [rows.slice(int(run[0]), len(run)) for run in np.split(at, breaks) if len(run)]
        return pa.concat_batches(runs) if runs else rows.slice(0, 0)


def json_lines(rows: Any) -> bytes:
    """Rows as JSON objects, each with a newline. Times are ISO 8601, decimals are strings, and binary values are in
    base64."""
    names = rows.schema.names
    lists = zip(*map(_json_values, rows.columns), strict=True)
    option = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
    return b"".join(
        [orjson.dumps(dict(zip(names, values, strict=True)), default=_json, option=option) for values in lists]
    )


def _json_values(column: Any) -> list[Any]:
    pa = pyarrow()
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.string())
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):  # nanoseconds, a year that Python does not have, or bytes that are not UTF-8
        values = [_python(pa, scalar) for scalar in column]
    return values


def _python(pa: Any, scalar: Any) -> Any:
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StructScalar):
        return {name: _python(pa, value) for name, value in scalar.items()}
    if isinstance(scalar, pa.ListScalar):
        return [_python(pa, value) for value in scalar.values]
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return scalar.cast(pa.large_binary()).as_py()
    except (ValueError, OverflowError):
        return scalar.cast(pa.string()).as_py()


def _json(value: object) -> object:
    """What JSON has for a value that orjson does not know."""
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, Decimal) or not hasattr(value, "tolist") else value.tolist()
