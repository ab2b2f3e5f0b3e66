"""The simulation's bytes of requests and responses are those of aiokafka."""

import random
from io import BytesIO
from typing import Any

import pytest
from aiokafka.protocol import types
from support.simulation.codec import decoder, encoder
from support.simulation.wire import STRUCTS

NUMBERS = {types.Int8: 7, types.Int16: 15, types.Int32: 31, types.Int64: 63}


def drawn(kind: Any, chance: random.Random) -> Any:
    """A value of a field."""
    if isinstance(kind, types.Schema):
        return tuple(drawn(field, chance) for field in kind.fields)
    if isinstance(kind, types.Array):
        return chance.choice([None, [], [drawn(kind.array_of, chance) for _ in range(3)]])
    if isinstance(kind, types.String):
        return chance.choice([None, "", "ä" * chance.randrange(300)])
    if kind in NUMBERS:
        return chance.randrange(-(2 ** NUMBERS[kind]), 2 ** NUMBERS[kind])
    if kind is types.Boolean:
        return chance.random() < 0.5
    if kind is types.Float64:
        return chance.random()
    return {} if kind is types.TaggedFields else chance.choice([None, b"", chance.randbytes(300)])


def named(kind: Any, value: Any) -> Any:
    """With dictionaries by the names of the fields instead of tuples."""
    if isinstance(kind, types.Schema):
        fields = zip(kind.names, kind.fields, value, strict=True)
        return {name: named(field, one) for name, field, one in fields}
    return [named(kind.array_of, one) for one in value] if isinstance(kind, types.Array) and value else value


@pytest.mark.parametrize("struct", STRUCTS.values(), ids=lambda struct: str(struct.__name__))
def test_bytes_are_those_of_the_client(struct: Any) -> None:
    chance = random.Random(struct.__name__)
    for kind in (struct.SCHEMA, struct.RESPONSE_TYPE.SCHEMA):
        for _ in range(20):
            value = drawn(kind, chance)
            data = kind.encode(value)
            assert kind.decode(BytesIO(data)) == value
            assert encoder(kind)(value) == data == encoder(kind, True)(named(kind, value))
            assert decoder(kind)(b"head" + data, 4) == (value, 4 + len(data))
            assert decoder(kind, True)(data, 0) == (named(kind, value), len(data))
