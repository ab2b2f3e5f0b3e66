"""The columns of a table that make its documents: found by the names of the fields, checked by their types, and brought
to few types.

A column has one type for all rows. A type that no document can have is an error, which names the column and all columns
of the table. A single value that cannot be used rejects its row.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from stream_lsh.documents.fields import LINE_ID, Fields
from stream_lsh.errors import InputError, UsageError
from stream_lsh.wording import missing_package

SHOWN_COLUMNS = 30


def pyarrow(what: str = "a table") -> Any:
    """The package pyarrow, with its parts for computing, Parquet and CSV. what: needs it.

    Raises:
        UsageError: it is not installed; the message has the command that installs it.
    """
    try:
        for part in ("compute", "parquet", "csv"):
            importlib.import_module(f"pyarrow.{part}")
    except ModuleNotFoundError:
        raise UsageError(missing_package(what, "pyarrow", "arrow")) from None
    return importlib.import_module("pyarrow")


def check_columns(schema: Any, fields: Fields, title: str, *, cells: bool = False) -> None:
    """Check that a table has all columns that the fields name, with types that can be used.

    Args:
        schema: of the table. title: its name for messages. cells: all columns are texts (CSV).

    Raises:
        InputError: a column is missing, is there twice, or has another type.
    """
    pa, names = pyarrow(), schema.names
    for name in names:
        if names.count(name) > 1:
            raise InputError(f'{title} has two columns named "{name}": rename one of them.')
    for role, path, wanted in _roles(fields):
        _, kind = _field_at(schema, path)
        if kind is None:
            setting = role.replace(" ", "_")
            shown = ", ".join(names[:SHOWN_COLUMNS]) + (", ..." if len(names) > SHOWN_COLUMNS else "")
            joined = cells and len(names) == 1 and any(mark in names[0] for mark in ",;\t")
            hint = " It has only one: a .csv file has commas between the cells, a .tsv file has tabs." if joined else ""
            raise InputError(f'{title} has no column "{path}" ({setting}). It has: {shown or "no columns"}.{hint}')
        plain = _plain_type(pa, kind)
        if isinstance(plain, pa.BaseExtensionType) or not _fits(pa.types, plain, role, cells):
            raise InputError(
                f'{title}: the column "{path}" ({role.replace(" ", "_")}) has the type {kind}, and is to be {wanted}.'
            )


def columns_of_fields(rows: Any, fields: Fields) -> dict[str, Any]:
    """The columns that the fields name, each as a plain array of as many values as there are rows."""
    pa = pyarrow()
    return {path: _plain(pa, _column_at(pa, rows, path)) for _, path, _ in _roles(fields)}


def _roles(fields: Fields) -> Iterator[tuple[str, str, str]]:
    """The role of each field, its path, and what its values are to be."""
    if fields.id_field != LINE_ID:
        yield "id field", fields.id_field, "a string or an integer"
    if fields.item is not None:
        wanted = {"vector": "a list of numbers, or base64", "bits": "hexadecimal, base64, binary or an integer"}
        yield f"{fields.item.kind} field", fields.item.name, wanted.get(fields.item.kind, "a list or a map of weights")
    elif fields.set_field is not None:
        yield "set field", fields.set_field, "a list of strings or integers"
    else:
        for path in fields.text_fields:
            yield "text field", path, "a string"
    if fields.time_field is not None:
        yield "time field", fields.time_field, "a timestamp, a date, a number or an ISO 8601 string"
    if fields.source_field is not None:
        yield "source field", fields.source_field, "a string or an integer"
    if fields.deleted_field is not None:
        yield "deleted field", fields.deleted_field, "a boolean"
    if fields.rank_field is not None:
        yield "rank field", fields.rank_field, "a number or a string"
    for path in fields.match_within:
        yield "match within", path, "a string, an integer or a boolean"


def _fits(types: Any, kind: Any, role: str, cells: bool) -> bool:
    whole = types.is_integer(kind) or (types.is_decimal(kind) and kind.scale <= 0)
    text = types.is_string(kind) or types.is_large_string(kind)
    binary = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(
        types.is_null(kind)
        or {
            "id field": whole or text or binary,
            "text field": text or binary,
            "set field": listed or types.is_map(kind) or types.is_struct(kind),
            "vector field": listed or text,
            "bits field": whole or text or binary,
            "time field": whole or text or types.is_floating(kind) or types.is_decimal(kind)
            or types.is_timestamp(kind) or types.is_date(kind),
            "deleted field": types.is_boolean(kind) or (cells and text),
            "source field": whole or text or binary,
            "rank field": whole or text or types.is_floating(kind) or types.is_decimal(kind),
            "match within": whole or text or binary or types.is_boolean(kind),
        }.get(role, True)
    )  # fmt: skip


def _field_at(schema: Any, path: str) -> tuple[list[int], Any]:
    """The places that lead to a dotted path, and the type there, None if there is none. `schema` is one, or a struct.
    See `fields._resolve`."""
    at = len(path)
    while at >= 0:
        found = schema.get_field_index(path[:at])
        if found >= 0:
            kind = schema.field(found).type
            if at == len(path):
                return [found], kind
            inside, inner = _field_at(kind, path[at + 1 :]) if pyarrow().types.is_struct(kind) else ([], None)
            if inner is not None:
                return [found, *inside], inner
        at = path.rfind(".", 0, at)
    return [], None


def _column_at(pa: Any, rows: Any, path: str) -> Any:
    """The column at a dotted path, which a record batch has."""
    (first, *inside), _ = _field_at(rows.schema, path)
    return pa.compute.struct_field(rows.column(first), inside) if inside else rows.column(first)


def _plain_type(pa: Any, kind: Any) -> Any:
    """The type that `_plain` brings a column to. That of UUIDs stays: their 16 bytes may be UTF-8, and are no text."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return kind if kind.extension_name == "arrow.uuid" else _plain_type(pa, kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _plain_type(pa, kind.value_type)
    if types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if types.is_binary_view(kind) or types.is_fixed_size_binary(kind) else kind


def _plain(pa: Any, array: Any) -> Any:
    """An array without extension, dictionary, runs or views."""
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(pa, array.storage)
    if types.is_dictionary(kind):
        return _plain(pa, array.dictionary_decode())
    if types.is_run_end_encoded(kind):
        return _plain(pa, pa.compute.run_end_decode(array))
    plain = _plain_type(pa, kind)
    if plain == kind:
        return array
    return array.cast(pa.large_binary() if types.is_binary_view(kind) else plain)
