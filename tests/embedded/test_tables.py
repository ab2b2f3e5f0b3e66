"""Tables as inputs and outputs: all types are kept, any row can be resumed, and what is wrong is an error or a rejected
row."""

import gzip
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet
import pytest
from support import commands, tables
from support.json_lines import read_lines, write_lines
from support.kills import COMMITTING, kill

from stream_lsh.documents.columns import LINE_ID, Fields, Position
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.feed import open_input
from stream_lsh.embedded.lines import Batch
from stream_lsh.errors import InputError, StreamLshError

TEXT = "the council has voted for the new bridge over the river"


def batches(
    path: Path, fields: Fields | None = None, position: Position | None = None, most: int = 2048
) -> list[Batch]:
    source = open_input(str(path), fields or Fields())
    source.max_documents = most
    source.check()
    return list(source.batches(position or Position()))


def rejected(path: Path, fields: Fields | None = None) -> dict[int, tuple[str, str]]:
    """Reason and detail by row."""
    return {
        int(batch.lines.numbers[i]): (why.reason, why.detail)
        for batch in batches(path, fields) for i, why in batch.rejected.items()
    }  # fmt: skip


def ids(path: Path, fields: Fields | None = None, position: Position | None = None) -> list[bytes]:
    return [id for batch in batches(path, fields, position) for id in batch.ids]


def error(path: Path, fields: Fields | None = None) -> str:
    with pytest.raises(InputError) as caught:
        batches(path, fields)
    return str(caught.value)


def dedup(*words: object, code: int = 0) -> str:
    return commands.run("dedup", *words, "-q", code=code).stderr


# -- whole runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", tables.SUFFIXES)
def test_kept_rows_keep_columns_and_types(tmp_path: Path, suffix: str) -> None:
    rows = tables.table(700)
    feed, out = tables.write(tmp_path / f"feed{suffix}", rows), tmp_path / f"out{suffix}"
    dedup(feed, "--unique", out)
    before, after = tables.read(feed), tables.read(out)
    kept = [i for i in range(700) if i == 0 or i % 5]
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after.equals(before.take(kept))
    assert not list(tmp_path.glob("*.part"))


def test_a_table_and_its_lines_have_one_answer(tmp_path: Path) -> None:
    rows = tables.table(700)
    lines = write_lines(tmp_path / "feed.jsonl", rows.select(["id", "text"]).to_pylist())
    table = tables.write(tmp_path / "feed.parquet", rows)
    for feed in (lines, table):
        dedup(feed, "--unique", tmp_path / "u", "--verdicts", feed.with_suffix(".verdicts"), "--overwrite")
    same = lines.with_suffix(".verdicts").read_bytes() == table.with_suffix(".verdicts").read_bytes()
    assert same


@pytest.mark.parametrize(
    "suffix", [pytest.param(suffix, marks=pytest.mark.long) for suffix in (".parquet", ".arrow", ".csv.gz")]
)
def test_killed_runs_resume_to_the_row(tmp_path: Path, suffix: str) -> None:
    rows = tables.table(3000)
    feed = tables.write(tmp_path / f"feed{suffix.removesuffix('.gz')}", rows, group=1000)
    whole, broken = (tmp_path / f"{name}{suffix}" for name in ("whole", "broken"))
    verdicts = tmp_path / "verdicts.jsonl"
    again = ["dedup", str(feed), "-q", "--verdicts", str(verdicts), "--index", str(tmp_path / "index")]
    dedup(feed, "--unique", whole, "--index", tmp_path / "other")
    command = [sys.executable, "-c", COMMITTING, *again, "--unique", str(broken)]
    kill(command, verdicts, 200_000, 2)
    assert not list(tmp_path.glob("*.part"))
    if suffix == ".csv.gz":
        same = gzip.decompress(broken.read_bytes()) == gzip.decompress(whole.read_bytes())
    else:
        same = broken.read_bytes() == whole.read_bytes()
    assert same
    assert len(read_lines(verdicts.read_text())) == 3000


def test_a_table_whose_last_commit_failed_is_completed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, out = tables.write(tmp_path / "feed.parquet", tables.table(300)), tmp_path / "out.parquet"
    run, commit = (feed, "--unique", out, "--index", tmp_path / "index"), Engine.commit

    def failing(engine: Engine, job: dict[str, Any], *given: Any, **more: Any) -> None:
        if not job["open"]:
            raise StreamLshError("enough")
        commit(engine, job, *given, **more)

    monkeypatch.setattr(Engine, "commit", failing)
    dedup(*run, code=1)
    whole = out.read_bytes()  # the index does not know that it is complete
    monkeypatch.undo()
    dedup(*run)
    assert out.read_bytes() == whole and not list(tmp_path.glob("*.part"))


def test_a_later_run_adds_rows_to_a_table(tmp_path: Path) -> None:
    rows, out = tables.table(900), tmp_path / "out.parquet"
    first, second = (
        tables.write(tmp_path / f"{name}.parquet", part) for name, part in (("a", rows[:400]), ("b", rows[400:]))
    )
    dedup(first, "--unique", out, "--index", tmp_path / "index")
    dedup(first, second, "--unique", out, "--index", tmp_path / "index")
    whole = tmp_path / "whole.parquet"
    dedup(first, second, "--unique", whole)
    assert out.read_bytes() == whole.read_bytes()
    out.unlink()
    dedup(first, second, "--unique", out, "--index", tmp_path / "index")  # written again
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_what_was_appended_to_a_complete_table_is_cut_off(tmp_path: Path, suffix: str) -> None:
    feed, out = tables.write(tmp_path / "feed.parquet", tables.table(100)), tmp_path / f"out{suffix}"
    run = (feed, "--unique", out, "--index", tmp_path / "index")
    dedup(*run)
    whole = out.read_bytes()
    out.write_bytes(whole + b"x")
    dedup(*run)
    assert out.read_bytes() == whole
    out.write_bytes(whole[:-1])
    assert f"{out}" in dedup(*run, code=5)


def test_dictionaries_that_differ_between_batches_become_one(tmp_path: Path) -> None:
    parts = [pa.table({"id": [i], "text": pa.array([f"{TEXT} {i} {i} {i * 7}"]).dictionary_encode()}) for i in range(3)]
    with pa.ipc.new_stream(tmp_path / "feed.arrows", parts[0].schema) as writer:
        for part in parts:
            writer.write_table(part)
    dedup(tmp_path / "feed.arrows", "--unique", tmp_path / "out.arrow", "--threshold", "1")
    assert tables.read(tmp_path / "out.arrow").to_pylist() == pa.concat_tables(parts).to_pylist()


def test_row_groups_are_streamed_in_bounded_memory(tmp_path: Path) -> None:
    texts = pa.array([f"{i} " + "x" * 20_000 for i in range(4000)])  # 80 MB in one row group, and small on the disk
    pyarrow.parquet.write_table(
        pa.table({"id": range(4000), "text": texts}), tmp_path / "f.parquet", use_dictionary=False
    )
    del texts
    source, before = open_input(str(tmp_path / "f.parquet"), Fields()), pa.total_allocated_bytes()
    most = max(pa.total_allocated_bytes() - before for _ in source.batches(Position()))
    assert most < 40 << 20


@pytest.mark.parametrize("suffix", tables.SUFFIXES)
def test_reading_begins_at_any_row(tmp_path: Path, suffix: str) -> None:
    path = tables.write(tmp_path / f"feed{suffix}", tables.table(700), group=90)
    whole = ids(path)
    for row in (0, 1, 89, 90, 91, 455, 699, 700):
        assert ids(path, position=Position(row, row)) == whole[row:]
    assert max(len(batch) for batch in batches(path, most=64)) <= 64


# -- what tables cannot be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".arrows"])
def test_a_truncated_table_is_an_error_that_names_the_row(tmp_path: Path, suffix: str) -> None:
    path = tables.write(tmp_path / f"feed{suffix}", tables.table(700))
    path.write_bytes(path.read_bytes()[:-1000])
    assert f"{path} cannot be read to its end" in (said := error(path))
    assert ("no row was read" in said) is (suffix != ".arrows")
    path.write_bytes(b"PAR1 and some words, which are no table")
    assert "cannot be read to its end" in error(path)


def test_a_damaged_row_group_ends_the_run_behind_those_before(tmp_path: Path) -> None:
    path = tables.write(tmp_path / "feed.parquet", tables.table(700))
    data, middle = path.read_bytes(), pyarrow.parquet.read_metadata(path).row_group(1).column(1).data_page_offset
    path.write_bytes(data[:middle] + b"\xff" * 40 + data[middle + 40 :])
    said = dedup(path, "--unique", tmp_path / "out.parquet", "--index", tmp_path / "index", code=4)
    assert "300 rows before it were read" in said
    path.write_bytes(data)
    dedup(path, "--unique", tmp_path / "out.parquet", "--index", tmp_path / "index")
    assert tables.read(tmp_path / "out.parquet").num_rows == 700 - 139


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"id_field": "ts"}, '"ts" (id_field) has the type timestamp[us, tz=UTC]'),
        ({"id_field": "price"}, '"price" (id_field) has the type decimal128(10, 2)'),
        ({"id_field": "more"}, '"more" (id_field) has the type struct'),
        ({"text_fields": ("id",)}, '"id" (text_field) has the type uint64'),
        ({"text_fields": ("tags",)}, '"tags" (text_field) has the type list'),
        ({"time_field": "tags"}, '"tags" (time_field) has the type list'),
        ({"deleted_field": "text"}, '"text" (deleted_field) has the type large_string'),
        ({"set_field": "text"}, '"text" (set_field) has the type large_string'),
        ({"match_within": ("tags",)}, '"tags" (match_within) has the type list'),
        ({"text_fields": ("body",)}, 'feed.parquet has no column "body" (text_field)'),
        ({"text_fields": ("body",)}, "id, text, ts, price, tags, source, more"),
        ({"text_fields": ("more.c",)}, 'no column "more.c"'),
        ({"time_field": "when"}, 'no column "when"'),
    ],
)
def test_a_column_that_is_missing_or_of_a_wrong_type_is_named(
    tmp_path: Path, fields: dict[str, Any], named: str
) -> None:
    assert named in error(tables.write(tmp_path / "feed.parquet", tables.table(10)), Fields(**fields))


def test_two_columns_of_one_name_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "feed.csv").write_text("id,text,text\n1,a,b\n")
    assert 'two columns named "text"' in error(tmp_path / "feed.csv")


def test_other_columns_in_a_later_file_are_an_error_of_a_table(tmp_path: Path) -> None:
    rows = tables.table(50)
    one, two = (
        tables.write(tmp_path / f"{name}.parquet", part) for name, part in (("a", rows), ("b", rows.drop_columns("ts")))
    )
    said = dedup(one, two, "--unique", tmp_path / "out.parquet", code=2)
    assert "different columns" in said and "ts: timestamp" in said
    dedup(one, two, "--unique", tmp_path / "out.jsonl")


def test_what_an_output_cannot_hold_is_said_before_anything_is_read(tmp_path: Path) -> None:
    path = tables.write(tmp_path / "feed.parquet", tables.table(10))
    lines = write_lines(tmp_path / "feed.jsonl", [{"id": 1, "text": TEXT}])
    assert 'the column "tags" of the type list' in dedup(path, "--unique", tmp_path / "o.csv", code=2)
    assert f"{lines} is no table" in dedup(lines, "--unique", tmp_path / "o.csv", code=2)
    assert "only --unique" in dedup(path, "--verdicts", tmp_path / "v.parquet", code=2)
    update = ("--on-conflict", "update", "--index", tmp_path / "index")
    assert "no place for the lines of deleted" in dedup(path, "--unique", tmp_path / "o.parquet", *update, code=2)
    assert not list(tmp_path.glob("o.*"))


def test_a_table_that_has_changed_is_an_error(tmp_path: Path) -> None:
    path = tables.write(tmp_path / "feed.parquet", tables.table(100))
    dedup(path, "--unique", tmp_path / "u.jsonl", "--index", tmp_path / "index")
    tables.write(path, tables.table(150))
    run = (path, "--unique", tmp_path / "u.jsonl", "--index", tmp_path / "index")
    assert "its rows are others now" in dedup(*run, code=4)
    dedup(*run, "--only-new")


# -- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
        pa.dictionary(pa.int16(), pa.string()), pa.run_end_encoded(pa.int32(), pa.string()),
    ],
    ids=str,
)  # fmt: skip
def test_texts_and_ids_of_every_string_type(tmp_path: Path, kind: pa.DataType) -> None:
    texts = pa.array([f"{TEXT} one", None, "", f"{TEXT} zwölf", " \u3000\n"])
    ids_ = pa.array(["a", "b", 'c"\n', "d" * 5000, "é"])
    arrays = [
        pa.compute.run_end_encode(array) if pa.types.is_run_end_encoded(kind) else array.cast(kind)
        for array in (ids_, texts)
    ]
    with pa.ipc.new_file(tmp_path / "feed.arrow", pa.schema([("id", kind), ("text", kind)])) as writer:
        writer.write_batch(pa.record_batch(arrays, names=["id", "text"]))
    (batch,) = batches(tmp_path / "feed.arrow")
    assert batch.ids == [b'"a"', b'"b"', b'"c\\"\\n"', b"null", '"é"'.encode()]
    assert {i: why.reason for i, why in batch.rejected.items()} == {
        1: "wrong_type",
        2: "empty",
        3: "id_too_long",
        4: "empty",
    }
    assert 'the field "text" is null' in batch.rejected[1].detail
    assert batch.texts == f"{TEXT} one".encode() and batch.ends.tolist() == [len(batch.texts)] * 5
    dedup(tmp_path / "feed.arrow", "--unique", tmp_path / "out.arrow")
    assert tables.read(tmp_path / "out.arrow").schema.field("text").type == kind


def test_bytes_that_are_not_utf8_reject_their_row(tmp_path: Path) -> None:
    damaged = pa.array([b"good one here", b"bad \xff", b"good two there"]).view(pa.string())
    tables.write(tmp_path / "feed.parquet", pa.table({"id": [1, 2, 3], "text": damaged}))
    assert rejected(tmp_path / "feed.parquet") == {2: ("not_utf8", 'byte 5 of the column "text" is not UTF-8')}
    dedup(tmp_path / "feed.parquet", "--unique", tmp_path / "u", "--dead-letters", tmp_path / "letters")
    (letter,) = read_lines((tmp_path / "letters").read_text())
    assert (letter["line"], letter["offset"]) == (2, 1)
    assert orjson.loads(letter["original"]) == {"id": 2, "text": "YmFkIP8="}


def test_ids_that_are_numbers(tmp_path: Path) -> None:
    most = 2**64 - 1
    columns = {
        "uint64": pa.array([0, most, None], pa.uint64()),
        "int8": pa.array([-5, 7, None], pa.int8()),
        "decimal": pa.array([Decimal(10**30), Decimal(-1), None], pa.decimal128(38, 0)),
        "text": [TEXT] * 3,
    }
    tables.write(tmp_path / "feed.parquet", pa.table(columns))
    for name, values in (("uint64", (0, most)), ("int8", (-5, 7)), ("decimal", (10**30, -1))):
        fields = Fields(id_field=name)
        assert ids(tmp_path / "feed.parquet", fields) == [*(b"%d" % value for value in values), b"null"]
        assert rejected(tmp_path / "feed.parquet", fields)[3] == (
            "wrong_type",
            "the id is null, not a string or an integer",
        )
    assert ids(tmp_path / "feed.parquet", Fields(id_field=LINE_ID))[1] == f'"{tmp_path}/feed.parquet:2"'.encode()


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1_700_000_000_123_456_789, -1, None], pa.timestamp("ns"), 1_700_000_000_123),
        ([1_700_000_000, 2**62, None], pa.timestamp("s", "Europe/Berlin"), 1_700_000_000_000),
        ([datetime(2026, 3, 1).date(), datetime(1969, 1, 1).date(), None], pa.date32(), 1_772_323_200_000),
        ([1_700_000_000, -3, None], pa.int64(), 1_700_000_000_000),
        ([1_700_000_000_123, 2**64 - 1, None], pa.uint64(), 1_700_000_000_123),
        ([1_700_000_000.5, float("nan"), None], pa.float64(), 1_700_000_000_500),
        ([Decimal("1700000000.500"), Decimal("1e18"), None], pa.decimal128(38, 3), 1_700_000_000_500),
        (["2026-03-01", "yesterday", None], pa.string(), 1_772_323_200_000),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_event_times_of_every_type(tmp_path: Path, values: list[Any], kind: pa.DataType, expected: int) -> None:
    rows = pa.table({"id": [1, 2, 3], "text": [TEXT] * 3, "ts": pa.array(values, kind)})
    path = tables.write(tmp_path / "feed.arrow", rows)
    (batch,) = batches(path, Fields(time_field="ts"))
    assert int(batch.times[0]) == expected
    assert [batch.rejected[i].reason for i in (1, 2)] == ["bad_time"] * 2
    assert set(rejected(path, Fields(time_field="ts", timed=False))) == {2}


def test_nested_columns_sets_vectors_and_deletions(tmp_path: Path) -> None:
    rows = pa.table({
        "doc": pa.array([{"id": "a", "body": TEXT}, {"id": "b", "body": None}, None]),
        "set": [["x", "y"], [], None],
        "vector": pa.array([[1.0, 2.0], [1.0, None], [0.5, 1.0]], pa.list_(pa.float32())),
        "gone": [None, True, False],
    })  # fmt: skip
    path = tables.write(tmp_path / "feed.parquet", rows)
    nested = Fields(id_field="doc.id", text_fields=("doc.body",))
    assert ids(path, nested) == [b'"a"', b'"b"', b"null"]
    assert rejected(path, nested)[2] == ("wrong_type", 'the field "doc.body" is null, not a string')
    sets = Fields(id_field=LINE_ID, set_field="set")
    assert {row: reason for row, (reason, _) in rejected(path, sets).items()} == {2: "empty", 3: "wrong_type"}
    deleting = Fields(id_field="doc.id", text_fields=("doc.body",), deleted_field="gone")
    assert batches(path, deleting)[0].deleted == [1]
    index = ("--index", tmp_path / "index", "--unique", tmp_path / "u", "--dead-letters", tmp_path / "letters")
    dedup(path, "--measure", "cosine", "--dimensions", "2", "--id-field", LINE_ID, *index)
    (letter,) = read_lines((tmp_path / "letters").read_text())
    assert (letter["reason"], letter["line"]) == ("wrong_type", 2)


def test_values_that_python_does_not_have_are_text_in_json(tmp_path: Path) -> None:
    far = 2**40
    rows = pa.table({
        "id": [1], "text": [TEXT], "moments": pa.array([[1, None]], pa.list_(pa.timestamp("ns"))),
        "day": pa.array([far // 2**12], pa.date32()), "price": [Decimal("1.50")], "raw": [b"\xff"],
        "inner": pa.array([{"a": 1}], pa.struct([("a", pa.duration("ns"))])), "number": [float("nan")],
    })  # fmt: skip
    path = tables.write(tmp_path / "feed.arrow", rows)
    dedup(path, "--unique", tmp_path / "u.jsonl")
    (line,) = read_lines((tmp_path / "u.jsonl").read_text())
    assert (line["moments"], line["inner"]) == (["1970-01-01 00:00:00.000000001", None], {"a": "1"})
    assert (line["price"], line["raw"], line["number"]) == ("1.50", "/w==", None)
    assert isinstance(line["day"], str)


def test_several_texts_are_joined_by_a_line_break(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "head": pa.array(["a head", None]).dictionary_encode(), "body": ["a body", "b"]})
    path = tables.write(tmp_path / "feed.parquet", rows)
    (batch,) = batches(path, Fields(text_fields=("head", "body")))
    assert batch.texts == b"a head\na body" and list(batch.rejected) == [1]


def test_a_document_that_is_too_large_is_rejected(tmp_path: Path) -> None:
    path = tables.write(tmp_path / "feed.parquet", pa.table({"id": [1, 2], "text": ["a" * 200_000, TEXT]}))
    dedup(path, "--max-document-bytes", "1000", "--unique", tmp_path / "u.parquet", "--dead-letters", tmp_path / "d")
    (letter,) = read_lines((tmp_path / "d").read_text())
    assert (letter["reason"], letter["truncated"], letter["size"]) == ("too_large", True, 200_018)
    assert tables.read(tmp_path / "u.parquet")["id"].to_pylist() == [2]


# -- CSV -------------------------------------------------------------------------------------------------------------


def test_rows_of_csv_that_are_none_are_dead_letters(tmp_path: Path) -> None:
    path = tmp_path / "feed.csv"
    path.write_bytes(
        b'\xef\xbb\xbfid,text\n007,"a, ""b""\nc"\n\n1\n2,some words\n3,x,y\n4,bad \xff\n,nothing\n'
        b'5,"open\n6,swallowed\n'
    )
    (batch,) = batches(path)
    assert batch.ids == [b'"007"', b"null", b'"2"', b"null", b"null", b"null", b"null"]
    assert {i: why.reason for i, why in batch.rejected.items()} == {
        1: "not_csv", 3: "not_csv", 4: "not_utf8", 5: "wrong_type", 6: "not_csv"
    }  # fmt: skip
    assert batch.rejected[1].detail == "the row has 1 cells, and the header 2"
    assert batch.lines.raw(3) == b"3,x,y" and batch.lines.raw(4) == b'"4","bad \xff"'
    assert batch.lines.raw(6) == b'"5","open\n6,swallowed\n"'
    assert batch.texts == b'a, "b"\ncsome words'
    assert ids(path, position=Position(3, 3)) == batch.ids[3:]


def test_times_and_deletions_in_cells(tmp_path: Path) -> None:
    path = tmp_path / "feed.csv.gz"
    lines = (
        "id,text,ts,gone\na,some words,1700000000,\nb,other words,2026-03-01,false\na,,1700000001.5,true\nc,x,,maybe\n"
    )
    path.write_bytes(gzip.compress(lines.encode()))
    (batch,) = batches(path, Fields(time_field="ts", deleted_field="gone", timed=False))
    assert batch.times.tolist()[:3] == [1_700_000_000_000, 1_772_323_200_000, 1_700_000_001_500]
    assert batch.deleted == [2] and {i: why.reason for i, why in batch.rejected.items()} == {3: "wrong_type"}


def test_a_file_without_a_header_or_of_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "feed.csv"
    path.write_bytes("id,text\n".encode("utf-16"))
    assert "no header in UTF-8" in error(path)
    path.write_bytes(b"\n\n\n")
    assert batches(path) == []
    path.write_text("id,text\n")
    assert batches(path) == []


def test_pyarrow_that_is_missing_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tables.write(tmp_path / "feed.csv", tables.table(3))
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    assert "pip install 'stream-lsh[arrow]'" in dedup(path, code=2)
