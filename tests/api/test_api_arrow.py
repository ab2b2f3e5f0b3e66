"""Documents as columns and tables: verdicts are those of `process`, for tables of every library; what cannot be used is
an error or a rejected row."""

import random
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from stream_lsh import Deduplicator, Document, InputError, Settings, UsageError, Verdict

WORDS = [f"word{number}" for number in range(500)]
TEXT = "the council has voted for the new bridge over the river and work begins in spring"


def as_row(verdict: Verdict, ids: str | int | None) -> dict[str, Any]:
    """A verdict as a row of the table; ids: of the table, which a rejected document keeps."""
    new = verdict.new_representative
    return {
        "id": ids, "seq": verdict.seq, "kind": verdict.kind, "first_kind": verdict.first_kind,
        "duplicate_of": verdict.duplicate_of, "similarity": verdict.similarity, "group": verdict.group,
        "matches": [{"id": m.id, "seq": m.seq, "similarity": m.similarity} for m in verdict.matches],
        "truncated": verdict.truncated, "not_compared": verdict.not_compared, "replaces": verdict.replaces,
        "new_representative": None if new is None else {"id": new.id, "seq": new.seq}, "reason": verdict.reason,
        "detail": verdict.detail, "supersedes": verdict.supersedes,
    }  # fmt: skip


@pytest.mark.parametrize("settings", [Settings(threshold=0.6), Settings(on_conflict="update"), Settings(shards=2)])
def test_verdicts_are_those_of_process(settings: Settings) -> None:
    # With copies, repeated and reused ids, empty texts and new versions.
    chance = random.Random(3)
    found: list[Document] = []
    for i in range(3000):
        text, dice = " ".join(chance.choices(WORDS, k=30)), chance.random()
        if found and dice < 0.3:
            text = str(chance.choice(found).text).replace("word1", "other", 1)
        same = chance.choice(found) if found and dice > 0.9 else None
        found.append(
            Document(same.id if same else i, "" if dice > 0.97 else same.text if same and dice < 0.95 else text)
        )
    given = found  # more than a part
    with Deduplicator(settings) as one, Deduplicator(settings) as other:
        expected = [as_row(verdict, doc.id) for verdict, doc in zip(one.process(given), given, strict=True)]
        table = other.process_batch([document.id for document in given], [document.text for document in given])
    assert table.to_pylist() == expected
    assert {"near_duplicate", "redelivered", "rejected"} <= set(table["kind"].to_pylist())


@pytest.mark.long
def test_tables_of_other_libraries() -> None:
    import duckdb  # here, because the quick tests have neither
    import polars

    rows = {"id": [1, 2, 3], "text": [TEXT, TEXT + " again", "something else altogether"]}
    table = here = pa.table(rows)
    assert here.num_rows == 3  # DuckDB finds it by its name
    made = {
        "pyarrow": table, "batch": table.to_batches()[0], "reader": table.to_reader(), "polars": polars.DataFrame(rows),
        "duckdb": duckdb.sql("SELECT * FROM here"), "sliced": pa.concat_tables([table, table])[3:],
    }  # fmt: skip
    for name, given in made.items():
        with Deduplicator(Settings(threshold=0.7)) as deduplicator:
            verdicts = deduplicator.process_arrow(given)
        assert verdicts["kind"].to_pylist() == ["unique", "near_duplicate", "unique"], name
        assert verdicts["duplicate_of"].to_pylist() == [None, 1, None]


def test_times_sources_and_scopes() -> None:
    settings = Settings(window="1d", time_field="ts", match_within=("lang",), source_field="outlet")
    with Deduplicator(settings) as deduplicator:
        times = np.array(["2026-03-01", "2026-03-01", "1900-01-01", "NaT"], "datetime64[s]")
        columns: dict[str, Any] = {"times": times, "sources": ["a", "b", None, "c"]}
        found = deduplicator.process_batch(
            np.arange(4), [TEXT] * 4, within={"lang": ["en", "de", "en", "en"]}, **columns
        )
        assert found["kind"].to_pylist() == ["unique", "unique", "rejected", "exact_duplicate"]
        assert found["duplicate_of"].to_pylist() == [None, None, None, 0]
        assert found["reason"].to_pylist()[2] == "bad_time"
        with pytest.raises(UsageError, match="within has the fields none, and match_within is lang"):
            deduplicator.process_batch([1], [TEXT])


def test_columns_without_ranks_are_refused_with_what_takes_them() -> None:
    table = pa.table({"id": ["a", "b"], "text": [TEXT, TEXT], "stars": [None, 3]})
    with Deduplicator(Settings(keep="best", rank_field="stars")) as deduplicator:
        with pytest.raises(UsageError, match="give a table with the column 'stars' to process_arrow"):
            deduplicator.process_batch(["a"], [TEXT])
        assert deduplicator.process_arrow(table)["supersedes"].to_pylist() == [None, "a"]


def test_ids_of_another_type_make_the_ids_of_matches_texts() -> None:
    with Deduplicator() as deduplicator:
        deduplicator.process_batch(["a"], [TEXT])
        table = deduplicator.process_batch([17], [TEXT])
    assert table["id"].to_pylist() == [17] and table["duplicate_of"].to_pylist() == ["a"]


def test_rows_that_cannot_be_used_are_rejected() -> None:
    texts = [None, " ", "a lone \ud800", TEXT]
    with Deduplicator() as deduplicator:
        table = deduplicator.process_batch(["a", "b", "c", None], texts)
        assert table["reason"].to_pylist() == ["wrong_type", "empty", "not_utf8", "wrong_type"]
        damaged = pa.table({"id": ["d"], "text": pa.array([b"\xff\xfe"]).view(pa.string())})
        assert deduplicator.process_arrow(damaged)["reason"].to_pylist() == ["not_utf8"]
        assert deduplicator.process_arrow(damaged[:0]).num_rows == 0


def test_a_text_that_is_not_utf8_rejects_only_itself_in_a_later_part() -> None:
    texts = [" ".join(random.Random(i).choices(WORDS, k=30)) for i in range(2500)]
    texts[2300] = f"\ud800{TEXT}"
    with Deduplicator() as deduplicator:
        table = deduplicator.process_batch(list(range(2500)), texts)
    expected: list[str | None] = [None] * 2500
    expected[2300] = "not_utf8"
    assert table["reason"].to_pylist() == expected and table["id"].to_pylist() == list(range(2500))


def test_tables_that_cannot_be_used_are_errors(tmp_path: Path) -> None:
    good = pa.table({"id": [1], "text": [TEXT]})
    with Deduplicator(Settings(text_field=("body",))) as deduplicator:
        with pytest.raises(InputError, match=r'the table has no column "body" \(text_field\). It has: id, text'):
            deduplicator.process_arrow(good)
        with pytest.raises(TypeError, match="a list, which has no __arrow_c_stream__"):
            deduplicator.process_arrow([{"id": 1}])
        with pytest.raises(UsageError, match="there are 2 ids, and 1 values of texts"):
            deduplicator.process_batch([1, 2], [TEXT])
        with pytest.raises(TypeError, match="ids: the values have no common type"):
            deduplicator.process_batch([1, "a"], [TEXT, TEXT])
        with pytest.raises(TypeError, match="texts is a string, not a list"):
            deduplicator.process_batch([1], TEXT)
        assert deduplicator.process_batch([1], [TEXT])["seq"].to_pylist() == [0]  # nothing was stored before
    with (
        Deduplicator(Settings(id_field="@line")) as deduplicator,
        pytest.raises(UsageError, match="no lines to be its ids"),
    ):
        deduplicator.process_arrow(good)
    with Deduplicator(Settings(set_field="tags")) as deduplicator, pytest.raises(UsageError, match="compares sets"):
        deduplicator.process_batch([1], [TEXT])
    Deduplicator(index=tmp_path / "index").close()
    with (
        Deduplicator(index=tmp_path / "index", read_only=True) as deduplicator,
        pytest.raises(UsageError, match="read-only"),
    ):
        deduplicator.process_arrow(good)


def test_a_table_and_the_position_behind_it_are_committed_in_one_step(tmp_path: Path) -> None:
    feed = pa.table({"id": range(6), "text": [f"{TEXT} {i // 2} {i // 2} {i // 2}" for i in range(6)]})
    kinds: dict[int, list[str]] = {}
    for attempt in (1, 2):
        with Deduplicator(Settings(threshold=1), index=tmp_path / "index", commit="manual") as deduplicator:
            for begin in range(deduplicator.facts.get("rows", 0), 6, 3):
                kinds[begin] = deduplicator.process_arrow(feed[begin : begin + 3])["kind"].to_pylist()
                if (attempt, begin) == (1, 3):
                    break  # as a crash before the commit
                deduplicator.commit({"rows": begin + 3})
    assert kinds == {0: ["unique", "exact_duplicate", "unique"], 3: ["exact_duplicate", "unique", "exact_duplicate"]}


@pytest.mark.parametrize("columns", [
    {"ids": [2**64]}, {"ids": [1, 2**64]}, {"ids": [-1, 2**63]}, {"times": [2**70]}, {"sources": [2**64]},
    {"within": {"lang": [-(2**63) - 1]}},
], ids=repr)  # fmt: skip
def test_integers_that_do_not_fit_in_an_int64_are_errors(columns: dict[str, Any]) -> None:
    settings = Settings(match_within=("lang",) if "within" in columns else ())
    given = {"ids": [1]} | columns
    with Deduplicator(settings) as deduplicator:
        with pytest.raises(TypeError, match=r"^(ids|times|sources|within lang): an integer does not fit in an int64"):
            deduplicator.process_batch(texts=[TEXT] * len(given["ids"]), **given)
        assert len(deduplicator) == 0


@pytest.mark.parametrize("ids", [None, 5, b"a", bytearray(b"a"), {1: 2}, {"a"}, [Decimal(5)]], ids=repr)
def test_columns_that_are_no_lists_of_strings_or_integers_are_errors(ids: Any) -> None:
    with Deduplicator() as deduplicator:
        for columns in ({"ids": ids, "texts": [TEXT]}, {"ids": [1], "texts": ids}):
            name = next(name for name, values in columns.items() if values is ids)
            with pytest.raises(
                TypeError, match=rf"^{name} (is .*, not a list of values|has values of the type Decimal)$"
            ):
                deduplicator.process_batch(**columns)
        with pytest.raises(TypeError, match=r"within is .*, not a mapping of columns by field"):
            deduplicator.process_batch([1], [TEXT], within=ids if not isinstance(ids, dict) else None)
        assert len(deduplicator) == 0


@pytest.mark.parametrize("column", ["id", "text", "source"])
def test_uuids_are_errors(column: str) -> None:
    values = [UUID(bytes=b"abcdefghabcdefgh")]  # bytes that are UTF-8
    columns: dict[str, Any] = {"id": ["a"], "text": [TEXT], "source": ["x"]} | {column: values}
    uuids = pa.array(values)
    tables = [pa.table(columns | {column: array}) for array in (uuids, pa.DictionaryArray.from_arrays([0], uuids))]
    with Deduplicator(Settings(source_field="source")) as deduplicator:
        with pytest.raises(InputError, match=r"has the type .*uuid.*, and is to be a string"):
            deduplicator.process_batch(columns["id"], columns["text"], sources=columns["source"])
        for table in tables:
            with pytest.raises(InputError, match=r"has the type .*uuid.*, and is to be a string"):
                deduplicator.process_arrow(table)
        assert len(deduplicator) == 0


def test_an_id_that_is_not_utf8_becomes_null_and_the_others_stay_strings() -> None:
    with Deduplicator() as deduplicator:
        table = deduplicator.process_batch(["a", "n1", "\ud800", None], np.array([TEXT] * 4))
        with pytest.raises(TypeError, match="ids: the values have no common type"):
            deduplicator.process_batch(["\ud800", 1], [TEXT] * 2)
        damaged = pa.array([b"a", b"\xff"]).view(pa.string())
        again = deduplicator.process_arrow(pa.table({"id": damaged, "text": [TEXT] * 2}))
    assert table["id"].to_pylist() == ["a", "n1", None, None]
    assert table["duplicate_of"].to_pylist() == [None, "a", None, None]
    assert table["reason"].to_pylist() == [None, None, "not_utf8", "wrong_type"]
    assert table["id"].type == table["duplicate_of"].type == pa.string()
    with Deduplicator() as deduplicator:
        texts = np.array(["\ud800", TEXT])
        assert deduplicator.process_batch(texts, texts)["reason"].to_pylist() == ["not_utf8", None]
    assert again["id"].to_pylist() == ["a", None] and again["reason"].to_pylist() == [None, "not_utf8"]


@pytest.mark.parametrize("source", ["\ud800", "a \udfff", "\ud800\ud800"], ids=ascii)
def test_a_source_that_is_not_utf8_rejects_its_document(source: str) -> None:
    with Deduplicator(Settings(threshold=0.6)) as deduplicator:
        table = deduplicator.process_batch([1, 2, 3], [TEXT] * 3, sources=[source, "\\ud800", "x"])
        (group,) = deduplicator.groups()
    assert table["reason"].to_pylist() == ["not_utf8", None, None]
    assert group.first_sources == ("\\ud800", "x")


@pytest.mark.parametrize("sources", [[1.5], [[1]], [True]], ids=str)
def test_sources_are_strings_or_integers(sources: list[Any]) -> None:
    """As in a Document: they were taken, and the document had no source."""
    with Deduplicator() as deduplicator:
        with pytest.raises(
            InputError, match=r'"sources" \(source_field\) has the type .*, and is to be a string or an'
        ):
            deduplicator.process_batch([1], [TEXT], sources=sources)
        assert len(deduplicator) == 0
