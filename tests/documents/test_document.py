"""Documents of Python programs: values of Python and NumPy are taken like those of a JSON line, or raise."""

import json
from collections import deque
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from stream_lsh.documents.builder import Builder, columns
from stream_lsh.documents.columns import Columns
from stream_lsh.documents.document import Document
from stream_lsh.documents.fields import Fields, id_value
from stream_lsh.documents.items import item_of
from stream_lsh.documents.lines import parse_lines
from stream_lsh.documents.times import NO_TIME

MOMENT = 1_700_000_000_123


class Number(int, Enum):
    SEVEN = 7


class Ordinal(IntEnum):
    SEVEN = 7


class Name(str, Enum):  # noqa: UP042 - it prints itself by name
    E = "é"


def of_lines(records: list[dict[str, Any]], fields: Fields) -> Columns:
    lines = [json.dumps(record).encode() for record in records]
    ends = np.cumsum([len(line) for line in lines])
    return parse_lines(b"".join(lines), np.array([0, *ends[:-1]]), ends, fields)


def parsed(record: dict[str, Any], fields: Fields) -> Columns:
    return of_lines([record], fields)


def of_mappings(records: list[dict[str, Any]], fields: Fields) -> Columns:
    builder = Builder(fields)
    for record in records:
        builder.add(record)
    return builder.columns()


SEVENS = (7, np.int64(7), np.uint8(7), np.array(7), np.array(7, object), Number.SEVEN, Ordinal.SEVEN)


@pytest.mark.parametrize(
    ("id", "text"),
    [
        *(
            (id, b"7")
            for id in (7, np.int64(7), np.uint8(7), np.array(7), np.array(7, object), Number.SEVEN, Ordinal.SEVEN)
        ),
        *((id, '"é"'.encode()) for id in ("é", np.str_("é"), np.array("é"), Name.E)),
    ],
    ids=repr,
)
def test_an_id_of_any_type_is_the_same(id: Any, text: bytes) -> None:
    document = Document(id, "text")
    assert type(document.id) is (int if text == b"7" else str)
    assert columns([document]).ids == of_mappings([{"id": id, "text": "x"}], Fields()).ids == [text]


@pytest.mark.parametrize(
    "id",
    [True, np.True_, None, 1.0, np.float64(1), b"a", Decimal(1), UUID(int=1), (1,), np.array([1]),
     np.datetime64("NaT")],
    ids=repr,
)  # fmt: skip
def test_what_is_no_id_raises_at_the_call(id: Any) -> None:
    with pytest.raises(TypeError, match=r"the id is .*, not a string or an integer"):
        Document(id, "text")


@pytest.mark.parametrize("number", [0, -1, 2**63, 2**64 + 1, -(10**40), 10**4000], ids=range(6))
def test_an_integer_of_any_size_is_read_back(number: int) -> None:
    (text,) = columns([Document(number, "text")]).ids
    assert id_value(text) == number


@pytest.mark.parametrize("name", ["", "a", '"\\', "\ud800", "é\udfff", "\x00"], ids=ascii)
def test_a_string_is_read_back(name: str) -> None:
    """Ids of deletions may have lone surrogates."""
    (text,) = parsed({"id": name, "gone": True}, Fields(deleted_field="gone")).ids
    assert id_value(text) == name


TIMES = [
    MOMENT, MOMENT / 1000, np.int64(MOMENT), np.float64(MOMENT / 1000), np.array(MOMENT),
    datetime(2023, 11, 14, 22, 13, 20, 123000), datetime(2023, 11, 14, 22, 13, 20, 123999, UTC),
    datetime(2023, 11, 15, 3, 43, 20, 123000, timezone(timedelta(hours=5, minutes=30))),
    np.datetime64(MOMENT, "ms"), np.datetime64(MOMENT * 10**6 + 999, "ns"), np.array(MOMENT, "datetime64[ms]"),
    "2023-11-14T22:13:20.123", np.str_("2023-11-14T22:13:20.123Z"),
]  # fmt: skip


@pytest.mark.parametrize("time", TIMES, ids=repr)
def test_a_time_of_any_type_is_the_same(time: Any) -> None:
    """Without a zone it is UTC, and what is less than a millisecond is cut off."""
    fields = Fields(time_field="at")
    assert columns([Document(1, "x", time=time)]).times.tolist() == [MOMENT]
    assert of_mappings([{"id": 1, "text": "x", "at": time}], fields).times.tolist() == [MOMENT]


@pytest.mark.parametrize("time", [datetime(1970, 1, 2), date(1970, 1, 2), np.datetime64("1970-01-02")], ids=repr)
def test_a_time_of_the_year_1970_is_not_taken_for_seconds(time: Any) -> None:
    assert columns([Document(1, "x", time=time)]).times.tolist() == [86_400_000]


@pytest.mark.parametrize(
    "time",
    [float("nan"), np.float32("inf"), np.datetime64("NaT"), date(1969, 12, 31), datetime.max, np.datetime64(400, "Y")],
    ids=repr,
)  # fmt: skip
def test_a_time_that_is_none_is_rejected(time: Any) -> None:
    for found in (
        columns([Document(1, "x", time=time)]),
        of_mappings([{"id": 1, "text": "x", "at": time}], Fields(time_field="at")),
    ):
        assert found.rejected[0].reason == "bad_time" and found.times.tolist() == [NO_TIME]


ELEMENTS = [
    ["b", 7, "é"], ("é", "b", 7), {"b", "é", 7}, frozenset(("b", 7, "é")), {"b": 0, 7: 0, "é": 0}.keys(),
    np.array(["b", "7", "é"]), np.array(["b", 7, "é"], object), deque(["é", "b", np.int8(7)]), {np.str_("b"), 7, "é"},
]  # fmt: skip


@pytest.mark.parametrize("weighted", [False, True], ids=["set", "weights"])
@pytest.mark.parametrize("elements", ELEMENTS, ids=range(len(ELEMENTS)))
def test_a_set_of_any_type_is_the_same(elements: Any, weighted: bool) -> None:
    fields = Fields(set_field="set", item=item_of("weighted-jaccard", 0, None, None, "set") if weighted else None)
    expected = parsed({"id": 1, "set": ["7", "b", "é"]}, fields).texts
    assert columns([Document(1, set=elements)], fields).texts == expected
    assert of_mappings([{"id": 1, "set": elements}], fields).texts == expected


def test_weights_of_any_type_are_the_same() -> None:
    fields = Fields(item=item_of("weighted-jaccard", 0, None, None, None))
    expected = parsed({"id": 1, "set": {"a": 2, "b": 0.5}}, fields).texts
    weights: dict[Any, Any] = {np.str_("b"): np.float16(0.5), "a": np.uint8(2)}
    assert columns([Document(1, set=weights)], fields).texts == expected


@pytest.mark.parametrize(
    "given",
    [
        {"text": b"bytes"}, {"text": 5}, {"text": ["a"]}, {"time": True}, {"time": timedelta(1)}, {"time": Decimal(1)},
        {"time": np.timedelta64(1)}, {"time": [1]}, {"within": "en"}, {"within": [("lang", "en")]}, {"deleted": 1},
        {"set": "text"}, {"set": b"x"}, {"set": 5}, {"set": (e for e in "ab")}, {"set": np.array([["a"]])},
        {"vector": b"1234"}, {"vector": {1.0, 2.0}}, {"vector": np.ones((1, 3))}, {"vector": np.array(1.0)},
        {"vector": (n for n in (1.0, 2.0))}, {"bits": 1.0}, {"bits": True}, {"bits": [0, 1]}, {"source": 1.5},
    ],
    ids=lambda given: next(iter(given)),
)  # fmt: skip
def test_a_value_of_a_wrong_type_raises_at_the_call(given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(TypeError, match=f"{'bit vector' if name == 'bits' else name} is .*, not "):
        Document(1, **given)


COSINE, WEIGHTS, BITS = (
    Fields(item=item_of(name, 2, None, None, None)) for name in ("cosine", "weighted-jaccard", "hamming")
)  # fmt: skip


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"set": [1.5]}, Fields(set_field="set")), ({"set": [None]}, Fields(set_field="set")),
        ({"set": {"a": 1.0}}, Fields(set_field="set")), ({"set": [True]}, Fields(set_field="set")),
        ({"set": {"a": "1"}}, WEIGHTS), ({"set": {"a": Decimal(1)}}, WEIGHTS), ({"set": {1.5: 1.0}}, WEIGHTS),
        ({"vector": [1, "2"]}, COSINE), ({"vector": [1, None]}, COSINE), ({"vector": np.array([1, 2j])}, COSINE),
        ({"vector": np.array([True, False])}, COSINE),
        ({"text": "x", "within": {"lang": 1.5}}, Fields(match_within=("lang",))),
        ({"text": "x", "within": {"lang": b"en"}}, Fields(match_within=("lang",))),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)  # fmt: skip
def test_an_element_of_a_wrong_type_raises_when_it_is_processed(given: dict[str, Any], fields: Fields) -> None:
    with pytest.raises(TypeError):
        columns([Document(1, **given)], fields)


def test_mappings_are_read_as_the_lines_of_a_file_are() -> None:
    fields = Fields(
        "meta.id", ("title", "body"), time_field="at", source_field="outlet", match_within=("lang",), timed=False,
        deleted_field="gone", max_document_bytes=200,
    )  # fmt: skip
    good: dict[str, Any] = {"meta": {"id": 5}, "title": "a title", "body": "naïve", "at": MOMENT, "outlet": "o"}
    records: list[dict[str, Any]] = [
        good, good | {"lang": "en"}, good | {"meta": {"id": "x"}, "gone": True}, good | {"body": None}, {"title": "t"},
        good | {"meta": {"id": 1.5}}, good | {"at": "yesterday"}, good | {"at": [1]}, good | {"lang": ["en"]},
        good | {"title": " ", "body": ""}, good | {"gone": "yes"}, good | {"outlet": None}, good | {"meta": "x"},
    ]  # fmt: skip
    found = of_mappings(records, fields)
    for i, record in enumerate(records):
        expected, part = parsed(record, fields), found.part(i, i + 1)
        for name in ("ids", "texts", "rejected", "deleted"):
            assert getattr(part, name) == getattr(expected, name), record
        if not expected.rejected:
            assert part.times.tolist() == expected.times.tolist() and part.sources == expected.sources
            assert part.scopes == expected.scopes
    assert of_mappings([good | {"body": "x" * 200}], fields).rejected[0].reason == "too_large"


@pytest.mark.parametrize(
    "record",
    [{"id": Decimal(1), "text": "x"}, {"id": 1, "text": b"x"}, {"id": 1, "text": "x", "at": timedelta(1)}, 5, "text",
     None, ("id", "text")],
    ids=repr,
)  # fmt: skip
def test_what_json_does_not_have_raises(record: Any) -> None:
    with pytest.raises(TypeError):
        Builder(Fields(time_field="at")).add(record)


def test_mappings_have_no_lines_to_be_their_ids() -> None:
    with pytest.raises(TypeError, match="id_field = '@line'"):
        Builder(Fields(id_field="@line")).add({"text": "x"})


def test_a_lone_surrogate_is_rejected_everywhere() -> None:
    """In a Document, a mapping, and lines with and without objects in them."""
    plain = {"id": "a", "text": "x", "lang": "en", "outlet": "y", "gone": False}
    given: list[dict[str, Any]] = [plain | more for more in (
        {"id": "\ud800"}, {"text": "x \udc00"}, {"lang": "\udbff"}, {"outlet": "\udc00\ud800"},
        dict.fromkeys(("id", "text", "lang", "outlet"), "\\ud800"), {"id": "🙂", "text": "é🙂", "outlet": "🙂"},
        {"other": "\ud800"}, {"outlet": "\ud800" * 43}, {"id": "\ud800", "gone": True},
    )]  # fmt: skip
    fields = Fields(match_within=("lang",), source_field="outlet", deleted_field="gone")
    inside = replace(fields, id_field="d.id", text_fields=("d.text",), match_within=("d.lang",),
                     source_field="d.outlet", deleted_field="d.gone")  # fmt: skip
    ways = [
        columns([Document(one["id"], one["text"], within={"lang": one["lang"]}, source=one["outlet"],
                          deleted=one["gone"]) for one in given], fields),
        of_mappings(given, fields), of_lines(given, fields), of_lines([{"d": one} for one in given], inside),
    ]  # fmt: skip
    for found in ways:
        assert {i: why.reason for i, why in found.rejected.items()} == dict.fromkeys(range(4), "not_utf8")
        assert found.rejected == ways[0].rejected and found.deleted == [8]
        assert found.ids[:2] == [b"null", b'"a"'] and found.ids == ways[0].ids
        assert found.texts == "\\ud800é🙂xx".encode() == ways[0].texts
        assert found.sources == ways[0].sources and found.scopes == ways[0].scopes


def test_sources_of_documents() -> None:
    found = columns([Document(1, "x", source=np.str_("é")), Document(2, "x"), Document(3, "x", source="s" * 300)])
    assert found.sources == ['"é"'.encode(), b"", b""]
    assert columns([Document(1, "x")]).sources == []


def test_set_takes_integers_of_any_size() -> None:
    """Python converts at most 4,300 digits of an integer to text."""
    found = columns([Document("a", set=[10**5000, 7])], Fields(set_field="set"))
    assert not found.rejected and found.texts.endswith(b"\x1f7")


def test_errors_name_the_type_of_a_value() -> None:
    with pytest.raises(TypeError, match="the vector is bytes, not a list of numbers"):
        Document("a", vector=memoryview(b"1234"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the id is a floating-point number, not a string"):
        Document(np.float64(3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the id is a value of type complex, not a string"):
        Document(1j)  # type: ignore[arg-type]
