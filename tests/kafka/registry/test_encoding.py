"""Outputs in Avro: what was JSON is the same JSON again, with schemas that the registry has."""

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.structs import ConsumerRecord
from support.schema_registry import REFUSALS, Server, encoded, schema_registry

from stream_lsh.errors import StoreError, StreamLshError
from stream_lsh.kafka.client.clients import Stopped
from stream_lsh.kafka.consumer.output_values import OutputValues, check_decoded, undecoded
from stream_lsh.kafka.registry import decoding
from stream_lsh.kafka.registry.encoding import HEAD, OUTPUTS, Decoder, Encoder, avro_schema
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.serve.output_schemas import schema_of
from stream_lsh.testing import Pipeline

IDS = ("a", "Grüße", "\ud800", "", 0, -(2**63), 2**63 - 1, 2**63, 2**64 + 1, -(10**30))
ALWAYS = {"source", "detected_at"}
"""The optional fields that are never null on Kafka."""
RULES = '[[rule]]\nname = "grows"\nkind = "growth"\nmembers = 2\nwithin = "4h"\n'


class Values:
    """Random values of a JSON Schema."""

    def __init__(self, output: str, seed: int) -> None:
        self._schema = schema_of(output)
        self._models = self._schema.get("$defs", {})
        self._chance = random.Random(seed)

    def value(self) -> dict[str, Any]:
        found = self._object(self._schema)
        if "first_kind" in self._schema["properties"]:  # null is said of redelivered documents only
            found.pop("first_kind", None)
            if found["kind"] == "redelivered":
                found["first_kind"] = self._chance.choice(("unique", None))
            found.setdefault("time", None)
        return found

    def _object(self, model: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for name, field in model["properties"].items():
            one = self._of(field)
            while one is None and name in ALWAYS:
                one = self._of(field)
            if one is not None or name in model["required"]:
                found[name] = one
        return found

    def _of(self, field: dict[str, Any]) -> Any:
        chance = self._chance
        if "anyOf" in field:
            kinds = {one.get("type") for one in field["anyOf"]}
            if {"string", "integer"} <= kinds and chance.random() < 0.7:
                return chance.choice(IDS)
            return self._of(chance.choice(field["anyOf"]))
        if "$ref" in field:
            return self._object(self._models[field["$ref"].rpartition("/")[2]])
        if "enum" in field:
            return chance.choice(field["enum"])
        if field["type"] == "array":
            return [self._of(field["items"]) for _ in range(chance.choice((0, 1, 2, 3)))]
        return {
            "null": None, "string": "Grüße \n", "integer": chance.randint(-(2**40), 2**40), "number": chance.random(),
            "boolean": chance.random() < 0.5,
        }[field["type"]]  # fmt: skip


@pytest.mark.parametrize("output", OUTPUTS)
def test_random_values_are_the_same_again(output: str) -> None:
    encoder, decoder, values = Encoder(output, 7), Decoder(json.dumps(avro_schema(output))), Values(output, 1)
    for _ in range(500):
        value = values.value()
        avro = encoder(json.dumps(value).encode())
        assert avro[:HEAD] == b"\0\0\0\0\7" and json.loads(decoder(avro)) == value


@pytest.mark.parametrize("output", OUTPUTS)
def test_damaged_values_and_fields_without_a_place_are_errors(output: str) -> None:
    encoder, decoder, value = Encoder(output, 7), Decoder(json.dumps(avro_schema(output))), Values(output, 2).value()
    avro = encoder(json.dumps(value).encode())
    for damaged in (avro + b"\0", *(avro[:size] for size in range(HEAD, len(avro)))):
        with pytest.raises(ValueError, match=r"not encoded with its schema|left behind"):
            decoder(damaged)
    with pytest.raises(ValueError, match="another"):
        encoder(json.dumps({**value, "another": 1}).encode())


def test_values_of_other_versions_are_read_by_their_schema() -> None:
    """A later version has one more field, an earlier one lacks one."""
    line = b'{"older":1,"newer":"b","older_seq":1,"newer_seq":2,"similarity":0.5,"verified":"exact",'
    line += b'"source":{"topic":"t","partition":0,"offset":5},"detected_at":7}'
    encoder, schema = Encoder("pair", 1), avro_schema("pair")
    later = {**schema, "fields": [*schema["fields"], {"name": "more", "type": ["null", "long"], "default": None}]}
    assert Decoder(json.dumps(later))(encoder(line) + b"\2\x0a") == line[:-1] + b',"more":5}'
    assert Decoder(json.dumps(later))(encoder(line) + b"\0") == line
    earlier = {**schema, "fields": schema["fields"][:-1]}
    assert Decoder(json.dumps(earlier))(encoder(line)[:-1]) == line[: line.index(b',"detected_at"')] + b"}"


def same(tmp_path: Path, documents: list[dict[str, Any]], **given: Any) -> Pipeline:
    """A pipeline whose outputs in JSON are, line for line, the values of those in Avro."""
    (tmp_path / "rules.toml").write_text(RULES)
    given |= {"groups": True, "time_field": "at", "alerts": tmp_path / "rules.toml"}
    found = []
    for further in ({}, {"output_format": "avro", "registry_url": "http://registry"}):
        with Pipeline(clock=lambda: 1_700_000_000_000, **given, **further) as pipeline:
            for i, document in enumerate(documents):
                pipeline.send(json.dumps({"id": IDS[i % len(IDS)], "at": 1000 * i, **document}))
        found.append(pipeline)
    plain, avro = found
    decoders = {id.to_bytes(HEAD): Decoder(schema) for id, schema in avro.schemas.items()}
    for name in ("verdicts", "pairs", "groups", "alerts"):
        for one, other in zip(getattr(plain, name), getattr(avro, name), strict=True):
            assert (one.key, one.headers, one.json()) == (other.key, other.headers, other.json())
            if other.value is not None and b"ud800" not in one.value:  # such lines are escaped otherwise
                assert decoders[other.value[:HEAD]](other.value) == one.value.strip()
    assert (plain.unique, plain.dead_letters) == (avro.unique, avro.dead_letters)
    assert all(record.value[0] == 0 for record in avro.verdicts)
    return avro


TEXT = "the mayor has opened the new bridge over the river in the old town after two years of work by many hands"


@pytest.mark.parametrize(
    ("field", "values", "given"),
    [
        ("text", (TEXT, f"{TEXT} today", "some other text"), {"on_conflict": "update", "deleted_field": "d"}),
        ("text", (TEXT, f"{TEXT} today", f"so {TEXT}"), {"measure": "containment", "min_passage_words": 5}),
        ("text", (TEXT, f"{TEXT} today", "some other text"), {"measure": "tf-idf"}),
        ("text", ("bridge", "bridges", "river"), {"measure": "levenshtein", "max_distance": 2}),
        ("vector", ([1, 2, 3, 4], [1, 2, 3, 4.1]), {"measure": "cosine", "dimensions": 4}),
        ("vector", ([1, 2, 3, 4], [1, 2, 3, 4.1]), {"measure": "euclidean", "dimensions": 4, "max_distance": 0.5}),
        ("bits", ("00ff00ff00ff00ff", "00ff00ff00ff00fe"), {"measure": "hamming", "dimensions": 64, "max_distance": 3}),
        ("basket", ({"a": 1, "b": 2}, {"a": 1, "b": 2.1}), {"measure": "weighted-jaccard", "set_field": "basket"}),
    ],
    ids=lambda value: value.get("measure", "jaccard") if isinstance(value, dict) else "",
)  # fmt: skip
def test_outputs_of_all_measures_are_the_same(
    tmp_path: Path, field: str, values: tuple[Any, ...], given: dict[str, Any]
) -> None:
    documents = [{field: values[i % len(values)]} for i in range(14)]
    pipeline = same(tmp_path, [*documents, {field: None}, {}, {"d": True}], **given)
    assert pipeline.pairs and pipeline.groups and pipeline.alerts


@pytest.fixture
def registry() -> Iterator[Server]:
    with schema_registry() as server:
        yield server


def values_of(url: str) -> OutputValues:
    return OutputValues(KafkaSettings(output_format="avro", registry_url=url))


def record(value: bytes | None) -> ConsumerRecord:
    return ConsumerRecord("stream-lsh.pairs", 0, 0, 5, 0, b"k", value, None, -1, 1, ())


async def test_schemas_are_registered_and_values_read_by_their_ids(registry: Server) -> None:
    line = b'{"older":1,"newer":"b","older_seq":1,"newer_seq":2,"similarity":0.5,"verified":"exact",'
    line += b'"source":{"topic":"t","partition":0,"offset":5},"detected_at":7}'
    writer, stop = values_of(registry.url), asyncio.Event()
    await writer.register(("verdict", "pair"), stop)
    await values_of(registry.url).register(("verdict", "pair"), stop)  # nothing new
    subjects = [(subject, json.loads(schema)["name"]) for subject, schema in registry.registered]
    assert subjects == [("stream-lsh.verdicts-value", "VerdictLine"), ("stream-lsh.pairs-value", "Pair")]
    rows = [(b"k", line, [], None), (b"k", None, [], None)] * 500  # so many in a thread
    written = await writer.encoded({("stream-lsh.pairs", 0): rows, ("stream-lsh.state", 0): rows})
    assert written["stream-lsh.state", 0] == rows
    avro = written["stream-lsh.pairs", 0][0][1]
    assert avro is not None and avro[:HEAD] == encoded(1001, b"") and written["stream-lsh.pairs", 0][1][1] is None
    records = [record(avro), record(line), record(None), record(avro[:-1]), record(encoded(99, b"x"))]
    found = await values_of(registry.url).read(records * 500)
    assert [one.value for one in found] == [line, line, None, avro[:-1], encoded(99, b"x")] * 500
    assert [undecoded(one.value) is None for one in found[:5]] == [True, True, True, False, False]
    asked = [path for path, _ in registry.got]
    assert asked == ["/schemas/ids/99"] * 3 + ["/schemas/ids/1001"]


async def test_schemas_that_cannot_be_used_are_asked_for_rarely(
    registry: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.schemas = {1: {"schema": "{}", "schemaType": "JSON"}, 2: {"schema": "{}"}}
    values, records = values_of(registry.url), [record(encoded(id, b"x")) for id in (1, 2, 3)]

    async def asked() -> list[str]:
        registry.got.clear()
        assert await values.read(records) == records
        return [path.rpartition("/")[2] for path, _ in registry.got]

    assert [await asked() for _ in range(3)] == [["1", "2", "3", "3", "3"], [], []]
    for one in records:
        with pytest.raises(StoreError, match=r"stream-lsh\.pairs, partition 0, offset 0: its value is Avro"):
            check_decoded(one)
    monkeypatch.setattr(decoding, "UNKNOWN_SECONDS", -1.0)
    unknown = values_of(registry.url)
    await unknown.read(records)
    registry.schemas[3] = {"schema": json.dumps(avro_schema("pair"))}
    values = unknown
    assert await asked() == ["3"]


@pytest.mark.parametrize(("matches", "beside"), [(1, False), (6000, True)])
async def test_dense_values_are_converted_beside_the_event_loop(
    registry: Server, monkeypatch: pytest.MonkeyPatch, matches: int, beside: bool
) -> None:
    """One verdict with thousands of matches takes as long as thousands of verdicts; a member must send heartbeats."""
    match = b'{"id":"a","seq":0,"similarity":0.9}'
    line = b'{"id":"b","seq":1,"kind":"near_duplicate","duplicate_of":"a","similarity":0.9,"group":0,"matches":['
    line += (
        b",".join([match] * matches) + b'],"source":{"topic":"t","partition":0,"offset":5},"time":null,"detected_at":7}'
    )
    values, threads = values_of(registry.url), list[bool]()
    await values.register(("verdict",), asyncio.Event())
    for kind in (Encoder, Decoder):
        convert = kind.__call__

        def called(self: Any, value: bytes, convert: Any = convert) -> bytes:
            threads.append(threading.current_thread() is not threading.main_thread())
            return convert(self, value)

        monkeypatch.setattr(kind, "__call__", called)
    written = await values.encoded({("stream-lsh.verdicts", 0): [(b"k", line, [], None)]})
    (found,) = await values.read([record(written["stream-lsh.verdicts", 0][0][1])])
    assert (found.value, threads) == (line, [beside, beside])


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_refused_registration_is_an_error(registry: Server, refusal: str) -> None:
    registry.crime = refusal
    with pytest.raises(StreamLshError, match=r"(is incompatible|is denied)\. .*subject stream-lsh.verdicts-value"):
        await values_of(registry.url).register(("verdict",), asyncio.Event())


async def test_an_absent_registry_is_waited_for(registry: Server) -> None:
    registry.crime, stop = "failure", asyncio.Event()
    waiting = asyncio.create_task(values_of(registry.url).register(("alert",), stop))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    registry.crime = ""
    await asyncio.wait_for(waiting, 30)
    registry.crime = "failure"
    waiting = asyncio.create_task(values_of(registry.url).register(("alert",), stop))
    stop.set()
    with pytest.raises(Stopped):
        await asyncio.wait_for(waiting, 30)
    with pytest.raises(Failed, match="answers with status 500"):
        await values_of(registry.url).read([record(encoded(1000, b"x"))])
