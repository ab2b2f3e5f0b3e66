"""`stream-lsh erase`, and what `delete` and `info` say of erasing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stream_lsh import Deduplicator
from stream_lsh.cli import main

TEXT = "the council has voted for the new bridge over the river work begins in spring and takes two years"


def stream_lsh(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture
def state(tmp_path: Path) -> str:
    feed, state = tmp_path / "feed", str(tmp_path / "index")
    feed.write_text("".join(json.dumps({"id": f"id-{i}", "text": f"{TEXT} {i} {i}"}) + "\n" for i in range(3)))
    done = stream_lsh("dedup", str(feed), "--state", state, "--on-same-id", "update", "--quiet", "--unique", "-")
    assert done.exit_code == 0, done.output
    return state


def info(state: str) -> str:
    done = stream_lsh("info", "--state", state, "--check")
    assert done.exit_code == 0, done.output
    return done.stdout


def test_what_was_deleted_waits_and_is_erased(state: str) -> None:
    assert "erasing" not in info(state)
    assert stream_lsh("delete", "id-1", "--state", state).exit_code == 0
    shown = info(state)
    assert "waiting" in shown and "due" in shown
    assert stream_lsh("erase", "--state", state).stderr == "stream-lsh: 0 versions erased, 1 version not due yet\n"
    assert stream_lsh("erase", "--state", state, "--now").stderr == "stream-lsh: 1 version erased\n"
    shown = " ".join(info(state).split())
    assert "erased 1 waiting 0 left of the erased nothing" in shown


def test_delete_erases_what_is_due(state: str) -> None:
    assert stream_lsh("delete", "id-1", "--state", state, "--erase-hours", "0").exit_code == 0
    assert "erased 1 waiting 0 left of the erased nothing" in " ".join(info(state).split())
    assert stream_lsh("erase", "--state", state, "--quiet").output == ""


def test_what_is_refused(state: str, tmp_path: Path) -> None:
    missing = stream_lsh("erase", "--state", str(tmp_path / "other"))
    assert missing.exit_code == 3 and "there is no index in" in missing.stderr
    kafka = stream_lsh("delete", "id-1", "--erase-hours", "1")
    assert kafka.exit_code == 2 and "--erase-hours is for an index on this machine" in kafka.stderr
    negative = stream_lsh("delete", "id-1", "--state", state, "--erase-hours", "-1")
    assert negative.exit_code == 2 and "erase_hours" in negative.stderr


def test_whoever_has_the_index_erases_by_himself(state: str) -> None:
    assert stream_lsh("delete", "id-1", "--state", state).exit_code == 0
    with Deduplicator(state=state):
        for more in ((), ("--now",)):
            refused = stream_lsh("erase", "--state", state, *more)
            assert refused.exit_code == 3, refused.output
            assert "erases by itself" in refused.stderr and "stop that process to erase sooner" in refused.stderr
    assert stream_lsh("erase", "--state", state, "--now").stderr == "stream-lsh: 1 version erased\n"
