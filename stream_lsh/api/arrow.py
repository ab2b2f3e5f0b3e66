"""Arrow tables of Python programs: documents of any library that has Arrow's PyCapsule interface, and verdicts on them
as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.api.answers import KINDS, detail_of
from stream_lsh.documents.arrow_columns import columns_of, is_utf8
from stream_lsh.documents.arrow_fields import check_columns, columns_of_fields, pyarrow
from stream_lsh.documents.columns import Columns
from stream_lsh.documents.fields import LINE_ID, Fields, id_value
from stream_lsh.documents.refused import kind_of
from stream_lsh.embedded.engine import Judged
from stream_lsh.embedded.tables import READ_BYTES, READ_ROWS, Part
from stream_lsh.errors import UsageError
from stream_lsh.index.index import Index
from stream_lsh.index.rows import layout


class Rows:
    """The rows of a table in memory.

    Args:
        table: it, `Lists`, or what has `__arrow_c_stream__` or `__arrow_c_array__`. fields: the names of its columns.

    Raises:
        TypeError: it is no table. InputError: a column is missing or has a wrong type. UsageError: pyarrow is missing.
    """

    def __init__(self, table: object, fields: Fields) -> None:
        pa = pyarrow("process_arrow")
        if fields.id_field == LINE_ID:
            raise UsageError(f'id_field = "{LINE_ID}": a table in memory has no lines to be its ids; name a column')
        self._reader: Any
        if isinstance(table, (pa.RecordBatchReader, Lists)):
            self._reader = table
        elif hasattr(table, "__arrow_c_stream__"):
            self._reader = pa.RecordBatchReader.from_stream(table)
        elif hasattr(table, "__arrow_c_array__"):
            batch = pa.record_batch(table)
            self._reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
        else:
            raise TypeError(f"the table is a {type(table).__name__}, which has no __arrow_c_stream__")
        self._fields = fields
        check_columns(self._reader.schema, fields, "the table")
        self._done = 0

    @property
    def no_ids(self) -> Any:
        """An empty array of the type of the ids."""
        pa, schema = pyarrow(), self._reader.schema
        nothing = pa.record_batch([pa.nulls(0, column.type) for column in schema], schema=schema)
        return columns_of_fields(nothing, self._fields)[self._fields.id_field]

    def parts(self) -> Iterator[tuple[Columns, Any]]:
        """The documents in parts, with the ids of each as an array."""
        for batch in self._reader:
            for part in Part(batch).pieces(READ_ROWS, READ_BYTES):
                ids = columns_of_fields(part.rows, self._fields)[self._fields.id_field]
                yield columns_of(part.rows, self._fields), _readable(ids)


@dataclass(frozen=True)
class Lists:
    """Columns whose texts are strings of Python. They become Arrow's in parts, while the parts before are signed.

    Attributes:
        columns: all others, by name.
    """

    columns: Mapping[str, Any]
    texts: Sequence[str]

    @property
    def schema(self) -> Any:
        """That of the batches."""
        pa = pyarrow()
        kinds = {name: column.type for name, column in self.columns.items()}
        return pa.schema(kinds | {"texts": pa.large_string()})

    def __iter__(self) -> Iterator[Any]:
        pa = pyarrow()
        for at in range(0, len(self.texts), READ_ROWS):
            part = {name: column.slice(at, READ_ROWS) for name, column in self.columns.items()}
            yield from pa.table(part | {"texts": _array(pa, "texts", self.texts[at : at + READ_ROWS])}).to_batches()


def table_of_lists(
    fields: Fields, ids: Any, texts: Any, times: Any, sources: Any, within: Mapping[str, Any]
) -> tuple[Any, Fields]:
    """Documents given as columns, as what `Rows` takes, with the names of its fields.

    Raises:
        UsageError: the index compares no texts or has ranks, columns have other lengths, or a value of `match_within`
            is missing.
        TypeError: a column is no list, its values have several types, or an integer does not fit in an int64.
    """
    pa = pyarrow("process_batch")
    if fields.item is not None or fields.set_field is not None:
        what = fields.item.plural if fields.item is not None else "sets"
        raise UsageError(f"the index compares {what}, not texts: give a table to process_arrow")
    if fields.rank_field is not None:
        raise UsageError(f"columns have no ranks: give a table with the column {fields.rank_field!r} to process_arrow")
    if not isinstance(within, Mapping):
        raise TypeError(f"within is {kind_of(within)}, not a mapping of columns by field")
    if within.keys() != set(fields.match_within):
        wanted = ", ".join(fields.match_within) or "none"
        raise UsageError(f"within has the fields {', '.join(within) or 'none'}, and match_within is {wanted}")
    optional = {"times": times, "sources": sources}
    given = {"ids": ids, "texts": texts} | {name: values for name, values in optional.items() if values is not None}
    given |= {f"within {name}": within[name] for name in fields.match_within}
    strings = list(texts) if type(texts) is list and set(map(type, texts)) == {str} else None
    arrays = {
        name: strings if name == "texts" and strings is not None else _array(pa, name, values)
        for name, values in given.items()
    }  # fmt: skip
    for name, array in arrays.items():
        if len(array) != len(arrays["ids"]):
            raise UsageError(f"there are {len(arrays['ids']):,} ids, and {len(array):,} values of {name}")
    named = replace(
        fields, id_field="ids", text_fields=("texts",), deleted_field=None,
        time_field=None if times is None else "times", source_field=None if sources is None else "sources",
        match_within=tuple(f"within {name}" for name in fields.match_within),
    )  # fmt: skip
    if strings is None:
        return pa.table(arrays), named
    del arrays["texts"]
    return Lists(arrays, strings), named


def _readable(ids: Any) -> Any:
    """Ids with null in place of strings that are not UTF-8, which no program can read."""
    pa = pyarrow()
    try:
        ids.validate(full=True)
        return ids
    except pa.ArrowInvalid:
        encoded = [id if id is not None and is_utf8(id) else None for id in ids.cast(pa.large_binary()).to_pylist()]
        return pa.array(encoded, pa.large_binary()).cast(ids.type)


def _array(pa: Any, name: str, values: Any) -> Any:
    single = isinstance(values, (str, bytes, bytearray, memoryview, Mapping, Set))
    if single or not (isinstance(values, Iterable) or hasattr(values, "__arrow_c_stream__")):
        raise TypeError(f"{name} is {kind_of(values)}, not a list of values")
    try:
        if hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values)
        array = pa.array(values, from_pandas=True)
    except UnicodeError:  # a lone surrogate: its document is rejected
        encoded = [value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value for value in values]
        return _array(pa, name, encoded).cast(pa.string(), safe=False)
    except OverflowError:
        raise TypeError(f"{name}: an integer does not fit in an int64; give its document to process") from None
    except (pa.ArrowException, TypeError) as error:
        raise TypeError(f"{name}: the values have no common type ({' '.join(str(error).split())[:200]})") from None
    if isinstance(values, list) and pa.types.is_decimal(array.type):
        raise TypeError(f"{name} has values of the type Decimal")
    return array


_OTHERS = ("duplicate_of", "supersedes", "matched", "representative")
"""Ids of other documents."""
_VALUES = (*_OTHERS, "reason", "detail")
_NUMBERS = ("seq", "group", "matched_seqs", "truncated", "not_compared", "replaces", "representative_seq")
_KINDS = ("kind", "first_kind")
_SIMILARITIES = ("similarity", "matched_similarities")


class VerdictTable:
    """Verdicts on the documents of a table, which are added part by part. no_ids: an empty array of the ids' type."""

    def __init__(self, no_ids: Any) -> None:
        numbers: NDArray[np.int64] = np.empty(0, np.int64)
        kinds: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._parts: list[dict[str, Any]] = [
            dict.fromkeys(_NUMBERS, numbers) | dict.fromkeys(_KINDS, kinds) | {name: [] for name in _VALUES}
            | dict.fromkeys(_SIMILARITIES, np.empty(0)) | {"starts": np.zeros(1, np.int64)}
        ]  # fmt: skip
        self._ids = [no_ids]

    def of(self, judged: Judged, index: Index) -> Sequence[bytes]:
        """Add the verdicts on a batch; before a commit, which may forget ids. Returns their ids."""
        j = judged.judgement
        n = len(j.ids)
        reasons = judged.reasons
        explained = np.flatnonzero((j.not_compared > 0) | (j.kinds > KINDS.index("redelivered")))
        details = {i: detail_of(int(j.kinds[i]), int(j.replaces[i]), int(j.not_compared[i]), index.settings)
                   for i in explained.tolist()}  # fmt: skip
        details |= {i: why.detail for i, why in reasons.items()}
        found = {i: id_value(j.oldest(i)) for i in np.flatnonzero(j.of[:, 1] >= 0).tolist() if j.oldest(i)}
        new = {i: id_value(j.representative(i)) for i in np.flatnonzero(j.representatives[:, 1] >= 0).tolist()}
        similar = np.zeros(n, np.bool_)
        similar[list(found)] = True
        superseded = {i: found.pop(i) for i in j.superseding.tolist()}
        self._parts.append(
            {
                "seq": j.seqs, "kind": j.kinds, "first_kind": j.first_kinds, "duplicate_of": _spread(found, n),
                "supersedes": _spread(superseded, n),
                "similarity": np.where(similar, j.similarities, np.nan), "group": j.groups, "starts": j.starts,
                "matched": [id_value(id) for id in j.matched_ids()], "matched_seqs": j.matched_seqs,
                "matched_similarities": j.matched_similarities, "truncated": j.truncated,
                "not_compared": j.not_compared, "replaces": j.replaces, "representative": _spread(new, n),
                "representative_seq": j.representative_seqs, "detail": _spread(details, n),
                "reason": _spread({i: why.reason for i, why in reasons.items()}, n),
            }
        )  # fmt: skip
        return j.ids

    def add_ids(self, ids: Any) -> None:
        """Add the ids of the next part."""
        self._ids.append(ids)

    def table(self) -> Any:
        """The table, a row for each document."""
        pa = pyarrow()
        parts, names = self._parts, self._parts[0].keys() - {"starts"}
        whole: dict[str, Any] = {
            name: np.concatenate([part[name] for part in parts])
            if isinstance(parts[0][name], np.ndarray)
            else [value for part in parts for value in part[name]]
            for name in names
        }
        ids = pa.chunked_array(self._ids)
        kind = ids.type
        try:
            others = {name: pa.array(whole[name], kind) for name in _OTHERS}
        except (pa.ArrowException, TypeError, OverflowError):  # ids of another type are among them
            texts = {name: [None if id is None else str(id) for id in whole[name]] for name in _OTHERS}
            others = {name: pa.array(texts[name], pa.string()) for name in _OTHERS}
        counts = np.concatenate([np.diff(part["starts"]) for part in parts])
        starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        matches = pa.StructArray.from_arrays(
            [others["matched"], pa.array(whole["matched_seqs"]), pa.array(whole["matched_similarities"])],
            ["id", "seq", "similarity"],
        )
        missing = whole["representative_seq"] < 0
        representative = pa.StructArray.from_arrays(
            [others["representative"], pa.array(whole["representative_seq"])], ["id", "seq"], mask=pa.array(missing)
        )
        return pa.table(
            {
                "id": ids,
                "seq": whole["seq"],
                "kind": _kinds(pa, whole["kind"]),
                "first_kind": _kinds(pa, whole["first_kind"]),
                "duplicate_of": others["duplicate_of"],
                "similarity": pa.array(whole["similarity"], from_pandas=True),
                "group": _known(pa, whole["group"]),
                "matches": pa.LargeListArray.from_arrays(starts, matches),
                "truncated": whole["truncated"],
                "not_compared": whole["not_compared"],
                "replaces": _known(pa, whole["replaces"]),
                "new_representative": representative,
                "supersedes": others["supersedes"],
                "reason": pa.array(whole["reason"], pa.string()),
                "detail": pa.array(whole["detail"], pa.string()),
            }
        )


def _spread(values: Mapping[int, Any], n: int) -> list[Any]:
    found: list[Any] = [None] * n
    for i, value in values.items():
        found[i] = value
    return found


def _known(pa: Any, numbers: NDArray[np.int64]) -> Any:
    return pa.array(numbers, mask=numbers < 0)


def _kinds(pa: Any, numbers: NDArray[np.uint8]) -> Any:
    unknown = numbers == layout.UNKNOWN
    indices = pa.array(np.where(unknown, 0, numbers).astype(np.int8), mask=unknown)
    return pa.DictionaryArray.from_arrays(indices, pa.array(KINDS))
