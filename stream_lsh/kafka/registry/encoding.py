"""Outputs in Avro: their schemas, derived from the models of `stream-lsh schema`, and values from JSON and back. Pure.

A value is a zero byte, the schema's id in four bytes, and the body (Confluent's format).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from io import BytesIO
from typing import Any

import orjson

from stream_lsh.serve.output_schemas import schema_of

HEAD = 5
NAMESPACE = "stream_lsh"
OUTPUTS = ("verdict", "pair", "group", "alert")
"""The outputs that there are in Avro."""
_ALWAYS = {"verdict": ("source", "time", "detected_at"), "pair": ("source", "detected_at")}
"""Fields that files do not have, and records on Kafka always have."""
_FIRST = {
    "VerdictLine": (
        "id", "seq", "kind", "first_kind", "duplicate_of", "similarity", "group", "matches", "truncated",
        "not_compared", "supersedes", "replaces", "new_representative", "new_representatives", "source", "time",
        "detected_at",
    ),
    "Pair": (
        "older", "newer", "older_seq", "newer_seq", "similarity", "terms", "contained_in", "contains", "passages",
        "more_passages",
    ),
    "GroupEvent": ("event", "seq", "id"),
    "Representative": ("group",),
}  # fmt: skip
"""The fields of models in the order of the JSON, as far as it is another one than that of the model."""
_ID = ["null", "long", "string", "bytes"]
_TYPES = {"integer": "long", "number": "double", "boolean": "boolean", "string": "string"}
_LONG = 2**63

IN_MEMORY = {output: number for number, output in enumerate(OUTPUTS, 1)}
"""The ids of the schemas in a pipeline in memory, which has no registry."""

Convert = Callable[[Any], Any]


@cache
def avro_schema(output: str) -> dict[str, Any]:
    """The Avro schema of an output. Optional fields are unions with null, null their default.

    An id or source is a union of long, string and bytes, where it may be absent also of null. Bytes are its JSON text:
    of an integer that is no long, and of a text with a lone surrogate, which UTF-8 does not have.
    """
    found = schema_of(output)
    return _Deriving(found.get("$defs", {})).record(found, _ALWAYS.get(output, ()))


class _Deriving:
    def __init__(self, models: Mapping[str, Any]) -> None:
        self._models = models
        self._named: set[str] = set()

    def record(self, model: Mapping[str, Any], always: tuple[str, ...] = ()) -> dict[str, Any]:
        self._named.add(model["title"])
        first = {name: model["properties"][name] for name in _FIRST.get(model["title"], ())}
        fields = [self._field(name, field, name in always) for name, field in (first | model["properties"]).items()]
        said = {"doc": model["description"]} if "description" in model else {}
        return {"type": "record", "name": model["title"], "namespace": NAMESPACE, **said, "fields": fields}

    def _field(self, name: str, field: Mapping[str, Any], always: bool) -> dict[str, Any]:
        kind = self._type(field)
        optional = "default" in field and not always
        if always and name != "time":
            kind = next(one for one in kind if one != "null")
        said = {"doc": field["description"]} if "description" in field else {}
        return {"name": name, "type": kind, **({"default": None} if optional else {}), **said}

    def _type(self, field: Mapping[str, Any]) -> Any:
        if "anyOf" in field:
            kinds = [self._type(one) for one in field["anyOf"]]
            if "string" in kinds and "long" in kinds:
                return _ID[0 if "null" in kinds else 1 :]
            return ["null", *(kind for kind in kinds if kind != "null")]
        if "$ref" in field:
            name = field["$ref"].rpartition("/")[2]
            return name if name in self._named else self.record(self._models[name])
        if field["type"] == "array":
            return {"type": "array", "items": self._type(field["items"])}
        return "null" if field["type"] == "null" else _TYPES[field["type"]]


class Encoder:
    """From the JSON of an output to its value in Avro. id: of the schema in the registry."""

    def __init__(self, output: str, id: int) -> None:
        from fastavro import parse_schema, schemaless_writer

        schema = avro_schema(output)
        self._head = b"\0" + id.to_bytes(4)
        self._schema: Any = parse_schema(schema)
        self._write = schemaless_writer
        self._wide = _conversion(schema, _written, {})

    def __call__(self, value: bytes) -> bytes:
        try:
            return self._encoded(orjson.loads(value))
        except ValueError:  # an id may be no long, and no UTF-8
            return self._encoded(self._wide(json.loads(value)))

    def _encoded(self, datum: Any) -> bytes:
        stream = BytesIO()
        stream.write(self._head)
        self._write(stream, self._schema, datum, strict_allow_default=True)
        return stream.getvalue()


class Decoder:
    """From the value of an output in Avro to its JSON. Optional fields that are null are left out.

    Args:
        schema: with which it was written, of any version.

    Raises:
        ValueError: it is no schema of Avro.
    """

    def __init__(self, schema: str) -> None:
        from fastavro import parse_schema, schemaless_reader
        from fastavro.schema import SchemaParseException, UnknownType

        try:
            found = orjson.loads(schema)
            self._schema: Any = parse_schema(found)
            self._json = _conversion(found, _read, {})
        except (SchemaParseException, UnknownType, KeyError, TypeError) as error:
            raise ValueError(f"it is no schema of Avro: {error}") from None
        self._read = schemaless_reader

    def __call__(self, value: bytes) -> bytes:
        """Raises ValueError: the value is not encoded with the schema."""
        stream = BytesIO(value)
        stream.seek(HEAD)
        try:
            found = self._json(self._read(stream, self._schema, None))
        except MemoryError:
            raise
        except Exception as error:  # whatever fastavro raises for damaged bytes
            raise ValueError(f"it is not encoded with its schema: {type(error).__name__}") from None
        if stream.tell() != len(value):
            raise ValueError("bytes are left behind the value")
        try:
            return orjson.dumps(found)
        except TypeError:  # such an id
            return json.dumps(found, separators=(",", ":")).encode("ascii")


def _written(id: Any) -> Any:
    """An id as Avro has it."""
    if isinstance(id, str):
        try:
            id.encode()
        except UnicodeEncodeError:
            return json.dumps(id).encode("ascii")
    elif isinstance(id, int) and not -_LONG <= id < _LONG:
        return b"%d" % id
    return id


def _read(id: Any) -> Any:
    return json.loads(id) if isinstance(id, bytes) else id


def _same(value: Any) -> Any:
    return value


def _conversion(schema: Any, of_id: Convert, named: dict[str, Convert]) -> Convert:
    """Converts the ids in a value of a schema, and leaves out what is null by default. named: records by name, to which
    more are added."""
    if isinstance(schema, list):
        if "bytes" in schema:
            return of_id
        given = [one for one in schema if one != "null"]
        inside = _conversion(given[0], of_id, named) if len(given) == 1 else _same
        return inside if inside is _same else lambda value: None if value is None else inside(value)
    if isinstance(schema, str):
        return named.get(schema, _same)
    if schema["type"] == "array":
        of_item = _conversion(schema["items"], of_id, named)
        return _same if of_item is _same else lambda value: [of_item(item) for item in value]
    if schema["type"] != "record":
        return _same
    fields = [
        (field["name"], _conversion(field["type"], of_id, named), "default" in field and field["default"] is None)
        for field in schema["fields"]
    ]

    def convert(value: Any) -> Any:
        found = dict(value)
        for name, inside, optional in fields:
            one = found.get(name)
            if one is not None:
                found[name] = one if inside is _same else inside(one)
            # A redelivered document has a null where its first answer is not known.
            elif optional and (name != "first_kind" or found.get("kind") != "redelivered"):
                found.pop(name, None)
        return found

    named[schema["name"]] = convert
    return convert
