"""Events that have a document inside: it is read as if it were alone, and what is no such event is refused."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pytest

from stream_lsh.documents.columns import Columns, Fields
from stream_lsh.documents.lines import parse_lines

ROW: dict[str, Any] = {"id": 7, "text": "Grüße \n aus Köln", "ts": 1_700_000_000, "n": {"a": [{}]}}
EVENT = {"specversion": "1.0", "id": "e", "source": "/herald", "type": "page"}
HEADERS = [(f"ce_{name}", value.encode()) for name, value in EVENT.items()]


def parsed(
    values: Sequence[object], keys: Sequence[bytes | None] = (), headers: Sequence[Any] = (), **fields: Any
) -> Columns:
    lines = [value if isinstance(value, bytes) else orjson.dumps(value) for value in values]
    ends = np.cumsum([len(line) for line in lines], dtype=np.int64)
    starts = np.concatenate(([0], ends[:-1]))
    key = keys.__getitem__ if keys else lambda _: None
    return parse_lines(b"".join(lines), starts, ends, Fields(**fields), key=key, headers=headers)


def wrapped(payload: object) -> dict[str, object]:
    return {"schema": {"type": "struct", "fields": [{"field": "payload"}, {"field": "op"}]}, "payload": payload}


@pytest.mark.parametrize("wrap", [wrapped, lambda event: event])
def test_rows_are_documents_and_deletions_delete(wrap: Any) -> None:
    rows = [
        {"op": "c", "before": None, "after": ROW, "ts_ms": 1}, {"op": "r", "after": ROW},
        {"after": {**ROW, "text": "x"}, "before": ROW, "op": "u"},
        {"op": "c", "after": orjson.dumps(ROW).decode()},  # MongoDB
        {"op": "u", "after": {**ROW, "é\n": 1}},  # left to the slow reader
        {"op": "d", "before": {"id": 8, "text": None}, "after": None},
        {"op": "d", "before": None},
    ]  # fmt: skip
    keys = [orjson.dumps(wrap({"id": 9}))] * len(rows)
    found = parsed([wrap(row) for row in rows], keys, envelope="debezium", time_field="ts")
    alone = parsed([ROW, ROW, {**ROW, "text": "x"}, ROW, ROW], time_field="ts")
    assert (found.ids, found.texts, found.rejected) == ([*alone.ids, b"8", b"9"], alone.texts, {})
    assert found.deleted == [5, 6] and found.times[:5].tolist() == alone.times.tolist()


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"op": "t", "source": {}}, "bad_event"), ({"op": 1, "after": ROW}, "bad_event"), (ROW, "bad_event"),
        ({"op": "c", "after": None}, "bad_event"), ({"op": "c", "before": ROW}, "bad_event"), ([ROW], "not_json"),
        ({"op": "c", "after": [ROW]}, "bad_event"), ({"op": "c", "after": "{"}, "not_json"),
        ({"op": "d", "before": None}, "missing_field"), ({"op": "d", "before": {"id": None}}, "missing_field"),
        ({"op": "d", "before": {"id": [1]}}, "wrong_type"), ({"op": "u", "after": {"id": 7}}, "missing_field"),
        (wrapped(None), "bad_event"), (wrapped(wrapped({"op": "c", "after": ROW})), "bad_event"),
        (b'{"op":"c","after":{"id":7,"te', "not_json"), (b'{"op":"c","after":{"id":7,"id":7}}', "duplicate_key"),
        (b'{"op":"c","after":{"id":7,"text":"\xff"}}', "not_utf8"), (b'{"op":"c","op":"d"}', "duplicate_key"),
        (b"[" * 5000, "not_json"), (b'{"a":' * 300, "not_json"),
    ],
)  # fmt: skip
def test_what_is_no_change_of_a_row_is_refused(event: object, reason: str) -> None:
    good = {"op": "c", "after": ROW}
    found = parsed([good, event, good], [None] * 3, envelope="debezium")
    assert {i: why.reason for i, why in found.rejected.items()} == {1: reason}
    assert found.ids[0] == found.ids[2] == b"7" and found.deleted == []


@pytest.mark.parametrize(
    ("event", "key", "detail"),
    [
        ({"op": "d"}, b"2", "the key: it is JSON, but not an object"),
        ({"op": "d"}, b"{", "the key: Expecting property name enclosed in double quotes at character 2"),
        ({"op": "d"}, b'{"id":"\xff"}', "the key: byte 8 is not UTF-8"),
        ({"op": "d"}, b'{"id":1,"id":1}', 'the key: the key "id" is twice in one object'),
        ({"op": "c", "after": "not json"}, None, 'the field "after": Expecting value at character 1'),
        ({"op": "c", "after": "[1]"}, None, 'the field "after": it is JSON, but not an object'),
        ([ROW], None, "it is JSON, but not an object"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_part_of_a_change_event(event: object, key: bytes | None, detail: str) -> None:
    assert parsed([event], [key], envelope="debezium").rejected[0].detail == detail


def test_a_refusal_names_the_data_of_a_cloud_event() -> None:
    found = parsed([{**EVENT, "data_base64": "ew=="}], headers=[[]], envelope="cloudevents")
    assert found.rejected[0].detail.startswith("the field data_base64: Expecting property name")


def test_an_event_is_read_in_both_modes() -> None:
    values: list[object] = [
        {**EVENT, "data": ROW}, {"data": ROW, **EVENT}, ROW, ROW,
        {**EVENT, "data_base64": "eyJpZCI6NywidGV4dCI6ImEifQ=="}, {**EVENT, "data": {}},
    ]  # fmt: skip
    structured = [("content-type", b"application/cloudevents+json; charset=UTF-8")]
    binary = [*HEADERS, ("content-type", b"application/json")]
    headers = [[], structured, binary, HEADERS, structured, []]
    found = parsed(values, headers=headers, envelope="cloudevents")
    assert found.ids == [b"7"] * 5 + [b"null"] and found.texts == ROW["text"].encode() * 4 + b"a"
    assert {i: why.reason for i, why in found.rejected.items()} == {5: "missing_field"}
    named: dict[str, Any] = {"id_field": "ce_id", "source_field": "ce_source", "match_within": ("ce_type", "ce_lang")}
    found = parsed(values, headers=headers, envelope="cloudevents", **named)
    assert found.ids == [b'"e"'] * 6 and found.sources == [b'"/herald"'] * 5 + [b""]
    assert list(found.scopes[:5]) == [b'"page",null'] * 5 and found.rejected.keys() == {5}


def test_attributes_come_before_the_fields_of_a_document() -> None:
    named: dict[str, Any] = {"id_field": "ce_id", "source_field": "ce_source", "text_fields": ("ce_subject", "text")}
    subject = [*HEADERS, ("ce_subject", 'Größe "x"'.encode())]
    values: list[object] = [
        {**EVENT, "subject": 'Größe "x"', "data": ROW}, ROW, orjson.dumps(ROW) + b" \n", b" " + orjson.dumps(ROW),
        {**EVENT, "id": 1.5, "data": ROW}, {**EVENT, "data": ROW}, b"{ }", {**ROW, "ce_id": "other"},
    ]  # fmt: skip
    found = parsed(values, headers=[[], *[subject] * 3, [], [], subject, subject], envelope="cloudevents", **named)
    assert found.ids[:4] == [b'"e"'] * 4 and found.sources[:4] == [b'"/herald"'] * 4
    assert found.texts == f'Größe "x"\n{ROW["text"]}'.encode() * 4
    assert {i: why.reason for i, why in found.rejected.items()} == {
        4: "bad_event", 5: "missing_field", 6: "missing_field", 7: "duplicate_key"
    }  # fmt: skip


def test_attributes_with_other_letters_and_empty_documents() -> None:
    named: dict[str, Any] = {"text_fields": ("ce_subject",), "id_field": "ce_id", "match_within": ("ce_größe", "ce_zz")}
    events: list[object] = [{**EVENT, "größe": "g", "zz": "z", "subject": "s", "data": ROW}, b"{} ", b"{}\n"]
    headers = [[], *[[*HEADERS, ("ce_subject", b"s")]] * 2]
    found = parsed(events, headers=headers, envelope="cloudevents", **named)
    assert list(found.scopes) == [b'"g","z"', *[b"null,null"] * 2] and found.texts == b"sss" and not found.rejected


def test_events_that_are_refused_keep_their_places_beside_attributes() -> None:
    values: list[object] = [b"text", ROW, b'{"id": 8, "text": "b"', b"{ }", b'{ "id":9,"text":"c"}', b""]
    source = [*HEADERS[:3], ("ce_type", b"t")]
    other = [("ce_source", b"/other"), *(pair for pair in source if pair[0] != "ce_source")]
    missing = [pair for pair in source if pair[0] != "ce_source"]
    headers = [source, other, source, other, other, source]
    found = parsed(values, headers=headers, envelope="cloudevents", source_field="ce_source")
    assert found.ids[1] == b"7" and found.ids[4] == b"9" and found.texts == ROW["text"].encode() + b"c"
    assert found.sources[1] == found.sources[4] == b'"/other"'
    assert {i: why.reason for i, why in found.rejected.items()} == {
        0: "not_json", 2: "not_json", 3: "missing_field", 5: "not_json"
    }  # fmt: skip
    assert parsed([ROW], headers=[missing], envelope="cloudevents").rejected[0].reason == "bad_event"


@pytest.mark.parametrize("named", [{}, {"source_field": "ce_source"}])
def test_data_in_base64_counts_before_other_data(named: dict[str, Any]) -> None:
    event = {**EVENT, "data": ROW, "data_base64": "eyJpZCI6NywidGV4dCI6ImEifQ=="}
    assert parsed([event], envelope="cloudevents", **named).texts == b"a"


def test_data_that_is_text_is_the_field_data() -> None:
    text = [*HEADERS, ("content-type", b"text/plain")]
    values = [b"plain \xc3\xa4", b"\xff", {**EVENT, "data": "said"}]
    found = parsed(values, headers=[text, text, []], envelope="cloudevents", id_field="ce_id", text_fields=("data",))
    assert found.texts == "plain äsaid".encode() and {i: why.reason for i, why in found.rejected.items()} == {
        1: "not_utf8"
    }


@pytest.mark.parametrize(
    ("event", "headers", "reason"),
    [
        (ROW, [], "bad_event"), ({**EVENT, "specversion": "0.3", "data": ROW}, [], "bad_event"),
        ({**EVENT, "source": "", "data": ROW}, [], "bad_event"), ({**EVENT, "type": 1, "data": ROW}, [], "bad_event"),
        (EVENT, [], "bad_event"), ({**EVENT, "data": [ROW]}, [], "bad_event"),
        ({**EVENT, "data": None}, [], "bad_event"), ({**EVENT, "data_base64": "*"}, [], "bad_event"),
        ({**EVENT, "data_base64": 7}, [], "bad_event"), ({**EVENT, "data_base64": "ew=="}, [], "not_json"),
        (b'{"specversion":"1.0"', [], "not_json"), (ROW, HEADERS[1:], "bad_event"), (ROW, HEADERS[:3], "bad_event"),
        (ROW, [*HEADERS[:3], ("ce_type", None)], "bad_event"), (b"text", HEADERS, "not_json"),
        (ROW, [*HEADERS[:3], ("ce_type", b"\xff")], "not_utf8"), (b"{nonsense}", HEADERS, "not_json"),
        ([{**EVENT, "data": ROW}], [("content-type", b"application/cloudevents-batch+json")], "bad_event"),
    ],
)  # fmt: skip
def test_what_is_no_event_is_refused(event: object, headers: Any, reason: str) -> None:
    good = {**EVENT, "data": ROW}
    found = parsed([good, event, good], headers=[[], headers, []], envelope="cloudevents")
    assert {i: why.reason for i, why in found.rejected.items()} == {1: reason}
    assert found.ids[0] == found.ids[2] == b"7"
