"""The summary, in words; of a feed that is wrong as a whole the first wrong line, and the exit code."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.json_lines import read_lines, write_lines

from stream_lsh.cli.summary import summary_lines
from stream_lsh.embedded.report import Summary

Run = Callable[..., Any]
BAD = [{"doc": "a", "body": "one two three", "meta": {"lang": "en"}}, {"doc": "b", "body": "four five six"}]
GOOD = [{"id": str(number), "text": f"document {number} of a feed in which all is well"} for number in range(8)]


def test_a_feed_of_which_all_is_rejected_is_an_error(run: Run, tmp_path: Path) -> None:
    feed, good = write_lines(tmp_path / "bad.jsonl", BAD), write_lines(tmp_path / "good.jsonl", GOOD)
    again = ("dedup", good, feed, "--index", tmp_path / "index", "-q")
    error = run(*again, code=1).stderr
    assert f'line 1 of {feed}: there is no field "id"' in error
    assert "doc, body, meta.lang" in error
    assert "dead-letters.jsonl" in run(*again, code=1).stderr  # nothing is read any more; it is as wrong as before
    assert run(*again, "--max-rejected", "100%").stderr == ""
    with feed.open("a") as file:
        file.write(json.dumps(GOOD[0] | {"id": "new"}) + "\n")
    run(*again)


@pytest.mark.parametrize(("most", "code"), [("0.2", 0), ("20 %", 0), ("19%", 1), ("0", 1)])
def test_more_rejected_than_allowed_is_an_error(run: Run, tmp_path: Path, most: str, code: int) -> None:
    feed = write_lines(tmp_path / "feed.jsonl", [*GOOD, {"id": "x"}, {"id": "y"}])
    done = run("dedup", feed, "-q", "--max-rejected", most, code=code)
    assert len(read_lines(done.stdout)) == len(GOOD)
    assert ("2 of 10 documents (20 %) were rejected" in done.stderr) is bool(code)
    assert ("line 9 of" in done.stderr and 'there is no field "text"' in done.stderr) is bool(code)


@pytest.mark.parametrize("most", ["2", "-1", "many", "nan", ""])
def test_what_is_no_share(run: Run, tmp_path: Path, most: str) -> None:
    feed = write_lines(tmp_path / "feed.jsonl", GOOD)
    assert "is not a share" in run("dedup", feed, "--max-rejected", most, code=2).stderr


def test_lines_that_are_no_objects_are_shown(run: Run, tmp_path: Path) -> None:
    (tmp_path / "array").write_text(json.dumps([{"id": 1, "text": "one two"}]))
    error = run("pairs", tmp_path / "array", code=1).stderr
    assert "jq -c '.[]'" in error and f"line 1 of {tmp_path / 'array'}: it is JSON, but not an object." in error
    (tmp_path / "words").write_text("id,text\n1,some words\n")
    error = run("dedup", tmp_path / "words", code=1).stderr
    assert "not JSON" in error and "The line: id,text" in error


@pytest.mark.parametrize(("lines", "hint"), [
    ("id,text\n1,some words\n", True), ("id;text\n1;some words\n", True), ("id\ttext\n1\tsome words\n", True),
    ("some words\n", False), ('{"id": "a", "text"\n', False), ('{"id": "a"}\n1,2\n', False),
])  # fmt: skip
def test_a_table_without_its_suffix_is_named(run: Run, tmp_path: Path, lines: str, hint: bool) -> None:
    (tmp_path / "feed.txt").write_text(lines)
    assert ("If this is CSV, give a file NAME.csv" in run("dedup", tmp_path / "feed.txt", code=1).stderr) is hint


def test_control_characters_of_a_line_are_escaped(run: Run, tmp_path: Path) -> None:
    (tmp_path / "feed.txt").write_text("red\x1b]0;x\x07\n")
    assert r"The line: red\x1b]0;x\x07" in run("dedup", tmp_path / "feed.txt", code=1).stderr


@pytest.mark.parametrize(("name", "head", "hint"), [
    ("semi.csv", "id;text", True), ("tabs.csv", "id\ttext", True), ("commas.tsv", "id,text", True),
    ("one.csv", "text", False), ("two.csv", "key,a;b", False),
])  # fmt: skip
def test_a_table_with_another_separator_is_named(run: Run, tmp_path: Path, name: str, head: str, hint: bool) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / name).write_text(f"{head}\n")
    error = run("dedup", tmp_path / name, code=4).stderr
    assert 'has no column "id"' in error and ("a .csv file has commas between the cells" in error) is hint


def test_lines_of_json_may_be_called_a_table(run: Run, tmp_path: Path) -> None:
    assert len(read_lines(run("dedup", write_lines(tmp_path / "feed.csv", GOOD), "-q").stdout)) == len(GOOD)


def test_an_index_is_no_input(run: Run, tmp_path: Path) -> None:
    feed, index = write_lines(tmp_path / "feed.jsonl", GOOD), tmp_path / "index"
    run("dedup", feed, "--index", index, "-q")
    for folder in (index, index / "db"):
        assert f"{folder} is the folder of an index" in run("dedup", folder, code=4).stderr
    assert f"contains the index {index}" in run("dedup", tmp_path, "--index", tmp_path / "other", code=4).stderr
    assert not (tmp_path / "other").exists()


SUMMARY = Summary(
    documents=120_000, unique=118_000, near_duplicates=1_500, exact_duplicates=480, redelivered=10,
    rejected={"empty": 3, "not_json": 7}, pairs=2_345, truncated=0, not_compared=0, index_documents=0, index_bytes=None,
    seconds=3.4, resumed_from=0, already_done=(), unfinished={}, compare_with="kept", folder=None,
)  # fmt: skip


def lines(summary: Summary, dead_letters: str | None = None, **more: bool) -> list[str]:
    return list(summary_lines(summary, max_matches=100, dead_letters=dead_letters, **more))


def test_a_run() -> None:
    assert lines(SUMMARY, "dead.jsonl") == [
        "120,000 documents in 3.4 s (35,294/s)",
        "  118,000   98 %  unique",
        "    1,500    1 %  near-duplicates",
        "      480  0.4 %  exact duplicates",
        "       10 <0.1 %  redelivered (same id, same text)",
        "       10 <0.1 %  rejected: 7 not JSON, 3 no text",
        "2,345 pairs of similar documents",
        "rejected documents are in dead.jsonl",
    ]


def test_where_rejected_documents_are() -> None:
    assert "--dead-letters FILE" in lines(SUMMARY)[-1]
    kept = replace(SUMMARY, folder="index", index_documents=119_980, index_bytes=70_000_000)
    assert lines(kept)[-2:] == [
        "rejected documents are in index/dead-letters.jsonl",
        "index index: 119,980 documents, 70 MB",
    ]
    assert "standard output" in lines(SUMMARY, "-")[-1]
    calm = lines(replace(SUMMARY, redelivered=0, rejected={}))
    assert not any("redelivered" in line or "rejected" in line for line in calm)
    again = replace(SUMMARY, documents=0, unfinished={"feed.jsonl": 1}, already_done=("feed.jsonl",))
    assert lines(again) == [NO_END.format("1 byte is")]


def test_pairs_and_queries_say_what_they_compare_and_add() -> None:
    found = lines(SUMMARY, pairs=True)
    assert "2,345 pairs of similar documents with kept documents only (compare_with = kept)" in found
    assert "2,345 pairs of similar documents" in lines(replace(SUMMARY, compare_with="all"), pairs=True)
    found = lines(replace(SUMMARY, index_documents=7), queried=True)
    assert found[-2:] == ["2,345 pairs of similar documents", "nothing was added to the index: 7 documents"]


FINISHED = "feed.jsonl was finished by an earlier run: nothing to add"
NOTHING = {"documents": 0, "already_done": ("feed.jsonl",)}
NO_END = "the last line of feed.jsonl has no end yet: its {} left for the next run"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({**NOTHING, "folder": "index", "index_documents": 5}, [FINISHED, "index index: 5 documents"]),
        ({**NOTHING, "again": 7}, [FINISHED, "the lines of 7 documents of earlier runs were written again"]),
        ({"resumed_from": 30_000}, ["continued after 30,000 documents of an earlier run"]),
        ({"truncated": 1}, ["1 document has more than 100 matches", "--max-matches 0"]),
        ({"not_compared": 1200},
         ["1,200 documents were not compared with every possible match", "--max-bucket-rows and --max-candidates"]),
        ({"unfinished": {"feed.jsonl": 7}}, [NO_END.format("7 bytes are")]),
        ({"documents": 10}, ["were read before"]),  # they are known, and the output is empty
    ],
)  # fmt: skip
def test_what_is_said_only_where_it_happened(given: dict[str, Any], said: list[str]) -> None:
    text, usual = "\n".join(lines(replace(SUMMARY, **given))), "\n".join(lines(SUMMARY))
    assert all(words in text and words not in usual for words in said), text
