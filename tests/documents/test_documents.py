"""Lines and Python objects to columns; the compiled reader against Python's own parser."""

import json
import lzma
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.long_form import LONG

from stream_lsh.documents.builder import columns
from stream_lsh.documents.columns import LINE_ID, NO_TIME, Columns, Fields, Rejection
from stream_lsh.documents.dead_letters import dead_letter
from stream_lsh.documents.document import Document
from stream_lsh.documents.fields import id_text, utf8_size
from stream_lsh.documents.json_reader import read_object
from stream_lsh.documents.lines import parse_lines
from stream_lsh.documents.ranks import LOWEST
from stream_lsh.documents.refused import Refused
from stream_lsh.documents.times import duration_of, seconds_of
from stream_lsh.hashing.siphash import KEY_BYTES, key_words


def parse(lines: list[bytes], fields: Fields | None = None, **options: Any) -> Columns:
    """Columns of lines, each between bytes that do not belong to it."""
    data = b'{"x":"' + b'"\n'.join(lines) + b'"'
    lengths = np.array([len(line) for line in lines], np.int64)
    starts = 6 + np.cumsum(lengths + 2) - (lengths + 2)
    return parse_lines(data, starts, starts + lengths, fields or Fields(), **options)


def texts(found: Columns) -> list[bytes]:
    starts = [0, *found.ends.tolist()[:-1]]
    return [found.texts[start:end] for start, end in zip(starts, found.ends.tolist(), strict=True)]


def reasons(found: Columns) -> list[str | None]:
    return [found.rejected[i].reason if i in found.rejected else None for i in range(len(found))]


def refusal(line: bytes, fields: Fields | None = None) -> Rejection:
    found = parse([b'{"id":1,"text":"before"}', line, b'{"id":2,"text":"after"}'], fields)
    assert list(found.rejected) == [1]
    assert [found.ids[0], found.ids[2]] == [b"1", b"2"]
    assert texts(found) == [b"before", b"", b"after"]
    assert found.times.tolist() == [NO_TIME] * 3
    return found.rejected[1]


def slowly(line: bytes, fields: Fields) -> tuple[bytes, bytes, int, bytes, bytes, float, str | None]:
    try:
        document = read_object(line)
        id, text, time, source, within, deleted, rank = record = fields.extract(document)
        if not deleted:
            utf8_size(record)
        reported = "deleted" if deleted else None
        return id, text.encode("utf-8", "surrogatepass"), time, source, within, rank, reported
    except Refused as refused:
        return refused.id, b"", NO_TIME, b"", b"", LOWEST, refused.reason


def test_fields_are_joined_by_a_line_break_in_the_order_asked_for() -> None:
    """An empty part is fine where another has text."""
    lines = [b'{"text":"world","n":[1,{"id":3}],"title":"hello","id":"a"}', b'{"id":1,"title":"","text":"x"}']
    found = parse(lines, Fields(text_fields=("title", "text")))
    assert (found.ids, texts(found), found.rejected) == ([b'"a"', b"1"], [b"hello\nworld", b"\nx"], {})


def test_ids_are_canonical_however_they_were_escaped() -> None:
    found = parse(
        [
            '{"id":"é/\\"","text":"x"}'.encode(),
            b'{"id":"\\u00E9\\/\\u0022","text":"x"}',
            b'{"id":-17,"text":"x"}',
            b'{"id":-0,"text":"x"}',
            b'{"id":123456789012345678901234567890,"text":"x"}',
            b'{"id":"","text":"x"}',
        ]
    )
    e = '"é/\\""'.encode()
    assert found.ids == [e, e, b"-17", b"0", b"123456789012345678901234567890", b'""']
    assert not found.rejected


def test_dotted_paths_lead_into_objects_and_keys_with_dots_win() -> None:
    fields = Fields(id_field="meta.id", text_fields=("a.b.c",))
    found = parse(
        [
            b'{"meta":{"id":1},"a":{"b":{"c":"deep"}}}',
            b'{"meta.id":2,"meta":{"id":1},"a.b":{"c":"half"},"a":{"b":{"c":"deep"}}}',
            b'{"meta":{"id":3},"a.b":{"x":1},"a":{"b.c":"other half"}}',
            b'{"meta":{"id":4},"a":{"b":"\\ud800"}}',
            b'{"meta":{"id":18446744073709551617},"a.b.c":"x","other":"\\ud800"}',
        ],
        fields,
    )
    assert found.ids == [b"1", b"2", b"3", b"4", b"18446744073709551617"]
    assert texts(found) == [b"deep", b"half", b"other half", b"", b"x"]
    assert reasons(found) == [None, None, None, "missing_field", None]
    assert '"a.b.c"' in found.rejected[3].detail


def test_sets_are_joined_by_unit_separators() -> None:
    fields = Fields(set_field="tags")
    found = parse(
        [
            b'{"id":1,"tags":["red","blue",7]}',
            b'{"id":2,"tags":["a\\u001fb"]}',
            b'{"id":3,"tags":["a","b"]}',
            b'{"id":4,"tags":["a\\u001e1b"]}',
            b'{"id":5,"tags":[]}',
            b'{"id":6,"tags":["", " "]}',
            b'{"id":7,"tags":"red"}',
            b'{"id":8,"tags":[true]}',
            b'{"id":9,"tags":[18446744073709551617]}',
        ],
        fields,
    )
    assert texts(found)[0] == b"7\x1fblue\x1fred"
    assert len(set(texts(found)[1:4])) == 3
    assert reasons(found) == [None, None, None, None, "empty", "empty", "wrong_type", "wrong_type", None]
    assert texts(found)[8] == b"18446744073709551617"


def test_line_ids() -> None:
    found = parse([b'{"text":"x"}', b"nonsense"], Fields(id_field=LINE_ID), input='a "b".jsonl')
    assert found.ids == [b'"a \\"b\\".jsonl:1"', b'"a \\"b\\".jsonl:2"']
    found = parse([b'{"text":"x"}'], Fields(id_field=LINE_ID), input="\udcff", line_numbers=np.array([7]))
    assert found.ids == [b'"\\udcff:7"']


def test_times() -> None:
    values = [
        ("1245350320", 1245350320000),
        ("1245350320000", 1245350320000),
        ("1245350320.25", 1245350320250),
        ("1.24535032e9", 1245350320000),
        ("0", 0),
        ("99999999999", None),
        ("100000000000", 100000000000),
        ("7258118399999", 7258118399999),
        ("7258118400000", None),
        ("-1", None),
        ("1e999", None),
        ("9" * 30, None),
        ("true", None),
        ("null", None),
        ('"2009-06-18T18:38:40"', 1245350320000),
        ('"2009-06-18T18:38:40Z"', 1245350320000),
        ('"2009-06-18 20:38:40.5+02:00"', 1245350320500),
        ('"2009-06-18"', 1245283200000),
        ('"\\u0032009-06-18"', 1245283200000),
        ('"1969-12-31"', None),
        ('"2200-01-01"', None),
        ('"1245350320"', None),
        ('"yesterday"', None),
        ('"²"', None),
    ]
    fields = Fields(time_field="ts")
    found = parse([f'{{"id":1,"text":"x","ts":{value}}}'.encode() for value, _ in values], fields)
    assert found.times.tolist() == [NO_TIME if time is None else time for _, time in values]
    assert reasons(found) == ["bad_time" if time is None else None for _, time in values]
    assert reasons(parse([b'{"id":1,"text":"x"}'], fields)) == ["missing_field"]


@pytest.mark.parametrize(
    ("line", "reason", "detail"),
    [
        (b'{"id":1,"text":"\xff"}', "not_utf8", "byte 17"),
        (b'{"id":1,"text":"\xed\xa0\x80"}', "not_utf8", "byte 17"),
        (b'{"id":1,"text":"\xc0\xaf"}', "not_utf8", "byte 17"),
        (b'{"id":1,"text":"x"', "not_json", "character"),
        (b'{"id":1,"text":"x"} {}', "not_json", "Extra data"),
        (b'{"id":1,"text":"x"}]', "not_json", "Extra data"),
        (b'{"id":1,"text":"a\tb"}', "not_json", "control character at character"),
        (b'{"id":1,"text":"\x00"}', "not_json", "control character"),
        (b'{"id":1,"text":"\\x"}', "not_json", "escape"),
        (b'{"id":1,"text":"x",}', "not_json", ""),
        (b'{"id":1,"text":"x","y":NaN}', "not_json", "NaN"),
        (b'{"id":1,"text":"x","y":-Infinity}', "not_json", "-Infinity"),
        (b'{"id":01,"text":"x"}', "not_json", ""),
        (b"{'id':1,'text':'x'}", "not_json", ""),
        (b"\xef\xbb\xbf{}", "not_json", ""),
        (b"[1]", "not_json", "not an object"),
        (b"null", "not_json", "not an object"),
        (b"[" * 100_000, "not_json", "nested"),
        (b'{"a":' * 100_000, "not_json", "nested"),
        (b'{"id":1,"text":"x","id":1}', "duplicate_key", '"id"'),
        (b'{"id":1,"text":"x","\\u0069d":1}', "duplicate_key", '"id"'),
        (b'{"id":1,"text":"x","y":[{"z":1,"q":2,"z":1}]}', "duplicate_key", '"z"'),
        (b'{"text":"x"}', "missing_field", '"id"'),
        (b'{"id":1}', "missing_field", '"text"'),
        (b'{"id":1,"text":["x"]}', "wrong_type", "a list"),
        (b'{"id":1,"text":null}', "wrong_type", "null"),
        (b'{"id":true,"text":"x"}', "wrong_type", "a boolean"),
        (b'{"id":1.0,"text":"x"}', "wrong_type", "a floating-point number"),
        (b'{"id":{"a":1},"text":"x"}', "wrong_type", "an object"),
        (b'{"id":1,"text":""}', "empty", "white space"),
        (b'{"id":1,"text":" \\n\\u2003\\u001f\\u0085"}', "empty", "white space"),
        (b'{"id":"' + b"x" * 4095 + b'","text":"x"}', "id_too_long", "4096"),
        (b'{"id":' + b"1" * 5000 + b',"text":"x"}', "id_too_long", "4096"),
    ],
)
def test_refused(line: bytes, reason: str, detail: str) -> None:
    rejection = refusal(line)
    assert rejection.reason == reason
    assert detail in rejection.detail
    # The same through the reader for paths.
    assert reasons(parse([line], Fields(id_field="id", text_fields=("text", "x.y"))))[0] in (reason, "missing_field")


def test_an_id_is_kept_where_only_the_text_is_bad() -> None:
    found = parse([b'{"id":"a","text":7}', b'{"id":"b","text":" "}', b'{"id":"c"}', b'{"id":"d"'])
    assert found.ids == [b'"a"', b'"b"', b'"c"', b"null"]


def test_ids_of_exactly_the_limit() -> None:
    assert not parse([b'{"id":"' + b"x" * 4094 + b'","text":"x"}']).rejected
    assert not parse([b'{"id":"' + b"\\u0078" * 4094 + b'","text":"x"}']).rejected


def test_lines_that_are_too_large() -> None:
    line = b'{"id":1,"text":"' + b"x" * 100 + b'"}'
    assert not parse([line], Fields(max_document_bytes=len(line))).rejected
    assert refusal(line, Fields(max_document_bytes=len(line) - 1)).reason == "too_large"


def test_lines_the_reader_has_refused_are_not_looked_at() -> None:
    why = Rejection("too_large", "because", 10**9)
    for fields in (Fields(), Fields(text_fields=("a.b", "text"))):
        found = parse([b'{"id":1,"a.b":"x","text":"y"}', b'{"id":2,"a.b":"x"'], fields, rejected={1: why})
        assert found.rejected == {1: why}
        assert found.ids == [b"1", b"null"]


def test_nesting_up_to_the_limit_is_the_same_in_all_readers() -> None:
    def nested(depth: int) -> bytes:
        return b'{"id":1,"text":"x","y":' + b"[" * depth + b"]" * depth + b"}"

    found = parse([nested(30), nested(31), nested(32), nested(255), nested(256)])
    assert reasons(found) == [None, None, None, None, "not_json"]


def test_more_keys_than_the_compiled_reader_takes() -> None:
    keys = b",".join(b'"k%d":%d' % (i, i) for i in range(2000))
    found = parse([b'{"id":1,"text":"x",' + keys + b"}", b'{"id":1,"text":"x",' + keys + b',"k3":1}'])
    assert reasons(found) == [None, "duplicate_key"]


@pytest.mark.parametrize("fields", [Fields(source_field="outlet"), Fields(source_field="of.outlet")])
def test_a_source_is_a_string_or_an_integer_and_decides_about_nothing(fields: Fields) -> None:
    values = [b'"radio"', b"17", b'"r\\u0061dio"', b"null", b"[]", b"1.5", b"-0", b'"' + b"x" * 254 + b'"',
              b'"' + b"x" * 255 + b'"', b'"' + b"\\ud800" * 43 + b'"', b"1" + b"0" * 29]  # fmt: skip
    lines = [b'{"id":%d,"text":"x","outlet":%b,"of":{"outlet":%b}}' % (i, v, v) for i, v in enumerate(values)]
    found = parse([*lines, b'{"id":99,"text":"x"}', b'{"id":100,"outlet":"y"}'], fields)
    assert reasons(found) == [None] * 12 + ["missing_field"]
    assert found.sources == [
        b'"radio"', b"17", b'"radio"', b"", b"", b"", b"0", values[7], b"", b"", values[10], b"", b""
    ]  # fmt: skip
    assert parse(lines).sources == []


@pytest.mark.parametrize("fields", [Fields(match_within=("lang", "n")), Fields(match_within=("of.lang", "of.n"))])
def test_equal_values_have_equal_scopes_and_others_do_not(fields: Fields) -> None:
    same = [(b'"en"', b"1"), (b'"\\u0065n"', b"1")], [(b"null", b"2"), (b"", b"2")], [(b"0", b"-0"), (b"-0", b"0")]
    other = [
        (b'"null"', b"2"), (b'""', b"2"), (b"true", b"false"), (b'"true"', b"false"), (b'"en"', b'"1"'),
        (b'"en,1"', b""), (b'"en"', b""), (b"", b'"en"'), (b'"' + b"x" * 254 + b'"', b""), (b"1" * 30, b""),
    ]  # fmt: skip
    groups = [*same, *([values] for values in other)]
    lines, groups_of = [], []
    for number, group in enumerate(groups):
        for values in group:
            given = b",".join(b'"%b":%b' % pair for pair in zip((b"lang", b"n"), values, strict=True) if pair[1])
            more = b"," + given if given else b""
            lines.append(b'{"id":1,"text":"x","of":{%b}%b}' % (given, more))
            groups_of.append(number)
    found = parse(lines, fields)
    assert not found.rejected
    numbers: dict[int, int] = {}
    hashes = found.scope_hashes(key_words(bytes(KEY_BYTES))).tolist()
    assert [numbers.setdefault(scope, len(numbers)) for scope in hashes] == groups_of


@pytest.mark.parametrize("fields", [Fields(match_within=("lang",)), Fields(match_within=("of.lang",))])
@pytest.mark.parametrize(
    ("value", "reason", "detail"),
    [
        (b'["en"]', "wrong_type", "a list"), (b"{}", "wrong_type", "an object"),
        (b"1.0", "wrong_type", "a floating-point"),
        (b"1e2", "wrong_type", "a floating-point number"), (b'"' + b"x" * 255 + b'"', "too_large", "256 bytes"),
        (b"1" * 257, "too_large", "256 bytes"), (b"1" * 5000, "too_large", "256 bytes"),
    ],
)  # fmt: skip
def test_what_is_no_value_to_match_within(fields: Fields, value: bytes, reason: str, detail: str) -> None:
    rejection = refusal(b'{"id":1,"text":"x","lang":%b,"of":{"lang":%b}}' % (value, value), fields)
    assert rejection.reason == reason
    assert detail in rejection.detail and f'"{fields.match_within[0]}" to match within' in rejection.detail


@given(st.lists(st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=20), min_size=1))
def test_values_from_python_have_the_scopes_of_lines(values: list[Any]) -> None:
    lines = [json.dumps({"id": i, "text": "x", "v": value}).encode() for i, value in enumerate(values)]
    # What Python reads back: two lone surrogates that follow each other come as one character.
    back = [json.loads(line)["v"] for line in lines]
    found = columns(
        [Document(i, "x", within={"v": value}) for i, value in enumerate(back)], Fields(match_within=("v",))
    )
    expected = parse(lines, Fields(match_within=("v",)))
    assert (found.scopes, found.rejected) == (expected.scopes, expected.rejected)


def test_a_part_of_columns() -> None:
    fields = Fields(source_field="s", match_within=("s",))
    found = parse([b'{"id":%d,"text":"text %d","s":%d}' % (i, i, i % 2) for i in range(5)] + [b"no"], fields)
    part = found.part(2, 6)
    assert (part.ids, part.texts, part.ends.tolist()) == (found.ids[2:], b"text 2text 3text 4", [6, 12, 18, 18])
    assert part.sources == found.sources[2:] and part.scopes == found.scopes[2:]
    assert (len(part.times), list(part.rejected), list(found.rejected)) == (4, [3], [5])


FIELDS = [
    Fields(),
    Fields(text_fields=("title", "text")),
    Fields(time_field="ts"),
    Fields(id_field="a.id", text_fields=("a.text",), time_field="ts"),
    Fields(set_field="text"),
    Fields(text_fields=("id",)),
    Fields(source_field="i"),
    Fields(time_field="ts", source_field="title"),
    Fields(source_field="a.id"),
    Fields(source_field="id"),
    Fields(deleted_field="i"),
    Fields(deleted_field="a", time_field="ts", source_field="title"),
    Fields(deleted_field="a.id", timed=False, time_field="ts"),
    Fields(match_within=("ts",)),
    Fields(match_within=("i", "title", "é")),
    Fields(source_field="i", match_within=("i", "id")),
    Fields(source_field="i", rank_field="i"),
    Fields(rank_field="title", rank_order=("a", "0"), text_fields=("text",)),
    Fields(rank_field="a.id"),
    Fields(match_within=("text",)),
    Fields(match_within=("a.id", "i")),
]
NAMES = st.sampled_from(["id", "text", "title", "ts", "a", "a.id", "i", "é", ""])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(0, 10**13),
    st.floats(allow_nan=True),
    st.text(max_size=50),
    st.text(st.characters(), max_size=5),
    st.sampled_from(["2020-01-01", "2020-02-30", " \u2003", "\ud800", "\ud83d\ude00", "x" * 70, "x" * 31 + '"']),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)


@st.composite
def json_lines(draw: st.DrawFn) -> bytes:
    pairs = draw(
        st.lists(st.tuples(NAMES, VALUES), max_size=7, unique_by=(lambda p: p[0]) if draw(st.booleans()) else None)
    )
    ascii = draw(st.booleans())
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " :\r ")]))
    body = separators[0].join(
        json.dumps(key, ensure_ascii=ascii)
        + separators[1]
        + json.dumps(value, ensure_ascii=ascii, separators=separators)
        for key, value in pairs
    )
    line = bytearray(("{" + body + "}").encode("utf-8", "surrogatepass"))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(line) - 1))
        action = draw(st.sampled_from(["replace", "insert", "delete", "cut"]))
        byte = draw(
            st.sampled_from(b'"\\{}[]:,0123456789-+.eEtfnu \t\r\x00\x1f\x7f\x80\xc2\xe2\xed\xf4\xff')
            | st.integers(0, 255)
        )
        if byte == 10:
            byte = 32
        if action == "replace":
            line[at] = byte
        elif action == "insert":
            line.insert(at, byte)
        elif action == "delete" and len(line) > 1:
            del line[at]
        elif action == "cut":
            del line[max(at, 1) :]
    return bytes(line)


@settings(max_examples=1500 if LONG else 250, deadline=None)
@given(st.lists(json_lines(), min_size=1, max_size=4), st.sampled_from(FIELDS))
@example([b'{"id":1,"text":"' + bytes([byte]) + b'"}' for byte in range(256) if byte != 10], FIELDS[0])
@example([f'{{"id":1,"text":"{chr(point)}"}}'.encode() for point in range(0x80, 0x3100)], FIELDS[0])
@example([b'{"id":1,"text":"\\u%04x"}' % point for point in range(0, 0x3100)], FIELDS[0])
@example([b'{"id":1,"text":"' + bytes([a, b]) + b'x"}' for a in range(0xC0, 256) for b in range(0x7E, 0xC2)], FIELDS[0])
@example(
    [b'{"id":1,"text":"' + bytes([a, b, 0xBF]) + b'"}' for a in range(0xE0, 256) for b in range(0x7E, 0xC2)], FIELDS[0]
)
@example(
    [
        b'{"id":1,"text":"' + b"x" * n + odd + b"y" * 12 + b'"}'
        for n in range(9)
        for odd in (b"\\n", *(bytes([byte]) for byte in range(256) if byte != 10))
    ],
    FIELDS[0],
)
@example([b'{"id":1,"text":"' + b"x" * n + b'\xf0\x9f\x98\x80"}' for n in range(70)], FIELDS[0])
def test_agrees_with_the_slow_reader(lines: list[bytes], fields: Fields) -> None:
    found = parse(lines, fields)
    expected = [slowly(line, fields) for line in lines]
    sources = found.sources if fields.source_field is not None else [b""] * len(found)
    scopes = found.scopes if fields.match_within else [b""] * len(found)
    assert len(found.scopes) == (len(found) if fields.match_within else 0)
    ranks = found.ranks.tolist() if fields.rank_field is not None else [LOWEST] * len(found)
    reported = ["deleted" if i in found.deleted else reason for i, reason in enumerate(reasons(found))]
    columns = (found.ids, texts(found), found.times.tolist(), sources, scopes, ranks, reported)
    assert list(zip(*columns, strict=True)) == expected


def test_real_data_needs_no_slow_reader(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_lsh.documents.lines.read_object", None)
    for name, fields in (
        ("posts-120k.jsonl.xz", Fields(text_fields=("title", "text"), time_field="ts")),
        ("news-zh.jsonl.xz", Fields()),
    ):
        with lzma.open(shared_data / name) as file:
            lines = [file.readline().rstrip(b"\n") for _ in range(3000)]
        found = parse(lines, fields)
        documents = [json.loads(line) for line in lines]
        assert not found.rejected
        assert found.ids == [json.dumps(document["id"], ensure_ascii=False).encode() for document in documents]
        assert [text.decode("utf-8") for text in texts(found)] == [
            "\n".join(document[field] for field in fields.text_fields) for document in documents
        ]
        if fields.time_field:
            assert found.times.tolist() == [document["ts"] for document in documents]


def test_columns_of_python_documents() -> None:
    found = columns(
        [
            Document("a", "text"),
            Document(17, "naïve", time=1245350320),
            Document("b", ""),
            Document("c"),
            Document("d", "x", time=-1),
            Document("e", "x" * 101),
            Document("f", "é" * 51),
        ],
        Fields(max_document_bytes=100),
    )
    assert found.ids == [b'"a"', b"17", b'"b"', b'"c"', b'"d"', b'"e"', b'"f"']
    assert texts(found)[:2] == [b"text", "naïve".encode()]
    assert found.times.tolist() == [NO_TIME, 1245350320000, *[NO_TIME] * 5]
    assert reasons(found) == [None, None, "empty", "missing_field", "bad_time", "too_large", "too_large"]


def test_columns_of_python_sets() -> None:
    found = columns([Document(1, set=["b", "a"]), Document(2, "no set"), Document(3, set=[])], Fields(set_field="set"))
    assert texts(found) == [b"a\x1fb", b"", b""]
    assert reasons(found) == [None, "missing_field", "empty"]


@pytest.mark.parametrize(
    ("original", "size", "expected"),
    [
        ('{"é'.encode(), None, {"original": '{"é'}), (b"\xff\n", None, {"original_base64": "/wo="}),
        # A cut one does not end in half a character.
        ("aé".encode()[:-1], 10**6, {"original": "a", "truncated": True, "size": 10**6}),
        (b"a\xff" + b"x" * 10, 10**6, {"original_base64": "Yf94eHh4eHh4eHh4", "truncated": True, "size": 10**6}),
    ],
)  # fmt: skip
def test_a_dead_letter_holds_the_original(original: bytes, size: int | None, expected: dict[str, Any]) -> None:
    letter = dead_letter("not_json", "why", "\udcff.jsonl", 3, 99, original, size)
    assert letter.endswith(b"\n") and letter.count(b"\n") == 1
    where = {"reason": "not_json", "detail": "why", "input": "\udcff.jsonl", "line": 3, "offset": 99}
    assert json.loads(letter) == where | expected


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [
        ("90s", 90, "90s"), ("120s", 120, "2m"), ("15m", 900, "15m"), ("36h", 129_600, "36h"), ("7d", 604_800, "7d"),
        ("2w", 1_209_600, "14d"), ("P7D", 604_800, "7d"), ("P1W", 604_800, "7d"), ("PT12H", 43_200, "12h"),
        ("P1DT2H3M4S", 93_784, "93784s"),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: int, shown: str) -> None:
    assert seconds_of(text) == seconds
    assert duration_of(seconds) == shown
    assert seconds_of(shown) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "7", "d", "7 d", "-7d", "1.5h", "7D", "0s", "P", "PT", "P1DT", "P1M", "P1Y", "PT0S", "٣d", "9" * 30 + "w"],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError):
        seconds_of(text)


DELETED = Fields(deleted_field="deleted", time_field="ts")


@pytest.mark.parametrize("value", [b"1", b"0", b'"true"', b'"false"', b"[]", b"{}", b"[false]", b"-0", b"1e5"])
@pytest.mark.parametrize("more", [b"", b',"text":"x"'])
def test_what_is_neither_true_nor_false_is_refused(value: bytes, more: bytes) -> None:
    found = parse([b'{"id":1,"deleted":' + value + more + b"}"], Fields(deleted_field="deleted"))
    assert found.rejected[0].reason == "wrong_type"
    assert found.rejected[0].detail.startswith('the field "deleted" is ')
    assert found.rejected[0].detail.endswith(", not a boolean")
    assert (found.ids, found.deleted) == ([b"1"], [])


def test_what_is_deleted_must_be_readable() -> None:
    lines = [b'{"deleted":true}', b'{"id":1,"deleted":true,"ts":"soon"}', b'{"id":1,"deleted":true,"deleted":true}']
    found = parse(lines, DELETED)
    assert reasons(found) == ["missing_field", "bad_time", "duplicate_key"]
    assert found.deleted == []


def test_ids_take_no_more_memory_than_their_text() -> None:
    escaped = [b'{"id":"caf\\u00e9 %d","text":"a text"}' % n for n in range(1000)]
    parse(escaped[:1])
    tracemalloc.start()
    try:
        kept = [id_text(f"café {n}") for n in range(1000)]
        built = tracemalloc.get_traced_memory()[0]
        kept += parse(escaped).ids
        parsed = tracemalloc.get_traced_memory()[0] - built
    finally:
        tracemalloc.stop()
    assert kept[0] == kept[1000] == '"café 0"'.encode()
    assert max(built, parsed) < 1000 * 200
