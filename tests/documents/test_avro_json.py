"""The kernel for Avro: the same JSON as fastavro and orjson, or none, for any schema, value and damage."""

import json
import random
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from fastavro import parse_schema, schemaless_writer
from support.long_form import seeds

from stream_lsh.documents import avro_json
from stream_lsh.documents.avro_json import json_of, write_values
from stream_lsh.documents.avro_program import MOST_ROWS, Program, compiled
from stream_lsh.documents.columns import Rejection
from stream_lsh.kafka.registry.decoding import HEAD, Avro, Schemas

NUMBERS = (0, 1, -1, 63, -64, 64, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 10**18, 1_700_000_000_123)
FLOATS = (0.0, -0.0, 1.5, 0.1, 1e300, 5e-324, float("inf"), float("-inf"), float("nan"), 1e16, 1e-7, 2.0**-140)
LETTERS = 'ab"\\/\b\t\n\f\r\0\x1f\x7fé\u20ac\u2028\U0001f600中'
LOGICAL = (
    {"type": "long", "logicalType": "timestamp-millis"}, {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"}, {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "local-timestamp-micros"}, {"type": "string", "logicalType": "uuid"},
    {"type": "int", "logicalType": "time-millis"}, {"type": "long", "logicalType": "time-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, {"type": "int", "logicalType": "other"},
)  # fmt: skip
PLAIN = "null", "boolean", "int", "long", "float", "double", "string", "bytes"
NESTED = "record", "union", "array", "map", "enum", "fixed", "again"


class Maker:
    """Random schemas and values. Values are written here and not by fastavro, so that they may be odd."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.named: list[dict[str, Any]] = []
        self.open: list[dict[str, Any]] = []

    def record(self, depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "record", "name": f"N{len(self.named)}", "fields": []}
        self.named.append(schema)
        for i in range(self.random.randrange(1, 5)):
            name = f"f{i}" if self.random.random() < 0.98 else "f0"
            schema["fields"].append({"name": name, "type": self.schema(depth - 1)})
        return schema

    def schema(self, depth: int) -> Any:
        kind = self.random.choice(PLAIN if depth <= 0 else PLAIN + NESTED + ("logical",))
        if kind == "logical":
            return self.random.choice(LOGICAL)
        if kind == "record":
            return self.record(depth)
        if kind == "union":
            return ["null", *self.random.sample(("int", "string", "double", "bytes"), 2), self.items(depth)]
        if kind in ("array", "map"):
            return {"type": kind, "items" if kind == "array" else "values": self.items(depth)}
        if kind == "again":
            name = self.random.choice(self.named)["name"]
            return ["null", name] if self.random.random() < 0.7 else {"type": "array", "items": ["null", name]}
        if kind in ("enum", "fixed"):
            self.named.append({"name": f"N{len(self.named)}", "type": kind})
            more = {"symbols": ["A", "B_", "C"]} if kind == "enum" else {"size": self.random.choice((1, 2, 3, 7))}
            self.named[-1].update(more)
            return self.named[-1]
        return kind

    def items(self, depth: int) -> Any:
        while True:
            before = len(self.named)
            found = self.schema(depth - 1)
            if isinstance(found, dict) and found["type"] in ("record", "fixed", "enum"):
                if found["type"] != "record" or any(field["type"] != "null" for field in found["fields"]):
                    return [found]
            elif found != "null" and not isinstance(found, list):
                return found
            del self.named[before:]

    def value(self, schema: Any, depth: int = 0) -> bytes:
        """A value's encoding."""
        choose = self.random
        if isinstance(schema, list):
            i = choose.randrange(len(schema)) if depth < 12 else 0
            return zigzag(i) + self.value(schema[i], depth + 1)
        kind = schema["type"] if isinstance(schema, dict) else schema
        for known in self.named:
            if kind == known["name"]:
                return self.value(known, depth + 1)
        if kind == "record":
            return b"".join(self.value(field["type"], depth + 1) for field in schema["fields"])
        if kind in ("array", "map"):
            return b"".join(self.blocks(schema, kind, depth)) + b"\0"
        if kind == "boolean":
            return bytes([choose.randrange(2)])
        if kind in ("int", "long"):
            return zigzag(choose.choice(NUMBERS) if choose.random() < 0.7 else choose.randrange(-(10**6), 10**6))
        if kind in ("float", "double"):
            with np.errstate(over="ignore"):
                number = choose.choice(FLOATS) if choose.random() < 0.5 else choose.gauss(0, 1000)
                return np.array(number, "<f4" if kind == "float" else "<f8").tobytes()
        if kind in ("string", "bytes"):
            return counted(self.text())
        if kind == "fixed":
            return choose.randbytes(schema["size"])
        return zigzag(choose.randrange(3)) if kind == "enum" else b""

    def blocks(self, schema: Any, kind: str, depth: int) -> Iterator[bytes]:
        for _ in range(self.random.choice((0, 1, 1, 2)) if depth < 12 else 0):
            n = self.random.randrange(1, 4)
            inside = b"".join(
                (counted(self.text()) if kind == "map" else b"")
                + self.value(schema["values" if kind == "map" else "items"], depth + 1)
                for _ in range(n)
            )
            yield zigzag(n) + inside if self.random.random() < 0.7 else zigzag(-n) + zigzag(len(inside)) + inside

    def text(self) -> bytes:
        length = self.random.choice((0, 1, 3, 8, 20, 40))
        letters = LETTERS if self.random.random() < 0.5 else "abcdefgh "
        return "".join(self.random.choices(letters, k=length)).encode()

    def damaged(self, value: bytes) -> bytes:
        """A value with an error, or by chance without one."""
        at, kind = self.random.randrange(len(value) + 1), self.random.randrange(7)
        changes = (
            value[:at], value + b"\0", value[:at] + bytes([self.random.randrange(256)]) + value[at + 1 :],
            value[:at] + b"\xff" * self.random.choice((1, 5, 9, 10, 12)) + value[at:],
            value[:at] + zigzag(self.random.choice((2**62, -(2**62), -(2**63), -1, -5, 2**31))) + value[at + 1 :],
            value[:at] + b"\x80\x00" + value[at + 1 :], value[:at] + value[at + 1 :],
        )  # fmt: skip
        return changes[kind]


def zigzag(number: int) -> bytes:
    left, out = (number << 1 ^ number >> 63) & 2**64 - 1, bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])


def counted(value: bytes) -> bytes:
    return zigzag(len(value)) + value


class Given:
    """A registry of some schemas, each of which refers to all references."""

    def __init__(self, *schemas: Any, references: Sequence[Any] = ()) -> None:
        self.schemas, self.references = schemas, references

    def schema(self, id: int) -> dict[str, Any]:
        needed = [{"subject": "", "version": i} for i in range(len(self.references))]
        return {"schema": json.dumps(self.schemas[id]), "references": needed}

    def reference(self, subject: str, version: int, kind: str) -> dict[str, Any]:
        return {"schema": json.dumps(self.references[version])}


def decoded(schemas: Schemas, values: list[bytes]) -> tuple[list[bytes], dict[int, Rejection]]:
    rejected: dict[int, Rejection] = {}
    data, starts, ends = schemas.decode(values, rejected)
    assert [*rejected] == sorted(rejected)
    return [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)], rejected


def one_by_one(schemas: Schemas, values: list[bytes]) -> tuple[list[bytes], dict[int, Rejection]]:
    """What `decoded` gives by fastavro alone."""
    found, rejected = list[bytes](), dict[int, Rejection]()
    for i, value in enumerate(values):
        try:
            found.append(schemas._value(value))
        except Exception as error:
            found.append(b"")
            rejected[i] = error.why  # type: ignore[attr-defined]
    return found, rejected


@pytest.mark.parametrize("seed", seeds(60, 300, 2000))
def test_the_kernel_reads_as_fastavro_does(seed: int) -> None:
    makers = Maker(2 * seed), Maker(2 * seed + 1)
    given = [maker.record(4) for maker in makers]
    schemas = Schemas(Given(*given))
    values = list[bytes]()
    for i in range(60):
        id = i % 2
        value = makers[id].value(given[id])
        values.append(b"\0" + id.to_bytes(4) + (makers[id].damaged(value) if i % 3 else value))
    for id in (0, 1):
        schemas.fetch(id)
    expected, rejections = one_by_one(schemas, values)
    assert decoded(schemas, values) == (expected, rejections)
    for id in (0, 1):
        decoder = schemas._known[b"\0" + id.to_bytes(4)]
        assert isinstance(decoder, Avro)
        alone = [json_of([value], HEAD, decoder.program) for value in values[id::2]]
        together = json_of(values[id::2], HEAD, decoder.program)
        assert [bool(read[0]) for _, _, read in alone] == together[2].tolist()  # nothing is read beyond a value
        assert b"".join(part for part, _, _ in alone) == together[0]


def test_all_that_is_covered_is_read_by_the_kernel() -> None:
    """Whole values of these types do not need fastavro."""
    maker, read, values = Maker(7), 0, 0
    items: list[Any] = [*PLAIN, *LOGICAL[:3], *LOGICAL[4:5]]
    fields = [{"name": f"f{i}", "type": ["null", item] if item != "null" else item} for i, item in enumerate(items)]
    fields.append({"name": "enum", "type": {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}})
    fields.append({"name": "list", "type": {"type": "array", "items": "string"}})
    fields.append({"name": "map", "type": {"type": "map", "values": {"type": "array", "items": "long"}}})
    schema = {"type": "record", "name": "R", "fields": fields}
    decoder = Avro(json.dumps(schema), ())
    for _ in range(300):
        value = bytes(HEAD) + maker.value(schema)
        try:
            expected = decoder(value)
        except (OverflowError, ValueError):  # a time outside the years 1 to 9999
            continue
        data, _, (accepted,) = json_of([value], HEAD, decoder.program)
        assert data == (expected if accepted else b"")  # a key that is twice in a map is left
        values, read = values + 1, read + accepted
    assert read > 0.8 * values > 50


def program_of(schema: Any) -> Program:
    names: dict[str, Any] = {}
    return compiled(parse_schema(schema, names), names)


def test_nothing_is_written_behind_the_room() -> None:
    text = ('a"\\\n\x01é中\U0001f600' * 5).encode()
    kinds = "string", "bytes", "long", LOGICAL[1], {"type": "map", "values": "string"}, "boolean"
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{i}", "type": kind} for i, kind in enumerate(kinds)],
    }
    value = counted(text) + counted(text) + zigzag(-(2**63)) + zigzag(1_700_000_000_123_456)
    value += zigzag(2) + counted(text) + counted(text) + counted(b"k") + counted(b"") + b"\0\1"
    program = program_of(schema)
    whole, _, (accepted,) = json_of([value], 0, program)
    assert accepted
    data, numbers, places = np.frombuffer(value, np.uint8), np.empty(9), np.empty(9, np.int64)
    done = set()
    for room in range(len(whole) + 80):
        out = np.full(room + 64, 0xEE, np.uint8)
        stops, read = np.zeros(1, np.int64), np.zeros(1, bool)
        written, _ = write_values(
            data, np.array([0]), np.array([len(data)]), 0, *program[:3], out[:room], stops, read, numbers, places
        )
        assert (out[room:] == 0xEE).all()
        done.add(written)
        if written:
            assert read[0] and out[: stops[0]].tobytes() == whole
    assert done == {0, 1}


def test_room_grows_for_values_that_become_long() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "long_name_of_the_only_field", "type": "boolean"}]}
    program = program_of(
        {"type": "record", "name": "L", "fields": [{"name": "a", "type": {"type": "array", "items": schema}}]}
    )
    value = zigzag(5000) + b"\1" * 5000 + b"\0"
    data, stops, read = json_of([value] * 3 + [b""] + [value], 0, program)
    assert read.tolist() == [True, True, True, False, True]
    assert data == b"".join(data[a:b] for a, b in zip([0, *stops[:-1]], stops, strict=True))
    assert json.loads(data[stops[3] : stops[4]]) == {"a": [{"long_name_of_the_only_field": True}] * 5000}


def test_room_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for several values, and room that grew for one."""
    monkeypatch.setattr(avro_json, "MOST_ROOM", 700)
    given = list[int]()

    def write(*arguments: Any) -> tuple[int, int]:
        given.append(len(arguments[7]))
        return write_values(*arguments)

    monkeypatch.setattr(avro_json, "write_values", write)
    program = program_of({"type": "map", "values": {"type": "array", "items": ["null", "long"]}})
    short, long, longer = (zigzag(1) + counted(b"k") + zigzag(n) + b"\0" * n + b"\0\0" for n in (1, 120, 200))
    data, _, read = json_of([*[short] * 20, long, longer, short], 0, program)
    assert max(given) == 700 and read.tolist() == [True] * 21 + [False, True]
    lines = data.replace(b"}{", b"}\n{").splitlines()
    assert [len(json.loads(line)["k"]) for line in lines] == [1] * 20 + [120, 1]


def test_all_kernels_are_compiled_before_the_first_value(monkeypatch: pytest.MonkeyPatch) -> None:
    used = list[str]()

    def noted(name: str, kernel: Any) -> Any:
        return lambda *arguments: (used.append(name), kernel(*arguments))[1]

    for name in ("write_values", "insert_digits"):
        monkeypatch.setattr(avro_json, name, noted(name, getattr(avro_json, name)))
    Avro(json.dumps(CHAIN), ())
    assert used == ["write_values", "insert_digits"]


EMPTY = {"type": "record", "name": "E", "fields": []}
LIST_OF_NAMED = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "E"}}]}


@pytest.mark.parametrize(
    ("schema", "before"),
    [
        *[
            ({"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": items}}]}, b"")
            for items in ("null", EMPTY, {"type": "fixed", "name": "F", "size": 0})
        ],
        (["null", EMPTY, LIST_OF_NAMED], zigzag(2)),
        ({"type": "map", "values": [EMPTY, LIST_OF_NAMED]}, zigzag(1) + counted(b"k") + zigzag(1)),
        ({"type": "array", "items": [EMPTY, LIST_OF_NAMED]}, zigzag(1) + zigzag(1)),
    ],
)
def test_items_without_bytes_are_refused(schema: Any, before: bytes) -> None:
    """Nothing limits their number: 2**62 of them are a few bytes."""
    schemas = Schemas(Given(schema))
    schemas.fetch(0)
    assert isinstance(schemas._known[bytes(HEAD)], Rejection)  # else the value below would be read without end
    _, rejected = decoded(schemas, [bytes(HEAD) + before + zigzag(2**62) + b"\0" * 3])
    assert rejected[0].reason == "bad_encoding" and "take no bytes" in rejected[0].detail


CHAIN = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}


@pytest.mark.parametrize(
    ("schema", "before", "behind"),
    [
        (CHAIN, b"", b""),
        (["null", CHAIN], zigzag(1), b""),
        ({"type": "map", "values": CHAIN}, zigzag(1) + counted(b"k"), b"\0"),
        ({"type": "array", "items": CHAIN}, zigzag(1), b"\0"),
    ],
)
def test_deep_values_are_rejected(schema: Any, before: bytes, behind: bytes) -> None:
    """fastavro's compiled reader overflows the stack, which ends the process."""
    schemas = Schemas(Given(schema))
    schemas.fetch(0)
    lengths = 0, 3, 80, 5_000, 1_000_000
    found, rejected = decoded(schemas, [bytes(HEAD) + before + b"\2" * n + b"\0" + behind for n in lengths])
    assert b'{"n":null}' in found[0] and b'{"n":{"n":{"n":{"n":null}}}}' in found[1]
    assert found[2].count(b'{"n":') == 81
    assert {i: why.reason for i, why in rejected.items()} == {3: "bad_encoding", 4: "bad_encoding"}


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def test_values_of_a_long_chain_of_records_are_rejected() -> None:
    """The chain needs no record that contains itself."""
    n = 20_000
    chain = [record("A0", x="boolean"), *(record(f"A{i}", x=f"A{i - 1}") for i in range(1, n))]
    schemas = Schemas(Given(chain))
    schemas.fetch(0)
    found, rejected = decoded(schemas, [bytes(HEAD) + zigzag(i) + b"\1" for i in (0, 3, n - 1)])
    assert found[:2] == [b'{"x":true}', b'{"x":{"x":{"x":{"x":true}}}}']
    assert [*rejected] == [2] and rejected[2].reason == "bad_encoding"


def test_records_that_double_without_bytes_are_refused() -> None:
    """The last of them has 2**40 values, and its encoding no byte."""
    doubling = [record("A0", a="null"), *(record(f"A{i}", a=f"A{i - 1}", b=f"A{i - 1}") for i in range(1, 40))]
    few = Schemas(Given(doubling[:5]))
    few.fetch(0)
    found, rejected = decoded(few, [bytes(HEAD) + zigzag(4)])
    assert found[0].count(b"null") == 16 and not rejected
    decoder = Schemas(Given())._decoder({"schema": json.dumps(doubling)})
    assert isinstance(decoder, Rejection) and "take no bytes" in decoder.detail
    with_bytes = [record("A0", a="int"), *doubling[1:]]
    assert isinstance(Schemas(Given())._decoder({"schema": json.dumps(with_bytes)}), Avro)


def test_an_enum_is_compiled_once() -> None:
    enum = {"type": "enum", "name": "E", "symbols": [f"S{i}" for i in range(500)]}
    schema = record("R", e=enum, **{f"f{i}": "E" for i in range(100)})
    program = program_of(schema)
    assert len(program.code) < 2 * 500 + 3 * 101
    value = zigzag(499) * 50 + zigzag(1) * 51
    data, _, (read,) = json_of([value], 0, program)
    assert read and [*json.loads(data).values()] == ["S499"] * 50 + ["S1"] * 51


@pytest.mark.parametrize("large", ["symbols", "fields"])
def test_fastavro_reads_what_needs_a_large_program(large: str) -> None:
    symbols = ["a", *(f"S{i}" for i in range(MOST_ROWS if large == "symbols" else 1))]
    fields = {f"f{i}": "boolean" for i in range(MOST_ROWS // 2 if large == "fields" else 1)}
    schemas = Schemas(Given(record("R", e={"type": "enum", "name": "E", "symbols": symbols}, **fields)))
    schemas.fetch(0)
    decoder = schemas._known[bytes(HEAD)]
    assert isinstance(decoder, Avro) and len(decoder.program.code) <= MOST_ROWS
    found, rejected = decoded(schemas, [bytes(HEAD) + b"\0" + b"\1" * len(fields)])
    assert json.loads(found[0]) == {"e": "a"} | dict.fromkeys(fields, True) and not rejected


def test_a_name_that_a_schema_and_its_reference_have() -> None:
    """Each keeps its own fields, with both readers."""
    other = record("Other", n=record("N", a="boolean"))
    schemas = Schemas(Given(record("R", x="Other", y=record("N", b="boolean"), z="N"), references=[other]))
    schemas.fetch(0)
    values = [bytes(HEAD) + b"\1\0\1"]
    found = decoded(schemas, values)
    assert found == one_by_one(schemas, values)
    assert found[0] == [b'{"x":{"n":{"a":true}},"y":{"b":false},"z":{"b":true}}']


@pytest.mark.parametrize("schema", ["N", ["null", "N"], {"type": "map", "values": "N"}])
def test_both_readers_find_the_schemas_of_references(schema: Any) -> None:
    before = {str: b"", list: zigzag(1), dict: zigzag(1) + counted(b"k")}[type(schema)]
    schemas = Schemas(Given(schema, references=[CHAIN]))
    schemas.fetch(0)
    values = [bytes(HEAD) + before + b"\2\0" + b"\0" * isinstance(schema, dict)]
    found = decoded(schemas, values)
    assert found == one_by_one(schemas, values)
    assert b'{"n":{"n":null}}' in found[0][0]


@pytest.mark.parametrize("logical", LOGICAL[:5])
def test_times_are_written_as_python_writes_them(logical: dict[str, str]) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "t", "type": logical}]}
    decoder, choose = Avro(json.dumps(schema), ()), random.Random(3)
    days = [
        -719_162,
        2_932_896,
        -719_163,
        2_932_897,
        -1,
        0,
        *(choose.randrange(-719_162, 2_932_897) for _ in range(300)),
    ]
    unit = {"date": 1, "millis": 86_400_000, "micros": 86_400_000_000}[logical["logicalType"].rpartition("-")[2]]
    values = [
        bytes(HEAD) + zigzag(day * unit + choose.choice((0, 1, unit - 1, unit // 2)) * (unit > 1)) for day in days
    ]
    data, stops, read = json_of(values, HEAD, decoder.program)
    assert read.tolist() == [day not in (-719_163, 2_932_897) for day in days]
    lines = [data[a:b] for a, b in zip([0, *stops[:-1].tolist()], stops.tolist(), strict=True)]
    assert lines == [decoder(value) if good else b"" for value, good in zip(values, read, strict=True)]


def test_what_fastavro_writes_is_read() -> None:
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "x", "type": "float"}, {"name": "y", "type": {"type": "array", "items": "double"}},
        {"name": "s", "type": ["null", "string"]},
    ]}  # fmt: skip
    stream = BytesIO()
    schemaless_writer(stream, parse_schema(schema), {"x": 0.1, "y": [1e16, -0.0, float("nan")], "s": "é\n"})
    data, _, (read,) = json_of([stream.getvalue()] * 2, 0, program_of(schema))[0], None, [True]
    one = '{"x":0.10000000149011612,"y":[1e+16,-0.0,null],"s":"é\\n"}'.encode()
    assert read and data == one * 2
