"""Erasing: removing the ids and texts of deleted and replaced versions from the disk, some time after the deletion.

Erasing removes what no query reads, and changes no verdict. It may therefore follow the clock. A pass takes the
versions that are due from the queue, and erases them in the order of their rows: all versions of a text frame are
erased by rewriting it once. The longer a pass takes, the more versions the next one has, and the less each of them
costs. Erasing therefore keeps up with any number of updates.

A pass consists of steps of bounded work, at most one after a commit. A step erases some versions of neighbouring rows:

1. In the background, their ids and texts are read, the values without them are made, and RocksDB flushes the old ones.
2. One atomic write replaces these values and the latest rows, removes the ids of the versions from the rows that were
   dropped for them, lists the versions as erased, and adds new checksums. From then on the versions count as erased,
   whichever of the next two steps reaches the disk first.
3. In the background, RocksDB flushes the new values, the rows in files are overwritten, and RocksDB rewrites the files
   that had the old values.

Before the first step the dead letters of deleted ids are erased. After the last one a sweep follows. It replaces the
document frequencies of each commit by one sum, and rewrites RocksDB's log, the latest rows and the group store. Then
the entries of the pass are deleted from the queue. An index that is opened again continues the pass. Steps that were
not completed are repeated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.documents.erased_letters import FILE as DEAD_LETTERS
from stream_lsh.documents.erased_letters import erase_letters
from stream_lsh.errors import StoreError
from stream_lsh.index.erasure.queue import (
    ERASED_VERSIONS,
    REPRESENTATIVE_ROW,
    Pass,
    Version,
    count,
    facts_of,
    next_pass,
    place_of,
)
from stream_lsh.index.kernel.document_frequency import folded
from stream_lsh.index.kernel.dropped_rows import dropped_for
from stream_lsh.index.rows.deleted_rows import Place
from stream_lsh.index.rows.ids import Ids
from stream_lsh.index.rows.layout import DELETED, FLAGS, REPRESENTATIVE
from stream_lsh.index.rows.row_file import blank
from stream_lsh.index.rows.texts import Texts
from stream_lsh.index.segments.erased_rows import PAGE, blanked, erased_of, listing
from stream_lsh.index.segments.segment import Segment
from stream_lsh.index.shard import Shard
from stream_lsh.index.store.errors import plainly
from stream_lsh.index.store.files import deletion_lock
from stream_lsh.index.store.rocksdb import GROUP, MEMBERS, QUEUE_NAMES, REMOVED_MEMBERS, Range, Store, joined, name_key

STEP, STEP_PAGES, STEP_BYTES = 8192, 4, 16 << 20  # most of a step: versions, pages of rows, bytes of texts
IDS = 4096  # ids whose dead letters are erased at a time
READ = 4096  # members of groups that a step reads
PAUSE = 4  # after a step erasing pauses so many times as long as the step took
PROGRESS = "erasing"  # the pass in progress: its last entry, how many it has, and how many versions are erased

Beside = Callable[[Sequence[Version]], tuple[dict[bytes, bytes], list[Range]]]
"""What another store keeps of versions: the values to write, without their ids, and the ranges of keys that had the
ids."""

_ALL_ROWS, _BEHIND_ALL = 1 << 62, "~"
ALL_GROUPS = [(kind, bytes([kind[0] + 1])) for kind in (GROUP, MEMBERS, REMOVED_MEMBERS)]


@dataclass(slots=True)
class _Step:
    """The versions [at, end) of a pass: rows of a segment, None if it was deleted, and what is written for them.

    Attributes:
        segments: of the shard.
        rows: int64[n], ascending. ends: int64[n], behind the versions of each in the pass. before: uint64[n, width],
            what they are. versions: those of documents.
        named: rows from which the ids of versions are removed. begins: int64[m], of the versions from `at` on, behind
            these rows.
        values: without ids and texts. Older values of their keys have to leave the disk.
        more: further values for the same write.
    """

    shard: Shard
    segments: list[Place]
    segment: Segment | None
    at: int
    end: int
    rows: NDArray[np.int64]
    ends: NDArray[np.int64]
    named: list[int]
    begins: NDArray[np.int64]
    in_memory: bool = False
    before: NDArray[np.uint64] = field(default_factory=lambda: np.empty((0, 0), np.uint64))
    versions: list[int] = field(default_factory=list)
    values: dict[bytes, bytes] = field(default_factory=dict)
    more: dict[bytes, bytes] = field(default_factory=dict)

    def segment_of(self, row: int) -> int:
        """The number of the segment of a row."""
        return self.segments[bisect_right(self.segments, row, key=lambda place: place[1]) - 1][0]

    @property
    def fits(self) -> bool:
        """Whether the rows are where they were when the step was prepared."""
        moved = len(self.rows) > 0 and bool(self.rows[0] >= self.shard.rows.base) != self.in_memory
        return self.segment in self.shard.segments and not moved

    def cut(self, end: int) -> None:
        """Leave rows from `end` on to the next step."""
        n = int(np.searchsorted(self.rows, end))
        self.end, self.rows, self.ends, self.before = (
            int(self.ends[n - 1]),
            self.rows[:n],
            self.ends[:n],
            self.before[:n],
        )


class Erasing:
    """The erasing of an index that is open for writing.

    Args:
        after: seconds from a deletion until a version is due.
        pool: thread for the work in the background, which also closes segments.
        id_field: where dead letters have their ids.
        clock: seconds, for pauses; without one there are none.
        deletes_entries: as soon as they are erased; otherwise `forget` does.

    Attributes:
        beside: called for what else has ids of versions; None = nothing has.
        erased: number of versions that were erased and are not forgotten.
    """

    def __init__(
        self, folder: Path, store: Store, shards: Sequence[Shard], after: int, pool: ThreadPoolExecutor, id_field: str,
        *, clock: Callable[[], float] = lambda: 0.0, deletes_entries: bool = True,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._deletes_entries = deletes_entries
        self._folder = folder
        self._id_field = id_field
        self._store = store
        self._shards = {shard.number: shard for shard in shards}
        self._after = after
        self._pool = pool
        self.beside: Beside | None = None
        self.erased = 0
        self._front = ""  # no entry before this name is to be erased
        self._added = _BEHIND_ALL  # the first entry that was added since the pass began
        self._pass: Pass | None = None
        self._at = self._done = 0  # versions of the pass before these are written, or have left the disk
        self._lettered = 0  # the dead letters of versions before this one are erased
        self._next: _Step | None = None  # prepared, and to be written
        self._patches: list[_Step] = []  # whose rows in files are to be overwritten
        self._spans: list[Range] = []  # ranges of keys for the next sweep
        self._running: Future[Pass | _Step | None] | None = None
        self._reading = self._sweeping = False  # what runs
        self._nothing = False  # nothing was found to be due
        self._started = self._paused_until = 0.0

    def enter(self, now: float) -> dict[str, Any]:
        """The facts that add the versions deleted since the last commit to the erase queue."""
        facts: dict[str, Any] = {}
        for shard in self._shards.values():
            if not shard.limits.late:  # other shards have ids
                facts |= left_by(shard, int(now), self._after)
        self.added(facts)
        return facts

    def added(self, facts: Mapping[str, Any]) -> None:
        """These facts are added to the queue."""
        if self._deletes_entries:  # otherwise they wait for the next `forget`
            self._added, self._front = (min((name, *facts)) for name in (self._added, self._front))

    def rewrite(self, spans: Sequence[Range]) -> None:
        """Older values of these ranges of keys have to leave the disk: the next sweep rewrites them."""
        self._spans = list(joined([*self._spans, *spans]))

    @property
    def since(self) -> int | None:
        """When the latest of the versions that are being erased was deleted, in seconds since 1970; None if none is."""
        return self._pass.since if self._pass is not None else None

    def step(self, now: float, before: int | None = None, *, paced: bool = False) -> bool:
        """Do the next step if something is due and the step before is over. Returns whether nothing is left.

        Args:
            before: only entries made when the shard had fewer rows.
            paced: only after the pause.

        Raises:
            OutputError: the disk is full or refuses the write.
            StoreError: the same, or stored data is damaged.
        """
        if self._running is not None:
            if not self._running.done():
                return False
            self._take_over()
        if self._nothing:
            self._nothing = False
            return True
        if paced and self._clock() < self._paused_until:
            return False
        self._started = self._clock()
        if self._patches:  # a reader had the lock of the files
            self._begin(self._finished, [], None)
        elif self._pass is None:
            return not self._begin_pass(now, before)
        elif not self._letters(self._pass):
            self._erase(self._pass)
        return False

    def run(self, now: float, begins: Callable[[int], None] | None = None, seconds: float = float("inf")) -> None:
        """Erase everything that is due.

        Args:
            begins: called for each pass with its `since`, before its entries are deleted.
            seconds: begin no step after them.
        """
        end, known = self._clock() + seconds, None
        while self._clock() < end and not self.step(now):
            self.finish()
            if self._pass is not known and self._pass is not None and begins is not None:
                begins(self._pass.since)
            known = self._pass
            if self._patches:  # a reader holds the lock of the files
                return

    def finish(self) -> None:
        """Wait for the work in the background."""
        if self._running is not None:
            self._running.exception()
            self._take_over()

    def _begin(self, work: Callable[..., Pass | _Step | None], *given: Any) -> None:
        """Begin work in the background."""

        def timed() -> Pass | _Step | None:
            try:
                return work(*given)
            finally:
                now = self._clock()
                self._paused_until = now + PAUSE * (now - self._started)

        self._running = self._pool.submit(timed)

    def _take_over(self) -> None:
        """Take the result of the work in the background."""
        running, self._running = self._running, None
        with plainly(self._folder):
            found = running.result() if running is not None else None
        reading, sweeping, self._reading, self._sweeping = self._reading, self._sweeping, False, False
        if isinstance(found, Pass):
            self._pass, self._at = found, self._progress_of(found)
            self._lettered = self._at
        elif isinstance(found, _Step):
            self._next = found
        elif sweeping and self._pass is not None:
            self._end(self._pass)
        self._nothing = reading and found is None

    # -- passes -----------------------------------------------------------------------------------------------------

    def _begin_pass(self, now: float, before: int | None) -> bool:
        """Begin to read the next pass. False if nothing is due."""
        place = next(map(place_of, self._store.names(QUEUE_NAMES, self._front)), None)
        if place is None or place.due > now:
            return False
        progress = self._store.named(PROGRESS) if self._deletes_entries else None
        last = progress["last"] if progress is not None and progress["last"] >= place.name else None
        self._reading, self._added = True, _BEHIND_ALL
        self._begin(next_pass, self._store, self._front, now, before, last)
        return True

    def _progress_of(self, found: Pass) -> int:
        """How many versions of a pass are erased."""
        progress = self._store.named(PROGRESS)
        if progress is None or (progress["last"], progress["entries"]) != (found.places[-1].name, len(found.places)):
            return 0
        self._spans = list(ALL_GROUPS)
        return int(progress["at"])

    def _end(self, ended: Pass) -> None:
        """Everything of a pass is erased."""
        self.erased += count(ended.begins)
        self._pass, self._front = None, min(ended.places[-1].name + "\0", self._added)
        if self._deletes_entries:
            self.forget([place.name for place in ended.places])

    def forget(self, names: Sequence[str]) -> None:
        """Delete entries of which everything is erased."""
        done = (self._store.named(ERASED_VERSIONS) or 0) + self.erased
        values: dict[bytes, bytes | None] = {name_key(ERASED_VERSIONS): orjson.dumps(done), name_key(PROGRESS): None}
        self._store.write(values, map(name_key, names))
        if names:  # with a window they may have left it meanwhile
            self._spans.append((name_key(names[0]), name_key(names[-1]) + b"\0"))
        self.erased, self._front = 0, self._front if self._deletes_entries else ""

    def _letters(self, current: Pass) -> bool:
        """Erase the dead letters of some deleted ids. False if there are none."""
        letters, ids = self._folder / DEAD_LETTERS, set[bytes]()
        if self._lettered < len(current.rows) and letters.exists() and letters.stat().st_size:
            at = self._lettered + np.flatnonzero(current.deleted[self._lettered :])[:IDS]
            for number, row in zip(current.shards[at].tolist(), current.rows[at].tolist(), strict=True):
                shard = self._shards[number]
                if row >= shard.first:
                    ids.add(shard.ids.read(row))
            self._lettered = int(at[-1]) + 1 if len(at) == IDS else len(current.rows)
        if ids - {b"null"}:
            self._begin(lambda: erase_letters(letters, ids - {b"null"}, self._id_field))
        return self._running is not None

    # -- steps ------------------------------------------------------------------------------------------------------

    def _erase(self, current: Pass) -> None:
        """Write what is prepared, and prepare the next step; the sweep follows the last one."""
        self._done = self._at
        prepared, self._next, keys = self._next, None, list[bytes]()
        if prepared is not None and prepared.fits:
            keys = self._write(current, prepared)
        following = self._following(current)
        if following is not None and following.segment is None:
            self._write(current, following)
            following = None
        elif following is None and not (keys or self._patches):
            self._sweep()
            return
        self._begin(self._finished, keys, following)

    def _following(self, current: Pass) -> _Step | None:
        """The versions of the next step."""
        if (at := self._at) == len(current.rows):
            return None
        shard, row = self._shards[int(current.shards[at])], int(current.rows[at])
        segment, base = None, int(shard.rows.base)
        end, stop = shard.first, int(np.searchsorted(current.shards, shard.number, "right"))
        if row >= shard.first:
            segment = shard.segments.of(row)
            end = min(shard.segments.end_of(row), (row // PAGE + STEP_PAGES) * PAGE)
            if row < base:
                end = min(end, base)
        stop = min(at + STEP, at + int(np.searchsorted(current.rows[at:stop], end)))
        named, begins = list[int](), current.begins[at:stop].copy()  # the step may not be written
        if segment is not None:
            found, n = dropped_for(
                current.rows[at:stop], current.groups[at:stop], begins, current.ends[at:stop], READ, shard.rows,
                shard.table, shard.memory,
            )  # fmt: skip
            named, stop = np.unique(found).tolist(), at + int(n)
            if flushes := shard.flushed():
                self._store.write(flushes)
        some = current.rows[at:stop]
        rows = np.unique(some)
        ends = at + np.searchsorted(some, rows, "right")
        step = _Step(shard, shard.segments.places, segment, at, stop, rows, ends, named, begins, in_memory=row >= base)
        if step.in_memory:  # no other thread may read them
            step.before = shard.stored.at(rows)
        return step

    def _finished(self, keys: list[bytes], following: _Step | None) -> _Step | None:
        """Finish what is written, and prepare the next step."""
        self._store.flush(keys)
        self._write_patches()
        self._store.purge(keys)
        try:
            return None if following is None else self._prepared(following)
        except StoreError:
            if following is None or following.segment in following.shard.segments:
                raise
            return following  # a commit has dropped the segment meanwhile, and the step is not written

    def _prepared(self, step: _Step) -> _Step:
        """Make the values of a step."""
        shard, segment = step.shard, step.segment
        if segment is None or segment.rows.file < 0:
            return step
        ids, texts = Ids(self._store, shard.number, step.segment_of), Texts(self._store, shard.number, step.segment_of)
        ids.forget(_ALL_ROWS)  # all are read from the store
        if not step.in_memory:
            step.before = segment.rows.at(step.rows - segment.first)
        step.versions = step.rows[step.before[:, FLAGS] & np.uint64(DELETED | REPRESENTATIVE) == 0].tolist()
        if shard.limits.exact:
            step.values, done = texts.without(step.versions, STEP_BYTES)
            if done < len(step.versions):
                step.cut(step.versions[done])
                del step.versions[done:]
        step.values |= ids.without(step.versions, step.named)
        rows = step.rows
        places, fresh = rows - segment.first, np.zeros(len(rows), np.bool_)
        for page in np.unique(rows // PAGE).tolist():
            known = erased_of(self._store, shard.number, segment.number, page)
            new = np.setdiff1d(rows[rows // PAGE == page], known, assume_unique=True)
            if len(new):
                step.more |= listing(shard.number, segment.number, new)
                fresh[np.searchsorted(rows, new)] = True
        if not step.in_memory and fresh.any():
            step.more |= segment.rows.checksums(
                self._store, shard.number, segment.number, places[fresh], step.before[fresh]
            )
        self._store.flush(step.values)
        return step

    def _write(self, current: Pass, step: _Step) -> list[bytes]:
        """Write what is prepared. Returns the keys whose older values have to leave the disk."""
        shard, segment, rows = step.shard, step.segment, step.rows
        values, keys = step.values | step.more, list(step.values)
        some = slice(step.at, step.end)
        own = current.begins[some] != REPRESENTATIVE_ROW
        if self.beside is not None and own.any():
            groups, seqs = current.groups[some][own].tolist(), current.seqs[some][own].tolist()
            more, spans = self.beside(sorted(set(zip(groups, seqs, strict=True))))
            values |= more
            self._spans = list(joined([*self._spans, *spans]))
        if segment is not None and len(rows):
            signature_at = shard.shape.signature_at
            values |= blanked(self._store, shard.number, segment.number, rows, signature_at)
            if step.in_memory:  # batches may have changed them since they were read
                places = rows - int(shard.rows.base)
                shard.rows.recent[places] = blank(shard.rows.recent[places], signature_at)
            else:
                self._patches.append(step)
        progress = {"last": current.places[-1].name, "entries": len(current.places), "at": self._done}
        self._store.write(values | ({name_key(PROGRESS): orjson.dumps(progress)} if self._deletes_entries else {}))
        current.begins[step.at : step.at + len(step.begins)] = step.begins
        shard.ids.erased(step.versions, step.named)
        shard.texts.erased(step.versions)
        self._at = step.end
        return keys

    def _write_patches(self) -> None:
        """Overwrite rows in files, unless a reader compares them with their checksums."""
        if not self._patches:
            return
        with deletion_lock(self._folder) as free:
            while free and self._patches:
                step = self._patches.pop()
                if step.segment is not None and step.segment.rows.file >= 0:  # otherwise the segment was deleted
                    blanks = blank(step.before, step.shard.shape.signature_at)
                    step.segment.rows.patch(step.rows - step.segment.first, blanks)

    def _sweep(self) -> None:
        self._sweeping = True
        for shard in self._shards.values():
            values, passed = folded(self._store, shard.number, trimmed=shard.counted.trimmed)
            if values:
                self._store.write(values, ranges=passed)
        spans, self._spans = self._spans, []
        self._begin(self._store.sweep, spans)


def left_by(shard: Shard, now: int, after: int) -> dict[str, Any]:
    """The facts of the versions of a shard that were deleted since the last call; times in seconds since 1970."""
    versions = shard.rows.deleted_rows.take_versions()
    if not shard.limits.unique:  # deleted rows can be the only link to others
        return {}
    # Without updates no other row has these ids. With several shards they stay in the decisions, whose names a
    # redelivered document repeats.
    named = shard.limits.update and not shard.limits.late
    return dict(facts_of(versions, shard.number, now, after, named=named))
