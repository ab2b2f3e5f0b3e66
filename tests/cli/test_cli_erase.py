"""`stream-lsh erase`, and what `delete` and `info` say of erasing."""

from pathlib import Path

import pytest
from support.commands import run
from support.json_lines import write_lines

from stream_lsh import Deduplicator

TEXT = "the council has voted for the new bridge over the river work begins in spring and takes two years"


@pytest.fixture
def state(tmp_path: Path) -> str:
    state = str(tmp_path / "index")
    feed = write_lines(tmp_path / "feed", [{"id": f"id-{i}", "text": f"{TEXT} {i} {i}"} for i in range(3)])
    run("dedup", feed, "--index", state, "--on-conflict", "update", "--quiet", "--unique", "-")
    return state


def info(state: str) -> str:
    return run("info", "--index", state, "--check").stdout


def test_what_was_deleted_waits_and_is_erased(state: str) -> None:
    assert "erasing" not in info(state)
    run("delete", "id-1", "--index", state)
    shown = info(state)
    assert "waiting" in shown and "due" in shown
    assert run("erase", "--index", state).stderr == "stream-lsh: 0 versions erased, 1 version not due yet\n"
    assert run("erase", "--index", state, "--now").stderr == "stream-lsh: 1 version erased\n"
    shown = " ".join(info(state).split())
    assert "erased 1 waiting 0 left of the erased nothing" in shown


def test_delete_erases_what_is_due(state: str) -> None:
    run("delete", "id-1", "--index", state, "--erase-hours", "0")
    assert "erased 1 waiting 0 left of the erased nothing" in " ".join(info(state).split())
    assert run("erase", "--index", state, "--quiet").output == ""


def test_what_is_refused(state: str, tmp_path: Path) -> None:
    assert "there is no index in" in run("erase", "--index", tmp_path / "other", code=3).stderr
    assert "Missing option '--index'" in run("delete", "id-1", "--erase-hours", "1", code=2).stderr
    assert "erase_hours" in run("delete", "id-1", "--index", state, "--erase-hours", "-1", code=2).stderr


def test_whoever_has_the_index_erases_by_himself(state: str) -> None:
    run("delete", "id-1", "--index", state)
    with Deduplicator(index=state):
        for more in ((), ("--now",)):
            refused = run("erase", "--index", state, *more, code=3)
            assert "erases by itself" in refused.stderr and "stop that process to erase sooner" in refused.stderr
    assert run("erase", "--index", state, "--now").stderr == "stream-lsh: 1 version erased\n"
