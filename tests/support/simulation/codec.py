"""The bytes of aiokafka's structs as aiokafka writes and reads them, in a fraction of its time: numbers that follow one
another are one step. `test_codec` compares both."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from io import BytesIO
from itertools import groupby
from operator import itemgetter
from typing import Any

from aiokafka.producer import message_accumulator
from aiokafka.protocol import types
from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.struct import Struct
from aiokafka.record.default_records import DefaultRecordBatchBuilder

Encode = Callable[..., bytes]
Decode = Callable[[bytes, int], tuple[Any, int]]  # from this place on: a value, and the place behind it

_CODES = {
    types.Int8: "b", types.Int16: "h", types.Int32: "i", types.UInt32: "I", types.Int64: "q", types.Float64: "d",
    types.Boolean: "?",
}  # fmt: skip
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
_DEFAULTS: Mapping[str, Any] = {"throttle_time_ms": 0, "error_code": 0, "error_message": None, "tags": {}}
"""Of fields that a dictionary lacks."""
_REPEATED = 3, 18  # Metadata and ApiVersions: a client gets the same answer again and again


class _Builder(DefaultRecordBatchBuilder):  # type: ignore[misc]
    """The compiled one, whose own clock is the machine's."""

    def append(self, offset: int, timestamp: int | None, key: Any, value: Any, headers: Any) -> Any:
        return super().append(offset, int(time.time() * 1000) if timestamp is None else timestamp, key, value, headers)


def install(requests: Iterable[type[RequestStruct]]) -> None:
    """Let all clients of this process use it; make it now for these requests and their responses."""
    message_accumulator.DefaultRecordBatchBuilder = _Builder
    Struct.encode, Struct.decode = _encode, classmethod(_decode)
    for request in requests:
        for kind in (request.SCHEMA, request.RESPONSE_TYPE.SCHEMA):
            for named in (False, True):
                encoder(kind, named), decoder(kind, named)


def _encode(self: Struct) -> bytes:
    return encoder(self.SCHEMA)([*map(vars(self).__getitem__, self.SCHEMA.names)])


def _decode(cls: type[Struct], data: BytesIO | bytes) -> Struct:
    stream = BytesIO(data) if isinstance(data, bytes) else data
    if getattr(cls, "API_KEY", None) in _REPEATED:
        values = _repeated(cls.SCHEMA, stream.read())
    else:
        values, place = decoder(cls.SCHEMA)(stream.getvalue(), stream.tell())
        stream.seek(place)
    one = cls.__new__(cls)
    vars(one).update(zip(cls.SCHEMA.names, values, strict=True))
    return one


@cache
def _repeated(kind: types.Schema, data: bytes) -> tuple[Any, ...]:
    found: tuple[Any, ...] = decoder(kind)(data, 0)[0]
    return found


def _steps(kind: types.Schema) -> Iterator[tuple[struct.Struct | None, int, int]]:
    """The fields from one place to another: numbers as one struct, each other field alone."""
    place = 0
    for numbers, fields in groupby(kind.fields, lambda field: field in _CODES):
        found = [*fields]
        if numbers:
            yield struct.Struct(">" + "".join(map(_CODES.__getitem__, found))), place, place + len(found)
        else:
            yield from ((None, place + i, place + i + 1) for i in range(len(found)))
        place += len(found)


@cache
def encoder(kind: Any, named: bool = False) -> Encode:
    """Makes the bytes of a value of this kind; named: of dictionaries by the names of fields instead of sequences."""
    if isinstance(kind, types.Schema):
        return _schema_encoder(kind, named)
    if isinstance(kind, types.Array):
        one, number = encoder(kind.array_of, named), _compact if isinstance(kind, types.CompactArray) else _INT.pack
        return lambda value: number(-1) if value is None else number(len(value)) + b"".join(map(one, value))
    if type(kind) is types.String:
        return _encode_string
    if kind is types.Bytes:
        return lambda value: _INT.pack(-1) if value is None else _INT.pack(len(value)) + value
    return struct.Struct(">" + _CODES[kind]).pack if kind in _CODES else kind.encode


def _schema_encoder(kind: types.Schema, named: bool) -> Encode:
    steps = [
        (numbers.pack if numbers else encoder(kind.fields[first], named), first, end)
        for numbers, first, end in _steps(kind)
    ]

    def encode(values: Sequence[Any]) -> bytes:
        return b"".join([step(*values[first:end]) for step, first, end in steps])

    if not named:
        return encode
    names = kind.names
    chosen = itemgetter(*names) if len(names) > 1 else lambda value: [value[name] for name in names]

    def encode_named(value: dict[str, Any]) -> bytes:
        try:
            return encode(chosen(value))
        except KeyError:
            return encode([value[name] if name in value else _DEFAULTS[name] for name in names])

    return encode_named


def _compact(number: int) -> bytes:
    return types.UnsignedVarInt32.encode(number + 1)


def _encode_string(value: str | None) -> bytes:
    if value is None:
        return _SHORT.pack(-1)
    data = value.encode()
    return _SHORT.pack(len(data)) + data


@cache
def decoder(kind: Any, named: bool = False) -> Decode:
    """Reads a value of this kind; named: dictionaries by the names of fields instead of tuples."""
    if isinstance(kind, types.Schema):
        return _schema_decoder(kind, named)
    if isinstance(kind, types.Array):
        return _array_decoder(kind.array_of, isinstance(kind, types.CompactArray), named)
    if type(kind) is types.String:
        return _decode_string
    if kind is types.Bytes:
        return _decode_bytes
    return _number_decoder(struct.Struct(">" + _CODES[kind])) if kind in _CODES else _stream_decoder(kind)


def _schema_decoder(kind: types.Schema, named: bool) -> Decode:
    names, steps = kind.names, [
        (numbers.unpack_from, numbers.size) if numbers else (decoder(kind.fields[first], named), 0)
        for numbers, first, _ in _steps(kind)
    ]  # fmt: skip

    def decode(data: bytes, place: int) -> tuple[Any, int]:
        values: list[Any] = []
        for step, size in steps:
            if size:
                values += step(data, place)
                place += size
            else:
                value, place = step(data, place)
                values.append(value)
        return dict(zip(names, values, strict=True)) if named else tuple(values), place

    return decode


def _array_decoder(kind: Any, compact: bool, named: bool) -> Decode:
    one, length = decoder(kind, named), _stream_decoder(types.UnsignedVarInt32)

    def decode(data: bytes, place: int) -> tuple[list[Any] | None, int]:
        if compact:
            number, place = length(data, place)
            number -= 1
        else:
            (number,) = _INT.unpack_from(data, place)
            place += 4
        if number == -1:
            return None, place
        values = []
        for _ in range(number):
            value, place = one(data, place)
            values.append(value)
        return values, place

    return decode


def _decode_string(data: bytes, place: int) -> tuple[str | None, int]:
    (size,) = _SHORT.unpack_from(data, place)
    end = place + 2 + max(size, 0)
    return None if size < 0 else data[place + 2 : end].decode(), end


def _decode_bytes(data: bytes, place: int) -> tuple[bytes | None, int]:
    (size,) = _INT.unpack_from(data, place)
    end = place + 4 + max(size, 0)
    return None if size < 0 else data[place + 4 : end], end


def _number_decoder(number: struct.Struct) -> Decode:
    return lambda data, place: (*number.unpack_from(data, place), place + number.size)


def _stream_decoder(kind: Any) -> Decode:
    """Of kinds that are rare, as aiokafka reads them."""

    def decode(data: bytes, place: int) -> tuple[Any, int]:
        stream = BytesIO(data)
        stream.seek(place)
        return kind.decode(stream), stream.tell()

    return decode
