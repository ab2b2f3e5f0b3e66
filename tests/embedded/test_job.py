"""Jobs in this process: growing files, several inputs, signals, and what is left behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from stream_lsh import Settings
from stream_lsh.embedded import job as module
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.report import Summary
from stream_lsh.embedded.signals import postponed


def line(id: str, text: str) -> str:
    return json.dumps({"id": id, "text": text}) + "\n"


def run(folder: Path, *inputs: Path) -> Summary:
    return Job(Settings(), [str(path) for path in inputs], {"verdicts": str(folder / "v")}, folder / "state").run()


@pytest.mark.parametrize("seconds", [0.0, 100.0])
def test_a_growing_file_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Whether the last commit came before the end was seen, or with it."""
    monkeypatch.setattr(module, "COMMIT_SECONDS", seconds)
    feed, other = tmp_path / "feed.jsonl", tmp_path / "other.jsonl"
    feed.write_text(line("a", "one two three four") + line("b", "five six seven eight"))
    other.write_text(line("x", "nine ten eleven twelve"))
    assert run(tmp_path, feed, other).documents == 3
    with feed.open("a") as file:
        file.write(line("c", "thirteen fourteen fifteen sixteen"))
    summary = run(tmp_path, feed, other)
    assert (summary.documents, summary.unique, summary.already_done) == (1, 1, (str(other),))
    assert run(tmp_path, feed, other).documents == 0
    ids = [json.loads(verdict)["id"] for verdict in (tmp_path / "v").read_text().splitlines()]
    assert ids == ["a", "b", "x", "c"]


def test_an_ignored_signal_stays_ignored_and_the_other_works() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    usual = signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    try:
        with postponed() as check:
            os.kill(os.getpid(), signal.SIGINT)
            check()
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(KeyboardInterrupt):
                check()
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, usual)
