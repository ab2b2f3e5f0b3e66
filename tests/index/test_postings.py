"""Merges that are not waited for: they are dropped when the index is closed, and done again."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from stream_lsh.index import postings as module
from stream_lsh.index import runs
from stream_lsh.index.postings import FANOUT, Postings, Workers
from stream_lsh.index.rows import RowTable
from stream_lsh.index.runs import Run, merge
from stream_lsh.index.store import Store

ROWS = 100


class Play:
    """The postings of a shard, to which runs are added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.open(rebuild=True)

    def open(self, *, rebuild: bool = False) -> None:
        self.store = Store(self.folder / "db", sync=False)
        self.table = RowTable(self.folder / "rows-0.bin", 8, 4, 2, np.uint16)
        self.workers = Workers()
        self.postings = Postings(self.folder, 0, self.store, self.workers, rebuild=rebuild)
        self.rows = self.postings.flushed

    def add(self) -> None:
        first, self.rows = self.rows, self.rows + ROWS
        keys = np.sort(np.random.default_rng(first).integers(1, 2**64, ROWS, np.uint64, endpoint=False))
        self.postings.add(keys, np.arange(first, self.rows, dtype=np.uint32), first, self.rows, 0, self.table)
        self.postings.settle()

    def close(self) -> None:
        self.postings.finish()
        self.store.write({b"m/shard/0": module.orjson.dumps({"rows": self.rows, **self.postings.manifest()})})
        self.postings.committed()
        self.workers.close()
        self.store.close()
        self.table.close()

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("run-*"))


def test_closing_does_not_wait_for_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends between two chunks, leaves no file, and comes again with the next flush."""
    merging, began = runs.merge, threading.Event()

    def slow(given: list[Run], path: Path, stopped: object) -> None:
        began.set()
        assert callable(stopped)
        for _ in range(6000):  # a minute, unless somebody stops it
            if stopped():
                break
            threading.Event().wait(0.01)
        merging(given, path, stopped)

    play = Play(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(module, "merge", slow)
        for _ in range(FANOUT):
            play.add()
        assert began.wait(10)
        closing = threading.Thread(target=play.close)
        closing.start()
        closing.join(10)
        assert not closing.is_alive()
    assert play.files() == [f"run-0-{number:06d}.bin" for number in range(1, FANOUT + 1)]
    play.open()
    play.add()
    if (merged := play.postings._merging) is not None:  # else it has ended already
        merged.exception()
        play.postings.poll()
    assert [(run.level, run.first, run.last) for run in play.postings._runs] == [
        (1, 0, FANOUT * ROWS), (0, FANOUT * ROWS, (FANOUT + 1) * ROWS),
    ]  # fmt: skip
    play.close()
    assert len(play.files()) == 2


def test_closing_after_every_flush_never_runs_out_of_runs(tmp_path: Path) -> None:
    play = Play(tmp_path)
    for _ in range(3 * module.MOST):
        play.add()
        play.close()
        play.open()
    assert play.rows == 3 * module.MOST * ROWS
    assert len(play.files()) < module.MOST
    play.close()


def test_a_merge_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    keys = np.arange(1, 9, dtype=np.uint64)
    found = [Run.of(keys, np.arange(n, n + 8, dtype=np.uint32), n, n + 8) for n in (0, 8)]
    with pytest.raises(InterruptedError):
        merge(found, tmp_path / "run-0-1.bin", lambda: True)
    assert list(tmp_path.iterdir()) == []
