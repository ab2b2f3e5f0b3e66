"""Kafka's records as documents. A record's value is what a line of a file is for the embedded engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.columns import Columns, Rejection
from stream_lsh.documents.engine_errors import rejection_of
from stream_lsh.documents.fields import LINE_ID, MAX_ID_BYTES, check_ink, id_text
from stream_lsh.documents.lines import parse_lines
from stream_lsh.documents.refused import Refused
from stream_lsh.documents.times import LAST_TIME, NO_TIME
from stream_lsh.kafka.registry.decoding import Schemas
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.source import Headers, Record

NONE_EXCLUDED: Mapping[int, Rejection] = MappingProxyType({})


def columns_of(
    records: Sequence[Record], settings: KafkaSettings, schemas: Schemas | None = None,
    excluded: Mapping[int, Rejection] = NONE_EXCLUDED,
) -> Columns:  # fmt: skip
    """The documents of n records. Rejected documents keep their place.

    The event time is that of `time_field`, or else the record's timestamp (NO_TIME outside the years 1970 to 2199).
    With a window, a document without event time gets the record's timestamp and is marked as `stamped`.

    With `id_field` = LINE_ID the id is "topic:partition:offset". With `key_is_id`, a record without a value deletes the
    id that is its key. With a `time_field` such a record has no event time. `id_prefix` is before each id.

    Args:
        schemas: with `document_format` = registry; those of the records were fetched.
        excluded: records whose values are not read, by place.
    """
    values, rejected = _values(records, settings.max_document_bytes, excluded)
    if settings.document_format == "text":
        columns = _texts(records, values, rejected, settings)
    else:
        columns = _objects(records, values, rejected, settings, schemas)
    if settings.key_is_id is not None:
        columns = _with_tombstones(columns, records, settings.key_is_id, excluded)
    return prefixed(columns, settings)


def _with_tombstones(
    columns: Columns, records: Sequence[Record], kind: str, excluded: Mapping[int, Rejection]
) -> Columns:  # fmt: skip
    deleted, rejected = list(columns.deleted), columns.rejected
    for i, record in enumerate(records):
        if record.value is None and i not in excluded:
            try:
                columns.ids[i] = key_id(record.key, kind)
                deleted.append(i)
                del rejected[i]
            except Exception as error:
                rejected[i] = rejection_of(error)
    return replace(columns, deleted=sorted(deleted))


def prefixed(columns: Columns, settings: KafkaSettings) -> Columns:
    """The documents with `id_prefix` before each id."""
    if not settings.id_prefix:
        return columns
    ids = [settings.prefixed(id) for id in columns.ids]
    why = Rejection("id_too_long", f"the id has more than {MAX_ID_BYTES} bytes as JSON with its id_prefix")
    long = {i: why for i, id in enumerate(ids) if len(id) > MAX_ID_BYTES}
    return replace(columns, ids=[b"null" if i in long else id for i, id in enumerate(ids)]).rejecting(long)


def _objects(
    records: Sequence[Record], values: list[bytes], rejected: dict[int, Rejection], settings: KafkaSettings,
    schemas: Schemas | None,
) -> Columns:  # fmt: skip
    """Documents from JSON objects."""
    if schemas is not None:
        data, starts, ends = schemas.decode(values, rejected)
    else:
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        data, ends = b"".join(values), np.cumsum(lengths)
        starts = ends - lengths
    headers = [record.headers for record in records] if settings.envelope == "cloudevents" else ()
    if schemas is not None:
        headers = [[pair for pair in found if pair[0] != "content-type"] for found in headers]  # of the encoded value

    def key(i: int) -> bytes | None:
        return records[i].key if schemas is None else schemas.key(records[i].key)

    columns = parse_lines(data, starts, ends, settings.document_fields, rejected=rejected, key=key, headers=headers)
    ids = columns.ids if settings.id_field != LINE_ID else [_place(record) for record in records]
    times, stamped = columns.times, list[int]()
    if settings.time_field is None:
        times = timestamps(records)
    elif settings.window is not None:
        stamped = np.flatnonzero(times == NO_TIME).tolist()
        times = np.where(times == NO_TIME, timestamps(records), times)
    return replace(columns, ids=ids, times=times, stamped=stamped)


def headers_of(records: Sequence[Record], names: frozenset[str]) -> dict[int, Headers]:
    """The headers with these names, by document. A header without a value counts as empty."""
    found: dict[int, Headers] = {}
    for i, record in enumerate(records):
        if record.headers:
            chosen = [(name, value or b"") for name, value in record.headers if name in names]
            if chosen:
                found[i] = chosen
    return found


def _values(
    records: Sequence[Record], most: int, excluded: Mapping[int, Rejection]
) -> tuple[list[bytes], dict[int, Rejection]]:
    """The values. Empty and too large ones are rejected and returned as b"", as those that are left out."""
    values: list[bytes] = []
    rejected: dict[int, Rejection] = dict(excluded)
    for i, record in enumerate(records):
        value = record.value
        if i in excluded:
            value = b""
        elif not value:
            what = "no value (a tombstone)" if value is None else "an empty value"
            rejected[i] = Rejection("no_value", f"the record has {what}")
            value = b""
        elif len(value) > most:
            rejected[i] = Rejection("too_large", f"the value has {len(value)} bytes, more than {most}")
            value = b""
        values.append(value)
    return values, rejected


def timestamps(records: Sequence[Record]) -> NDArray[np.int64]:
    times = np.fromiter((record.timestamp for record in records), np.int64, len(records))
    times[(times < 0) | (times >= LAST_TIME)] = NO_TIME
    return times


def _place(record: Record) -> bytes:
    return id_text(f"{record.topic}:{record.partition}:{record.offset}")


def _texts(
    records: Sequence[Record], values: list[bytes], rejected: dict[int, Rejection], settings: KafkaSettings
) -> Columns:
    """Documents from raw texts. Their ids are the keys."""
    ids: list[bytes] = []
    for i, record in enumerate(records):
        id = b"null"
        try:
            id = _place(record) if settings.id_field == LINE_ID else key_id(record.key, "string")
            if i not in rejected:
                check_ink(_utf8(values[i], "value"), id)
        except Exception as error:
            rejected.setdefault(i, rejection_of(error))
            values[i] = b""
        ids.append(id)
    ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
    return Columns(ids, b"".join(values), ends, timestamps(records), rejected)


def key_id(key: bytes | None, kind: str) -> bytes:
    """The id in a key: as a `string` the text itself, as `json` a string or an integer. Raises Refused."""
    if not key:
        what = "no key" if key is None else "an empty key"
        raise Refused("no_key", f"the record has {what}, and the key is the id")
    text = _utf8(key, "key")
    if kind == "string":
        return id_text(text)
    try:  # an integer with more digits than Python converts keeps enough of them to be rejected as too long
        return id_text(json.loads(text, parse_int=lambda digits: int(digits[: MAX_ID_BYTES + 1])))
    except (ValueError, RecursionError) as error:
        why = f"the key is no JSON ({error}), and with key_is_id = json it is the id"
        raise Refused("not_json", why) from None


def _utf8(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("not_utf8", f"byte {error.start + 1} of the {name} is not UTF-8") from None
