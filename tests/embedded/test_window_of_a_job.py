"""A window, and which copy is kept, in the outputs of a job; and the interface in Python."""

import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support import commands
from support.copies import FIELDS, SURE, copies
from support.jobs import bytes_of, options, read, write, written
from support.jobs import run as run_keeping
from support.json_lines import read_lines
from support.kills import COMMITTING, kill

from stream_lsh import Deduplicator, Document, Settings
from stream_lsh.cli import main
from stream_lsh.documents.times import moment
from stream_lsh.embedded.information import information
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.querying import query
from stream_lsh.embedded.report import Summary
from stream_lsh.errors import OutputError, StoreError, UsageError

START, MINUTE, HOUR = 1_700_000_000_000, 60_000, 3_600_000
TEXT = "the council has voted for the new bridge over the river and work begins in spring"


def document(id: str, text: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "text": text, **more}


def run(state: Path, *inputs: Path, **given: Any) -> Summary:
    outputs = {"verdicts": str(state.with_name("verdicts.jsonl"))}
    return Job(Settings(**given), [str(path) for path in inputs], outputs, state).run()


def kinds(state: Path) -> dict[str, str]:
    return {f"{verdict['seq']} {verdict['id']}": verdict["kind"] for verdict in read(state.with_name("verdicts.jsonl"))}


@pytest.mark.parametrize("given", [{"window": "7d"}, {"window": "7d", "max_future": "1d"}])
def test_a_window_without_a_field_of_times_is_refused_before_an_index_is_made(tmp_path: Path, given: Any) -> None:
    feed = write(tmp_path / "feed.jsonl", document("a", TEXT, at=START))
    with pytest.raises(UsageError, match=r"window = 7d .*--time-field"):
        run(tmp_path / "index", feed, **given)
    assert not (tmp_path / "index").exists()
    run(tmp_path / "index", feed, **given, time_field="at")


def test_a_folder_has_no_times(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "one.txt").write_text(TEXT)
    with pytest.raises(UsageError, match="which have no fields: feed it into an index without a window"):
        run(tmp_path / "index", folder, window="2h", time_field="at")
    with pytest.raises(UsageError, match="which have no fields: leave out --time-field"):
        run(tmp_path / "other", folder, time_field="at")


def test_what_the_command_says(tmp_path: Path) -> None:
    documents = [document(f"{i}", f"{TEXT} {i}", at=START + (i >= 40) * 9 * HOUR) for i in range(80)]
    feed = write(tmp_path / "feed.jsonl", *documents)
    command = ["dedup", str(feed), "--window", "2h", "--time-field", "at", "--unique", str(tmp_path / "unique.jsonl")]
    result = commands.run(*command, "--index", str(tmp_path / "index"))
    assert "stream time jumped by more than the window (1 jump), and the documents before are" in result.stderr
    assert "set stream time back with stream-lsh set-stream-time" in result.stderr
    assert f"documents from {moment(START + 7 * HOUR)} on are remembered" in result.stderr
    result = CliRunner().invoke(main, ["info", "--index", str(tmp_path / "index")])
    assert re.search(
        rf"stream time +{moment(START + 9 * HOUR)}\n +remembered since +{moment(START + 7 * HOUR)}", result.stdout
    )
    without = CliRunner().invoke(main, ["dedup", str(feed), "--unique", str(tmp_path / "all.jsonl")])
    assert "remembered" not in without.stderr


def test_stream_time_is_set_back(tmp_path: Path) -> None:
    """After it the answers are those of an index that had no jump: the window forgets what is older than it."""
    settings, day, now = Settings(window="2h"), 24 * HOUR, START + 10 * MINUTE
    wrong, right = ([Document(f"{i} w", f"a {i}", time=now + i * at) for i in range(70)] for at in (day, 0))
    later = [Document(i, f"{TEXT} {i % 50}", time=now + i * 4 * MINUTE) for i in range(200)]  # 100 min and 50 apart
    later.insert(10, Document("one more", "wrong time", time=now + 90 * day))
    with Deduplicator(settings) as plain:
        list(plain.process(right))
        wanted = [verdict.kind for verdict in plain.process(later)]
    assert {"unique", "exact_duplicate"} <= set(wanted)
    index = str(tmp_path / "index")
    with Deduplicator(settings, index=index) as deduplicator:
        with pytest.raises(UsageError, match="has not begun"):
            deduplicator.set_stream_time(now)
        list(deduplicator.process([Document("a", "of the old time", time=START)]))
        with pytest.warns(RuntimeWarning, match="set_stream_time"):
            list(deduplicator.process(wrong))
        with pytest.raises(UsageError, match="not later than"):
            deduplicator.set_stream_time(START + 99 * day)
    commands.run("set-stream-time", moment(now), "--index", index)
    found = []
    for document in (later[:90], later[90:]):
        with Deduplicator(settings, index=index) as deduplicator:
            found += [verdict.kind for verdict in deduplicator.process(document)]
    assert found == wanted
    shown = CliRunner().invoke(main, ["info", "--index", index]).stdout
    assert re.findall(r"to (\S+),", shown)[-1] == re.findall(r"stream time +(\S+)", shown)[0] < moment(START + day)


def test_setting_stream_time_back_is_refused_before_anything_changes(tmp_path: Path) -> None:
    def early() -> Iterator[Document]:
        yield Document("b", "a text")
        with pytest.raises(UsageError, match="ahead of the verdicts"):
            deduplicator.set_stream_time(START)

    with Deduplicator(Settings(window="2h"), index=tmp_path / "index") as deduplicator:
        list(deduplicator.process([Document("a", TEXT, time=START + HOUR)]))
        list(deduplicator.process(early()))
    with Deduplicator(Settings(window="2h"), index=tmp_path / "index", commit="manual") as deduplicator:
        verdicts = deduplicator.process([Document("c", "more"), Document("d", "still more")], batch=2)
        next(verdicts)
        with pytest.raises(UsageError, match="have not been taken"):
            deduplicator.set_stream_time(START)
        list(verdicts)
        (copy,) = deduplicator.process([Document("e", TEXT, time=START + 150 * MINUTE)])
        assert copy.kind == "exact_duplicate"  # an hour and a half later; after a change it would be more than two


def test_the_command_that_sets_stream_time_erases_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due may stand in outputs, too, which only a run knows."""
    with Deduplicator(Settings(window="2h"), index=tmp_path / "index") as deduplicator:
        list(deduplicator.process([Document("a", TEXT, time=START + HOUR), Document("b", "one more")]))
        deduplicator.delete("a")
    soon = time.time() + 48 * 3600
    monkeypatch.setattr(time, "time", lambda: soon)
    assert (
        CliRunner().invoke(main, ["set-stream-time", moment(START), "--index", str(tmp_path / "index")]).exit_code == 0
    )
    assert information(tmp_path / "index")["erasing"]["waiting"] == 1  # type: ignore[index]


def final(inputs: Sequence[str], settings: Settings, path: Path, folder: Path | None) -> bytes:
    Job(settings, inputs, {"unique": str(path)}, folder, final=True).run()
    return path.read_bytes()


@pytest.mark.parametrize(("keep", "per"), [("first", None), ("longest", None), ("newest", "source")])
def test_the_last_choice_is_what_the_lines_leave(tmp_path: Path, keep: str, per: str | None) -> None:
    settings = Settings(**SURE, **FIELDS, keep=keep, keep_per=per)
    inputs = written(tmp_path / "inputs", copies(3, 400), 3)
    run_keeping(tmp_path / "run_keeping", inputs, settings)
    # What a reader of `unique` has by id, in the order of arrival.
    folder = tmp_path / "run_keeping"
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
    assert final(inputs, settings, tmp_path / "again", tmp_path / "run_keeping" / "index") == alone
    assert final(inputs, settings, tmp_path / "again", tmp_path / "run_keeping" / "index") == alone
    assert bytes_of(tmp_path / "run_keeping", ["unique"])["unique"].count(b'"new_representative"') > 10


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
    out.write_text("of another program")
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
        query(own, written(tmp_path / "asked", asked, 1), str(tmp_path / "said"), tmp_path / "index", overwrite=True)
        assert [line["duplicate_of"] for line in read_lines(tmp_path / "said")] == [0, 1, 0, 1, 4]
    facts: Any = information(tmp_path / "index", check=True)
    assert facts["health"]["problems"] == []
    with pytest.raises(StoreError, match="source_field = 'outlet' \\(now 'host'\\)"):
        Job(Settings(source_field="host"), [path], {"unique": str(unique)}, tmp_path / "index", no_groups=True).run()


def test_a_killed_run_ends_like_a_whole_one(tmp_path: Path) -> None:
    """Among so many copies, what was superseded before the kill would be met again behind it."""
    settings = {**SURE, **FIELDS, "keep": "newest"}
    inputs = written(tmp_path / "inputs", copies(4, 1200), 8)
    run_keeping(tmp_path / "whole", inputs, Settings(**settings), ["unique", "verdicts"])
    broken = tmp_path / "broken"
    broken.mkdir()
    outputs = [f"--{name}={broken / name}" for name in ("unique", "verdicts")]
    command = ["dedup", *inputs, "--index", str(broken / "index"), *outputs, *options(settings), "--quiet"]
    kill([sys.executable, "-c", COMMITTING, *command], broken / "unique", (tmp_path / "whole/unique").stat().st_size, 3)
    assert bytes_of(broken, ["unique", "verdicts"]) == bytes_of(tmp_path / "whole", ["unique", "verdicts"])
