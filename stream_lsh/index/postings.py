"""The postings of one shard on disk: runs, written and merged in the background, and the manifest that says which
ones count.

A flush makes a run in memory that answers at once and is written by another thread; four adjacent runs of a level are
merged into one of the next. The manifest goes into the store with the next commit, and files are deleted only after
it; whatever else lies in the folder after a crash is swept.
"""

from __future__ import annotations

import errno
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError, OutputError, StateError
from stream_lsh.index.heap import trim
from stream_lsh.index.layout import COLUMNS
from stream_lsh.index.refusals import refused, remedy
from stream_lsh.index.rows import RowTable
from stream_lsh.index.runs import REMEDY, Run, merge
from stream_lsh.index.store import Store, name_key

FANOUT = 4
MOST = 32  # runs of a shard: bits of the kernel's masks


@dataclass
class Workers:
    """The two background threads of an index: short writes never wait for a long merge."""

    writes: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "write"))
    merges: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "merge"))

    def close(self) -> None:
        self.writes.shutdown()
        self.merges.shutdown()


class Postings:
    """The runs of one shard, oldest first."""

    def __init__(
        self, folder: Path, shard: int, store: Store, workers: Workers, *, rebuild: bool, base: int = 0
    ) -> None:
        self._folder = folder
        self._shard = shard
        self._workers = workers
        state = None if rebuild else store.named(f"shard/{shard}")
        self.flushed: int = state["flushed"] if state else base
        self._next: int = state["next"] if state else 0
        names = [item["file"] for item in state["runs"]] if state else []
        self._runs = [Run.open(folder / name) for name in names]
        if state:
            self._verify(state["runs"])
        self._writing: Future[Run] | None = None
        self._merging: Future[Run] | None = None
        self._stop = Event()  # merges that are under way end without a result, and no others begin
        self._merged: list[Run] = []
        self._garbage: list[Path] = []
        self._values: dict[bytes, bytes] = {}
        self.changed = rebuild
        for path in folder.glob(f"run-{shard}-*"):
            if path.name not in names:
                path.unlink()
        self.runs = self._view()

    def _verify(self, listed: list[dict[str, Any]]) -> None:
        for run, item in zip(self._runs, listed, strict=True):
            if (run.level, run.first, run.last) != (item["level"], item["first"], item["last"]):
                raise DamagedError(f"{run.path} is not the file that the index wrote; {REMEDY.format(self._folder)}")

    def add(
        self, keys: NDArray[np.uint64], rows: NDArray[np.uint32], first: int, last: int, checksum: int, table: RowTable
    ) -> None:
        """Add the run of a flush: it answers at once; rows and run become durable in the background."""
        self.settle()
        run = Run.of(keys, rows, first, last)
        self._runs.append(run)
        path = self._name()

        def write() -> Run:
            table.sync()
            run.write(path)
            return Run.open(path)

        self._values[name_key(f"flush/{self._shard}/{first}")] = orjson.dumps({"last": last, "crc": checksum})
        self._writing = self._workers.writes.submit(write)
        self._begin_merge()  # one that was dropped when this was closed
        while len(self._runs) >= MOST - 1 and self._merging is not None:
            self._merging.exception()
            self.poll()
        self.runs = self._view()

    def poll(self) -> None:
        """Take over what the background threads have finished; call it between batches."""
        if self._writing is not None and self._writing.done():
            run = self._result(self._writing)
            self._writing = None
            self._runs = [run if old.path is None and old.first == run.first else old for old in self._runs]
            self.flushed = run.last
            self._took_over()
        if self._merging is not None and self._merging.done():
            run = self._result(self._merging)
            self._merging = None
            at = self._runs.index(self._merged[0])
            self._runs[at : at + len(self._merged)] = [run]
            self._garbage += [old.path for old in self._merged if old.path is not None]
            self._merged = []
            self._took_over()

    def settle(self) -> None:
        """Wait until the last flush is on disk."""
        if self._writing is not None:
            self._writing.exception()
            self.poll()

    def finish(self) -> None:
        """Wait until the last flush is on disk, and begin no merge any more; one that is not at its end is dropped, to
        be done again after the next flush of who opens this."""
        self._stop.set()
        merging = self._merging
        if merging is not None and not merging.cancel():
            wait([merging])
        if merging is not None and (merging.cancelled() or isinstance(merging.exception(), InterruptedError)):
            self._merging, self._merged = None, []
        self.settle()
        self.poll()

    def _took_over(self) -> None:
        self.changed = True
        self._begin_merge()
        self.runs = self._view()

    def _begin_merge(self) -> None:
        if self._merging is not None or self._stop.is_set():
            return
        for end in range(len(self._runs), FANOUT - 1, -1):
            last = self._runs[end - FANOUT : end]
            if all(run.path is not None and run.level == last[0].level for run in last):
                self._merged = last
                self._merging = self._workers.merges.submit(_merge_file, last, self._name(), self._stop)
                return

    def manifest(self) -> dict[str, Any]:
        """What the store must say so that the runs on disk count."""
        runs = [
            {"file": run.path.name, "level": run.level, "first": run.first, "last": run.last}
            for run in self._runs
            if run.path is not None
        ]
        return {"flushed": self.flushed, "next": self._next, "runs": runs}

    def take(self) -> dict[bytes, bytes]:
        """Further values for the next commit: checksums of flushed rows."""
        values, self._values = self._values, {}
        return values

    def committed(self) -> None:
        """The manifest is durable: files that it no longer names can go."""
        self.changed = False
        for path in self._garbage:
            path.unlink(missing_ok=True)
        self._garbage = []

    def _name(self) -> Path:
        self._next += 1
        return self._folder / f"run-{self._shard}-{self._next:06d}.bin"

    def _view(self) -> NDArray[np.int64]:
        """The table of runs that the kernel reads; `self._runs` keeps the arrays alive."""
        runs = self._runs
        if len(runs) > MOST:
            raise StateError(
                f"shard {self._shard} has {len(runs)} runs, more than {MOST}; {REMEDY.format(self._folder)}"
            )
        return np.array([run.line() for run in runs], np.int64).reshape(len(runs), COLUMNS)

    def _result(self, future: Future[Run]) -> Run:
        try:
            return future.result()
        except OSError as error:
            if error.errno == errno.EIO:  # a disk that fails, not one that is full
                raise refused(self._folder, error) from None
            raise OutputError(
                f"the index in {self._folder} cannot be written: {error}; {remedy(error)} and start again to go on"
            ) from None


def _merge_file(runs: list[Run], path: Path, stop: Event) -> Run:
    merge(runs, path, stop.is_set)
    trim()
    return Run.open(path)
