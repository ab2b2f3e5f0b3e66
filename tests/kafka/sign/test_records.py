"""Kafka's records as documents: as the embedded engine reads the same lines, and what only records can have."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from aiokafka.structs import ConsumerRecord

from stream_lsh.documents.columns import NO_TIME
from stream_lsh.documents.lines import parse_lines
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign import records
from stream_lsh.kafka.sign.records import columns_of, headers_of

LINES = [
    b'{"id":"a","text":"plain text"}', b'{"id":17,"text":"an \\u00e4 and \\"quotes\\"","ts":1700000064}',
    ' {"text" : "Grüße aus Köln" , "id" : "ü\\n"} '.encode(), b'{"id":"a"}', b'{"id":null,"text":"x"}', b"[1]", b"{",
    b'{"id":"a","id":"b","text":"x"}', b'{"id":"a","text":"  "}', b'{"id":"\xff","text":"x"}', b"   ", b"null",
    b'{"id":"lone","text":"\\ud800 x","ts":"2024-02-30"}', b'{"id":"' + b"x" * 5000 + b'","text":"x"}',
    b'{"id":"t","text":"timed","ts":"2024-02-03T04:05:06Z"}', b'{"id":"long","text":"' + b"y" * 3000 + b'"}',
    b'{"id":"s","text":"x","set":["b","a",3]}', b'{"id":"deep","text":{"a":1},"meta":{"id":"m","text":"inside"}}',
]  # fmt: skip


def record(
    value: bytes | None, key: bytes | None = None, offset: int = 0, timestamp: int = 1_700_000_000_000,
    headers: Sequence[tuple[str, bytes | None]] = (), partition: int = 3,
) -> ConsumerRecord[bytes | None, bytes | None]:  # fmt: skip
    size = len(value) if value is not None else -1
    return ConsumerRecord("docs", partition, offset, timestamp, 0, key, value, None, -1, size, tuple(headers))


@pytest.mark.parametrize(
    "given",
    [
        {}, {"time_field": "ts"}, {"id_field": "meta.id", "text_field": ("meta.text",)}, {"set_field": "set"},
        {"max_document_bytes": 2000}, {"text_field": ("text", "id")}, {"match_within": ("ts", "meta.id")},
        {"match_within": ("ts", "set")},
    ],
    ids=str,
)  # fmt: skip
def test_a_value_is_read_as_the_same_line_of_a_file(given: dict[str, object]) -> None:
    settings = KafkaSettings(**given)
    found = columns_of([record(line, offset=i) for i, line in enumerate(LINES)], settings)
    ends = np.cumsum([len(line) + 1 for line in LINES])
    starts = np.concatenate(([0], ends[:-1]))
    expected = parse_lines(b"\n".join(LINES) + b"\n", starts, ends - 1, settings.document_fields)
    assert found.ids == expected.ids
    assert found.texts == expected.texts
    assert found.ends.tolist() == expected.ends.tolist()
    assert found.scopes == expected.scopes
    assert len(found.scopes) == (len(LINES) if settings.match_within else 0)
    assert {i: why.reason for i, why in found.rejected.items()} == {
        i: why.reason for i, why in expected.rejected.items()
    }
    if settings.time_field is not None:
        assert found.times.tolist() == expected.times.tolist()


def test_an_object_may_be_spread_over_lines() -> None:
    found = columns_of([record(b'{\n  "id": "a",\r\n  "text": "two\\nlines"\n}\n')], KafkaSettings())
    assert (found.ids, found.texts, found.rejected) == ([b'"a"'], b"two\nlines", {})


def test_without_a_time_field_the_time_is_the_record_s() -> None:
    times = [0, 1_700_000_000_123, -1, 2**62]
    records = [record(b'{"id":"a","text":"x"}', timestamp=time) for time in times]
    assert columns_of(records, KafkaSettings()).times.tolist() == [0, 1_700_000_000_123, NO_TIME, NO_TIME]
    text = KafkaSettings(document_format="text")
    assert columns_of([record(b"x", b"k", timestamp=5)], text).times.tolist() == [5]


@pytest.mark.parametrize("format", ["json", "text"])
def test_a_record_without_a_value_is_refused_by_name(format: str) -> None:
    found = columns_of([record(None, b"k"), record(b"", b"k")], KafkaSettings(document_format=format))
    assert [why.reason for why in found.rejected.values()] == ["no_value", "no_value"]
    assert [why.detail for why in found.rejected.values()] == [
        "the record has no value (a tombstone)", "the record has an empty value",
    ]  # fmt: skip
    assert found.ids == ([b"null"] * 2 if format == "json" else [b'"k"'] * 2)
    assert found.ends.tolist() == [0, 0]


UPDATE: Any = {"on_conflict": "update"}


@pytest.mark.parametrize(
    ("kind", "key", "id", "reason"),
    [
        ("string", b"a1", b'"a1"', None),
        ("string", b"17", b'"17"', None),
        ("string", b'"a1"', b'"\\"a1\\""', None),
        ("string", b"k" * 5000, b"null", "id_too_long"),
        ("string", b"\xff", b"null", "not_utf8"),
        ("string", b"", b"null", "no_key"),
        ("json", b"17", b"17", None),
        ("json", b' "\\u00e4" ', '"ä"'.encode(), None),
        ("json", b"a1", b"null", "not_json"),
        ("json", b"[" * 100_000, b"null", "not_json"),
        ("json", b"1" * 4096, b"1" * 4096, None),
        ("json", b"-" + b"1" * 4096, b"null", "id_too_long"),
        ("json", b"1" * 5000, b"null", "id_too_long"),
        ("json", b"1.5", b"null", "wrong_type"),
        ("json", b"NaN", b"null", "wrong_type"),
        ("json", b"\xff", b"null", "not_utf8"),
        ("json", None, b"null", "no_key"),
    ],
)
def test_a_tombstone_deletes_the_id_that_is_its_key(
    kind: Any, key: bytes | None, id: bytes, reason: str | None
) -> None:
    settings = KafkaSettings(**UPDATE, key_is_id=kind, time_field="ts")
    records = [record(None, key), record(b'{"id":"b","text":"x","ts":7000}', b"b"), record(b"", key), record(None, key)]
    found = columns_of(records, settings)
    assert found.ids == [id, b'"b"', b"null", id] and found.texts == b"x"
    assert found.deleted == ([] if reason else [0, 3])
    assert [why.reason for _, why in sorted(found.rejected.items())] == (
        [reason] * (reason is not None) + ["no_value"] + [reason] * (reason is not None)
    )
    assert found.times.tolist() == [NO_TIME, 7_000_000, NO_TIME, NO_TIME]
    assert columns_of(records, KafkaSettings(**UPDATE, key_is_id=kind)).times.tolist() == [1_700_000_000_000] * 4
    found = columns_of(records, KafkaSettings(**UPDATE, key_is_id=kind, time_field="ts", window="7d"))
    assert found.times.tolist() == [1_700_000_000_000, 7_000_000, 1_700_000_000_000, 1_700_000_000_000]
    assert found.stamped == [0, 2, 3] and found.part(1, 3).stamped == [1]


@pytest.mark.parametrize("format", ["json", "text"])
def test_a_large_value_is_refused_without_being_read(format: str) -> None:
    settings = KafkaSettings(document_format=format, max_document_bytes=64)
    found = columns_of([record(b"x" * 65, b"k"), record(b"y" * 64, b"k")], settings)
    assert found.rejected[0].reason == "too_large"
    assert found.rejected[0].detail == "the value has 65 bytes, more than 64"
    assert found.texts == (b"" if format == "json" else b"y" * 64)


@pytest.mark.parametrize("format", ["json", "text"])
def test_line_ids_are_the_places_of_the_records(format: str) -> None:
    settings = KafkaSettings(document_format=format, id_field="@line")
    values: list[bytes | None] = [b'{"text":"x"}', b"[1]", None]
    found = columns_of([record(value, offset=40 + i) for i, value in enumerate(values)], settings)
    assert found.ids == [b'"docs:3:40"', b'"docs:3:41"', b'"docs:3:42"']
    assert set(found.rejected) == ({1, 2} if format == "json" else {2})


def test_only_the_named_headers_are_passed_on() -> None:
    records = [
        record(b"1"), record(b"2", headers=[("traceparent", b"00-1"), ("other", b"x"), ("baggage", None)]),
        record(b"3", headers=[("other", b"x")]), record(b"4", headers=[("traceparent", b"a"), ("traceparent", b"b")]),
    ]  # fmt: skip
    assert headers_of(records, frozenset({"traceparent", "baggage"})) == {
        1: [("traceparent", b"00-1"), ("baggage", b"")], 3: [("traceparent", b"a"), ("traceparent", b"b")],
    }  # fmt: skip


def test_no_records_are_no_documents() -> None:
    for format in ("json", "text"):
        assert len(columns_of([], KafkaSettings(document_format=format))) == 0


def test_a_raw_text_that_raises_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    real = records.check_ink

    def check(text: str, id: bytes) -> None:
        if "odd" in text:
            raise LookupError
        real(text, id)

    monkeypatch.setattr(records, "check_ink", check)
    given = [record(text, b"%d" % i) for i, text in enumerate([b"plain", b"odd", b"plain too"])]
    found = columns_of(given, KafkaSettings(document_format="text"))
    assert {i: why.reason for i, why in found.rejected.items()} == {1: "engine_error"}
    assert (found.ids, found.texts) == ([b'"0"', b'"1"', b'"2"'], b"plainplain too")


@pytest.mark.parametrize(
    ("given", "table", "news", "crawl"),
    [
        ({"set_field": "a"}, {"set_field": "b"}, {"a": ["x", "y"]}, {"b": ["y", "x"]}),
        (
            {"measure": "cosine", "dimensions": 2}, {"vector_field": "v"}, {"vector": [1, 2]},
            {"v": [1, 2]},
        ),
        ({"measure": "hamming", "dimensions": 8, "max_distance": 1}, {"bits_field": "b"}, {"bits": "f1"}, {"b": "f1"}),
        (
            {"match_within": "l", "keep": "best", "rank_field": "r"}, {"match_within": "m", "rank_field": "n.r"},
            {"text": "a text", "l": "de", "r": 7}, {"text": "a text", "m": "de", "n": {"r": 7}},
        ),
    ],
    ids=["sets", "vectors", "bits", "scopes and ranks"],
)  # fmt: skip
def test_a_documents_topic_names_its_own_fields(
    given: dict[str, Any], table: dict[str, Any], news: dict[str, Any], crawl: dict[str, Any]
) -> None:
    """So records of two topics become equal documents."""
    settings = KafkaSettings(documents={"news": {"id_prefix": ""}, "crawl": {"id_prefix": "", **table}}, **given)
    found = []
    for topic, document in zip(settings.by_topic.values(), (news, crawl), strict=True):
        columns = columns_of([record(json.dumps({"id": 1, **document}).encode())], topic)
        assert not columns.rejected
        found.append((bytes(columns.texts), columns.scopes, columns.ranks.tolist()))
    assert found[0] == found[1]
