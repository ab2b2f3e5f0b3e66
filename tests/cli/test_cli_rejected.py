"""Feeds that are wrong as a whole: the first line that is wrong is shown, and the exit code says so."""

import gzip
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.json_lines import read_lines, write_lines

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
    assert "jq -c '.[]'" in error and f"line 1 of {tmp_path / 'array'}: the line is JSON, but not an object." in error
    (tmp_path / "words").write_text("id,text\n1,some words\n")
    error = run("dedup", tmp_path / "words", code=1).stderr
    assert "not JSON" in error and "The line: id,text" in error


@pytest.mark.parametrize("packed", [False, True])
def test_a_table_says_how_to_read_it(run: Run, tmp_path: Path, packed: bool) -> None:
    """The command that it says does so."""
    table = tmp_path / ("a table.csv.gz" if packed else "a table.csv")
    text = '\ufeffkey,title\n1,"a text, of\ntwo ""lines"""\n'.encode()
    table.write_bytes(gzip.compress(text) if packed else text)
    error = run("dedup", table, "--index", tmp_path / "index", code=4).stderr
    assert "columns: key, title" in error
    assert not (tmp_path / "index").exists()
    command = error.split("\n")[1].partition(" | stream-lsh ")[0]
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=True)
    (document,) = read_lines(done.stdout)
    assert document["title"] == 'a text, of\ntwo "lines"'


def test_lines_of_json_may_be_called_a_table(run: Run, tmp_path: Path) -> None:
    assert len(read_lines(run("dedup", write_lines(tmp_path / "feed.csv", GOOD), "-q").stdout)) == len(GOOD)


def test_an_index_is_no_input(run: Run, tmp_path: Path) -> None:
    feed, index = write_lines(tmp_path / "feed.jsonl", GOOD), tmp_path / "index"
    run("dedup", feed, "--index", index, "-q")
    for folder in (index, index / "db"):
        assert f"{folder} is the folder of an index" in run("dedup", folder, code=4).stderr
    assert f"contains the index {index}" in run("dedup", tmp_path, "--index", tmp_path / "other", code=4).stderr
    assert not (tmp_path / "other").exists()
