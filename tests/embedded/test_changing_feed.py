"""Feeds in which documents are replaced and deleted: from the lines that come in to the lines that go out."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support import jobs
from support.copies import FIELDS, OTHER, SURE, TEXT, copies
from support.jobs import write, written
from support.models.changes import model_of

from stream_lsh import Deduplicator, Document, Settings
from stream_lsh.cli import main
from stream_lsh.embedded.information import information
from stream_lsh.errors import DamagedError
from stream_lsh.index.store.rocksdb import PLACES, Store, rows_key

CHANGING = ("--on-conflict", "update", "--deleted-field", "deleted", "--time-field", "ts", "--quiet")


def stream_lsh(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(main, list(arguments), input=input)


def document(id: Any, text: str, ts: int, **more: Any) -> dict[str, Any]:
    return {"id": id, "text": text, "ts": ts, **more}


def deletion(id: Any, **more: Any) -> dict[str, Any]:
    return {"id": id, "deleted": True, **more}


def dedup(folder: Path, *records: Any, name: str = "feed.jsonl", arguments: tuple[str, ...] = CHANGING) -> list[Any]:
    """The verdicts on some records."""
    feed = write(folder / name, *records)
    outputs = [word for what in ("unique", "verdicts") for word in (f"--{what}", str(folder / what))]
    done = stream_lsh("dedup", str(feed), "--index", str(folder / "index"), *outputs, *arguments)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in (folder / "verdicts").read_text().splitlines()][-len(records) :]


@pytest.mark.parametrize("shards", ["1", "3"])
def test_a_feed_against_any_updates_and_deletes(tmp_path: Path, shards: str) -> None:
    found = dedup(
        tmp_path,
        document("a", TEXT, 10),
        document("b", TEXT, 11),
        document("c", TEXT + " or three", 12),
        document("a", OTHER, 13),
        document("d", TEXT, 14),
        deletion("b"),
        deletion("a"),
        document("e", TEXT, 15),
        document("f", OTHER, 15),
        arguments=(*CHANGING, "--compare-with", "all", "--shards", shards),
    )
    assert [[match["id"] for match in verdict["matches"]] for verdict in found] == [
        [], ["a"], ["a", "b"], [], ["b", "c"], [], [], ["d", "c"], []
    ]  # fmt: skip
    assert [verdict.get("replaces") for verdict in found] == [None, None, None, 0, None, 1, 3, None, None]
    assert (found[5]["kind"], found[5]["group"], found[7]["duplicate_of"]) == ("deleted", None, "c")
    lines = [json.loads(line) for line in (tmp_path / "unique").read_text().splitlines()]
    gone = {"deleted": True, "new_representative": None, "at": None}
    expected = [
        document("a", TEXT, 10),
        document("a", OTHER, 13),
        {"id": "b", **gone},
        {"id": "a", **gone},
        document("f", OTHER, 15),
    ]
    assert lines == [line for line in expected if shards != "1" or line["id"] != "b"]


def test_several_shards_name_representatives_later(tmp_path: Path) -> None:
    arguments = (*CHANGING, "--shards", "3", "--decision-lag", "2")
    first = document("a", TEXT, 10)
    found = dedup(
        tmp_path, first, document("b", TEXT + " or three", 11), deletion("a"), document("c", OTHER, 12),
        arguments=arguments,
    )  # fmt: skip
    assert (found[2]["kind"], found[2]["group"], found[2]["replaces"]) == ("deleted", 0, 0)
    found = dedup(
        tmp_path, deletion("nobody"), document("d", TEXT, 13), deletion("b"), name="next", arguments=arguments
    )
    kept = {"duplicate_of": None, "similarity": None, "matches": []}
    representatives = [{"group": 0, "id": "b", "seq": 1}]
    assert found[0] == {
        "id": "nobody",
        "seq": 4,
        "kind": "deleted",
        "group": None,
        **kept,
        "new_representatives": representatives,
    }
    assert (found[1]["kind"], found[1]["duplicate_of"], found[1]["group"]) == ("near_duplicate", "b", 0)
    assert (found[2]["kind"], found[2]["group"], found[2]["replaces"]) == ("deleted", 0, 1)
    with Deduplicator(index=tmp_path / "index") as deduplicator:
        verdicts = list(deduplicator.process([Document(str(i), deleted=True) for i in range(3)]))
    assert [verdict.new_representatives for verdict in verdicts] == [(), ((0, "d", 5),), ()]
    lines = [json.loads(line) for line in (tmp_path / "unique").read_text().splitlines()]
    place = {"input": str(tmp_path / "feed.jsonl"), "line": 2, "offset": len(json.dumps(first)) + 1}
    assert lines == [
        first,
        {"id": "a", "deleted": True, "new_representative": None, "at": None},
        document("c", OTHER, 12),
        {"id": None, "deleted": True, "new_representative": "b", "at": place},
        {"id": "b", "deleted": True, "new_representative": None, "at": None},
    ]


def test_a_feed_updates_and_deletes(tmp_path: Path) -> None:
    found = dedup(
        tmp_path,
        document("a", TEXT, 10),
        document("b", TEXT + " or three", 11, deleted=False),
        document("a", OTHER, 12, deleted=None),
        document("a", TEXT, 9),
        deletion("a", text=7),
        deletion("b", ts=8),
        deletion("b", ts=11),
        deletion("nobody", ts=12),
        document("nobody", OTHER, 11),
        {"id": "c", "text": OTHER, "ts": 13, "deleted": "yes"},
    )
    kept = {"duplicate_of": None, "similarity": None, "matches": []}
    assert found[0] == {"id": "a", "seq": 0, "kind": "unique", "group": 0, **kept}
    assert (found[1]["kind"], found[1]["duplicate_of"], found[1]["group"]) == ("near_duplicate", "a", 0)
    representative = {"id": "b", "seq": 1}
    assert found[2] == {
        "id": "a",
        "seq": 2,
        "kind": "unique",
        "group": 2,
        "replaces": 0,
        "new_representative": representative,
        **kept,
    }
    assert found[3] == {"id": "a", "seq": 3, "kind": "outdated", "group": None, **kept}
    assert found[4] == {"id": "a", "seq": 4, "kind": "deleted", "group": 2, "replaces": 2, **kept}
    assert found[5] == {"id": "b", "seq": 5, "kind": "outdated", "group": None, **kept}
    assert found[6] == {"id": "b", "seq": 6, "kind": "deleted", "group": 0, "replaces": 1, **kept}
    assert found[7] == {"id": "nobody", "seq": 7, "kind": "deleted", "group": None, **kept}
    assert found[8] == {"id": "nobody", "seq": 8, "kind": "outdated", "group": None, **kept}
    assert found[9]["kind"] == "rejected"
    (letter,) = map(json.loads, (tmp_path / "index" / "dead-letters.jsonl").read_text().splitlines())
    assert (letter["reason"], letter["line"]) == ("wrong_type", 10)
    assert letter["detail"] == 'the field "deleted" is a string, not a boolean'
    facts: Any = information(tmp_path / "index", check=True)
    assert (facts["documents"]["stored"], facts["health"]["problems"]) == (0, [])


def test_a_query_decides_as_the_next_document_would(tmp_path: Path) -> None:
    dedup(tmp_path, document("a", TEXT, 10), document("b", OTHER, 10))
    lines = [document("a", OTHER, 9), document("a", OTHER, 10), document("a", TEXT + " or three", 10)]
    feed = write(tmp_path / "asked", *lines)
    output = tmp_path / "answers"
    arguments = ["--input", str(feed), "--index", str(tmp_path / "index"), "--output", str(output), "--quiet"]
    assert stream_lsh("query", *arguments).exit_code == 0
    kinds = [json.loads(line)["kind"] for line in output.read_text().splitlines()]
    assert kinds == ["outdated", "exact_duplicate", "unique"]


def test_the_summary_says_what_changed(tmp_path: Path) -> None:
    records = [document("a", TEXT, 10), document("a", OTHER, 11), document("a", TEXT, 9), deletion("a"), deletion("b")]
    feed = write(tmp_path / "feed.jsonl", *records)
    done = stream_lsh("dedup", str(feed), "--unique", str(tmp_path / "unique"), *CHANGING[:-1])
    assert done.exit_code == 0, done.output
    assert "2   40 %  deleted" in done.stderr
    assert "1   20 %  outdated (older than the latest version)" in done.stderr
    assert "1 document replaced an earlier version" in done.stderr


SEVERAL = {"shards": 3, "decision_lag": 20}


def standing(records: list[dict[str, Any]], **more: Any) -> dict[Any, str]:
    """What is kept in the end, by the model."""
    model = model_of(Settings(**SURE | FIELDS | more))
    for seq, record in enumerate(records):
        if record.get("deleted"):
            model.delete(seq, record["id"], record.get("at"))
        else:
            model.judge(seq, record["id"], record["text"], record["at"])
    return {seen.id: seen.text for seen in model.stored if seen.live and seen.kept}


def run(folder: Path, inputs: list[str], **more: Any) -> None:
    jobs.run(folder, inputs, Settings(**SURE | FIELDS | more), ["unique"])


@pytest.mark.parametrize("verify", ["exact", "signature"])
@pytest.mark.parametrize("more", [{}, SEVERAL], ids=["one", "several"])
def test_folded_unique_lines_are_what_is_kept(tmp_path: Path, verify: Any, more: Any) -> None:
    records = copies(0, 400)
    run(tmp_path, written(tmp_path, records), verify=verify, **more)
    # What is kept by the lines of the output, with representatives from the input; and how many of these.
    kept: dict[Any, str] = {}
    representatives = 0
    for line in map(json.loads, (tmp_path / "unique").read_text().splitlines()):
        if not line.get("deleted"):
            kept[line["id"]] = line["text"]
            continue
        if line["id"] is not None:  # else a line before has said so
            del kept[line["id"]]  # it was there
        if line["new_representative"] is not None:
            representatives += 1
            with Path(line["at"]["input"]).open("rb") as file:
                file.seek(line["at"]["offset"])
                found = json.loads(file.readline())
            assert found == json.loads(Path(line["at"]["input"]).read_text().splitlines()[line["at"]["line"] - 1])
            assert found["id"] == line["new_representative"] not in kept
            kept[found["id"]] = found["text"]
        else:
            assert line["at"] is None
    assert representatives > 5
    if verify == "exact":
        assert kept == standing(records, **more)


def test_a_representative_from_python_has_no_place(tmp_path: Path) -> None:
    with Deduplicator(Settings(**SURE | FIELDS), tmp_path / "index") as deduplicator:
        assert [verdict.kind for verdict in deduplicator.process([Document("a", TEXT), Document("b", TEXT)])] == [
            "unique", "exact_duplicate"
        ]  # fmt: skip
    run(tmp_path, [str(write(tmp_path / "feed", deletion("a"), deletion("b")))])
    assert (tmp_path / "unique").read_text() == (
        '{"id":"a","deleted":true,"new_representative":"b","at":null}\n{"id":"b","deleted":true,"new_representative":null,"at":null}\n'
    )


def test_damaged_source_position_of_a_representative(tmp_path: Path) -> None:
    records = [{"id": "a", "text": TEXT, "at": 1}, {"id": "b", "text": TEXT + " or three", "at": 2}]
    run(tmp_path, written(tmp_path, records, 1))
    store = Store(tmp_path / "index" / "db")
    ((row, value),) = store.rows_of(PLACES, 0, 0)
    store.write({rows_key(PLACES, 0, 0, row): value[:-1]})
    store.close()
    feed = write(tmp_path / "next", deletion("a"))
    with pytest.raises(DamagedError, match="the source positions of segment 0 are damaged"):
        run(tmp_path, [str(feed)])


def test_a_run_erases_what_is_due(tmp_path: Path) -> None:
    """What it deletes itself, and what another one has deleted, also if there is nothing to read."""
    dedup(tmp_path, document("one", TEXT, 10), document("two", OTHER, 11), deletion("one"), arguments=CHANGING)
    assert stream_lsh("delete", "two", "--index", str(tmp_path / "index"), "--erase-hours", "0").exit_code == 0
    facts: Any = information(tmp_path / "index", check=True)
    assert (facts["erasing"]["erased"], facts["erasing"]["waiting"]) == (1, 1)
    more = (document("three", TEXT, 12), deletion("three"))
    dedup(tmp_path, *more, name="more", arguments=(*CHANGING, "--erase-hours", "0"))
    facts = information(tmp_path / "index", check=True)
    assert (facts["erasing"]["erased"], facts["erasing"]["waiting"]) == (2, 1)
    with Deduplicator(Settings(erase_hours=0), tmp_path / "index") as deduplicator:
        list(deduplicator.process([Document("four", OTHER), Document("four", deleted=True)]))
    facts = information(tmp_path / "index", check=True)
    assert (facts["erasing"]["erased"], facts["erasing"]["waiting"]) == (3, 1)
