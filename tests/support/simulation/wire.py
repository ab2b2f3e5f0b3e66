"""Kafka's requests and responses as dictionaries of their fields, so that one handler serves all versions of a request.
The structs are aiokafka's own."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

# These modules define the structs.
from aiokafka.protocol import admin, commit, coordination, fetch, group, metadata, offset, produce, transaction
from aiokafka.protocol.api import Request, RequestHeader_v1, RequestStruct
from aiokafka.protocol.types import TaggedFields

from support.simulation.codec import decoder, encoder

DEFINED = (admin, commit, coordination, fetch, group, metadata, offset, produce, transaction)

STRUCTS: dict[tuple[int, int], type[RequestStruct]] = {
    (kind.API_KEY, kind.API_VERSION): kind for request in Request.__subclasses__() for kind in request._CLASSES
}
"""By API and version, as clients of aiokafka may send them."""

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
    (api, version, correlation, client), place = decoder(RequestHeader_v1.SCHEMA)(data, 0)
    kind = STRUCTS[api, version]
    if kind.FLEXIBLE_VERSION:
        _, place = decoder(TaggedFields)(data, place)
    return Head(kind, correlation, client), decoder(kind.SCHEMA, True)(data, place)[0]


class Repeated(dict[str, Any]):
    """The fields of a response that is given again and again. kept: its bytes, by the struct of the request."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(fields)
        self.kept: dict[type[RequestStruct], bytes] = {}


def encoded(head: Head, fields: dict[str, Any]) -> bytes:
    """The bytes of a response, with the size: of the fields those that the version has."""
    kind, kept = head.kind, fields.kept if isinstance(fields, Repeated) else {}
    body = kept.get(kind)
    if body is None:
        body = TaggedFields.encode({}) if kind.FLEXIBLE_VERSION else b""
        body += encoder(kind.RESPONSE_TYPE.SCHEMA, True)(fields)
        kept[kind] = body
    return _SIZE.pack(_SIZE.size + len(body)) + _SIZE.pack(head.correlation) + body


def fields_of(one: Any) -> dict[str, Any]:
    """The fields of a request or a response by name, an array that is null as None."""
    return decoder(one.SCHEMA, True)(one.encode(), 0)[0]
