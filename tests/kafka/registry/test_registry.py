"""Records with schemas of a registry: read as the same JSON; what cannot be decoded is rejected, what is absent waited
for."""

import base64
import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from aiokafka.structs import ConsumerRecord
from fastavro import parse_schema, schemaless_writer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from support.schema_registry import CRIME, Server, encoded, schema_registry

from stream_lsh.documents.columns import Columns
from stream_lsh.kafka.registry import client as module
from stream_lsh.kafka.registry.client import Client
from stream_lsh.kafka.registry.decoding import Absent, Schemas
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.records import columns_of

ROW = {"id": 7, "text": "Grüße", "at": None}
AVRO: dict[str, Any] = {
    "type": "record", "name": "Row",
    "fields": [
        {"name": "id", "type": "long"}, {"name": "text", "type": "string"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    ],
}  # fmt: skip
CHANGE = {
    "type": "record", "name": "Change",
    "fields": [
        {"name": "op", "type": "string"}, {"name": "before", "type": ["null", "Row"]},
        {"name": "after", "type": ["null", "Row"]},
    ],
}  # fmt: skip


@pytest.fixture
def registry() -> Iterator[Server]:
    with schema_registry() as server:
        server.schemas[1] = {"schema": json.dumps(AVRO)}
        yield server


def avro(value: object, *schemas: Any) -> bytes:
    named: dict[str, Any] = {}
    for schema in schemas or (AVRO,):
        parsed = parse_schema(schema, named)
    stream = BytesIO()
    schemaless_writer(stream, parsed, value)
    return stream.getvalue()


def settings_of(server: Server, **given: Any) -> KafkaSettings:
    return KafkaSettings(document_format="registry", registry_url=server.url, **given)


def read(settings: KafkaSettings, values: list[bytes], key: bytes | None = None) -> Columns:
    schemas = Schemas(Client(settings))
    for id in schemas.missing([*values, key]):
        schemas.fetch(id)
    assert schemas.missing([*values, key]) == []
    records = [ConsumerRecord("t", 0, i, 5, 0, key, value, None, -1, 1, ()) for i, value in enumerate(values)]
    return columns_of(records, settings, schemas)


def test_avro_and_json_are_read(registry: Server) -> None:
    registry.schemas[300] = {"schema": "{}", "schemaType": "JSON"}
    login = {"registry_username": "u", "registry_password": "p"}
    timed = {**ROW, "at": 1_700_000_000_123}
    values = [encoded(1, avro(ROW)), encoded(300, json.dumps(ROW).encode()), encoded(1, avro(timed))]
    found = read(settings_of(registry, **login), values * 100)
    assert (found.ids, found.texts, found.rejected) == ([b"7"] * 300, "Grüße".encode() * 300, {})
    assert [path for path, _ in registry.got] == ["/schemas/ids/1", "/schemas/ids/300"]
    assert registry.got[0][1]["Authorization"] == "Basic " + base64.b64encode(b"u:p").decode()
    timed_only = read(settings_of(registry, time_field="at"), values[2:])
    assert timed_only.times.tolist() == [1_700_000_000_123]


def test_protobuf_is_read(registry: Server) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="row.proto", package="p", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    other = file.message_type.add(name="Other")
    row = other.nested_type.add(name="Row")
    for number, (name, kind) in enumerate((("id", 9), ("text", 9)), 1):
        row.field.add(name=name, number=number, type=kind, label=1)  # type: ignore[arg-type]
    row.field.add(name="at", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")  # type: ignore[arg-type]
    registry.schemas[2] = {"schema": base64.b64encode(file.SerializeToString()).decode(), "schemaType": "PROTOBUF"}
    pool = descriptor_pool.DescriptorPool()
    plain = descriptor_pb2.FileDescriptorProto.FromString(file.SerializeToString())
    del plain.dependency[:], plain.message_type[0].nested_type[0].field[2]
    pool.Add(plain)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Other.Row"))
    value = made(id="a", text="Grüße").SerializeToString()
    found = read(settings_of(registry), [encoded(2, b"\x04\x00\x00" + value), encoded(2, b"\x02\x08" + value)])
    assert (found.ids[0], found.texts) == (b'"a"', "Grüße".encode())
    assert {i: why.reason for i, why in found.rejected.items()} == {1: "bad_encoding"}


def test_changes_in_avro_are_unwrapped(registry: Server) -> None:
    registry.schemas[3] = {
        "schema": json.dumps(CHANGE), "references": [{"name": "Row", "subject": "a/row", "version": 4}]
    }  # fmt: skip
    registry.subjects["a%2Frow", 4] = {"schema": json.dumps(AVRO)}
    settings = settings_of(registry, envelope="debezium", on_conflict="update")
    events = [{"op": "c", "after": ROW}, {"op": "d", "before": {**ROW, "id": 8}}, {"op": "d"}]
    found = read(settings, [encoded(3, avro(event, AVRO, CHANGE)) for event in events], encoded(1, avro(ROW)))
    assert (found.ids, found.deleted, found.rejected) == ([b"7", b"8", b"7"], [1, 2], {})


def test_what_cannot_be_decoded_is_rejected_with_the_reason(registry: Server) -> None:
    registry.schemas[4] = {"schema": '{"type":"record"'}
    registry.schemas[5] = {"schema": '{"type":"no such type"}'}
    registry.schemas[6] = {"schema": "message", "schemaType": "PROTOBUF"}
    registry.schemas[7] = {"schema": "", "schemaType": "XML"}
    registry.schemas[8] = {"schema": '"Row"', "references": [{"subject": "gone", "version": 1}]}
    registry.schemas[9] = {"schema": '"string"'}
    registry.schemas[10] = {"schema": '"Row"', "references": [7]}
    good, whole = encoded(1, avro(ROW)), avro(ROW)
    bad = [
        (b'{"id":7,"text":"plain"}', "bad_encoding"), (b"\0\0\0\0\1", "bad_encoding"), (b"\0", "bad_encoding"),
        *((encoded(1, whole[:n]), "bad_encoding") for n in range(len(whole))),
        (encoded(1, whole + b"\0"), "bad_encoding"), (encoded(1, b"\xff" * 40), "bad_encoding"),
        *((encoded(id, whole), "bad_encoding") for id in (4, 5, 6, 7, 10)), (encoded(8, whole), "unknown_schema"),
        (encoded(99, whole), "unknown_schema"), (encoded(2**32 - 1, whole), "unknown_schema"),
        (encoded(9, b"\x02a"), "not_json"), (encoded(9, b"\x04\xff\xff"), "bad_encoding"), (b"", "no_value"),
    ]  # fmt: skip
    found = read(settings_of(registry), [good, *(value for value, _ in bad), good])
    assert [found.rejected[i + 1].reason for i in range(len(bad))] == [reason for _, reason in bad]
    assert found.ids[0] == found.ids[-1] == b"7" and len(found.rejected) == len(bad)


@pytest.mark.parametrize("crime", [*CRIME, "endless", "slow", "silent", "drip"])
def test_a_registry_that_misbehaves_is_absent(crime: str, registry: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WHOLE_SECONDS", 0.5)
    monkeypatch.setattr(module, "READ_SECONDS", 0.3)
    schemas = Schemas(Client(settings_of(registry, registry_username="u", registry_password="geheim")))
    registry.crime = crime
    with pytest.raises(Absent, match=r"the Schema Registry http://127.0.0.1:\d+ (answers|cannot|has not)") as caught:
        schemas.fetch(1)
    assert "geheim" not in str(caught.value) and schemas.missing([encoded(1, b"x")]) == [1]
    registry.crime = ""
    schemas.fetch(1)
    assert schemas.missing([encoded(1, b"x")]) == []


def test_no_registry_is_absent() -> None:
    with schema_registry() as server:
        settings = settings_of(server)
    with pytest.raises(Absent, match="cannot be read"):
        Schemas(Client(settings)).fetch(1)
