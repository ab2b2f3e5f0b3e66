"""The fields of a JSON object that make a document, and the checks of their values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import orjson

from stream_lsh.documents.items import Item
from stream_lsh.documents.python_values import elements_of, unboxed
from stream_lsh.documents.ranks import LOWEST, rank_of
from stream_lsh.documents.refused import Refused, kind_of
from stream_lsh.documents.times import NO_TIME, NoTime, milliseconds
from stream_lsh.documents.weights import element_text

MAX_ID_BYTES = 4096
MAX_SOURCE_BYTES = 256
MAX_WITHIN_BYTES = 256
LINE_ID = "@line"
"""Value of `id_field` for feeds without ids: the id is "<input>:<line>"."""

Envelope = Literal["debezium", "cloudevents"]
"""Formats of events that have a document inside."""

LITERALS: dict[bool | None, bytes] = {None: b"null", True: b"true", False: b"false"}

_ABSENT = object()
_WIDE = re.compile(rb":\s*-?[0-9]{19}")
"""A value of JSON that may be an integer beyond 64 bits."""


class Record(NamedTuple):
    """A document in a parsed object.

    Attributes:
        id: as JSON text.
        text: empty for a deletion.
        time: ms since 1970, or NO_TIME.
        source: as JSON text, b"" = none.
        within: its scope, as `within_text` has it; empty for a deletion.
        deleted: it is a deletion.
        rank: see `ranks.rank_of`.
    """

    id: bytes
    text: str
    time: int
    source: bytes = b""
    within: bytes = b""
    deleted: bool = False
    rank: float = LOWEST


@dataclass(frozen=True)
class Fields:
    """Where the parts of a document are in its JSON object.

    A name with dots is a path into nested objects, unless there is a key with these dots. The texts are joined by a
    line break. With `set_field` a list takes the place of the texts, with `item` a vector or bits.

    Attributes:
        timed: every document must have a time.
        source_field: a document has no source if its value is missing, or is no string or integer of at most
            MAX_SOURCE_BYTES as JSON. It is not rejected.
        match_within: their values must be equal for two documents to match.
        deleted_field: where it is true the id is deleted, and no other field but the id is needed. False, null or
            missing: it is a document.
        rank_field, rank_order: of the rank, see `ranks.rank_of`.
        envelope: format of the events that have the documents inside; None: each object is a document.
    """

    id_field: str = "id"
    text_fields: tuple[str, ...] = ("text",)
    time_field: str | None = None
    set_field: str | None = None
    max_document_bytes: int = 16 * 2**20
    source_field: str | None = None
    timed: bool = True
    match_within: tuple[str, ...] = ()
    deleted_field: str | None = None
    item: Item | None = None
    rank_field: str | None = None
    rank_order: tuple[str, ...] = ()
    envelope: Envelope | None = None

    def extract(self, document: dict[str, object], line_id: bytes | None = None) -> Record:
        """The document in a parsed object. line_id: the id when `id_field` is LINE_ID. Raises Refused."""
        id = line_id if line_id is not None else id_text(_required(document, self.id_field, b"null"))
        deleted = self._deleted(document, id)
        text = "" if deleted else self._text(document, id)
        timed, time = self.timed and not deleted, NO_TIME
        if self.time_field is not None and (timed or _resolve(document, self.time_field) not in (_ABSENT, None)):
            value = _required(document, self.time_field, id)
            try:
                time = milliseconds(value)
            except ValueError as error:
                wrong = value if isinstance(error, NoTime) else None
                raise Refused("bad_time", f"the field {_quoted(self.time_field)}: {error}", id, wrong) from None
        within = b"" if deleted else self._within(document, id)
        rank = LOWEST if self.rank_field is None else rank_of(_resolve(document, self.rank_field), self.rank_order)
        return Record(id, text, time, self._source(document), within, deleted, rank)

    def _deleted(self, document: dict[str, object], id: bytes) -> bool:
        if self.deleted_field is None:
            return False
        value = unboxed(_resolve(document, self.deleted_field))
        if value is _ABSENT or value is None or isinstance(value, bool):
            return value is True
        what = f"the field {_quoted(self.deleted_field)} is {kind_of(value)}, not a boolean"
        raise Refused("wrong_type", what, id, value)

    def _text(self, document: dict[str, object], id: bytes) -> str:
        if self.item is not None:
            name = self.item.name
            return self.item.text(_required(document, name, id), f"the field {_quoted(name)}", id)
        if self.set_field is not None:
            return set_text(_required(document, self.set_field, id), f"the field {_quoted(self.set_field)}", id)
        parts = []
        for field in self.text_fields:
            part = _required(document, field, id)
            if not isinstance(part, str):
                raise Refused("wrong_type", f"the field {_quoted(field)} is {kind_of(part)}, not a string", id, part)
            parts.append(part)
        text = "\n".join(parts)
        check_ink(text, id)
        return text

    def rounded(self, document: dict[str, object]) -> bool:
        """Whether the source, or a rank that is looked up, is a number that the reader may have rounded. No other
        field may be one."""
        names = self.source_field, self.rank_field if self.rank_order else None
        return any(name is not None and isinstance(_resolve(document, name), float) for name in names)

    def _source(self, document: dict[str, object]) -> bytes:
        return b"" if self.source_field is None else self.source_text(_resolve(document, self.source_field))

    @staticmethod
    def source_text(value: object) -> bytes:
        """A source as JSON text, b"" for a value that is none."""
        try:
            text = id_text(value)
        except Refused:
            return b""
        return text if len(text) <= MAX_SOURCE_BYTES else b""

    def _within(self, document: dict[str, object], id: bytes) -> bytes:
        """The scope of a parsed object, as `within_text` has it. Raises Refused."""
        values = {name: _resolve(document, name) for name in self.match_within}
        return within_text({name: None if value is _ABSENT else value for name, value in values.items()}, id)


def value_at(document: dict[str, object], path: str) -> object:
    """The value at a dotted path; None if there is none."""
    value = _resolve(document, path)
    return None if value is _ABSENT else value


def key_text(document: dict[str, object], path: str) -> bytes | None:
    """The string or integer at a dotted path as a record's key, as plain text; None if there is none."""
    value = _resolve(document, path)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if value.bit_length() < 14_000 else None
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else None


def key_json(document: dict[str, object], path: str) -> bytes | None:
    """The string or integer at a dotted path as a record's key, as JSON like ids; None if there is none."""
    try:
        return id_text(_resolve(document, path))
    except Refused:
        return None


def json_id(text: str | bytes) -> str | int:
    """Parse an id that is written as JSON.

    Raises:
        ValueError: it is no string and no integer.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # bad UTF-8 too
        value = None
    if isinstance(value, str) or type(value) is int:
        return value
    shown = text[:60].decode("utf-8", "replace") if isinstance(text, bytes) else text[:60]
    raise ValueError(f"{shown!r} is no id as JSON: give an integer, or a string in double quotes")


def output_object(line: bytes) -> dict[str, Any]:
    """The object of an output. Its ids may be integers of any size, which orjson makes floats of, and strings with lone
    surrogates, which it refuses.

    Raises:
        ValueError: it is no JSON, or no object.
    """
    found = _any_json(line) if _WIDE.search(line) else loaded(line)
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    return found


def loaded(value: bytes) -> Any:
    """A value of JSON that this program has written. Its texts may have lone surrogates, which orjson rejects.

    Raises:
        ValueError: it is no JSON, or nested deeper than Python reads.
    """
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return _any_json(value)


def dumped(value: Any) -> bytes:
    """A value as JSON for `loaded`. Lone surrogates stay escaped: a file name that is not UTF-8 has some."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def _any_json(value: bytes) -> Any:
    try:
        return json.loads(value.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def id_value(id: bytes) -> str | int | None:
    """The id of canonical JSON text, including integers of any size and lone surrogates; None for null."""
    if id[:1] == b'"':
        try:
            text: str = orjson.loads(id)
        except orjson.JSONDecodeError:  # a lone surrogate
            text = json.loads(id)
        return text
    return None if id == b"null" else int(id)


def json_text(value: str) -> bytes:
    """A string as JSON text that may be kept: a result of `orjson.dumps` takes at least 1 KB (4 KB since 3.12) of
    memory, however short it is.

    Raises:
        TypeError: it has a lone surrogate, and no UTF-8.
    """
    return b"".join((orjson.dumps(value), b""))  # a copy


def id_text(value: object) -> bytes:
    """The id as canonical JSON text: equal ids have equal bytes, however they were escaped. Raises Refused."""
    text = _scalar_text(value)
    if text is None:
        raise Refused("wrong_type", f"the id is {kind_of(value)}, not a string or an integer", value=value)
    if len(text) > MAX_ID_BYTES:
        raise Refused("id_too_long", f"the id has more than {MAX_ID_BYTES} bytes as JSON")
    return text


def within_text(values: Mapping[str, object], id: bytes) -> bytes:
    """Values by field as JSON texts joined by commas: equal bytes exactly for equal values.

    Raises:
        Refused: a value is no string, integer, boolean or null, or has more than MAX_WITHIN_BYTES as JSON.
    """
    texts = []
    for name, given in values.items():
        value = unboxed(given)
        text = LITERALS[value] if value is None or isinstance(value, bool) else _scalar_text(value)
        field = f"the field {_quoted(name)} to match within"
        if text is None:
            what = f"{field} is {kind_of(value)}, not a string, an integer, a boolean or null"
            raise Refused("wrong_type", what, id, value)
        if len(text) > MAX_WITHIN_BYTES:
            raise Refused("too_large", f"{field} has more than {MAX_WITHIN_BYTES} bytes as JSON", id)
        texts.append(text)
    return b",".join(texts)


def set_text(value: object, name: str, id: bytes) -> str:
    """The elements of a set (strings, or integers as decimals), joined by U+001F. Raises Refused.

    If an element has U+001F or U+001E, these are written as U+001E 1 and U+001E 0, so that different sets have
    different texts.
    """
    given = elements_of(value)
    if given is None:
        raise Refused("wrong_type", f"{name} is {kind_of(value)}, not a list", id, value)
    # The order does not matter: equal sets have equal texts, and are exact duplicates.
    elements = sorted(element_text(element, name, id) for element in given)
    text = "\x1f".join(elements)
    if "\x1e" in text or text.count("\x1f") >= len(elements) > 0:
        text = "\x1f".join(element.replace("\x1e", "\x1e0").replace("\x1f", "\x1e1") for element in elements)
    if not elements:
        raise Refused("empty", f"{name} is an empty list", id)
    if text.isspace() or not text:
        raise Refused("empty", f"{name} has no element with a visible character", id)
    return text


def utf8_size(record: Record, *, with_id: bool = True) -> int:
    """Bytes of a document's text in UTF-8. with_id: its id is one of its fields.

    Raises:
        Refused: a string has a lone surrogate, which UTF-8 cannot write. A deletion may have one in its id.
    """
    id, text = record.id, record.text
    if with_id and _has_surrogate(id):
        raise Refused("not_utf8", "the id has a lone surrogate, which UTF-8 cannot write")
    for name, value in (("a value to match within", record.within), ("the source", record.source)):
        if _has_surrogate(value):
            raise Refused("not_utf8", f"{name} has a lone surrogate, which UTF-8 cannot write", id)
    try:
        return len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise Refused("not_utf8", "the text has a lone surrogate, which UTF-8 cannot write", id) from None


def _has_surrogate(texts: bytes) -> bool:
    """Whether JSON texts, joined by commas, have a lone surrogate: canonical ones have it as an escape."""
    if b"\\ud" not in texts:
        return False
    try:
        orjson.loads(b"[%b]" % texts)
    except orjson.JSONDecodeError:
        return True
    return False


def check_ink(text: str, id: bytes) -> None:
    """Raise Refused if the text has only white space."""
    if not text or text.isspace():
        raise Refused("empty", "the text has no character but white space", id)


def _resolve(document: dict[str, object], path: str) -> object:
    """The value at a dotted path, _ABSENT if there is none. If several paths are possible, the one with the longest
    keys."""
    value = document.get(path, _ABSENT)
    at = len(path)
    while value is _ABSENT:
        at = path.rfind(".", 0, at)
        if at < 0:
            return _ABSENT
        inner = document.get(path[:at])
        if isinstance(inner, dict):
            value = _resolve(inner, path[at + 1 :])
    return value


def _required(document: dict[str, object], path: str, id: bytes) -> object:
    value = _resolve(document, path)
    if value is _ABSENT:
        raise Refused("missing_field", f"there is no field {_quoted(path)}", id)
    return value


def _scalar_text(value: object) -> bytes | None:
    """A string or an integer as canonical JSON text, None for anything else. An integer of more digits than Python
    converts (4300) becomes a text that is too long for any field."""
    if isinstance(value, str):
        try:
            return json_text(value)
        except TypeError:  # a lone surrogate has no UTF-8
            return json.dumps(value).encode("ascii")
    if isinstance(value, int) and not isinstance(value, bool):
        # `int`, because members of an enumeration are integers that print their names.
        return str(int(value)).encode("ascii") if value.bit_length() < 14_000 else b"1" * (MAX_ID_BYTES + 1)
    plain = unboxed(value)
    return _scalar_text(plain) if type(plain) in (str, int) else None


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def plain(id: bytes) -> bytes | None:
    """An id, given as JSON text, as the key of a record: a string without quotes and escapes, an integer unchanged."""
    if id == b"null":
        return None
    if id[:1] != b'"':
        return id
    if b"\\" not in id:
        return id[1:-1]
    text: str = json.loads(id)
    return text.encode("utf-8", "surrogatepass")
