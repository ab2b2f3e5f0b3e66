"""Files of a table: Parquet, Arrow IPC, CSV and TSV, read row by row from any row on, in bounded memory."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from stream_lsh.documents.arrow_columns import is_utf8
from stream_lsh.documents.arrow_fields import pyarrow
from stream_lsh.documents.columns import Rejection
from stream_lsh.embedded.blocks import Blocks
from stream_lsh.embedded.decompression import Damaged, decompressor
from stream_lsh.embedded.remote import path_of
from stream_lsh.errors import InputError

DELIMITERS = {".csv": ",", ".tsv": "\t"}
ARROW = (".arrow", ".arrows", ".feather", ".ipc")
PARQUET = (".parquet", ".pq")
READ_BYTES = 4 << 20
"""Rows are read so many at a time that they have about this many bytes."""
READ_ROWS = 2048
CSV_BLOCK = 18 << 20
"""A row of CSV is smaller, and so much is parsed at a time."""
NOT_CSV = "not_csv"
"""Reason of the dead letter of a row that is no row of the table."""
_PIECE = 1 << 20
_TAIL = 1 << 16


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows. refused: those that cannot be read, by place, with their bytes; in `rows` they are nulls."""

    rows: Any
    refused: dict[int, tuple[Rejection, bytes]] = field(default_factory=dict)

    def behind(self, count: int) -> Part:
        """Without the first rows."""
        refused = {i - count: why for i, why in self.refused.items() if i >= count}
        return Part(self.rows.slice(count), refused) if count else self

    def pieces(self, rows: int, size: int) -> Iterator[Part]:
        """Parts of at most so many rows and bytes, but of at least one row."""
        count = self.rows.num_rows
        if count > 1 and (count > rows or self.rows.nbytes > size):
            middle = min(rows, count // 2) if count > rows else count // 2
            head = {i: why for i, why in self.refused.items() if i < middle}
            yield from Part(self.rows.slice(0, middle), head).pieces(rows, size)
            yield from self.behind(middle).pieces(rows, size)
        elif count:
            yield self


def table_suffix(name: str) -> str | None:
    """The suffix that says a file is a table, without that of a compression; None if it says no such thing."""
    path = PurePath(path_of(name).lower())
    suffix = PurePath(path.stem).suffix if decompressor(path.name) is not None else path.suffix
    return suffix if suffix in (*DELIMITERS, *ARROW, *PARQUET) else None


class Table(ABC):
    """An open table. schema: of its rows. rows: how many there are, None if that is not known before the end. cells:
    all values are texts. read: share of the file that was read."""

    cells = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.schema: Any = None
        self.rows: int | None = None
        self.read = 0.0

    @abstractmethod
    def parts(self, first: int) -> Iterator[Part]:
        """The rows from place `first` on, as they are stored: in parts of any size.

        Raises:
            InputError: the file is damaged, or it has fewer rows.
        """

    @contextmanager
    def failing(self, done: int) -> Iterator[None]:
        """Errors of reading as InputError. done: rows read."""
        pa = pyarrow()
        try:
            yield
        except Damaged as error:
            raise self.damaged(str(error), done) from None
        except (pa.ArrowException, OSError, EOFError) as error:
            why = getattr(error, "strerror", None) or " ".join(str(error).split())[:200].rstrip(".")
            raise self.damaged(why, done) from None

    def damaged(self, why: str, done: int) -> InputError:
        """The error of a file that cannot be read behind some rows."""
        read = f"{done} rows before it were read" if done else "no row was read"
        return InputError(f"{self.name} cannot be read to its end: {why}; {read}. Replace the file by a whole one.")


def open_table(name: str, file: Callable[[], Any]) -> Table:
    """The table in a file, by its suffix.

    Args:
        file: opens it: a file of bytes that can seek.

    Raises:
        InputError: it is damaged, or no such table. UsageError: pyarrow is missing.
    """
    suffix = table_suffix(name)
    assert suffix is not None
    pyarrow(f"{name}, a table,")
    if suffix in DELIMITERS:
        return _Csv(name, file, DELIMITERS[suffix])
    if decompressor(path_of(name)) is not None:
        raise InputError(f"{name} is compressed twice: a table of this kind compresses itself. Decompress the file.")
    return _Parquet(name, file) if suffix in PARQUET else _Ipc(name, file)


class _Parquet(Table):
    def __init__(self, name: str, file: Callable[[], Any]) -> None:
        super().__init__(name)
        with self.failing(0):
            # Pages are read through a buffer: a row group is never in memory as a whole.
            self._file = pyarrow().parquet.ParquetFile(file(), buffer_size=_PIECE, pre_buffer=False)
            self.schema = self._file.schema_arrow
        self.rows = self._file.metadata.num_rows

    def parts(self, first: int) -> Iterator[Part]:
        done = 0
        for number in range(self._file.metadata.num_row_groups):
            group = self._file.metadata.row_group(number)
            if done + group.num_rows <= first:
                done += group.num_rows
                continue
            size = max(1, min(READ_ROWS, READ_BYTES * group.num_rows // max(1, group.total_byte_size)))
            with self.failing(max(done, first)):
                batches = self._file.iter_batches(size, row_groups=[number])
            while True:
                with self.failing(max(done, first)):
                    rows = next(batches, None)
                if rows is None:
                    break
                if done + rows.num_rows > first:
                    skipped = max(0, first - done)
                    self.read = (done + rows.num_rows) / max(1, self.rows or 1)
                    yield Part(rows.slice(skipped))
                done += rows.num_rows


class _Ipc(Table):
    """A file with a footer, or a stream without one."""

    def __init__(self, name: str, file: Callable[[], Any]) -> None:
        super().__init__(name)
        ipc = pyarrow().ipc
        with self.failing(0):
            source = file()
            self._file = source
            stream = source.read(6) != b"ARROW1"
            source.seek(0)
            self._batches = ipc.open_stream(source) if stream else ipc.open_file(source)
        self.schema = self._batches.schema
        self._count = None if stream else self._batches.num_record_batches

    def parts(self, first: int) -> Iterator[Part]:
        done, number = 0, 0
        while self._count is None or number < self._count:
            with self.failing(max(done, first)):
                try:
                    rows = self._batches.read_next_batch() if self._count is None else self._batches.get_batch(number)
                    rows.validate()
                except StopIteration:
                    return
            number += 1
            self.read = number / self._count if self._count else 0.5
            if done + rows.num_rows > first:
                yield Part(rows.slice(max(0, first - done)))
            done += rows.num_rows


class _Csv(Table):
    """CSV as RFC 4180 has it, with a header. All cells are texts, which are not changed: `007` stays that."""

    cells = True

    def __init__(self, name: str, file: Callable[[], Any], delimiter: str) -> None:
        super().__init__(name)
        self._open, self._delimiter = file, delimiter
        with self.failing(0):
            head = _Source(name, file()).read(_PIECE)
        try:
            lines = io.StringIO(head.decode("utf-8-sig", "surrogateescape"), newline="")
            names = next(filter(None, csv.reader(lines, delimiter=delimiter)), [])
            "".join(names).encode()
        except (UnicodeEncodeError, csv.Error) as error:
            raise InputError(f"{name} has no header in UTF-8, the names of its columns: {error}.") from None
        if not names:
            raise InputError(f"{name} is empty: a table begins with the names of its columns.")
        pa = pyarrow()
        self.schema = pa.schema([(column, pa.string()) for column in names])

    def parts(self, first: int) -> Iterator[Part]:
        pa = pyarrow()
        refused: dict[int, tuple[Rejection, bytes]] = {}  # by place in the file

        def ragged(row: Any) -> str:
            detail = f"the row has {row.actual_columns} cells, and the header {row.expected_columns}"
            refused[row.number - 2] = Rejection(NOT_CSV, detail), str(row.text).encode("utf-8", "replace")
            return "skip"

        source = _Source(self.name, self._open())
        with self.failing(0):
            reader = pa.csv.open_csv(
                source,
                pa.csv.ReadOptions(use_threads=False, block_size=CSV_BLOCK),
                pa.csv.ParseOptions(
                    delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=ragged
                ),
                # As bytes: what is not UTF-8 rejects its row, and nothing is converted.
                pa.csv.ConvertOptions(
                    column_types=dict.fromkeys(self.schema.names, pa.binary()), strings_can_be_null=False
                ),
            )  # fmt: skip
        if reader.schema.names != self.schema.names:
            raise InputError(f"{self.name}: the names of its columns cannot be read: write them in one line.")
        done, ended, rows = 0, False, None
        while not ended:
            with self.failing(done):
                following = next(reader, None)
            ended = following is None
            if rows is not None or ended:
                part = self._part(rows, refused, done, source if ended else None)
                self.read = source.share
                if part is not None and done + part.rows.num_rows > first:
                    yield part.behind(max(0, first - done))
                done += part.rows.num_rows if part is not None else 0
            rows = following

    def _part(self, rows: Any, refused: dict[int, tuple[Rejection, bytes]], done: int, ended: _Source | None) -> Part:
        """The rows of a block, with those between them that are refused, which are taken from `refused`.

        Args:
            rows: columns of bytes. done: rows before the block. ended: the file, if it is the last block.
        """
        pa = pyarrow()
        count = rows.num_rows if rows is not None else 0
        places: list[int | None] = list(range(count))
        found: dict[int, tuple[Rejection, bytes]] = {}
        for place in sorted(refused):
            if place - done > len(places):
                break
            found[place - done] = refused.pop(place)
            places.insert(place - done, None)
        if rows is None:
            return Part(
                pa.RecordBatch.from_pylist([dict.fromkeys(self.schema.names)] * len(places), self.schema), found
            )
        lines = rows.take(pa.array(places, pa.int64())) if found else rows
        if count and ended is not None and places[-1] is not None and ended.leaves_open(rows.column(-1)[-1].as_py()):
            detail = "the quote of its last cell is not closed; the file may be cut off"
            found[len(places) - 1] = Rejection(NOT_CSV, detail), self._line(rows, count - 1)
        columns = []
        for name, column in zip(self.schema.names, lines.columns, strict=True):
            try:
                columns.append(column.cast(pa.string()))
            except pa.ArrowInvalid:
                values = [None if value is None or not is_utf8(value) else value for value in column.to_pylist()]
                for i, value in enumerate(values):
                    if value is None and places[i] is not None:
                        detail = f'the cell of the column "{name}" is not UTF-8'
                        found.setdefault(i, (Rejection("not_utf8", detail), self._line(lines, i)))
                columns.append(pa.array(values, pa.binary()).cast(pa.string()))
        return Part(pa.RecordBatch.from_arrays(columns, schema=self.schema), found)

    def _line(self, rows: Any, i: int) -> bytes:
        """A row as a line of CSV, without its end."""
        cells = [column[i].as_py() for column in rows.columns]
        return self._delimiter.encode().join(b'"%b"' % cell.replace(b'"', b'""') for cell in cells)


class _Source(io.RawIOBase):
    """The bytes of a file, decompressed if its suffix says so, that are read once. Sees whether a quote stays open."""

    def __init__(self, name: str, file: Any) -> None:
        self._file, self._size = file, max(1, file.size())
        decompress = decompressor(path_of(name))
        pieces = iter(lambda: file.read(_PIECE), b"")
        self._blocks = Blocks(pieces if decompress is None else decompress(pieces))
        self._quotes = 0
        self._tail = b""

    @property
    def share(self) -> float:
        """Share of the file that was read."""
        return float(self._file.tell() / self._size)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = b"".join(self._blocks.rest() if size is None or size < 0 else self._blocks.pieces(size))
        self._quotes += data.count(b'"')
        self._tail = (self._tail + data[-_TAIL:])[-_TAIL:]
        return data

    def leaves_open(self, cell: bytes) -> bool:
        """Whether the file ends within the quotes of its last cell."""
        raw = b'"' + cell.replace(b'"', b'""')
        return self._quotes % 2 == 1 and (self._tail.endswith(raw) or raw.endswith(self._tail))
