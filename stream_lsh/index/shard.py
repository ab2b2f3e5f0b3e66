"""A shard of the index: its segments, the latest rows and postings in memory, and the tables that kernels read.

Rows, with their texts and ids, are the truth: the latest are in the store, flushed ones in the files of their segment.
Postings are derived, and rebuilt from the rows where they are lost.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError, StreamLshError
from stream_lsh.families.measure import MEASURES
from stream_lsh.index.batch import SignedBatch
from stream_lsh.index.kernel import compiling
from stream_lsh.index.kernel.document_frequency import Counted, DocumentFrequency
from stream_lsh.index.kernel.insert import restore_heads
from stream_lsh.index.kernel.limits import limits_of
from stream_lsh.index.kernel.shingle_sets import Sets
from stream_lsh.index.kernel.work import Results, Scratch, Work
from stream_lsh.index.matches import Matches
from stream_lsh.index.postings.memtable import Memtable, power_of_two
from stream_lsh.index.postings.runs import Workers
from stream_lsh.index.resolution import States
from stream_lsh.index.rows import layout
from stream_lsh.index.rows.decisions import lay_over, stored_decisions
from stream_lsh.index.rows.deleted_rows import DeletedRows
from stream_lsh.index.rows.ids import Ids
from stream_lsh.index.rows.keys import Hashes
from stream_lsh.index.rows.layout import UNIQUE, Rows
from stream_lsh.index.rows.row_file import Shape, unpacked
from stream_lsh.index.rows.texts import Texts
from stream_lsh.index.segments.erased_rows import Keyed, erased_of
from stream_lsh.index.segments.manifest import BATCH, Manifest
from stream_lsh.index.segments.provisional_rows import ProvisionalRows
from stream_lsh.index.segments.sampled_keys import SampledKeys, Shingle
from stream_lsh.index.segments.segment import Segment, post_provisional_rows, post_rows
from stream_lsh.index.segments.segments import Segments
from stream_lsh.index.segments.stored_rows import Stored
from stream_lsh.index.store.heap import trim
from stream_lsh.index.store.rocksdb import DECISIONS, ROWS, Range, Store, rows_key
from stream_lsh.progress import report
from stream_lsh.settings.model import Settings

NO_NUMBERS = np.empty(0, np.int64)
CACHED_SHINGLES = 8 << 20  # of the latest rows' sets: 64 MB, and twice as much for bitmaps of the sets of older rows
CACHED_HEADS = 128 << 20  # bytes of the latest rows' signature heads
FIRST_POSTINGS = 1 << 12  # a memtable has slots for so many at first
MERGE_LOOK_SECONDS = 0.05  # between two looks at merges that are awaited


def most_in_memory(settings: Settings) -> int:
    """Rows of a shard that are in no file, above which they are flushed: a memtable, and provisional rows."""
    return settings.memtable_documents // settings.shards + settings.most_rows * 2 * settings.block


class Shard:
    """A shard, opened at its last committed row.

    Args:
        state: folder of the index.
        base: of an empty shard: rows before this one do not exist, because the changelog was trimmed.
        workers: None = read only, while another process may write.

    Raises:
        DamagedError: stored data is missing, truncated or changed.
    """

    def __init__(
        self,
        number: int,
        settings: Settings,
        store: Store,
        state: Path,
        hashes: Hashes,
        shingle: Shingle,
        workers: Workers | None,
        *,
        base: int = 0,
    ) -> None:
        self.number = number
        self.state = state
        self.shape = shape = Shape(settings)
        self.kernels = compiling.needed(settings)
        self.limits = limits_of(settings, shape, hashes.secret)
        self.query_limits = self.limits.replaced(store=False)
        self.segments = Segments(state, number, shape, workers)
        self.texts = Texts(store, number, self.segments.number_of)
        self.ids = Ids(store, number, self.segments.number_of, decided_later=settings.late)
        self.shingle = shingle
        self.sets = Sets.of(
            power_of_two(CACHED_SHINGLES // settings.shards) if self.limits.exact and not self.limits.stories else 0,
            MEASURES.index(settings.measure), settings.dimensions or 0,
        )  # fmt: skip
        self.counted = Counted(
            store, number, DocumentFrequency.of_shard(settings, shape.signature_words), trimmed=base > 0
        )
        self._store = store
        self.hashes = hashes
        sampler = SampledKeys(self.texts, shingle) if hashes.samples else None
        self.keyed = Keyed(shape, hashes, sampler)
        self._workers = workers
        self._manifest = manifest = Manifest(store, number, base)
        base = manifest.first
        # Rows that one batch can add, with the representative rows of a block.
        self._most = 2 * BATCH + settings.block if self.limits.update else BATCH
        self._room = most_in_memory(settings) + self._most
        if workers is None:  # nothing can be flushed: there must be room for all rows that are in no file
            self._room = max(self._room, manifest.rows - manifest.in_files + self._most)
        ring = power_of_two(max(self._room, CACHED_HEADS // settings.shards // (8 * shape.head_words)))
        self.rows = Rows(
            base=base, total=base, recent=np.zeros((self._room, shape.width), np.uint64),
            segments=np.empty((0, 3), np.int64), signature_at=shape.signature_at, log_at=shape.log_at,
            read=np.empty(shape.width, np.uint64), begin=np.empty(layout.MASK, np.uint64), known=-1, kept=base,
            ring=np.empty(ring * shape.head_words, np.uint64), notes=np.empty(ring, np.uint8), seen=base,
            seen_log=-1, guides=base, deleted_rows=DeletedRows.of(base),
        )  # fmt: skip
        self.stored = Stored(number, self.rows, self.segments)
        self._segment = base  # first row of the memtable
        self._at = 0  # index of its segment
        self.late = ProvisionalRows(settings, self.rows, manifest.provisional, base)
        manifest.provisional = self.late.facts if settings.late else None
        self._done = base  # rows before it are posted, where rows are posted after their decision
        self._postings = self._room * (settings.signing.bands + 3)  # more only where documents have many keys
        self.memory = Memtable.of(self._postings, FIRST_POSTINGS)
        self.table = np.empty((0, layout.COLUMNS), np.int64)
        self.met = power_of_two(min(settings.signing.bands + 1, 32) * settings.max_bucket_rows)
        self.hits = np.empty((0, 0), np.uint64)  # the runs that may have each key of a batch
        self.scratch = Scratch.of(0, 0, 0, 0, 0)
        self.results = Results.of(0)
        self.work: Work | None = None  # the kernels' arguments in the last run
        self.given: tuple[object, ...] = ()  # its values
        self._decisions: dict[bytes, bytes] = {}
        try:
            self._restore(manifest.segments)
        except BaseException:
            with suppress(StreamLshError):
                self.finish()
            self.close()
            raise

    # -- matching ---------------------------------------------------------------------------------------------------

    def keep(
        self, matches: Matches, batch: SignedBatch, start: int, stop: int, named: Sequence[bytes] | None = None
    ) -> None:
        """Keep ids and texts of the rows that the documents [start, stop) of a batch became, for the next commit and
        for reading.

        Args:
            named: ids of the documents' oldest matches; None = this shard has them.
        """
        documents = start + (matches.row_of[start:stop] >= 0).nonzero()[0]
        rows, places = matches.row_of[documents].tolist(), documents.tolist()
        ids = [batch.ids[i] for i in places]
        firsts = [b""] * len(ids) if named is None else [named[i - start] for i in places]
        if named is None and self.limits.alone:
            of = matches.of[documents]
            if self.limits.keep:  # what a document supersedes is not kept with it: it need not be erased there
                of = np.where(matches.kind[documents] == UNIQUE, -1, of)
            for k in (of >= 0).nonzero()[0].tolist():
                row = int(of[k])
                firsts[k] = self.ids.read(row) if row < self.ids.last else ids[bisect_left(rows, row)]
        self.ids.add(ids, firsts, rows, self.count)
        if self.limits.exact and rows:
            self.texts.add(batch.frames[self.number], dict(zip(places, rows, strict=True)))

    # -- provisional rows ----------------------------------------------------------------------------------------------

    def enter(self, block: int) -> None:
        """The next document is in this block of the log. Rows before the last two blocks have decisions, and are
        posted."""
        if block != self.late.block:
            self.late.enter(block, self.count)
            self._decide()

    def tell(self, others: States, names: Sequence[bytes], representatives: NDArray[np.int64] = NO_NUMBERS) -> None:
        """Take the decisions about the rows that are resolved when the next block begins. The other rows were kept, and
        are first members.

        Args:
            others: rows that were dropped, or stay in the group of the version before them; ascending by number.
            names: the ids that they were dropped for, b"" where there is none.
            representatives: numbers of the chosen representatives.
        """
        self.rows.deleted_rows.enter(self.late.unused_representatives(representatives))
        all = self.late.decisions(others, names, representatives, self.hashes)
        all.lay_over(self.rows.recent, self._base)
        self.ids.name(all.rows.tolist(), all.names)
        for number, first, last in self.segments.between(all.first, all.last):
            self._decisions[rows_key(DECISIONS, self.number, number, first)] = all.between(first, last).encode()

    def _decide(self) -> None:
        """Post the rows that have decisions."""
        self._post(self._done, min(self.late.first, self.count))

    def _post(self, first: int, last: int) -> None:
        """Post rows in memory, each in its segment."""
        while first < last:
            segment = self.segments[self._at]
            stop = last
            if self._at + 1 < len(self.segments):
                stop = min(last, self.segments[self._at + 1].first)
            block = self.rows.recent[first - self._base : stop - self._base]
            post_rows(block, first, segment.first, self.memory, self.keyed, self.shape)
            first = self._done = stop
            self._advance()

    def _advance(self) -> None:
        """Close the segments whose rows are all posted, except the newest."""
        while self._at + 1 < len(self.segments) and self.segments[self._at + 1].first <= self._posted:
            self.flush()
            self.segments[self._at].postings.closed = True
            self._at += 1
        self.memory.first = self.segments[self._at].first

    @property
    def _posted(self) -> int:
        """The first row that is not posted."""
        return self._done if self.limits.late else self.count

    def post_representatives(self, first: int) -> None:
        """Post the representative rows from `first` on among the provisional ones."""
        block = self.rows.recent[first - self._base : self.count - self._base]
        post_provisional_rows(block, first, self.late.newer, self.keyed, self.shape)

    def make_room_for_deletions(self, documents: int) -> None:
        """Make room for the deletions and replacements of this many documents, which add up to twice as many rows."""
        if not self.segments:  # there are no rows
            return
        self.rows.deleted_rows.reach(self.count + 2 * documents, self.first)
        self.rows.deleted_rows.room_for(3 * documents if self.limits.keep else documents)

    # -- rows -------------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Number of rows ever added."""
        return int(self.rows.total)

    @property
    def first(self) -> int:
        """The first row that still exists."""
        return self.segments[0].first if self.segments else self.count

    @property
    def live_rows(self) -> int:
        """Number of live rows."""
        return self.count - self.first - int(self.rows.deleted_rows.count)

    @property
    def _base(self) -> int:
        """The first row in memory."""
        return int(self.rows.base)

    # -- durability -------------------------------------------------------------------------------------------------

    def take(self) -> tuple[dict[bytes, bytes], list[Range]]:
        """The values that make everything durable, and the ranges of keys that are obsolete with them, for one atomic
        write."""
        manifest = self._manifest
        if manifest.rows < self._base:  # flushed before the commit: its run has to be on the disk
            for segment in self.segments:
                segment.postings.wait_for_flush()
            self._look()  # runs in memory are files now, and their arrays are freed
        marks = self.rows.deleted_rows.take(self.number, self.segments.places, self.count)
        values = {**self.ids.take(manifest.rows), **self.texts.take(), **self.pending(), **self._decisions, **marks}
        self._decisions = {}
        self.rows.deleted_rows.take_versions()  # erasing has read it before
        self.ids.forget(self._base)
        manifest.rows, manifest.deleted_rows = self.count, int(self.rows.deleted_rows.count)
        manifest.provisional = self.late.facts if self.limits.late else None
        for segment in self.segments:
            segment.postings.rows = self._posted - segment.first
        (more, ranges), (rare, passed) = self.manifest(), self.counted.take()
        return {**values, **more, **rare}, ranges + passed

    def pending(self) -> dict[bytes, bytes]:
        """The values of the rows that are neither committed nor flushed."""
        return self.stored.values(max(self._manifest.rows, self._base), self.count)

    def manifest(self) -> tuple[dict[bytes, bytes], list[Range]]:
        """The manifest's value, and the ranges of keys that are obsolete with it."""
        return self._manifest.take(self.segments)

    def flushed(self) -> dict[bytes, bytes]:
        """The checksums of flushes since the last call. The store may also have some of flushes that were not
        committed."""
        return self._manifest.flushes()

    def lets_go(self, number: int) -> bool:
        """Whether a segment can be deleted: all of it is committed and in files, and a later segment has begun."""
        later = next((g for g in self.segments if g.number > number), None)
        return (
            later is not None
            and later.first <= min(self._manifest.rows, self._segment)
            and (self.segments[self._at].number > number)
        )

    def drop(self, number: int) -> list[Segment]:
        """Remove the oldest segment, if it has this number, from the shard and its next manifest. The caller closes
        what is returned."""
        if not self.segments or self.segments[0].number != number:  # no document belongs to it
            return []
        oldest = self.segments.pop(0)
        self._at -= 1
        self._look()
        rows, first = self.rows, self.first
        rows.deleted_rows.forget(first)
        if rows.seen < first:
            rows.seen = rows.guides = first
            rows.seen_log = -1
        self._manifest.forget(number)
        return [oldest]

    def committed(self) -> None:
        """The values of `take` are durable."""
        self.segments.committed()

    @property
    def full(self) -> bool:
        """Whether the memtable must be flushed before another batch."""
        return self.count - self._segment + self._most > self._room or int(self.memory.postings) > self._postings

    def flush(self) -> None:
        """Write the memtable as a run."""
        segment, posted = self.segments[self._at], self._posted
        first, last = self._segment - segment.first, posted - segment.first
        if first == last:
            return
        keys, rows = self.memory.sorted()
        if self._workers is not None:
            crc = segment.rows.append(self.rows.recent[: last - first])
            self._manifest.flushed(segment.number, first, last, crc)
            self.rows.recent[: self.count - posted] = self.rows.recent[last - first : self.count - self._base]
            self.rows.base = posted
            if not self._decisions:  # otherwise the store does not have these ids yet
                self.ids.forget(min(self._base, self._manifest.rows))
        segment.postings.add(keys, rows, first, last, segment.rows.sync)
        self._segment = posted
        self.memory.clear()
        self.memory.shrink(self._postings)
        self._look()
        trim()

    def begin(self, number: int) -> None:
        """Begin a segment; the one before is complete."""
        if self.segments:
            before = self.segments[-1]
            if before.number == number:
                return
            if before.first == self.count:  # it has no rows
                self.segments.pop().close()
        self.texts.pack()
        self._open(number, self.count, None)
        self.counted.begin(number, self.limits.window > 0)

    def _open(self, number: int, first: int, known: dict[str, Any] | None) -> Segment:
        segment = self.segments.open(number, first, known)
        self._at = min(self._at, len(self.segments) - 1)
        self._advance()
        self._look()
        return segment

    def poll(self) -> None:
        """Take over the results of the background threads; call it between batches."""
        if self._workers is not None and self.segments.poll():
            self._look()

    def _look(self) -> None:
        """Update the kernels' tables of runs and segments."""
        self.table, self.rows.segments = self.segments.table(), self.segments.files()

    @property
    def pause(self) -> float:
        """Seconds that a writer should wait per 1,000 documents, so that merges keep up."""
        return self.segments.pause

    def _restore(self, known: list[dict[str, Any]]) -> None:
        for i, item in enumerate(known):
            report(f"opening shard {self.number}", i, len(known), "segments")
            segment = self._open(item["number"], item["first"], item)
            end = known[i + 1]["first"] if i + 1 < len(known) else self._manifest.rows
            # What is flushed here is committed already, except provisional rows.
            last = min(end, self.late.first) if self.limits.late else end
            segment.postings.rows = last - segment.first
            if segment.lost:
                # Postings made from changed rows would stay wrong.
                report(f"verifying the rows of segment {segment.number}", 0, segment.rows.flushed, "rows")
                erased = erased_of(self._store, self.number, segment.number) - segment.first
                segment.rows.verify(self._store, self.number, segment.number, erased)
                segment.rebuild(self.memory, self.keyed, self._room)
            flushed = segment.first + segment.rows.flushed
            if self._base == self.count:
                if flushed > self.count:
                    self.rows.kept = flushed
                self.rows.base = self.rows.total = self._done = flushed
            if self._at == i:
                self._segment = flushed
            while self.count < end:
                report(f"reading the latest rows of shard {self.number}", self.count - flushed, end - flushed, "rows")
                self._replay(segment, end)
                if self._workers is not None and self.full:  # after the last rows too: the next batch needs the room
                    self.flush()
        self._look()
        self.rows.deleted_rows.restore(
            self._store, self.number, self.segments.places, self._manifest.rows, self._manifest.deleted_rows
        )
        self.ids.restore(self._base, self._manifest.rows)
        row = self._base
        while row < self.late.first and (
            found := stored_decisions(self._store, self.number, self.segments.number_of(row), row)
        ):
            mine = found.between(row, found.last)
            self.ids.name(mine.rows.tolist(), mine.names)
            row = found.last

    def _replay(self, segment: Segment, end: int) -> None:
        """Post the rows of one value of the store again."""
        row = self.count
        first, value = self._store.holding(ROWS, self.number, segment.number, row)
        try:
            block = unpacked(value)
        except (struct.error, ValueError):
            block = np.empty((0, self.shape.width), np.uint64)
        if block.shape[1] != self.shape.width or not first <= row < first + len(block):
            raise DamagedError(
                f"{self._store.path}: the rows from {first} of shard {self.number} are damaged; "
                "restore the folder from a backup"
            )
        block = np.ascontiguousarray(block[row - first : end - first])
        self.rows.recent[row - self._base : row - self._base + len(block)] = block
        restore_heads(block, row, self.rows, self.shape.head_words)
        self.rows.total = row + len(block)
        if not self.limits.late:
            self._post(row, self.count)
            return
        recent = self.rows.recent[: self.count - self._base]
        lay_over(self._store, self.number, segment.number, recent, self._base, row, self.late.first)
        self._decide()
        self.late.post_again(row, self.keyed, self.shape)

    def merge(self, ends: Callable[[], bool]) -> None:
        """Wait until there is nothing left to merge, or `ends()`."""
        while not ends() and self.segments.merging(MERGE_LOOK_SECONDS):
            self.poll()

    def finish(self) -> None:
        """Wait until the last flush is on disk; begin no merge."""
        self.segments.finish()

    def close(self) -> None:
        self.segments.close()
