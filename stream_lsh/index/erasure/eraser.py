"""Erasing: removing the ids and texts of deleted and replaced versions from the disk, some time after the deletion.

Erasing removes what no query reads, and changes no verdict. It may therefore follow the clock. It runs in rounds of
bounded work, one round after a commit. A round erases due versions of one page of rows:

1. One atomic write replaces their ids, texts and latest rows, lists them as erased, and adds new checksums.
   From then on the versions count as erased, whichever of the next two steps reaches the disk first.
2. The rows in files are overwritten.
3. In the background, RocksDB rewrites the files that had the old values.

Earlier rounds erase the dead letters of deleted ids, and remove these ids from the rows that were dropped for the
versions. When nothing is due, a sweep follows. It replaces the document frequencies of each commit by one sum, and
rewrites RocksDB's log, the latest rows and the group store. The entries of the erase queue are deleted after the sweep:
after a crash the erasing is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.documents.erased_letters import FILE as DEAD_LETTERS
from stream_lsh.documents.erased_letters import erase_letters
from stream_lsh.index.erasure.queue import (
    ERASED_VERSIONS,
    NONE_DROPPED,
    REPRESENTATIVE_ROW,
    QueueEntry,
    Version,
    facts_of,
    in_rows,
    of_fact,
    queue_entries,
)
from stream_lsh.index.kernel.document_frequency import folded
from stream_lsh.index.kernel.replace import dropped_for, oldest_members
from stream_lsh.index.rows.ids import BLOCK
from stream_lsh.index.rows.layout import DELETED, FLAGS, GROUP, ID
from stream_lsh.index.rows.row_file import blank
from stream_lsh.index.rows.texts import FRAME_DOCUMENTS
from stream_lsh.index.segments.erased_rows import PAGE, blanked, erased_of, listing
from stream_lsh.index.segments.segment import Segment
from stream_lsh.index.shard import Shard
from stream_lsh.index.store.errors import plainly
from stream_lsh.index.store.files import deletion_lock
from stream_lsh.index.store.rocksdb import Range, Store, name_key

MOST = 64  # text frames and id values that a round rewrites
PAST = 256  # versions of a deleted segment that a round handles
IDS = 4096  # ids whose dead letters are erased at a time
MEMBERS = 4096  # members of a group that a round reads
REACH = 1 << 19  # rows behind the first one in which a round rewrites ids
ROUNDS = 256  # rounds between sweeps, even if something is still due
_LOOK = 4  # a search for members of a group costs as much as reading this many

Beside = Callable[[Sequence[Version]], tuple[dict[bytes, bytes], list[Range]]]
"""What another store keeps of versions: the values to write, without their ids, and the ranges of keys that had the
ids."""


Patch = tuple[Shard, Segment, NDArray[np.int64], NDArray[np.uint64]]
"""Rows of a file to overwrite: their places, and their new words."""


class Erasing:
    """The erasing of an index that is open for writing.

    Args:
        after: seconds from a deletion until a version is due.
        pool: thread for the work in the background.
        id_field: where dead letters have their ids.
        forgets: entries are deleted as soon as they are erased; otherwise by `forget`.

    Attributes:
        beside: called for what else has ids of versions; None = nothing has.
    """

    def __init__(
        self, folder: Path, store: Store, shards: Sequence[Shard], after: int, pool: ThreadPoolExecutor, id_field: str,
        *, forgets: bool = True,
    ) -> None:  # fmt: skip
        self._forgets = forgets
        self._folder = folder
        self._id_field = id_field
        self._store = store
        self._shards = shards
        self._after = after
        self._pool = pool
        self.beside: Beside | None = None
        self._queue = list(queue_entries(store))
        self._patches: list[Patch] = []
        self._spans: list[Range] = []  # ranges of keys for the next sweep
        self._running: Future[None] | None = None
        self._sweeping = False
        self._rounds = 0  # number of rounds since the last sweep

    def enter(self, now: float) -> dict[str, Any]:
        """The facts that add the versions deleted since the last commit to the erase queue."""
        facts: dict[str, Any] = {}
        for shard in self._shards:
            facts |= left_by(shard, int(now), self._after)
        self.add(facts)
        return facts

    def add(self, facts: Mapping[str, Any]) -> None:
        """Add entries to the queue."""
        self._queue += [of_fact(name, fact) for name, fact in facts.items()]

    @property
    def queue(self) -> Sequence[QueueEntry]:
        """The queue, with entries that are erased and not forgotten yet."""
        return self._queue

    def due_since(self, now: float) -> int | None:
        """When the latest of the versions that are due now was deleted, in seconds since 1970; None if none is due."""
        return max((item.since for item in self._queue if item.due <= now), default=None)

    def step(self, now: float, before: int | None = None) -> None:
        """After a commit, begin the next round if something is due and the previous round is over.

        Args:
            before: only entries made when the shard had fewer rows.

        Raises:
            OutputError: the disk is full or refuses the write.
            StoreError: the same, or stored data is damaged.
        """
        if self._running is not None:
            if not self._running.done():
                return
            self._take_over()
        self._write_patches()
        if self._patches:
            return
        due = [item for item in self._queue if item.due <= now and not item.swept]
        if before is not None:
            due = [item for item in due if item.there < before]
        if self._letters([item for item in due if not item.letters_erased]):
            return
        while self._rounds < ROUNDS and (item := next((item for item in due if item.left.any()), None)) is not None:
            if self._round(self._shards[item.shard], [other for other in due if other.shard == item.shard]):
                self._rounds += 1
                return
        if due:
            self._rounds, self._sweeping = 0, True
            for shard in self._shards:
                values, passed = folded(self._store, shard.number, trimmed=shard.counted.trimmed)
                if values:
                    self._store.write(values, ranges=passed)
            spans, self._spans = self._spans, []
            self._running = self._pool.submit(self._store.sweep, spans)

    def run(self, now: float) -> None:
        """Erase everything that is due."""
        while any(item.due <= now for item in self._queue):
            self.step(now)
            if self._patches:  # a reader holds the lock of the files
                return
            self.finish()

    def finish(self) -> None:
        """Wait for the work in the background."""
        if self._running is not None:
            self._running.exception()
            self._take_over()

    def _take_over(self) -> None:
        running, self._running = self._running, None
        with plainly(self._folder):
            if running is not None:
                running.result()
        if self._sweeping:
            self._sweeping = False
            for item in self._queue:
                item.swept = not item.left.any()
            if self._forgets:
                self.forget()

    def forget(self) -> None:
        """Delete the entries of which everything is erased."""
        erased = [item for item in self._queue if item.swept]
        self._queue = [item for item in self._queue if not item.swept]
        done = (self._store.named(ERASED_VERSIONS) or 0) + sum(item.versions for item in erased)
        names = [name_key(item.name) for item in erased]
        self._store.write({name_key(ERASED_VERSIONS): orjson.dumps(done)}, names)

    # -- rounds -----------------------------------------------------------------------------------------------------

    def _round(self, shard: Shard, due: Sequence[QueueEntry]) -> bool:
        """One round: the first rows that are left, of entries of one shard. False if nothing is left."""
        expired = ((item, at) for item in due for at in np.flatnonzero(item.left & (item.rows < shard.first)).tolist())
        if past := list(islice(expired, PAST)):  # rows of deleted segments
            self._write({}, self._nameless(past))
            return True
        row = next((int(item.rows[item.left][0]) for item in due if item.left.any()), None)
        if row is None:
            return False
        begin, end = _page(shard, row)
        if named := self._named(shard, in_rows(due, begin, end, named=True)):
            self._write(shard.ids.without((), named))
            return True
        chosen: list[tuple[QueueEntry, int]] = []
        frames: set[int] = set()
        for item, at in in_rows(due, begin, end, named=False):
            frame = int(item.rows[at]) // FRAME_DOCUMENTS
            if len(frames) == MOST and frame not in frames:
                break
            frames.add(frame)
            chosen.append((item, at))
        if chosen:
            self._erase(shard, np.unique([int(item.rows[at]) for item, at in chosen]), self._nameless(chosen))
        return True

    def _letters(self, due: Sequence[QueueEntry]) -> bool:
        """Erase the dead letters of the ids of some entries. False if there are none."""
        letters, ids = self._folder / DEAD_LETTERS, set[bytes]()
        for item in due if letters.exists() and letters.stat().st_size else ():
            shard = self._shards[item.shard]
            ids |= {shard.ids.read(row) for row in item.rows[item.deleted & (item.rows >= shard.first)].tolist()}
            item.letters_erased = True
            if len(ids) >= IDS:
                break
        if ids - {b"null"}:
            self._running = self._pool.submit(erase_letters, letters, ids - {b"null"}, self._id_field)
        return self._running is not None

    def _nameless(self, chosen: Sequence[tuple[QueueEntry, int]]) -> dict[bytes, bytes]:
        """Mark these versions as erased; the values that other stores keep of them, without their ids."""
        versions = set()
        for item, at in chosen:
            item.left[at] = False
            if item.begins[at] != REPRESENTATIVE_ROW:
                versions.add((int(item.groups[at]), int(item.seqs[at])))
        if self.beside is None or not versions:
            return {}
        values, spans = self.beside(sorted(versions))
        self._spans += spans
        return values

    def _named(self, shard: Shard, versions: Iterable[tuple[QueueEntry, int]]) -> list[int]:
        """Rows that were dropped for some of these versions and have their ids, as many as a round rewrites. A version
        whose rows have all been listed can be erased."""
        named: list[int] = []
        blocks: set[int] = set()
        looked = 0
        for item, at in versions:
            (version,) = shard.stored.at(item.rows[at : at + 1])
            while item.begins[at] >= 0:
                if looked > MEMBERS or len(blocks) == MOST:
                    return named
                found = _behind(shard, version[GROUP], int(item.begins[at]))
                members = found[found < item.ends[at]]
                looked += len(found) + _LOOK
                for member in members[dropped_for(version[ID], members, shard.rows)].tolist():
                    if named and (member > named[0] + REACH or (len(blocks) == MOST and member // BLOCK not in blocks)):
                        item.begins[at] = member
                        return named
                    named.append(member)
                    blocks.add(member // BLOCK)
                item.begins[at] = int(found[-1]) + 1 if len(members) == MEMBERS else NONE_DROPPED
        return named

    def _erase(self, shard: Shard, rows: NDArray[np.int64], more: dict[bytes, bytes]) -> None:
        """Erase rows of one page.

        Args:
            rows: int64[n], ascending.
            more: values for the same write.
        """
        segment = shard.segments.of(int(rows[0]))
        known = erased_of(self._store, shard.number, segment.number, int(rows[0]))
        block = shard.stored.at(rows)
        versions = rows[block[:, FLAGS] & np.uint64(DELETED) == 0].tolist()
        values = shard.ids.without(versions, ())
        if shard.limits.exact:
            values |= shard.texts.without(versions)
        anew = values.copy()
        new = ~np.isin(rows, known)
        if new.any():
            values |= listing(shard.number, segment.number, rows[new])
        before, block = block, blank(block, shard.shape.signature_at)
        values |= blanked(self._store, shard.number, segment.number, rows, shard.shape.signature_at)
        base = int(shard.rows.base)
        in_memory = rows >= base
        shard.rows.recent[rows[in_memory] - base] = block[in_memory]
        filed = ~in_memory
        if filed.any():
            places = rows[filed] - segment.first
            if flushes := shard.flushed():
                self._store.write(flushes)
            fresh = new[filed]
            values |= segment.rows.checksums(
                self._store, shard.number, segment.number, places[fresh], before[filed][fresh]
            )
            self._patches.append((shard, segment, places, block[filed]))
        self._write(anew, values | more)

    def _write(self, anew: dict[bytes, bytes], values: dict[bytes, bytes] | None = None) -> None:
        """Write values. In the background RocksDB rewrites the files that have an older value of `anew`."""
        keys = list(anew)
        self._store.flush(keys)
        self._store.write(anew if values is None else values)
        self._store.flush(keys)
        self._write_patches()
        self._running = self._pool.submit(self._store.purge, keys)

    def _write_patches(self) -> None:
        """Overwrite rows in files, unless a reader compares them with their checksums."""
        if not self._patches:
            return
        with deletion_lock(self._folder) as free:
            while free and self._patches:
                shard, segment, places, rows = self._patches.pop()
                if segment in shard.segments:  # otherwise the segment was deleted
                    segment.rows.patch(places, rows)


def left_by(shard: Shard, now: int, after: int) -> dict[str, Any]:
    """The facts of the versions of a shard that were deleted since the last call; times in seconds since 1970."""
    versions = shard.rows.deleted_rows.take_versions()
    # With `compare_with = all` deleted rows can be the only link to others; with several shards other shards have the
    # ids.
    if not shard.limits.unique or shard.limits.late:
        return {}
    # Without updates no other row has these ids.
    return dict(facts_of(versions, shard.number, now, after, named=shard.limits.update))


def _page(shard: Shard, row: int) -> tuple[int, int]:
    """First and last row (not included) of the part of a row's page that is in its segment."""
    segments = shard.segments
    return (
        max(segments.of(row).first, row // PAGE * PAGE),
        min(segments.end_of(row), (row // PAGE + 1) * PAGE),
    )


def _behind(shard: Shard, group: np.uint64, row: int) -> NDArray[np.int64]:
    """The oldest MEMBERS members of a group, from a row on."""
    found: NDArray[np.int64] = oldest_members(group, np.int64(row), np.int64(MEMBERS), shard.table, shard.memory)
    return found
