"""The commands from end to end, on a few documents; in processes of their own where descriptors and signals count."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.json_lines import read_lines, write_lines
from support.waiting import until

from stream_lsh.settings.model import Settings

COMMAND = [sys.executable, "-m", "stream_lsh"]
FOX = "the quick brown fox jumps over the lazy dog and runs into the dark wood behind the old mill by the river"
DOCUMENTS: list[dict[str, Any]] = [
    {"id": "a", "text": FOX},
    {"id": "b", "text": "something else: a report on the price of wheat in the markets of the north this week"},
    {"id": 3, "text": FOX + " today"},
    {"id": "d", "text": FOX.upper()},
    {"id": "a", "text": FOX},
    {"id": "e"},
]
Run = Callable[..., Any]


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "feed.jsonl", DOCUMENTS)


def test_dedup_passes_on_the_very_bytes(run: Run, feed: Path) -> None:
    done = run("dedup", feed)
    assert done.stdout.encode() == b"".join(feed.read_bytes().splitlines(keepends=True)[:2])
    assert "6 documents" in done.stderr
    assert "2 pairs of similar documents\n" in done.stderr


def test_pairs_reads_a_pipe_without_an_option(feed: Path) -> None:
    done = subprocess.run([*COMMAND, "pairs", "--quiet"], input=feed.read_bytes(), capture_output=True, check=True)
    assert done.stderr == b""
    assert [(pair["older"], pair["newer"]) for pair in read_lines(done.stdout)] == [("a", 3), ("a", "d"), (3, "d")]


def test_all_outputs_at_once(run: Run, feed: Path, tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{name}.jsonl" for name in ("unique", "pairs", "dead-letters")}
    options = [part for name, path in paths.items() for part in (f"--{name}", path)]
    done = run("dedup", feed, "-q", "--verdicts", "-", *options)
    assert [verdict["kind"] for verdict in read_lines(done.stdout)] == [
        "unique", "unique", "near_duplicate", "exact_duplicate", "redelivered", "rejected",
    ]  # fmt: skip
    assert len(paths["unique"].read_bytes().splitlines()) == 2
    assert [(pair["older"], pair["newer"]) for pair in read_lines(paths["pairs"])] == [("a", 3), ("a", "d")]
    assert [letter["reason"] for letter in read_lines(paths["dead-letters"])] == ["missing_field"]


def test_query_and_info(run: Run, feed: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    # Settings that are not the defaults: a query takes them from the index.
    run("dedup", feed, "-q", "--index", index, "--shingles", "words:2", "--threshold", "0.6", "--normalize", "lower")
    matches = read_lines(run("query", FOX + " today", "--index", index).stdout)
    assert [match["id"] for match in matches] == ["a"]  # 3 and d were dropped: nothing is compared with them
    assert 0.8 < matches[0]["similarity"] < 1
    (tmp_path / "text.txt").write_text(FOX, encoding="utf-8")
    assert read_lines(run("query", tmp_path / "text.txt", "--index", index, "--top", 1).stdout)[0]["id"] == "a"
    assert run("query", "-", "--index", index, input=b"nothing that is known", code=1).stdout == ""
    least = repr(matches[0]["similarity"])
    assert len(read_lines(run("query", FOX + " today", "--index", index, "--threshold", least).stdout)) == 1
    assert run("query", FOX + " today", "--index", index, "--threshold", 1, code=1).stdout == ""
    low = run("query", FOX, "--index", index, "--threshold", 0.1, code=2).stderr
    assert "--threshold 0.1: the index" in low and "looks for a similarity of 0.6 or more" in low
    assert "--threshold nan: " in run("query", FOX, "--index", index, "--threshold", "nan", code=2).stderr
    facts = json.loads(run("info", "--index", index, "--json", "--check").stdout)
    assert facts["documents"]["stored"] == 4
    assert facts["settings"]["threshold"] == 0.6
    text = run("info", index).stdout
    assert run("info", "--index", index).stdout.splitlines()[0] == text.splitlines()[0]
    assert "name it once" in run("info", index, "--index", index, code=2).stderr
    assert "no index: name its folder" in run("info", code=2).stderr
    assert "stored" in text
    assert str(feed) in text


def test_query_of_what_is_not_there(run: Run, feed: Path, tmp_path: Path) -> None:
    assert str(tmp_path / "none") in run("query", "text", "--index", tmp_path / "none", code=3).stderr
    assert not (tmp_path / "none").exists()
    assert "there is no file missing.txt" in run("query", "missing.txt", "--index", tmp_path, code=4).stderr
    assert "the text is empty" in run("query", " ", "--index", tmp_path, code=2).stderr
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    assert "not UTF-8: byte 3 is 0xe9" in run("query", tmp_path / "latin.txt", "--index", tmp_path, code=4).stderr
    run("dedup", feed, "--index", tmp_path / "state")
    long = run("query", "a/" * 5000, "--index", tmp_path / "state", code=4).stderr
    assert len(long) < 500  # what looks like a file is not repeated at length


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGTERM, 143, b"terminated"), pytest.param(signal.SIGINT, 130, b"interrupted", marks=pytest.mark.long)],
)
def test_a_stopped_pipe_keeps_what_was_done(tmp_path: Path, number: int, code: int, word: bytes) -> None:
    unique = tmp_path / "unique.jsonl"
    arguments = ["dedup", "-", "--index", str(tmp_path / "index"), "--unique", str(unique)]
    with subprocess.Popen([*COMMAND, *arguments], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stderr is not None
        line = json.dumps(DOCUMENTS[0]).encode() + b"\n"
        process.stdin.write(line)
        process.stdin.flush()
        until(lambda: process.poll() is not None or (unique.exists() and unique.stat().st_size))
        process.send_signal(number)
        errors = process.stderr.read()
        assert process.wait() == code
    assert word in errors
    assert b"Traceback" not in errors
    assert unique.read_bytes() == line


def test_the_settings_of_an_index_are_found_again() -> None:
    for given in (
        {},
        {"threshold": 0.5, "shingles": "chars:9", "normalize": "none", "bag": True, "tokens": "word"},
        {"shingles": "words:4/7", "normalize": "lower,markup,nfkc", "text_field": ("a", "b"), "verify": "signature"},
        {"set_field": "tags", "shards": 3, "bands": 10, "rows": 4, "signature_size": 64, "compare_with": "all"},
    ):
        settings = Settings.load(None, **given)
        again = Settings.load(None, **settings.answers)
        assert again.answers == settings.answers
        assert again.fingerprint == settings.fingerprint


def test_files_of_others_are_replaced_only_if_asked(run: Run, feed: Path, tmp_path: Path) -> None:
    unique, state = tmp_path / "unique.jsonl", tmp_path / "state"
    unique.write_bytes(b"somebody's only copy\n")
    assert "--overwrite" in run("dedup", feed, "--index", state, "--unique", unique, code=5).stderr
    assert unique.read_bytes() == b"somebody's only copy\n"
    run("dedup", feed, "--index", state, "--unique", unique, "--overwrite")
    first = unique.read_bytes()
    assert first.startswith(b'{"id": "a"')
    with feed.open("a", encoding="utf-8") as file:
        file.write('{"id": "later", "text": "a line that was not there when the first run ended"}\n')
    run("dedup", feed, "--index", state, "--unique", unique, "--overwrite")  # the index knows it now: it grows
    assert unique.read_bytes().startswith(first)
    assert b"later" in unique.read_bytes()


@pytest.mark.parametrize("closed", [1, pytest.param(0, marks=pytest.mark.long)])
def test_a_closed_descriptor_is_no_place_for_documents(feed: Path, tmp_path: Path, closed: int) -> None:
    """With `>&-` the next file opened would be number 1, perhaps one of the index, and get the documents."""
    command = ["dedup", "-" if closed == 0 else str(feed), "--index", str(tmp_path / "state")]
    script = f'exec {closed}{">" if closed else "<"}&-; exec "$@"'
    done = subprocess.run(["/bin/sh", "-c", script, "sh", *COMMAND, *command], stderr=subprocess.PIPE, check=False)
    assert done.returncode == (5 if closed else 4), done.stderr.decode()
    assert (b"standard output: Bad file" if closed else b"cannot read standard input") in done.stderr
    for path in (tmp_path / "state").rglob("*"):
        assert not path.is_file() or b"quick brown fox" not in path.read_bytes() or path.suffix == ".log"
