"""From the rows of an Arrow table to columns of documents. Texts go from Arrow's buffers to the kernels, without an
object for each.

Arrays are read as a whole where their values are plain. The rows that are left (a null, a text without a visible
character, bytes that are not UTF-8, a deletion) are read one by one like JSON objects, which decides why a row is
rejected. Sets, vectors and bits are all read so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.arrow_fields import columns_of_fields, pyarrow
from stream_lsh.documents.columns import NO_RANKS, Columns, Rejection
from stream_lsh.documents.engine_errors import isolating
from stream_lsh.documents.fields import LINE_ID, MAX_ID_BYTES, Fields, Record, id_text, within_text
from stream_lsh.documents.ranks import rank_of
from stream_lsh.documents.refused import Refused
from stream_lsh.documents.times import LAST_TIME, MILLISECONDS_FROM, NO_TIME, milliseconds

_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_BOOLEANS = {"true": True, "false": False, "": None}
_ESCAPED = np.zeros(256, np.bool_)
"""Whether a byte of a string is escaped in JSON."""
_ESCAPED[:32] = _ESCAPED[[34, 92]] = True
_INK = np.zeros(256, np.bool_)
"""Whether the first byte of a text in UTF-8 is that of a visible character for sure."""
_INK[33:] = True
_INK[[0xC2, 0xE1, 0xE2, 0xE3]] = False
_PER_MILLISECOND = {"s": -1000, "ms": 1, "us": 1000, "ns": 1_000_000}


def columns_of(
    rows: Any,
    fields: Fields,
    *,
    input: str = "-",
    first: int = 1,
    rejected: Mapping[int, Rejection] | None = None,
    cells: bool = False,
) -> Columns:
    """Documents from the rows of a record batch, whose columns are checked (`arrow_fields.check_columns`).

    Args:
        rows: of at most some MB. input, first: for ids made of them; the number of the first row.
        rejected: rows that the reader has rejected already. cells: all values are texts (CSV): a time may be a number,
            `true` and `false` are booleans, and an empty cell is null.
    """

    def parse(begin: int, end: int, found: Mapping[int, Rejection]) -> Columns:
        given = {i - begin: why for i, why in (rejected or {}).items() if begin <= i < end} | dict(found)
        return _Rows(rows.slice(begin, end - begin), fields, input, first + begin, given, cells).columns()

    return isolating(parse, rows.num_rows)


class _Rows:
    """One call of `columns_of`. left: bool[n], which rows are read one by one."""

    def __init__(
        self, rows: Any, fields: Fields, input: str, first: int, rejected: dict[int, Rejection], cells: bool
    ) -> None:
        self._pa = pyarrow()
        self._fields, self._rejected, self._cells = fields, rejected, cells
        self._arrays = columns_of_fields(rows, fields)
        self._n = rows.num_rows
        self._left = np.zeros(self._n, np.bool_)
        self._left[list(rejected)] = True
        self._line_ids: list[bytes] | None = None
        if fields.id_field == LINE_ID:
            self._line_ids = [id_text(f"{input}:{row}") for row in range(first, first + self._n)]
        self._lists: dict[str, list[object]] = {}

    def columns(self) -> Columns:
        fields = self._fields
        if fields.deleted_field is not None:
            array = self._arrays[fields.deleted_field]
            if self._pa.types.is_boolean(array.type):
                self._left |= array.fill_null(False).to_numpy(zero_copy_only=False)
            elif not self._pa.types.is_null(array.type):  # cells of CSV
                self._left |= np.diff(_buffers(self._pa, array)[1]) > 0
        ids = self._line_ids.copy() if self._line_ids is not None else self._ids(self._arrays[fields.id_field])
        times = np.full(self._n, NO_TIME, np.int64)
        if fields.time_field is not None:
            self._times(fields.time_field, times)
        scopes = self._scopes()
        sources, ranks = self._sources(), self._ranks()
        texts, ends = b"", np.zeros(self._n, np.int64)
        if fields.item is None and fields.set_field is None:
            texts, ends = self._texts([self._arrays[path] for path in fields.text_fields])
        else:
            self._left[:] = True
        found = Columns(ids, texts, ends, times, self._rejected, sources, scopes, [], [], ranks)
        found.put({i: self._record(i) for i in self._left.nonzero()[0].tolist()})
        return found

    # -- whole arrays -------------------------------------------------------------------------------------------------

    def _ids(self, array: Any) -> list[bytes]:
        types, kind = self._pa.types, array.type
        self._left |= ~_valid(array)
        if types.is_integer(kind):
            return [b"%d" % number for number in self._pa.compute.fill_null(array, 0).to_pylist()]
        if not (types.is_string(kind) or types.is_large_string(kind)):
            self._left[:] = True
            return [b"null"] * self._n
        data, ends = _buffers(self._pa, self._checked(array))
        if self._cells:
            self._left |= np.diff(ends) == 0
        if _ESCAPED[np.frombuffer(data, np.uint8)].any():
            self._left[:] |= [bool(_ESCAPED[np.frombuffer(part, np.uint8)].any()) for part in _parts(data, ends)]
        self._left |= np.diff(ends) + 2 > MAX_ID_BYTES
        return [b'"%b"' % part for part in _parts(data, ends)]

    def _texts(self, arrays: list[Any]) -> tuple[bytes, NDArray[np.int64]]:
        for array in arrays:
            self._left |= ~_valid(array)
        if len(arrays) > 1:
            strings = [self._checked(array).cast(self._pa.large_binary()) for array in arrays]
            array = self._pa.compute.binary_join_element_wise(*strings, self._pa.scalar(b"\n", self._pa.large_binary()))
        else:
            array = self._checked(arrays[0])
        data, ends = _buffers(self._pa, array)
        starts = ends[:-1]
        sizes = np.diff(ends)
        self._left |= (sizes == 0) | (sizes > self._fields.max_document_bytes)
        buffer = np.frombuffer(data, np.uint8)
        doubtful = ~self._left
        doubtful[doubtful] = ~_INK[buffer[starts[doubtful]]]
        for i in doubtful.nonzero()[0].tolist():
            begin, end = int(starts[i]), int(ends[i + 1])
            if data[begin : min(end, begin + 64)].decode("utf-8", "ignore").strip() == "":
                self._left[i] = not data[begin:end].decode("utf-8", "replace").strip()
        return data, ends[1:]

    def _checked(self, array: Any) -> Any:
        """An array of strings or bytes; its values that are not UTF-8 are left."""
        try:
            if self._pa.types.is_string(array.type) or self._pa.types.is_large_string(array.type):
                array.validate(full=True)
                return array
            array.validate(full=True)
            return array.cast(self._pa.large_string())
        except self._pa.ArrowInvalid:
            array = array.cast(self._pa.large_binary())
            for i, part in enumerate(_parts(*_buffers(self._pa, array))):
                self._left[i] |= not is_utf8(part)
            return array

    def _times(self, path: str, times: NDArray[np.int64]) -> None:
        """Fill in the times; rows without a valid one are left, but for nulls where none is needed."""
        pa, array = self._pa, self._arrays[path]
        types, kind, valid = pa.types, array.type, _valid(array)
        if types.is_timestamp(kind) or types.is_date(kind):
            unit = _PER_MILLISECOND[kind.unit] if types.is_timestamp(kind) else 1
            whole = array.cast(pa.timestamp("ms")) if types.is_date(kind) else array
            values = pa.compute.fill_null(whole.cast(pa.int64()), -1).to_numpy()
            if unit < 0:
                values = np.clip(values, -1, LAST_TIME) * -unit
            times[:] = values // abs(unit) if unit > 0 else values
        elif types.is_integer(kind):
            wide = array if types.is_uint64(kind) else array.cast(pa.int64())
            numbers = pa.compute.fill_null(wide, 0).to_numpy()
            numbers = np.where(valid, np.minimum(numbers, LAST_TIME).astype(np.int64), -1)
            times[:] = np.where(numbers >= MILLISECONDS_FROM, numbers, np.maximum(numbers, -1) * 1000)
        else:
            for i, value in enumerate(self._list(path)):
                try:
                    times[i] = milliseconds(value)
                except ValueError:
                    times[i] = -1
                valid[i] = value is not None
        wrong = (times < 0) | (times >= LAST_TIME)
        times[wrong] = NO_TIME
        self._left |= wrong & (valid if not self._fields.timed else True)

    def _scopes(self) -> list[bytes]:
        paths = self._fields.match_within
        scopes = []
        for i, values in enumerate(zip(*(self._list(path) for path in paths), strict=True)):
            try:
                scopes.append(within_text(dict(zip(paths, values, strict=True)), b"null"))
            except Refused:
                self._left[i] = True
                scopes.append(b"")
        return scopes

    def _sources(self) -> list[bytes]:
        if self._fields.source_field is None:
            return []
        values = self._list(self._fields.source_field)
        self._left |= np.fromiter((isinstance(value, bytes) for value in values), np.bool_, self._n)  # not UTF-8
        return [self._fields.source_text(value) for value in values]

    def _ranks(self) -> NDArray[np.float64]:
        if self._fields.rank_field is None:
            return NO_RANKS
        return np.array([rank_of(value, self._fields.rank_order) for value in self._list(self._fields.rank_field)])

    # -- single rows --------------------------------------------------------------------------------------------------

    def _record(self, i: int) -> Record:
        """Row i, which is rejected if it cannot be a document."""
        line_id = self._line_ids[i] if self._line_ids is not None else None
        if i in self._rejected:
            return Record(line_id or b"null", "", NO_TIME)
        most = self._fields.max_document_bytes
        try:
            record = self._fields.extract({path: self._value(path, i) for path in self._arrays}, line_id)
            if (size := len(record.text.encode())) > most:
                raise Refused("too_large", f"the document has {size} bytes, more than {most}", record.id)
            return record
        except Refused as refused:
            self._rejected[i] = Rejection(refused.reason, refused.detail)
            return Record(line_id or refused.id, "", NO_TIME)

    def _value(self, path: str, i: int) -> object:
        """The value of row i as Python has it.

        Raises:
            Refused: it is not UTF-8.
        """
        value = self._lists[path][i] if path in self._lists else self._python(path, self._arrays[path].slice(i, 1))[0]
        if isinstance(value, bytes) and not self._is_bits(path):
            try:
                value.decode()
            except UnicodeDecodeError as error:
                detail = f'byte {error.start + 1} of the column "{path}" is not UTF-8'
                raise Refused("not_utf8", detail) from None
        return value

    def _list(self, path: str) -> list[object]:
        """All values of a column as Python has them; bytes are those that are not UTF-8."""
        if path not in self._lists:
            self._lists[path] = self._python(path, self._arrays[path])
        return self._lists[path]

    def _is_bits(self, path: str) -> bool:
        return self._fields.item is not None and self._fields.item.kind == "bits" and path == self._fields.item.name

    def _python(self, path: str, array: Any) -> list[object]:
        pa, kind = self._pa, array.type
        types = pa.types
        if types.is_timestamp(kind):
            numbers = pa.compute.fill_null(array.cast(pa.int64()), NO_TIME).to_numpy()
            # What is far outside of all years would not stay so in other units.
            numbers = np.where(numbers == NO_TIME, numbers, np.maximum(numbers, -LAST_TIME))
            if kind.unit == "s":
                numbers = np.minimum(numbers, LAST_TIME)
            return [None if np.isnat(value) else value for value in numbers.view(f"datetime64[{kind.unit}]")]
        if types.is_decimal(kind):
            return [_number(value) for value in array.to_pylist()]
        if types.is_map(kind):
            return [None if value is None else dict(value) for value in array.to_pylist()]
        if types.is_string(kind) or types.is_large_string(kind):
            array = array.cast(pa.large_binary())
        values = array.to_pylist()
        if not types.is_large_binary(array.type) and not types.is_binary(array.type):
            return list(values)
        if self._is_bits(path) and (types.is_binary(kind) or types.is_large_binary(kind)):
            return list(values)
        return [self._cell(path, value) for value in values]

    def _cell(self, path: str, value: bytes | None) -> object:
        """A string; of CSV a value that it stands for. Bytes that are not UTF-8 stay bytes."""
        if value is None or not is_utf8(value):
            return value
        text = value.decode()
        if not self._cells:
            return text
        if path == self._fields.time_field and _NUMBER.fullmatch(text) and len(text) != 8:
            return float(text) if "." in text else int(text)
        if path == self._fields.deleted_field:
            return _BOOLEANS.get(text.lower(), text)
        return None if not text and path in (self._fields.time_field, self._fields.id_field) else text


def _number(value: Decimal | None) -> int | float | None:
    if value is None:
        return None
    return int(value) if value == value.to_integral_value() else float(value)


def is_utf8(value: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _valid(array: Any) -> NDArray[np.bool_]:
    """bool[n], which values are not null."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    found: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def _buffers(pa: Any, array: Any) -> tuple[bytes, NDArray[np.int64]]:
    """The bytes of an array of strings or bytes, and int64[n + 1], where its values begin and the last one ends."""
    _, offsets, data = array.buffers()
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    if not len(array) or offsets is None:
        return b"", np.zeros(len(array) + 1, np.int64)
    found = np.frombuffer(offsets, np.int64 if wide else np.int32)[array.offset : array.offset + len(array) + 1]
    begin, end = int(found[0]), int(found[-1])
    return b"" if data is None else data[begin:end].to_pybytes(), found.astype(np.int64) - begin


def _parts(data: bytes, ends: NDArray[np.int64]) -> list[bytes]:
    bounds = ends.tolist()
    return [data[begin:end] for begin, end in pairwise(bounds)]
