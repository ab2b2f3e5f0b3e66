"""Encoded records as JSON: Avro, JSON Schema and Protobuf in Confluent's format, a zero byte, the schema's id, and the
value."""

from __future__ import annotations

import base64
import binascii
import importlib
import time
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from typing import Any, Protocol, cast

import numpy as np
import orjson

from stream_lsh.documents.avro_json import json_of, warm_up
from stream_lsh.documents.avro_program import compiled
from stream_lsh.documents.columns import Rejection
from stream_lsh.documents.json_scan import Ints

Decode = Callable[[bytes], bytes]
"""From an encoded value, with its head, to JSON."""

HEAD = 5
ENCODED, UNKNOWN = "bad_encoding", "unknown_schema"
UNKNOWN_SECONDS = 30.0  # after which an unknown schema is asked for again
MOST_UNKNOWN, MOST_REFERENCES = 10_000, 200
MOST_LEVELS = 300  # of nesting
SHOWN = 200  # characters of an error's message


class Absent(Exception):
    """The registry gives no usable answer. It may do so later."""


class Unknown(Exception):
    """The registry does not have the schema."""


class Refused(Exception):
    """The registry does not take a schema: it is incompatible, or this user may not register it."""


class Registry(Protocol):
    """What is asked of a registry; `client.Client`."""

    def schema(self, id: int) -> dict[str, Any]: ...
    def reference(self, subject: str, version: int, kind: str) -> dict[str, Any]: ...


class UnknownSchemas:
    """The schemas that a registry does not have, by the heads of values, for UNKNOWN_SECONDS each."""

    def __init__(self) -> None:
        self._until: dict[bytes, float] = {}  # by the monotonic clock

    def add(self, head: bytes) -> None:
        """The registry does not have a schema now."""
        if len(self._until) >= MOST_UNKNOWN:
            self._until.clear()
        self._until[head] = time.monotonic() + UNKNOWN_SECONDS

    def __contains__(self, head: bytes) -> bool:
        return self._until.get(head, 0.0) > time.monotonic()


class Schemas:
    """Decoders by the id of their schema. One that was fetched is kept: an id never gets another schema."""

    def __init__(self, client: Registry) -> None:
        self._client = client
        self._known: dict[bytes, Decode | Rejection] = {}  # by the head of a value: zero bytes before the id
        self._unknown = UnknownSchemas()

    def missing(self, values: Iterable[bytes | None]) -> list[int]:
        """The ids of schemas that these values need and that are to be fetched."""
        heads = {value[:HEAD] for value in values if value is not None and len(value) > HEAD and value[0] == 0}
        return sorted(int.from_bytes(head) for head in heads if head not in self._known and head not in self._unknown)

    def fetch(self, id: int) -> None:
        """Fetch a schema.

        Raises:
            Absent: the registry gives no answer.
        """
        head = id.to_bytes(HEAD)
        try:
            self._known[head] = self._decoder(self._client.schema(id))
        except Unknown:
            self._unknown.add(head)

    def _decoder(self, found: dict[str, Any]) -> Decode | Rejection:
        kind = found.get("schemaType") or "AVRO"
        try:
            if kind == "JSON":
                return lambda value: value[HEAD:]
            references = [one["schema"] for one in self._references(found, kind, {})]
            if kind == "AVRO":
                return Avro(found["schema"], references)
            if kind == "PROTOBUF":
                return _protobuf(found["schema"], references)
        except Unknown:
            return Rejection(UNKNOWN, "the schema refers to one that the Schema Registry does not have")
        except (Absent, MemoryError):
            raise
        except Exception as error:  # whatever a library raises for a schema
            return Rejection(ENCODED, f"the schema cannot be used: {_words(error)}")
        return Rejection(ENCODED, f"the schema has the type {str(kind)[:60]}; AVRO, JSON and PROTOBUF are read")

    def _references(self, found: dict[str, Any], kind: str, seen: dict[tuple[str, int], None]) -> list[dict[str, Any]]:
        """The schemas that a schema needs, each after those that it needs itself."""
        needed: list[dict[str, Any]] = []
        for reference in found.get("references") or ():
            place = str(reference["subject"]), int(reference["version"])
            if place in seen:
                continue
            seen[place] = None
            if len(seen) > MOST_REFERENCES:
                raise ValueError(f"it refers to more than {MOST_REFERENCES} schemas")
            one = self._client.reference(*place, kind)
            needed += [*self._references(one, kind, seen), {**one, "name": reference.get("name")}]
        return needed

    def decode(self, values: Sequence[bytes], rejected: dict[int, Rejection]) -> tuple[bytes, Ints, Ints]:
        """The values as JSON, data[starts[i]:ends[i]]; empty for those in `rejected`, to which more are added. Their
        schemas are fetched."""
        alike: dict[bytes, list[int]] = {}
        for i, value in enumerate(values):
            if i not in rejected:
                alike.setdefault(value[:HEAD], []).append(i)
        parts, size, slow = list[bytes](), 0, list[int]()
        starts, ends = np.zeros(len(values), np.int64), np.zeros(len(values), np.int64)
        for head, places in alike.items():
            decode = self._known.get(head)
            if not isinstance(decode, Avro):
                slow += places
                continue
            part, stops, read = json_of([values[i] for i in places], HEAD, decode.program)
            starts[places], ends[places] = size + np.concatenate(([0], stops[:-1])), size + stops
            slow += [places[row] for row in np.flatnonzero(~read).tolist()]
            parts.append(part)
            size += len(part)
        for i in sorted(slow):
            try:
                parts.append(self._value(values[i]))
            except _Rejected as error:
                rejected[i] = error.why
                continue
            starts[i], ends[i] = size, size + len(parts[-1])
            size += len(parts[-1])
        return b"".join(parts), starts, ends

    def key(self, value: bytes | None) -> bytes | None:
        """A key as JSON; None if it cannot be read."""
        try:
            return None if value is None else self._value(value)
        except _Rejected:
            return None

    def _value(self, value: bytes) -> bytes:
        decode = self._known.get(value[:HEAD])
        if len(value) <= HEAD or value[0]:
            raise _Rejected(ENCODED, "the value does not begin with a zero byte and the id of a schema")
        if decode is None:
            raise _Rejected(UNKNOWN, f"the Schema Registry has no schema {_id(value)}")
        if isinstance(decode, Rejection):
            raise _Rejected(decode.reason, f"schema {_id(value)}: {decode.detail}")
        try:
            return decode(value)
        except MemoryError:
            raise
        except Exception as error:  # whatever a library raises for damaged bytes
            raise _Rejected(ENCODED, f"it is not encoded with schema {_id(value)}: {_words(error)}") from None


class _Rejected(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.why = Rejection(reason, detail)


def _id(value: bytes) -> int:
    """Of a value's schema."""
    return int.from_bytes(value[1:HEAD])


def _words(error: Exception) -> str:
    said = " ".join(str(error).split())[:SHOWN].encode("utf-8", "replace").decode()
    return f"{type(error).__name__}{': ' if said else ''}{said}"


class _Stream(BytesIO):
    """With a name for fastavro's messages: an address in them would differ between two runs."""

    def __repr__(self) -> str:
        return "the value"


class Avro:
    """From a value with an Avro schema to JSON, by fastavro. program: for the kernel, which reads most values."""

    def __init__(self, schema: str, references: Sequence[str]) -> None:
        from fastavro import parse_schema, schemaless_reader
        from fastavro.schema import SchemaParseException

        try:
            named: dict[str, Any] = {}
            for text in references:
                parse_schema(orjson.loads(text), named)
            field = {"name": "value", "type": orjson.loads(schema)}
            # A record of one field has the field's encoding. With other schemas fastavro forgets the named ones.
            whole = cast("Any", parse_schema({"type": "record", "name": "the value", "fields": [field]}, named))
        except SchemaParseException as error:
            raise ValueError(str(error)) from None
        self.program, self._schema, self._read = compiled(whole["fields"][0]["type"], named), whole, schemaless_reader
        if self.program.depth > MOST_LEVELS:  # fastavro's compiled reader could overflow the stack
            self._read = importlib.import_module("fastavro._read_py").schemaless_reader
        warm_up()

    def __call__(self, value: bytes) -> bytes:
        stream = _Stream(value)
        stream.seek(HEAD)
        found: Any = self._read(stream, self._schema, None)
        if left := len(value) - stream.tell():
            raise ValueError(f"{left} bytes are left behind the value")
        return orjson.dumps(found["value"], default=_plain)


def _plain(value: object) -> str:
    """Bytes as base64, decimals and durations as texts."""
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else str(value)


def _protobuf(schema: str, references: Sequence[str]) -> Decode:
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(text: str) -> Any:
        try:
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        except (binascii.Error, DecodeError):
            raise ValueError("the registry gives no serialized descriptor, which Protobuf needs") from None
        for name in file.dependency:
            if name.startswith("google/protobuf/") and name not in added:
                added.add(name)
                module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
                pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        if file.name not in added:
            added.add(file.name)
            pool.Add(file)
        return file

    for text in references:
        add(text)
    file = add(schema)
    types = [*pool.FindFileByName(file.name).message_types_by_name.values()]  # raises if something is missing
    classes: dict[tuple[int, ...], Any] = {}

    def message(path: tuple[int, ...]) -> Any:
        found = types[path[0]]
        for place in path[1:]:
            found = found.nested_types[place]
        return message_factory.GetMessageClass(found)

    def decode(value: bytes) -> bytes:
        path, at = _indexes(value, HEAD)
        if path not in classes:
            classes[path] = message(path)
        found = classes[path].FromString(value[at:])
        return orjson.dumps(json_format.MessageToDict(found, preserving_proto_field_name=True))

    return decode


def _indexes(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The path to the message's type in its file, which is in value[at:], and where the message begins."""

    def number(at: int) -> tuple[int, int]:
        found = shift = 0
        while True:
            byte = value[at]
            at += 1
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found >> 1 ^ -(found & 1), at
            if shift > 63:
                raise ValueError("an index of a message has more than 64 bits")

    count, at = number(at)
    path = []
    for _ in range(count):
        place, at = number(at)
        path.append(place)
    if count < 0 or any(place < 0 for place in path):
        raise ValueError("an index of a message is negative")
    return tuple(path) or (0,), at
