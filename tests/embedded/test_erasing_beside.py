"""What a run keeps in its index folder beside the index is erased, too; outputs go on to the byte, or to the line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from support import commands
from support.contents import contents

from stream_lsh import Deduplicator, Settings
from stream_lsh.embedded.erasure import erase
from stream_lsh.embedded.information import information
from stream_lsh.index.erasure.queue import places

# A command line that commits after every batch, and is killed after so many commits.
KILLED = """
import os, sys
from stream_lsh.embedded import job
from stream_lsh.index.index import Index
commits, commit, job.COMMIT_SECONDS = int(sys.argv.pop(1)), Index.commit, 0
def counted(*given, **more):
    global commits
    commit(*given, **more)
    commits -= 1
    if not commits:
        os._exit(9)
Index.commit = counted
from stream_lsh.cli import main
main()
"""
NEVER = 10**6
WORDS = "one two three four five six seven eight nine ten"


def line(id: str, text: str | None = None, **more: object) -> bytes:
    record = {"id": id, "deleted": True} if text is None else {"id": id, "text": text, "ts": 1, **more}
    return json.dumps(record).encode() + b"\n"


def dedup(
    state: Path, commits: int, feed: list[Path], *more: str, output: Path | None = None, mode: str = "wb"
) -> None:
    """Run it, killed after so many commits; in this process where nothing is killed, or goes to standard output."""
    arguments = ["dedup", *map(str, feed), "--index", str(state), "--quiet", "--on-conflict", "update", *more]
    arguments += ["--deleted-field", "deleted", "--time-field", "ts"]
    if commits == NEVER and output is None and "--unique" in more:
        commands.run(*arguments)
        return
    with (output or state.parent / "nothing").open(mode) as file:
        command = [sys.executable, "-c", KILLED, str(commits), *arguments]
        killed = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=False)
    assert killed.returncode == (0 if commits == NEVER else 9), killed.stderr


def files(folder: Path, parts: list[bytes]) -> list[Path]:
    for number, part in enumerate(parts):
        (folder / f"{number}.jsonl").write_bytes(part)
    return [folder / f"{number}.jsonl" for number in range(len(parts))]


@pytest.fixture
def feed(tmp_path: Path) -> list[Path]:
    """Each is a batch: two documents, one of which is deleted; then some more."""
    parts = [
        line("first", f"{WORDS} first") + line("victim-name", "the victim-text of this document", ts=5),
        line("victim-name"), line("second", "something else altogether"), line("third", "and the third of them all"),
    ]  # fmt: skip
    return files(tmp_path, parts)


def left(state: Path) -> bool:
    return any(b"victim-" in data for data in contents(state))


@pytest.mark.long
def test_the_journal_is_removed(tmp_path: Path, feed: list[Path]) -> None:
    """A run that is killed before something is erased goes on with >>: with > it would have to write it again."""
    whole, broken, state = tmp_path / "whole", tmp_path / "broken", tmp_path / "state"
    dedup(tmp_path / "other", NEVER, feed, "--unique", str(whole))
    dedup(state, 3, feed, "--erase-hours", "0", output=broken)  # the run is open, two batches are committed
    assert left(state)
    dedup(state, NEVER, feed, "--erase-hours", "0", output=broken, mode="ab")
    assert broken.read_bytes() == whole.read_bytes()
    assert b"victim-text" in whole.read_bytes() and not left(state)


@pytest.mark.parametrize("at_end", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_program_erases_what_a_run_has_left(tmp_path: Path, at_end: bool) -> None:
    """A run keeps lines of its outputs in the index, to write them again."""
    state, names = tmp_path / "state", ("unique", "verdicts", "pairs")
    feed = files(tmp_path, [line("victim-name", f"{WORDS} of all"), line("copy", f"{WORDS} of all")])
    dedup(state, NEVER, feed, *(f"--{name}={tmp_path / name}" for name in names))
    deduplicator = Deduplicator(Settings(erase_hours=0), index=state)
    assert deduplicator.delete("victim-name")
    deduplicator.commit({})
    while not at_end and list(places(deduplicator._index.store)):
        deduplicator.commit({})
    if at_end:
        deduplicator.close()
    assert not left(state)
    deduplicator.close()


@pytest.mark.parametrize("by_hand", [True, pytest.param(False, marks=pytest.mark.long)])
def test_frames_end_with_what_waits_in_them(tmp_path: Path, feed: list[Path], by_hand: bool) -> None:
    state, unique = tmp_path / "state", tmp_path / "unique.jsonl.zst"
    dedup(state, 3, feed, "--erase-hours", "0", "--unique", str(unique))
    assert not unique.stat().st_size and left(state)
    if by_hand:
        erase(state, everything=True)
        assert not left(state)
    dedup(state, NEVER, feed, "--erase-hours", "0", "--unique", str(unique))
    assert not left(state)
    frames = zstandard.ZstdDecompressor().stream_reader(unique.read_bytes(), read_across_frames=True).read()
    assert [json.loads(one)["id"] for one in frames.splitlines()] == [
        "first", "victim-name", "victim-name", "second", "third"
    ]  # fmt: skip


def test_dead_letters_in_the_state_folder(tmp_path: Path) -> None:
    """Those of a deleted id are erased; the run goes on behind them, others stay."""
    state, letters = tmp_path / "state", tmp_path / "state" / "dead-letters.jsonl"
    parts = [
        line("victim-name", WORDS, ts=1) + line("other", f"{WORDS} other", ts="?"),
        line("victim-name", "the victim-text", ts="?"), line("victim-name"), line("last", "the last", ts="?"),
    ]  # fmt: skip
    feed = files(tmp_path, parts)
    dedup(state, 3, feed, "--erase-hours", "0", "--unique", str(tmp_path / "unique"))  # before the deletion
    assert b"victim-text" in letters.read_bytes()
    dedup(state, NEVER, feed, "--erase-hours", "0", "--unique", str(tmp_path / "unique"))
    assert not left(state)
    other, erased, last = map(json.loads, letters.read_bytes().splitlines())
    assert (json.loads(other["original"])["id"], json.loads(last["original"])["id"]) == ("other", "last")
    assert erased == {"reason": "erased"}
    assert information(state, check=True)["health"]["problems"] == []  # type: ignore[index]


def test_letters_of_a_new_version_stay(tmp_path: Path) -> None:
    state, file = tmp_path / "state", tmp_path / "feed"
    file.write_bytes(line("a", WORDS, ts=1) + line("a", "refused", ts="?") + line("a", f"{WORDS} new", ts=2))
    dedup(state, NEVER, [file], "--erase-hours", "0", "--unique", str(tmp_path / "unique"))
    assert b"refused" in (state / "dead-letters.jsonl").read_bytes()
    assert information(state)["erasing"]["erased"] == 1  # type: ignore[index]


def test_outputs_are_known_by_a_hash_of_their_end(tmp_path: Path, feed: list[Path]) -> None:
    """Not by its bytes: those of the last line would stay."""
    state, unique = tmp_path / "state", tmp_path / "unique.jsonl"
    dedup(state, NEVER, feed[:1], "--unique", str(unique))
    assert unique.read_bytes().endswith(b'victim-text of this document", "ts": 5}\n')
    (tmp_path / "late").write_bytes(line("victim-name"))
    dedup(state, NEVER, [*feed[:1], tmp_path / "late"], "--erase-hours", "0", "--unique", str(tmp_path / "other"))
    assert not left(state)
    dedup(state, NEVER, [*feed[:1], tmp_path / "late", feed[2]], "--unique", str(unique), "--only-new")
    assert unique.read_bytes().count(b"\n") == 3
