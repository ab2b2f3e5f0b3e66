"""Files and folders below a folder that this user may not enter."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from support import commands
from support.json_lines import write_lines

RECORDS = [{"id": "a", "text": " ".join(f"word{i}" for i in range(20))}]


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, which root may enter: the system is asked for what is in it through `Path.stat`. Beside it is the
    store of an index, which may not be entered either."""
    folder, stat = tmp_path / "closed", Path.stat
    write_lines(tmp_path / "feed.jsonl", RECORDS)
    commands.run("dedup", tmp_path / "feed.jsonl", "--index", tmp_path / "index", "-q")

    def refuse(path: Path, **more: Any) -> os.stat_result:
        if not {folder, tmp_path / "db"}.isdisjoint(path.absolute().parents):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, **more)

    monkeypatch.setattr(Path, "stat", refuse)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("dedup closed/feed.jsonl", 4, "cannot read closed/feed.jsonl: Permission denied."),
        ("query --input closed/feed.jsonl --index index", 4, "cannot read closed/feed.jsonl: Permission denied."),
        ("tune closed/feed.parquet", 4, "cannot read closed/feed.parquet: Permission denied."),
        ("dedup feed.jsonl --index closed/index", 3, "closed/index cannot be used: Permission denied; "),
        ("query x --index closed/index", 3, "closed/index cannot be used: Permission denied; "),
        ("backup new --index closed/index", 3, "closed/index cannot be used: Permission denied; "),
        ("restore closed/backup --index new", 3, "closed/backup cannot be used: Permission denied; "),
        ("backup closed/new --index index", 5, "closed/new cannot be made: Permission denied; "),
        ("restore index --index closed/new", 5, "closed/new cannot be made: Permission denied; "),
        ("query --input feed.jsonl --output closed/v --index index", 5, "cannot create closed/v: Permission denied; "),
        ("tune --write closed/t.toml", 5, "--write closed/t.toml: Permission denied; "),
        ("demo --keep closed/demo", 5, "--keep closed/demo: Permission denied; "),
    ],
)
def test_the_message_names_what_was_given(closed: Path, words: str, code: int, said: str) -> None:
    assert said in commands.run(*words.split(), code=code).stderr


def test_a_folder_of_documents(closed: Path) -> None:
    closed.mkdir()
    (closed / "a.txt").write_text("a text")
    assert f"cannot read {closed / 'a.txt'}: " in commands.run("dedup", closed, code=4).stderr


def test_a_folder_above_that_may_not_be_looked_into(closed: Path) -> None:
    """A folder of documents, or an output, may be below the index of another user."""
    texts = closed.parent / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text(RECORDS[0]["text"])
    commands.run("dedup", texts, "--index", "other", "--unique", "unique", "-q")
