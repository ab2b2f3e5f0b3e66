"""Files that have moved: the same command gives the same bytes at the new paths."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.json_lines import read_lines, write_lines
from support.kills import broken_off

from stream_lsh import Settings
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.report import Summary

NAMES = ("unique", "pairs", "verdicts")


def records(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Documents: every third a near-duplicate of the one before, every tenth one to be rejected."""
    found = []
    for n in range(first, first + count):
        text = " ".join(f"w{(n - (n % 3 == 2)) * 31 + word}" for word in range(30))
        found.append({"id": f"d{n}", "text": None if n % 10 == 9 else f"{text} {n}"})
    return found


def run(folder: Path, *inputs: str | Path, out: str = ".", index: str = "index", **more: Any) -> Summary:
    """Feed files of a folder into an index of it; outputs are in a folder of it."""
    outputs = {name: str(folder / out / name) for name in NAMES}
    given = Settings(memtable_documents=16)
    return Job(given, [str(folder / name) for name in inputs], outputs, folder / index, **more).run()


def lose(folder: Path) -> None:
    """What the shell does with `>`, and a file that is deleted."""
    (folder / "unique").write_bytes(b"")
    (folder / "pairs").unlink()


def contents(folder: Path, index: str = "index") -> dict[str, bytes]:
    """Those of the outputs, by path in the folder."""
    paths = [*(folder / name for name in NAMES), folder / index / "dead-letters.jsonl"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def write(folder: Path, kind: str) -> str:
    """A feed of 60 documents in a folder; its name."""
    documents, feed = records(60), folder / f"feed.{kind}"
    folder.mkdir(exist_ok=True)
    if kind == "jsonl":
        write_lines(feed, documents)
    elif kind == "jsonl.gz":
        feed.write_bytes(gzip.compress(b"".join(json.dumps(one).encode() + b"\n" for one in documents)))
    elif kind == "texts":
        feed.mkdir()
        for one in documents:
            (feed / f"{one['id']}.txt").write_bytes(b"\xff" if one["text"] is None else one["text"].encode())
    else:
        pa = pytest.importorskip("pyarrow")
        from pyarrow import csv, parquet

        table = pa.Table.from_pylist(documents, pa.schema([("id", pa.string()), ("text", pa.string())]))
        (parquet.write_table if kind == "parquet" else csv.write_csv)(table, feed)
    return feed.name


def copied(source: Path, target: Path) -> None:
    """As `cp -r`: with other times, and the source stays."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)


def carried(source: Path, target: Path) -> None:
    """As `mv` to another file system: a copy with the same times, after which the source is gone."""
    if source.is_dir():
        shutil.copytree(source, target)
        shutil.rmtree(source)
    else:
        shutil.copy2(source, target)
        source.unlink()


def linked(source: Path, target: Path) -> None:
    source.rename(target)
    source.symlink_to(target)


def rotated(source: Path, target: Path) -> None:
    source.rename(target)
    write_lines(source, [{"id": "new", "text": "another file under the name of the one before"}])


KINDS = ["jsonl", "jsonl.gz", "parquet", "csv", "texts"]


@pytest.mark.parametrize("move", [Path.rename, carried, copied])
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_with_its_index(tmp_path: Path, kind: str, move: Callable[[Path, Path], None]) -> None:
    first, second, third = tmp_path / "first", tmp_path / "second", tmp_path / "third"
    feed = write(first, kind)
    run(first, feed)
    before = contents(first)
    assert all(before.values())
    move(first, second)
    assert run(second, feed).documents == 0
    assert contents(second) == before
    lose(second)
    summary = run(second, feed)
    assert (summary.documents, summary.again) == (0, 60)
    assert contents(second) == before
    move(second, third)
    lose(third)
    run(third, feed)
    assert contents(third) == before


@pytest.mark.parametrize("move", [Path.rename, carried, linked, rotated])
@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet", "csv"])
def test_an_input(tmp_path: Path, kind: str, move: Callable[[Path, Path], None]) -> None:
    feed = write(tmp_path, kind)
    run(tmp_path, feed)
    before = contents(tmp_path)
    (tmp_path / "in").mkdir()
    move(tmp_path / feed, tmp_path / "in" / f"new.{kind}")
    lose(tmp_path)
    assert run(tmp_path, f"in/new.{kind}").again == 60
    assert contents(tmp_path) == before


@pytest.mark.parametrize("move", [Path.rename, carried, linked])
def test_a_folder_of_texts(tmp_path: Path, move: Callable[[Path, Path], None]) -> None:
    feed = write(tmp_path, "texts")
    run(tmp_path, feed)
    before = contents(tmp_path)
    move(tmp_path / feed, tmp_path / "new")
    lose(tmp_path)
    assert run(tmp_path, "new").again == 60
    assert contents(tmp_path) == before


def test_the_name_of_an_input_is_used_again(tmp_path: Path) -> None:
    feed = write(tmp_path, "jsonl")
    run(tmp_path, feed)
    rotated(tmp_path / feed, tmp_path / "feed.1")
    lose(tmp_path)
    run(tmp_path, "feed.1")
    assert run(tmp_path, feed).documents == 1
    before = contents(tmp_path)
    assert len(read_lines(before["unique"])) == 38 + 1
    lose(tmp_path)
    assert run(tmp_path, "feed.1", feed).again == 61
    assert contents(tmp_path) == before


@pytest.mark.parametrize("names", [("feed.1", "feed.jsonl"), ("feed.jsonl", "feed.1")])
def test_rotated_logs_are_all_fed_in_one_run(tmp_path: Path, names: tuple[str, ...]) -> None:
    """In any order, also after a second rotation, which moves both."""
    feed = write(tmp_path, "jsonl")
    run(tmp_path, feed)
    rotated(tmp_path / feed, tmp_path / "feed.1")
    assert run(tmp_path, *names).documents == 1
    before = contents(tmp_path)
    assert len(read_lines(before["unique"])) == 38 + 1
    (tmp_path / "feed.1").rename(tmp_path / "feed.2")
    rotated(tmp_path / feed, tmp_path / "feed.1")
    assert run(tmp_path, *names, "feed.2").documents == 1  # the same document, redelivered
    assert contents(tmp_path)["unique"] == before["unique"]
    lose(tmp_path)
    assert run(tmp_path, *names, "feed.2").again == 62


def test_two_inputs_change_places(tmp_path: Path) -> None:
    feed = write(tmp_path, "jsonl")
    write_lines(tmp_path / "other.jsonl", records(20, first=100))
    run(tmp_path, feed, "other.jsonl")
    before = contents(tmp_path)
    (tmp_path / feed).rename(tmp_path / "aside")
    (tmp_path / "other.jsonl").rename(tmp_path / feed)
    (tmp_path / "aside").rename(tmp_path / "other.jsonl")
    assert run(tmp_path, feed, "other.jsonl").documents == 0
    lose(tmp_path)
    assert run(tmp_path, "other.jsonl", feed).again == 80
    assert contents(tmp_path) == before


@pytest.mark.parametrize("move", [Path.rename, carried])
def test_an_input_that_grows_afterwards(tmp_path: Path, move: Callable[[Path, Path], None]) -> None:
    feed = write(tmp_path, "jsonl")
    run(tmp_path, feed)
    move(tmp_path / feed, tmp_path / "new")
    assert run(tmp_path, "new").documents == 0
    with (tmp_path / "new").open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in records(40, 60))
    summary = run(tmp_path, "new")
    assert (summary.documents, summary.redelivered) == (40, 0)
    before = contents(tmp_path)
    lose(tmp_path)
    run(tmp_path, "new")
    assert contents(tmp_path) == before
    assert [one["id"] for one in read_lines(before["unique"])] == [
        f"d{n}" for n in range(100) if (n % 3 != 2 and n % 10 != 9) or n % 30 == 20
    ]


def test_an_input_that_moves_and_grows(tmp_path: Path) -> None:
    feed = write(tmp_path, "jsonl")
    run(tmp_path, feed)
    (tmp_path / feed).rename(tmp_path / "new")
    write_lines(tmp_path / "new", records(100))
    lose(tmp_path)
    summary = run(tmp_path, "new")
    assert (summary.documents, summary.again, summary.redelivered) == (40, 60, 0)


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("count", [60, 80])
def test_another_file_with_the_same_documents(tmp_path: Path, count: int, gone: bool) -> None:
    """A batch that is sent again, or a longer export of the same table. Nothing is written twice."""
    feed = tmp_path / write(tmp_path, "jsonl")
    run(tmp_path, feed)
    write_lines(tmp_path / "later", records(count))
    os.utime(tmp_path / "later", (1, 1))
    if gone:
        feed.unlink()
    (tmp_path / "out").mkdir()
    summary = run(tmp_path, "later", out="out")
    assert (summary.documents, summary.again, summary.redelivered) == (count, 0, 54)
    assert all(one["id"] >= "d60" for one in read_lines(tmp_path / "out" / "unique"))


def test_a_copy_with_the_time_of_the_original_is_another_file(tmp_path: Path) -> None:
    feed = tmp_path / write(tmp_path, "jsonl")
    run(tmp_path, feed)
    shutil.copy2(feed, tmp_path / "copy")
    os.link(feed, tmp_path / "link")
    (tmp_path / "out").mkdir()
    for name in ("copy", "link"):
        assert run(tmp_path, name, out="out").redelivered == 54
    assert not (tmp_path / "out" / "unique").read_bytes()


def test_a_changed_file_is_another_file(tmp_path: Path) -> None:
    """Of the same size and time; only the checksums tell."""
    documents = records(300)
    feed = write_lines(tmp_path / "feed", documents)
    run(tmp_path, feed)
    documents[250]["text"] = documents[250]["text"][::-1]
    write_lines(tmp_path / "new", documents)
    shutil.copystat(feed, tmp_path / "new")
    feed.unlink()
    summary = run(tmp_path, "new")
    assert summary.documents == 300
    assert summary.rejected["id_reused"] == 1


def test_inputs_with_the_same_bytes_and_time(tmp_path: Path) -> None:
    first, inputs = tmp_path / "first", [f"{name}/feed.jsonl" for name in "abcd"]
    write(tmp_path, "jsonl")
    first.mkdir()
    for name in inputs:
        (first / name).parent.mkdir()
        shutil.copy2(tmp_path / "feed.jsonl", first / name)
    for name in inputs:
        run(tmp_path, f"first/{name}")
    before = contents(tmp_path)
    carried(first, tmp_path / "second")
    (tmp_path / "out").mkdir()
    for name in reversed(inputs):
        again = run(tmp_path, f"second/{name}", out="out")
        assert (again.documents, again.again) == (0, 60)
        assert bool((tmp_path / "out" / "unique").read_bytes()) == (name == inputs[0])
    lose(tmp_path)
    run(tmp_path, *(f"second/{name}" for name in inputs))
    assert contents(tmp_path) == before


def test_a_run_that_was_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, whole = (tmp_path / name for name in ("first", "second", "whole"))
    for folder in (first, whole):
        folder.mkdir()
        write_lines(folder / "feed", records(6000))
    run(whole, "feed")

    def moved() -> None:
        here, there = (first, second) if first.exists() else (second, first)
        here.rename(there)
        run(there, "feed")

    assert broken_off(monkeypatch, moved, 4) > 1
    mine, its = (contents(folder) for folder in (first if first.exists() else second, whole))
    letters = "index/dead-letters.jsonl"  # they say at which path the document was read
    assert [{**one, "input": ""} for one in read_lines(mine.pop(letters))] == [
        {**one, "input": ""} for one in read_lines(its.pop(letters))
    ]
    assert mine == its


@pytest.mark.parametrize("move", [Path.rename, copied])
def test_an_index_alone(tmp_path: Path, move: Callable[[Path, Path], None]) -> None:
    feed = write(tmp_path, "jsonl")
    run(tmp_path, feed)
    before = contents(tmp_path)
    move(tmp_path / "index", tmp_path / "other")
    assert run(tmp_path, feed, index="other").again == 0
    with (tmp_path / feed).open("a") as file:
        file.write('{"id":"bad"}\n')
    run(tmp_path, feed, index="other")
    letters = read_lines(tmp_path / "other" / "dead-letters.jsonl")
    assert letters[:-1] == read_lines(before["index/dead-letters.jsonl"])
    assert (letters[-1]["input"], letters[-1]["line"]) == (str(tmp_path / feed), 61)


def test_the_last_choice(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    feed = write(first, "jsonl")
    run(first, feed, final=True)
    before = contents(first)
    first.rename(second)
    assert run(second, feed, final=True).documents == 0
    assert contents(second) == before
