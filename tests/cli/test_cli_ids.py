"""Ids that no encoding has: JSON lines and tables show them escaped."""

import json
from pathlib import Path

import pytest
from support import commands

from stream_lsh import Match
from stream_lsh.cli.query import show

WORDS = " ".join(f"word{i}" for i in range(20))
ID, OTHER = "a\ud800", "\udc00z"


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    path = tmp_path / "feed.jsonl"
    path.write_text("".join(json.dumps({"id": id, "text": WORDS, "src": id}) + "\n" for id in (ID, OTHER)))
    return path


@pytest.fixture
def index(feed: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "index"
    commands.run("dedup", feed, "--index", folder, "--on-conflict", "update", "--source-field", "src", "-q")
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


def test_an_evaluation_of_ids_with_a_lone_surrogate(feed: Path) -> None:
    assert commands.figures("evaluate", feed, "--show", "1")["found_pairs"] == 1
