"""The index: its shards over one store, and the order in which a batch passes through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.fields import dumped
from stream_lsh.documents.times import NO_TIME
from stream_lsh.errors import DamagedError, StoreError, StreamLshError, UsageError
from stream_lsh.index.batch import SignedBatch, parts
from stream_lsh.index.batch_run import BatchRun
from stream_lsh.index.erasure.eraser import Beside, Erasing
from stream_lsh.index.matches import Matches
from stream_lsh.index.postings.runs import Workers
from stream_lsh.index.reader import IndexReader
from stream_lsh.index.resolution import NO_SUPERSEDED, Resolution, Resolved, States, rows_superseded
from stream_lsh.index.rows.layout import DELETION, SEQ, TIME, VALID
from stream_lsh.index.segments.identity import identity
from stream_lsh.index.segments.removal import Removal
from stream_lsh.index.segments.segment import Segment
from stream_lsh.index.segments.window import Window
from stream_lsh.index.shard import NO_NUMBERS, Shard
from stream_lsh.index.store.column_families import limit_cache
from stream_lsh.index.store.errors import plainly
from stream_lsh.index.store.files import looking, make_folder
from stream_lsh.index.store.rocksdb import Range, Store, name_key
from stream_lsh.progress import report
from stream_lsh.settings.model import Settings

TRIES = 20  # attempts to open an index that another process writes to


class Index(IndexReader):
    """Signing and matching against a persistent index.

    Args:
        settings: settings that are not given are taken from the index.
        folder: created if missing.
        durable: each commit waits for the disk.
        read_only: only `query`; the last commit is opened, while another process may write.
        now: seconds since 1970, stored as the time of creation.
        clock: seconds, for the pauses of erasing.

    Attributes:
        shards, window: see `IndexReader`.

    Raises:
        StoreError: other settings, another format, another process, or damage; the message names file and remedy.
    """

    shards: list[Shard]

    def __init__(
        self, settings: Settings, folder: Path, *, durable: bool = True, read_only: bool = False, now: float = 0,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.read_only = read_only
        self._torn = False
        self._clock = clock
        self.shards = []
        self._workers = None if read_only else Workers()
        self._pool: ThreadPoolExecutor | None = None
        report("opening the index")
        if not read_only:
            with plainly(folder):
                make_folder(folder)
            self._open(settings, Store(folder / "db", sync=durable), now)
            return
        for left in range(TRIES - 1, -1, -1):
            try:
                with plainly(folder), looking(folder):
                    self._open(settings, Store(folder / "db", read_only=True), now)
                return
            except DamagedError:
                # RocksDB, which does not use the lock, may have replaced files of its own meanwhile.
                if not left:
                    raise

    def _open(self, settings: Settings, store: Store, now: float) -> None:
        self.store = store
        limit_cache(settings.cache_bytes)
        try:
            facts = identity(store, self.folder, settings, now, read_only=self.read_only)
            found = settings.of_index(facts["settings"], f"the index in {self.folder}")
            super().__init__(found, bytes.fromhex(facts["key"]))
            self.shards = []
            for number in range(self.settings.shards):
                shard = Shard(
                    number, self.settings, store, self.folder, self._hashes, self.signer.shingle, self._workers
                )
                self.shards.append(shard)
            self.window = Window(self.settings, store.named("window")) if self.settings.window else None
            self._removal = Removal(self.folder, store, self._workers.deletes) if self._workers else None
            if self._removal is not None and self.window is not None and self.window.spans:
                self._removal.sweep(self.window.spans[0].number)
            self._erasing = None
            if self._workers is not None and self.settings.erase_hours is not None:  # None on Kafka, unless it is set
                after = round(3600 * self.settings.erase_hours)
                self._erasing = Erasing(
                    self.folder,
                    store,
                    self.shards,
                    after,
                    self._workers.deletes,
                    self.settings.id_field,
                    clock=self._clock,
                )
            self._resolution = Resolution(self.settings.keep)
            if self.settings.late:
                states = States.joined([shard.late.states() for shard in self.shards])
                self._resolution.restore(states, store.named("resolution"))
        except BaseException:
            self._release()
            raise
        if self.settings.shards > 1:
            self._pool = ThreadPoolExecutor(self.settings.shards, "shard")

    def match(
        self,
        batch: SignedBatch,
        seqs: NDArray[np.int64],
        places: NDArray[np.int64] | None = None,
        *,
        clock: int | None = None,
    ) -> list[Matches]:
        """Match and store a batch. Returns one result for each shard. Batches must be passed in order, from one thread.

        Args:
            seqs: int64[n], ascending, the documents' numbers.
            places: int64[n], number of documents of the log before each, if the numbers have gaps.
            clock: ms since 1970, for `max_future`.

        Raises:
            UsageError: there is a window and the first document has no event time, or the index cannot delete and the
                batch has a deletion. Nothing is changed.
        """
        self._check_deletes(batch)
        self.compile()
        for shard in self.shards:
            shard.poll()
            if shard.full:
                shard.flush()
        batch.documents.words[:, SEQ] = seqs
        places = seqs if places is None else places
        segments, block = self._segments(batch, places, clock), self.settings.block
        done: list[tuple[int, int, list[Matches]]] = []
        for segment, start, stop in parts(places, segments, block):
            groups, superseded = NO_NUMBERS, NO_SUPERSEDED
            if block:
                number = int(places[start]) // block
                self._enter(number)
                groups, superseded = self._resolution.begin(number, (number - 1) * block)
            for shard in self.shards:
                shard.begin(segment)
            rows = [shard.count for shard in self.shards]
            found = self._step([BatchRun(shard, batch) for shard in self.shards], start, stop, groups, superseded)
            named = None
            if block:
                resolved = self._resolution.resolve(found, start, stop, seqs, places)
                for shard, row, before, after in zip(self.shards, rows, found, resolved.found, strict=True):
                    shard.late.choose_representatives(
                        row, np.isin(before.representatives[:, 2], after.representatives[:, 2])
                    )
                found, named = resolved.found, self._names(resolved, batch, seqs, start, stop)
            for shard, matches in zip(self.shards, found, strict=True):
                shard.keep(matches, batch, start, stop, named)
            if named is not None:
                self._judged(resolved, named, start, stop)
            done.append((start, stop, found))
        if block and len(places):  # the block of the next document, as a query has to meet the same rows
            self._enter((int(places[-1]) + 1) // block)
        if not done:
            return self._step([BatchRun(shard, batch) for shard in self.shards], 0, 0)
        return self._explained(
            [
                Matches.joined([(start, stop, found[number]) for start, stop, found in done])
                for number in range(len(self.shards))
            ],
            batch,
        )

    def _check_deletes(self, batch: SignedBatch) -> None:
        if self.settings.on_conflict != "update" and batch.documents.deletes:
            raise UsageError(
                f"nothing can be deleted from the index in {self.folder}, which was made with on_conflict = reject: "
                "make an index with on_conflict = update"
            )

    def _segments(self, batch: SignedBatch, places: NDArray[np.int64], clock: int | None) -> NDArray[np.int64]:
        """The segment of each document of a batch; with a window, also sets their stream times."""
        if self.window is None:
            return places // self.settings.documents_of_a_segment
        documents = batch.documents
        times, counts = documents.words[:, TIME].astype(np.int64), documents.what & np.uint8(VALID) != 0
        counts |= (documents.what & np.uint8(DELETION) != 0) & (times != NO_TIME)
        documents.log[:], segments = self.window.enter(times, counts, places, clock)
        return segments

    def _enter(self, block: int) -> None:
        """Begin a block of the log."""
        self._resolution.forget((block - 1) * self.settings.block)
        for shard in self.shards:
            shard.enter(block)

    def _step(
        self, steps: list[BatchRun], start: int, stop: int, groups: NDArray[np.int64] = NO_NUMBERS,
        superseded: NDArray[np.int64] = NO_SUPERSEDED,
    ) -> list[Matches]:  # fmt: skip
        """Matches of all shards, which run in parallel."""
        if self._pool is None:
            steps[0].run(start, stop, groups)
        else:
            of_shards = [rows_superseded(superseded, shard.number) for shard in self.shards]
            list(self._pool.map(lambda step, rows: step.run(start, stop, groups, rows), steps, of_shards))
        return [step.matches() for step in steps]

    def _names(
        self, resolved: Resolved, batch: SignedBatch, seqs: NDArray[np.int64], start: int, stop: int
    ) -> list[bytes]:
        """The ids of the oldest matches of the documents [start, stop); b"" where there is none."""
        names = []
        for shard, row, seq in zip(
            *(of[start:stop].tolist() for of in (resolved.shard, resolved.row, resolved.seq)), strict=True
        ):
            if row < 0:
                names.append(b"")
            elif seq >= seqs[start]:
                names.append(batch.ids[int(np.searchsorted(seqs, seq))])
            else:
                names.append(self.id_of(shard, row))
        return names

    def _judged(self, resolved: Resolved, named: list[bytes], start: int, stop: int) -> None:
        """Write the verdicts into the shards' provisional rows."""
        of = self._hashes.of_ids(named)[:, 0]
        of[[not name for name in named]] = 0
        for shard, matches in zip(self.shards, resolved.found, strict=True):
            mine = np.flatnonzero(matches.row_of[start:stop] >= 0)
            i = start + mine
            shard.late.judged(matches.row_of[i], resolved.kind[i], of[mine], resolved.similarity[i], resolved.group[i])

    @property
    def pause(self) -> float:
        """Seconds that a writer should wait per 1,000 documents, so that merges keep up."""
        return max(shard.pause for shard in self.shards)

    @property
    def full(self) -> bool:
        """Whether a memtable is full: a commit now spares the next batch the wait for the flush."""
        return any(shard.full for shard in self.shards)

    def commit(
        self,
        facts: Mapping[str, Any],
        more: Mapping[bytes, bytes | None] = MappingProxyType({}),
        ranges: Sequence[Range] = (),
        *,
        now: float = 0,
        written: Callable[[], None] | None = None,
    ) -> None:
        """Make everything durable in one atomic write.

        Args:
            facts: JSON values by name.
            more: further keys of the store with their values; a value of None deletes the key.
            ranges: ranges of keys to delete, the ends not included.
            now: seconds since 1970, for erasing.
            written: see `Store.write`.

        Raises:
            StoreError: an earlier commit was interrupted.
        """
        if self._torn:
            raise StoreError(
                f"a commit of the index in {self.folder} was broken off: open it again; "
                "what was committed before is in it"
            )
        # The shards mark their rows as committed before the write; if it fails, this object must not write again.
        self._torn = True
        expired = self._forgotten()
        if self.window is not None:
            facts = {**facts, "window": self.window.facts}
        if self._erasing is not None:
            facts = {**facts, **self._erasing.enter(now)}
        if self.settings.late and self.settings.marks_rows:
            facts = {**facts, "resolution": self._resolution.facts}
        values: dict[bytes, bytes | None] = {
            **more,
            **{name_key(name): dumped(value) for name, value in facts.items()},
        }
        self._write(values, list(ranges), [shard.take() for shard in self.shards], written)
        if self._removal is not None:
            self._removal.add(expired)
        if self._erasing is not None:
            self._erasing.step(now, paced=True)
        for shard in self.shards:
            if shard.full:
                shard.flush()
        self._torn = False

    def _forgotten(self) -> dict[int, list[Segment]]:
        """Remove the segments that have left the window from the next manifests."""
        expired: dict[int, list[Segment]] = {}
        if self.window is None:
            return expired
        for number in self.window.expired:
            if not all(shard.lets_go(number) for shard in self.shards):
                break
            self.window.forget(number)
            expired[number] = [segment for shard in self.shards for segment in shard.drop(number)]
        return expired

    def _write(
        self,
        values: dict[bytes, bytes | None],
        ranges: list[Range],
        taken: list[tuple[dict[bytes, bytes], list[Range]]],
        written: Callable[[], None] | None = None,
    ) -> None:
        for more, passed in taken:
            values.update(more)
            ranges += passed
        self.store.write(values, ranges=ranges, written=written)
        for shard in self.shards:
            shard.committed()

    def close(self) -> None:
        """Close without a commit: what was not committed is lost."""
        try:
            if self._pool is not None:
                self._pool.shutdown()  # after an interrupted `match`, shards may still be running
            if not (self._torn or self.read_only):
                self._write_manifest()
        finally:
            self._release()

    def erases_beside(self, beside: Beside) -> None:
        """Register what else in the store has ids that erasing must remove."""
        if self._erasing is not None:
            self._erasing.beside = beside

    @property
    def erasing_since(self) -> int | None:
        """When the latest of the versions that are being erased was deleted, in seconds since 1970; None if none is."""
        return self._erasing.since if self._erasing is not None else None

    def erase(
        self, now: float, *, everything: bool = True, begins: Callable[[int], None] | None = None,
        seconds: float = float("inf"),
    ) -> None:  # fmt: skip
        """Erase committed deletions that are due, or only do the next step.

        Args:
            now: seconds since 1970.
            begins, seconds: see `Erasing.run`.
        """
        if self._erasing is not None:
            if everything:
                self._erasing.run(now, begins, seconds)
            else:
                self._erasing.step(now)

    def _write_manifest(self) -> None:
        """Commit the merges and flushes that the background threads have finished."""
        if self._erasing is not None:
            self._erasing.finish()
        for shard in self.shards:
            shard.finish()
        if any(shard.segments.changed for shard in self.shards):
            self._write({}, [], [shard.manifest() for shard in self.shards])

    def _release(self) -> None:
        """Close everything that is open, the store last. A failure does not stop the rest."""
        with ExitStack() as stack:
            stack.callback(self.store.close)
            for shard in self.shards:
                stack.callback(shard.close)
            if self._workers is None:
                return
            stack.callback(self._workers.close)
            for shard in self.shards:
                with suppress(StreamLshError):  # the earlier error is the one to report
                    shard.finish()
