"""A window from the outside: the command line's job, what it says, and the interface in Python."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support import commands
from support.jobs import read, write

from stream_lsh import Deduplicator, Document, Settings
from stream_lsh.cli import main
from stream_lsh.documents.times import LAST_TIME, moment
from stream_lsh.embedded.information import information
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.report import Summary
from stream_lsh.errors import UsageError

START, MINUTE, HOUR = 1_700_000_000_000, 60_000, 3_600_000
TEXT = "the council has voted for the new bridge over the river and work begins in spring"


def document(id: str, text: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "text": text, **more}


def run(state: Path, *inputs: Path, **given: Any) -> Summary:
    outputs = {"verdicts": str(state.with_name("verdicts.jsonl"))}
    return Job(Settings(**given), [str(path) for path in inputs], outputs, state).run()


def kinds(state: Path) -> dict[str, str]:
    return {f"{verdict['seq']} {verdict['id']}": verdict["kind"] for verdict in read(state.with_name("verdicts.jsonl"))}


def test_times_as_they_come(tmp_path: Path) -> None:
    """Missing and null are taken at stream time, what is no time is refused; the index knows its window and field."""
    state = tmp_path / "index"
    first = write(
        tmp_path / "first.jsonl", document("a", TEXT, at=START), document("b", "another one", at=None),
        document("c", "a third"), document("d", "a fourth", at="yesterday"), document("e", "a fifth", at=LAST_TIME),
    )  # fmt: skip
    summary = run(state, first, window="2h", time_field="at")
    assert summary.rejected == {"bad_time": 2}
    assert summary.window is not None
    assert (summary.window.window, summary.window.stream_time, summary.window.jumps) == ("2h", START, 0)
    later = [document(f"l{i}", f"text {i} of many", at=moment(START + HOUR)) for i in range(3)]
    second = write(tmp_path / "second.jsonl", *later, document("f", TEXT), document("b", "another one"))
    assert run(state, first, second).documents == 5
    much_later = [document(f"m{i}", f"word {i} of all", at=(START + 6 * HOUR) // 1000) for i in range(20)]
    third = write(tmp_path / "third.jsonl", *much_later, document("g", TEXT), document("b", "another one"))
    summary = run(state, third, window="PT2H", time_field="at")
    assert summary.window is not None and summary.window.jumps == 1
    found = kinds(state)
    assert (found["8 f"], found["9 b"]) == ("exact_duplicate", "redelivered")
    assert (found["30 g"], found["31 b"]) == ("unique", "unique")


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


def test_in_python(tmp_path: Path) -> None:
    settings = Settings(window="2h")
    with Deduplicator(settings, index=tmp_path / "index") as deduplicator:
        with pytest.raises(UsageError, match="the first document has none"):
            list(deduplicator.process([Document("a", TEXT)]))
        (one,) = deduplicator.process([Document("a", TEXT, time=START)])
        (two,) = deduplicator.process([Document("b", TEXT)])
        assert (one.kind, two.kind) == ("unique", "exact_duplicate")
        assert len(deduplicator.query(TEXT)) == 1
        with pytest.warns(RuntimeWarning, match="stream time jumped by more than the window of 2h"):
            found = list(deduplicator.process([Document(i, f"{i} {i + 1}", time=START + 5 * HOUR) for i in range(9)]))
        assert {verdict.kind for verdict in found} == {"unique"}
        assert deduplicator.query(TEXT) == []
        (three,) = deduplicator.process([Document("a", TEXT)])
        assert (three.kind, three.group) == ("unique", three.seq)
        for i in range(40):  # segments later
            list(deduplicator.process([Document(f"later {i}", f"{i} a {i} b", time=START + (6 + i) * HOUR)] * 70))
            deduplicator.commit()
        assert len(deduplicator) < 10
    with Deduplicator(index=tmp_path / "index", read_only=True) as reader:
        assert reader.settings.window == "2h"
        assert reader.query(TEXT) == []
