"""A file that a command writes is neither in an index nor one that the command reads."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.json_lines import write_lines

from stream_lsh.embedded.output_paths import check_outputs
from stream_lsh.errors import UsageError

Run = Callable[..., Any]
RULES = '[[rule]]\nname = "many"\nkind = "growth"\nmembers = 2\nwithin = "1h"\n'


@pytest.fixture
def folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a feed, an index of it, and another index."""
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "feed.jsonl", [{"id": str(n), "text": f"the text {n} of a feed"} for n in range(3)])
    for index in ("index", "other"):
        run("dedup", "feed.jsonl", "--index", index, "--unique", f"{index}.jsonl", "--on-conflict", "update")
    (tmp_path / "link").symlink_to("index/db")
    return tmp_path


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "LOCK"}


COMMANDS = {
    "dedup": ("dedup", "feed.jsonl", "--index", "index", "--overwrite", "--unique"),
    "dedup of another index": ("dedup", "feed.jsonl", "--overwrite", "--verdicts"),
    "dedup, dead letters": ("dedup", "feed.jsonl", "--index", "index", "--overwrite", "--dead-letters"),
    "pairs": ("pairs", "feed.jsonl", "--index", "index", "--overwrite", "--pairs"),
    "feeds": ("dedup", "--index", "index", "--feed", "http://127.0.0.1:9/rss", "--feed-log"),
    "query": ("query", "--input", "feed.jsonl", "--index", "index", "--overwrite", "--output"),
    "delete": ("delete", "1", "--index", "index", "--unique"),
    "audit": ("audit", "--index", "index", "--html"),
    "tune": ("tune", "--write"),
    "groups": ("groups", "0", "--index", "index", "--plot"),
    "alerts send": ("alerts", "send", "feed.jsonl", "--until-end", "--url", "http://127.0.0.1:9/", "--position"),
    "alerts send, dead letters": (
        "alerts", "send", "feed.jsonl", "--until-end", "--url", "http://127.0.0.1:9/", "--dead-letters"
    ),
    "token": ("serve", "token", "add", "name", "--token-file"),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("place", ["index/db/CURRENT", "index/new.svg", "other/new.svg", "link/new.svg"])
def test_outputs_in_an_index_are_refused(run: Run, folder: Path, command: str, place: str) -> None:
    before = content(folder)
    if command in ("groups", "tune") and place == "index/db/CURRENT":
        return  # refused for its suffix, or because it exists
    found = run(*COMMANDS[command], place, code=2)
    assert f"{COMMANDS[command][-1]} {place} is in the folder of an index, {folder}" in found.stderr
    assert "name a file outside of it" in found.stderr
    assert content(folder) == before


def test_outputs_in_an_index_to_be_made_are_refused(run: Run, folder: Path) -> None:
    found = run("dedup", "feed.jsonl", "--index", "new", "--unique", "new/unique.jsonl", code=2)
    assert "is in the folder of an index" in found.stderr
    assert not (folder / "new").exists()


def test_dead_letters_may_be_in_their_own_index_only(run: Run, folder: Path) -> None:
    (folder / "bad.jsonl").write_text("no JSON\n")
    given = ("dedup", "bad.jsonl", "--max-rejected", "1", "--unique", "unique.jsonl")
    run(*given, "--index", "index", "--dead-letters", "index/dead-letters.jsonl")
    assert b"not_json" in (folder / "index" / "dead-letters.jsonl").read_bytes()
    assert "of an index" in run(*given, "--dead-letters", "index/dead-letters.jsonl", code=2).stderr
    other = run(*given, "--index", "other", "--verdicts", "other/dead-letters.jsonl", code=2)
    assert "--verdicts other/dead-letters.jsonl is in the folder of an index" in other.stderr


def test_files_that_are_read_are_not_written_over(run: Run, folder: Path) -> None:
    rules, settings = folder / "rules.toml", folder / "settings.toml"
    rules.write_text(RULES)
    settings.write_text("threshold = 0.7\n")
    (folder / "linked.toml").symlink_to("settings.toml")
    before = content(folder)
    given = ("dedup", "feed.jsonl", "--config", "settings.toml")
    for output in ("settings.toml", "linked.toml"):
        assert f"same file, {output}" in run(*given, "--unique", output, code=2).stderr
    alerts = (*given, "--index", "index", "--rules", "rules.toml", "--alerts", "alerts.jsonl")
    assert "--groups and --rules are the same file" in run(*alerts, "--groups", "rules.toml", code=2).stderr
    assert content(folder) == before
    settings.rename(folder / "stream-lsh.toml")
    found = run("dedup", "feed.jsonl", "--unique", "stream-lsh.toml", code=2)
    assert "--unique and --config are the same file" in found.stderr
    assert (folder / "stream-lsh.toml").read_text() == "threshold = 0.7\n"


def test_query_keeps_a_file_that_is_there(run: Run, folder: Path) -> None:
    precious = folder / "precious.txt"
    precious.write_text("what is to be kept")
    given = ("query", "--input", "feed.jsonl", "--index", "index", "--output", "precious.txt")
    assert "add --overwrite" in run(*given, code=5).stderr
    assert precious.read_text() == "what is to be kept"
    run(*given, "--overwrite")
    assert [json.loads(line)["id"] for line in precious.read_text().splitlines()] == ["0", "1", "2"]


def test_outputs_beside_an_index_are_taken(tmp_path: Path) -> None:
    (tmp_path / "index" / "db").mkdir(parents=True)
    (tmp_path / "index" / "db" / "CURRENT").touch()
    check_outputs(
        {"--unique": str(tmp_path / "index.jsonl"), "--pairs": "-", "--verdicts": "s3://bucket/a.parquet"},
        folder=tmp_path / "index",
    )
    (tmp_path / "out").symlink_to(tmp_path / "index")
    with pytest.raises(UsageError):
        check_outputs({"--unique": str(tmp_path / "out" / "unique.jsonl")})
