"""The runs of one segment of a shard, flushed and merged in the background.

A flush makes a run in memory, which can be read at once, and which another thread writes. The next commit writes the
manifest, which lists the committed runs, into the store; files are deleted only after it. Other files in the folder,
left by a crash, are deleted at the start. `merge_policy` chooses what is merged.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError
from stream_lsh.index.postings.merge_policy import next_merge
from stream_lsh.index.postings.run import REMEDY, Run, merge
from stream_lsh.index.store.errors import output_error, refused
from stream_lsh.index.store.files import deletion_lock
from stream_lsh.index.store.heap import trim

LARGEST = (1 << 30) - 1  # postings of a run that is merged again: four of these can be counted with 32 bits


@dataclass
class Workers:
    """The background threads of an index. No short task waits for a long merge."""

    writes: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "write"))
    short: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "merge"))
    long: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "merge-long"))
    deletes: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "delete"))

    def close(self) -> None:
        for pool in (self.deletes, self.writes, self.short, self.long):
            pool.shutdown()


@dataclass(slots=True)
class _Merging:
    runs: list[Run]
    result: Future[Run]


class Postings:
    """The runs of one segment of a shard, oldest first.

    Args:
        state: folder of the index.
        folder: folder of the files.
        shard: part of their names.
        listed: the runs that the manifest lists.
        next: number of the next file.
        workers: None = read only.

    Attributes:
        changed: whether the manifest differs from the last commit.
        rows: number of the segment's committed rows; runs of later rows are not in the manifest.
        closed: there are no further runs.

    Raises:
        DamagedError: a run is missing or damaged; the message names the file.
    """

    def __init__(
        self,
        state: Path,
        folder: Path,
        shard: int,
        listed: Iterable[dict[str, Any]],
        next: int,
        workers: Workers | None,
    ) -> None:
        self._state = state
        self._folder = folder
        self._shard = shard
        self._workers = workers
        self._next = next
        self._runs = [self._open(item) for item in listed]
        self.rows = self._runs[-1].last if self._runs else 0
        self._writing: Future[Run] | None = None
        self._seen: tuple[int, int, bool, int] | None = None  # what merges were chosen by
        self._merging: dict[bool, _Merging] = {}  # the short one, the long one
        self._stop = Event()  # interrupts running merges, and begins no other
        self._garbage: list[Path] = []
        self.closed = False
        self.changed = False

    def _open(self, item: dict[str, Any]) -> Run:
        run = Run.open(self._folder / item["file"])
        if (run.level, run.first, run.last) != (item["level"], item["first"], item["last"]):
            raise DamagedError(f"{run.path} is not the file that the index wrote; {REMEDY.format(self._folder)}")
        return run

    def sweep(self) -> None:
        """Delete files that a crash has left: those of the shard that are not in the manifest."""
        names = {run.path.name for run in self._runs if run.path is not None}
        self._garbage += [path for path in self._folder.glob(f"run-{self._shard}-*") if path.name not in names]
        self._delete()

    # -- flushing and merging ---------------------------------------------------------------------------------------

    def add(
        self, keys: NDArray[np.uint64], rows: NDArray[np.uint32], first: int, last: int, before: Callable[[], object]
    ) -> None:
        """Add the run of a flush. It can be read at once, and is written later.

        Args:
            before: makes durable what must precede it.
        """
        self.wait_for_flush()
        run = Run.of(keys, rows, first, last)
        self._runs.append(run)
        if self._workers is None:
            return
        path = self._name()

        def write() -> Run:
            before()
            run.write(path)
            return Run.open(path)

        self._writing = self._pools.writes.submit(write)
        self.poll()

    def poll(self) -> bool:
        """Take over what the background threads have finished, and begin the next merges. Returns whether runs have
        changed. Call it between batches."""
        changed = False
        if self._writing is not None and self._writing.done():
            run, self._writing = self._result(self._writing), None
            self._runs = [run if old.path is None and old.first == run.first else old for old in self._runs]
            changed = True
        for short, merging in list(self._merging.items()):
            if merging.result.done():
                del self._merging[short]
                run = self._result(merging.result)
                at = self._runs.index(merging.runs[0])
                self._runs[at : at + len(merging.runs)] = [run]
                self._garbage += [old.path for old in merging.runs if old.path is not None]
                changed = True
        self.changed |= changed
        if changed:
            self._seen = None
        self._begin_merges()
        return changed

    def _begin_merges(self) -> None:
        if self._stop.is_set() or self._merge_state == self._seen:
            return
        for short in (True, False):
            if short in self._merging:
                continue
            taken = [run for merging in self._merging.values() for run in merging.runs]
            busy = [
                run.path is None or run.last > self.rows or run in taken or run.size > LARGEST for run in self._runs
            ]
            found = next_merge(self.levels, busy, closed=self.closed, short=short)
            if found is not None:
                runs = self._runs[found]
                pool = self._pools.short if short else self._pools.long
                self._merging[short] = _Merging(runs, pool.submit(_merge_file, runs, self._name(), self._stop))
        self._seen = self._merge_state

    @property
    def _merge_state(self) -> tuple[int, int, bool, int]:
        """What changes when there is another merge to choose, besides results of the background threads."""
        return len(self._runs), self.rows, self.closed, len(self._merging)

    def wait_for_flush(self) -> None:
        """Wait until the last flush is on disk."""
        if self._writing is not None:
            self._writing.exception()
            self.poll()

    def merged(self) -> None:
        """Wait until there is nothing left to merge."""
        self.wait_for_flush()
        while self._merging:
            wait([merging.result for merging in self._merging.values()])
            self.poll()

    @property
    def running(self) -> list[Future[Run]]:
        """What the background threads are writing and merging; `poll` takes over the results."""
        return [merging.result for merging in self._merging.values()] + ([self._writing] if self._writing else [])

    def finish(self) -> None:
        """Wait until the last flush is on disk, and begin no merge. A running merge is dropped, and done again after
        the next opening."""
        self._stop.set()
        for short, merging in list(self._merging.items()):
            if not merging.result.cancel():
                wait([merging.result])
            if merging.result.cancelled() or isinstance(merging.result.exception(), InterruptedError):
                del self._merging[short]
        self.wait_for_flush()
        self.poll()

    # -- manifest -----------------------------------------------------------------------------------------------------

    @property
    def levels(self) -> list[int]:
        """Levels of the runs, oldest first."""
        return [run.level for run in self._runs]

    @property
    def runs(self) -> list[Run]:
        """The runs, newest first."""
        return self._runs[::-1]

    def manifest(self) -> dict[str, Any]:
        """The entry of the manifest: the runs on disk whose rows are committed."""
        runs = [
            {"file": run.path.name, "level": run.level, "first": run.first, "last": run.last}
            for run in self._runs
            if run.path is not None and run.last <= self.rows
        ]
        return {"next": self._next, "runs": runs}

    def committed(self) -> None:
        """The manifest is durable: files that it does not list are deleted."""
        self.changed = False
        if self._garbage:
            self._delete()

    def _delete(self) -> None:
        with deletion_lock(self._state) as free:
            while free and self._garbage:
                self._garbage.pop().unlink(missing_ok=True)

    def _name(self) -> Path:
        self._next += 1
        return self._folder / f"run-{self._shard}-{self._next:06d}.bin"

    @property
    def _pools(self) -> Workers:
        assert self._workers is not None, "the index is open to be read"
        return self._workers

    def _result(self, future: Future[Run]) -> Run:
        try:
            return future.result()
        except OSError as error:
            if error.errno == errno.EIO:  # a disk that fails, not a full one
                raise refused(self._folder, error) from None
            raise output_error(self._folder, error) from None


def _merge_file(runs: list[Run], path: Path, stop: Event) -> Run:
    merge(runs, path, stop.is_set)
    trim()
    return Run.open(path)
