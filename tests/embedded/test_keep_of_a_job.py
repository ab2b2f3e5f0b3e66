"""Which copy is kept in the outputs of a run: lines for what is superseded, and the last choice."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.copies import FIELDS, SURE, copies
from support.jobs import bytes_of, options, run, written
from support.json_lines import read_lines
from support.kills import COMMITTING, kill

from stream_lsh import Settings
from stream_lsh.embedded.information import information
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.querying import query
from stream_lsh.errors import OutputError, StoreError, UsageError


def final(inputs: Sequence[str], settings: Settings, path: Path, folder: Path | None) -> bytes:
    Job(settings, inputs, {"unique": str(path)}, folder, final=True).run()
    return path.read_bytes()


@pytest.mark.parametrize(("keep", "per"), [("first", None), ("longest", None), ("newest", "source")])
def test_the_last_choice_is_what_the_lines_leave(tmp_path: Path, keep: str, per: str | None) -> None:
    settings = Settings(**SURE, **FIELDS, keep=keep, keep_per=per)
    inputs = written(tmp_path / "inputs", copies(3, 400), 3)
    run(tmp_path / "run", inputs, settings)
    # What `unique` leaves to who reads it by id, in the order of arrival.
    folder = tmp_path / "run"
    lines = [line for path in sorted(folder.parent.glob("inputs/*")) for line in read_lines(path)]
    kept: dict[Any, dict[str, Any]] = {}
    for line in read_lines(folder / "unique"):
        if "new_representative" not in line:
            kept[line["id"]] = line
            continue
        kept.pop(line["id"], None)
        if line["at"] is not None:
            number = int(line["at"]["input"].rsplit("-")[-1].removesuffix(".jsonl"))
            source = read_lines(folder.parent / "inputs" / f"feed-{number:03}.jsonl")
            kept[line["new_representative"]] = source[line["at"]["line"] - 1]
    expected = sorted(kept.values(), key=lines.index)
    alone = final(inputs, settings, tmp_path / "alone", None)
    assert [*read_lines(tmp_path / "alone")] == expected
    assert final(inputs, settings, tmp_path / "again", tmp_path / "run" / "index") == alone
    assert final(inputs, settings, tmp_path / "again", tmp_path / "run" / "index") == alone
    assert bytes_of(tmp_path / "run", ["unique"])["unique"].count(b'"new_representative"') > 10


def test_what_has_no_last_choice_is_refused(tmp_path: Path) -> None:
    (path,) = written(tmp_path / "inputs", copies(3, 5), 1)
    out = tmp_path / "out"
    for settings, inputs, said in (
        (Settings(window="1h", time_field="at"), [path], "--final cannot be used with window = '1h'"),
        (Settings(shards=2), [path], "--final cannot be used with shards = 2"),
        (Settings(), ["-"], "--final reads the inputs twice"),
    ):
        with pytest.raises(UsageError, match=said):
            final(inputs, settings, out, None)
    out.write_text("of somebody else")
    with pytest.raises(OutputError, match="is there already"):
        final([path], Settings(), out, tmp_path / "index")


def test_each_source_keeps_a_copy(tmp_path: Path) -> None:
    """Without groups, and where a query names the source or leaves it out."""
    lines = [{"id": i, "text": "a bridge over the river", "outlet": outlet} for i, outlet in enumerate("xyxy")]
    (path,) = written(tmp_path / "inputs", [*lines, {"id": 4, "text": lines[0]["text"]}], 1)
    settings = Settings(shingles="words:1", source_field="outlet", keep_per="source")
    unique = tmp_path / "unique"
    Job(settings, [path], {"unique": str(unique)}, tmp_path / "index", no_groups=True).run()
    assert [line["id"] for line in read_lines(unique)] == [0, 1, 4]
    asked = [line | {"id": f"asked {line['id']}"} for line in read_lines(Path(path))]
    for own in (settings, Settings(shingles="words:1")):  # the index knows what was not given
        query(own, written(tmp_path / "asked", asked, 1), str(tmp_path / "said"), tmp_path / "index")
        assert [line["duplicate_of"] for line in read_lines(tmp_path / "said")] == [0, 1, 0, 1, 4]
    facts: Any = information(tmp_path / "index", check=True)
    assert facts["health"]["problems"] == []
    with pytest.raises(StoreError, match="source_field = 'outlet' \\(now 'host'\\)"):
        Job(Settings(source_field="host"), [path], {"unique": str(unique)}, tmp_path / "index", no_groups=True).run()


def test_a_killed_run_ends_like_a_whole_one(tmp_path: Path) -> None:
    """Among so many copies, what was superseded before the kill would be met again behind it."""
    settings = {**SURE, **FIELDS, "keep": "newest"}
    inputs = written(tmp_path / "inputs", copies(4, 2000), 8)
    run(tmp_path / "whole", inputs, Settings(**settings), ["unique", "verdicts"])
    broken = tmp_path / "broken"
    broken.mkdir()
    outputs = [f"--{name}={broken / name}" for name in ("unique", "verdicts")]
    command = ["dedup", *inputs, "--index", str(broken / "index"), *outputs, *options(settings), "--quiet"]
    kill([sys.executable, "-c", COMMITTING, *command], broken / "unique", (tmp_path / "whole/unique").stat().st_size, 3)
    assert bytes_of(broken, ["unique", "verdicts"]) == bytes_of(tmp_path / "whole", ["unique", "verdicts"])
