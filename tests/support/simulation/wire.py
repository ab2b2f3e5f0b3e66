"""Kafka's requests and responses as dictionaries of their fields, so that one handler serves all versions of a request.
The structs are aiokafka's own."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Any

# These modules define the structs.
from aiokafka.protocol import admin, commit, coordination, fetch, group, metadata, offset, produce, transaction
from aiokafka.protocol.api import Request, RequestHeader_v1, RequestStruct
from aiokafka.protocol.types import Array, Schema, TaggedFields

DEFINED = (admin, commit, coordination, fetch, group, metadata, offset, produce, transaction)

STRUCTS: dict[tuple[int, int], type[RequestStruct]] = {
    (kind.API_KEY, kind.API_VERSION): kind for request in Request.__subclasses__() for kind in request._CLASSES
}
"""By API and version, as clients of aiokafka may send them."""

_DEFAULTS: dict[str, Any] = {"throttle_time_ms": 0, "error_code": 0, "error_message": None, "tags": {}}
_SIZE = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request, and the struct of its body."""

    kind: type[RequestStruct]
    correlation: int
    client: str

    @property
    def name(self) -> str:
        """As `Fetch`."""
        return self.kind.__name__.partition("Request")[0]


def decoded(data: bytes) -> tuple[Head, dict[str, Any]]:
    """A request from its bytes, without the size: head and fields.

    Raises:
        KeyError: no client of aiokafka sends this version.
    """
    stream = io.BytesIO(data)
    api, version, correlation, client = RequestHeader_v1.SCHEMA.decode(stream)
    kind = STRUCTS[api, version]
    if kind.FLEXIBLE_VERSION:
        TaggedFields.decode(stream)
    return Head(kind, correlation, client), fields_of(kind.decode(stream))


def encoded(head: Head, fields: dict[str, Any]) -> bytes:
    """The bytes of a response, with the size: of the fields those that the version has."""
    body = _SIZE.pack(head.correlation)
    if head.kind.FLEXIBLE_VERSION:
        body += TaggedFields.encode({})
    schema = head.kind.RESPONSE_TYPE.SCHEMA
    body += schema.encode(_in_order(schema, fields))
    return _SIZE.pack(len(body)) + body


def fields_of(one: Any) -> dict[str, Any]:
    """The fields of a request or a response by name, an array that is null as None."""
    return {
        name: _named(field, getattr(one, name)) for name, field in zip(one.SCHEMA.names, one.SCHEMA.fields, strict=True)
    }


def _named(kind: Any, value: Any) -> Any:
    if isinstance(kind, Schema):
        return {
            name: _named(field, one) for name, field, one in zip(kind.names, kind.fields, value, strict=True)
        }  # fmt: skip
    if isinstance(kind, Array) and value is not None:
        return [_named(kind.array_of, item) for item in value]
    return value


def _in_order(kind: Any, value: Any) -> Any:
    """Dictionaries as lists of their values, in the order of the schema."""
    if isinstance(kind, Schema):
        return [
            _in_order(field, value[name] if name in value else _DEFAULTS[name])
            for name, field in zip(kind.names, kind.fields, strict=True)
        ]
    if isinstance(kind, Array) and value is not None:
        return [_in_order(kind.array_of, item) for item in value]
    return value
