"""Runs of a segment: what counts when, and merges that are not waited for."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_lsh.errors import DamagedError
from stream_lsh.index.postings import runs as module
from stream_lsh.index.postings.merge_policy import FANOUT, TOLERATED
from stream_lsh.index.postings.run import Run, merge
from stream_lsh.index.postings.runs import Postings, Workers

ROWS = 100


class Play:
    """The postings of a segment, to which runs are added; what was committed last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: dict[str, Any] = {"next": 0, "runs": []}
        self.synced = 0
        self.open()

    def open(self) -> None:
        self.workers = Workers()
        self.postings = Postings(self.folder, self.folder, 0, self.known["runs"], self.known["next"], self.workers)
        self.postings.sweep()
        self.rows = self.postings.rows

    def add(self) -> None:
        first, self.rows = self.rows, self.rows + ROWS
        keys = np.sort(np.random.default_rng(first).integers(1, 2**64, ROWS, np.uint64, endpoint=False))
        self.postings.add(keys, np.arange(first, self.rows, dtype=np.uint32), first, self.rows, self.sync)
        self.postings.wait_for_flush()

    def sync(self) -> None:
        self.synced += 1

    def commit(self) -> None:
        self.postings.rows = self.rows
        self.known = self.postings.manifest()
        self.postings.committed()

    def close(self) -> None:
        self.postings.finish()
        self.commit()
        self.leave()

    def leave(self) -> None:
        self.postings.finish()
        self.workers.close()

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("run-*"))

    def spans(self) -> list[tuple[int, int, int]]:
        return [(run.level, run.first, run.last) for run in reversed(self.postings.runs)]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


def test_closing_does_not_wait_for_a_merge(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends between two chunks, leaves no file, and comes again with whoever opens next."""
    began = threading.Event()

    def slow(given: list[Run], path: Path, stopped: Callable[[], bool]) -> None:
        began.set()
        for _ in range(6000):  # a minute, unless somebody stops it
            if stopped():
                break
            threading.Event().wait(0.01)
        merge(given, path, stopped)

    with monkeypatch.context() as patched:
        patched.setattr(module, "merge", slow)
        for _ in range(FANOUT):
            play.add()
            play.commit()
        play.postings.poll()
        assert began.wait(10)
        closing = threading.Thread(target=play.close)
        closing.start()
        closing.join(10)
        assert not closing.is_alive()
    assert play.files() == [f"run-0-{number:06d}.bin" for number in range(1, FANOUT + 1)]
    play.open()
    play.postings.poll()
    play.postings.merged()
    assert play.spans() == [(1, 0, FANOUT * ROWS)]
    play.close()
    assert len(play.files()) == 1


def test_files_go_when_the_manifest_without_them_is_durable(play: Play) -> None:
    for _ in range(FANOUT):
        play.add()
        play.commit()
    play.postings.poll()
    play.postings.merged()
    assert len(play.files()) == FANOUT + 1 and play.postings.changed
    play.commit()
    assert len(play.files()) == 1 and not play.postings.changed
    play.leave()


def test_what_is_not_committed_does_not_count_and_is_not_merged(play: Play) -> None:
    """Runs of rows that no commit knows yet are written, after their rows, and swept by whoever opens next."""
    for _ in range(FANOUT):
        play.add()
    assert play.synced == FANOUT
    play.postings.poll()
    assert play.postings.manifest()["runs"] == [] and play.spans() == [(0, at, at + ROWS) for at in range(0, 400, ROWS)]
    play.leave()
    play.open()
    assert play.files() == [] and play.rows == 0
    play.leave()


def test_a_closed_segment_becomes_one_run(play: Play) -> None:
    for _ in range(2 * FANOUT + 3):
        play.add()
        play.commit()
    play.postings.merged()
    play.postings.closed = True
    play.postings.poll()
    play.postings.merged()
    assert [(first, last) for _, first, last in play.spans()] == [(0, (2 * FANOUT + 3) * ROWS)]
    play.close()
    assert len(play.files()) == 1


def test_closing_after_every_flush_never_runs_out_of_runs(play: Play) -> None:
    """Whoever opens next goes on with the merges that closing has dropped."""
    for _ in range(60):
        play.add()
        play.close()
        play.open()
    play.postings.poll()
    play.postings.merged()
    assert play.rows == 60 * ROWS
    assert len(play.postings.runs) <= 3 * TOLERATED
    play.close()


def test_a_merge_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    keys = np.arange(1, 9, dtype=np.uint64) << np.uint64(20)
    found = [Run.of(keys, np.arange(n, n + 8, dtype=np.uint32), n, n + 8) for n in (0, 8)]
    with pytest.raises(InterruptedError):
        merge(found, tmp_path / "run-0-1.bin", lambda: True)
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_that_names_another_run(play: Play) -> None:
    play.add()
    play.close()
    play.known["runs"][0]["last"] += 1
    with pytest.raises(DamagedError, match="is not the file that the index wrote; delete the folder"):
        play.open()
    play.workers.close()
