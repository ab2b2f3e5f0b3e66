"""Ids that no encoding has, of a file whose name is not UTF-8: JSON lines and tables show them escaped."""

import json
from pathlib import Path

import pytest
from support import commands

from stream_lsh import Match
from stream_lsh.cli.query import show

WORDS = " ".join(f"word{i}" for i in range(20))
ID, OTHER = "feed\udcff.jsonl:1", "feed\udcff.jsonl:2"


@pytest.fixture
def feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("feed\udcff.jsonl")
    path.write_text(2 * (json.dumps({"text": WORDS}) + "\n"))
    return path


@pytest.fixture
def index(feed: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "index"
    commands.run("dedup", feed, "--index", folder, "--on-conflict", "update", "--id-field", "@line", "-q")
    return folder


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("query", WORDS), [ID]),
        (("groups",), [ID]),
        (("groups", "0"), [ID, OTHER]),
        (("delete", "--json-id", json.dumps(OTHER)), [OTHER]),
        (("audit",), []),
        (("audit", "--json"), [OTHER]),
        (("info", "--json"), []),
    ],
)
def test_ids_with_a_lone_surrogate(index: Path, words: tuple[str, ...], shown: list[str]) -> None:
    output = commands.run(*words, "--index", index).stdout
    output.encode()
    assert all(json.dumps(id) in output for id in shown)


def test_the_table_of_a_query_escapes_ids(capsys: pytest.CaptureFixture[str]) -> None:
    show([Match("a\ud800\x1b[2J", 0, 1.0, {})])
    assert r"1.000  a\ud800\x1b[2J    0" in capsys.readouterr().out


@pytest.mark.parametrize("id_field", ["id", "@line"])
def test_names_of_files_that_are_not_utf8(tmp_path: Path, id_field: str) -> None:
    folder, other = tmp_path / "index", tmp_path / "other\udcff.jsonl"
    named, unique = tmp_path / "feed\udcff.jsonl", tmp_path / "unique\udcff"
    named.write_text(json.dumps({"id": "a", "text": WORDS}) + "\n")
    words = "--index", folder, "--id-field", id_field, "--unique", unique, "-q"
    commands.run("dedup", named, *words)
    named.rename(other)
    told = commands.run("dedup", other, *words[:-1]).stderr
    assert "other\\udcff.jsonl was finished by an earlier run" in told
    assert unique.read_bytes() == other.read_bytes()
    found = commands.figures("info", folder)
    assert found["inputs"]["latest"][0]["path"] == str(other) and str(unique) in found["outputs"]


def test_an_evaluation_of_ids_with_a_lone_surrogate(feed: Path) -> None:
    assert commands.figures("evaluate", feed, "--id-field", "@line", "--show", "1")["found_pairs"] == 1
