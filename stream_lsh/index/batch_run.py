"""A run of the matching kernel over a batch, in one shard. The kernel stops when it needs texts or room, and is started
again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.columns import Rejection
from stream_lsh.documents.engine_errors import rejection_of
from stream_lsh.errors import DamagedError
from stream_lsh.index.batch import ShingleSets, SignedBatch
from stream_lsh.index.kernel import compiling
from stream_lsh.index.kernel.known import look_up
from stream_lsh.index.kernel.match import match
from stream_lsh.index.kernel.prefetch import MOST, guess
from stream_lsh.index.kernel.replace import add_representatives, supersede
from stream_lsh.index.kernel.shingle_sets import keep_all, similarities
from stream_lsh.index.kernel.tf_idf import similarities_to
from stream_lsh.index.kernel.work import (
    AT_LEAST,
    FULL,
    NO_LOG,
    NO_OWN_SET,
    NO_ROOM,
    NO_SETS,
    PLACE,
    REPRESENTATIVE_POSTED,
    ROWS_BEFORE,
    Results,
    Scratch,
    Work,
)
from stream_lsh.index.matches import NO_REPRESENTATIVES, Matches
from stream_lsh.index.postings.bucket import passing
from stream_lsh.index.postings.memtable import power_of_two
from stream_lsh.index.rows.keys import ends_of
from stream_lsh.index.rows.layout import (
    FAILED,
    GROUP_OF,
    KNOWN,
    NEW,
    NOT_COMPARED,
    OF,
    PARTITION,
    REPLACES,
    SEQ,
    STATUS,
    SUPERSEDED,
    VALID,
)
from stream_lsh.index.segments.sampled_keys import post_sample
from stream_lsh.index.shard import NO_NUMBERS, Shard

NO_SIMILARITIES, NO_SAME, NOTHING_HELD = np.empty(0), np.empty(0, np.bool_), np.empty((0, 2), np.int64)
LEAST = 256  # documents and matches that there is room for
LOADED_BYTES = 32 << 20  # texts read from the store at a time
FIELDS = tuple(Work.numba_type.places)
MET = 1 << 16  # most entries of scratch room to keep: documents may have any number of keys
TABLES = 64  # most slots of the table of a set, for each of its elements
GUESSED = 256  # documents whose candidates are read ahead
REMEDY = (
    "stream-lsh info --index {} --check names the file; a damaged folder segments/*/postings can be deleted, and is "
    "rebuilt from the rows; restore damaged rows from a backup"
)


class BatchRun:
    """A run of the kernel over a batch, in one shard. It ends where the next one of this shard begins.

    Args:
        store: new documents become rows.
        known: ids are looked up.
    """

    def __init__(self, shard: Shard, batch: SignedBatch, *, store: bool = True, known: bool = True) -> None:
        self._shard = shard
        self._batch = batch
        self._documents = batch.documents
        self._owner = shard.number if known else -1
        self._limits = shard.limits if store else shard.query_limits
        if not shard.results.has_room(len(batch)):
            shard.results = Results.of(max(LEAST, len(batch)), shard.results.progress)
        self._results = shard.results
        self._results.begin(len(batch))
        self._met = shard.met
        self._guessed = 0  # documents before this one have been read ahead
        self._representatives = NO_REPRESENTATIVES
        self._first = shard.count
        self._stored = np.empty(2 * len(batch), np.int64)  # document of each new row
        self._deletes = self._documents.deletes
        self._raised = -1  # the latest document that has raised an exception
        self._failed: dict[int, Rejection] = {}
        compiling.have([*shard.kernels, "deletions"] if self._deletes else shard.kernels)

    def run(
        self, start: int, stop: int, groups: NDArray[np.int64] = NO_NUMBERS, superseded: NDArray[np.int64] = NO_NUMBERS
    ) -> None:
        """Match the documents [start, stop), which follow those matched before.

        A document that raises an unforeseen exception twice is left out: the shard that stores documents of its id
        rejects it, another one has not compared it.

        Args:
            groups: where a block begins with the first document, the groups that need a new representative.
            superseded: then also the rows that are known to be superseded from here on.

        Raises:
            StreamLshError, MemoryError, OSError: they are not due to a document.
            Exception: the shard has changed before it, or no document is the cause.
        """
        shard = self._shard
        shard.rows.known = -1  # rows in files may have been erased
        if self._limits.store:
            self._make_room(start, stop, len(groups), len(superseded))
        self._find_runs()
        if len(groups):  # each may get a representative row
            self._stored = np.append(self._stored, np.empty(len(groups), np.int64))
        self._use_own_sets(self._batch.shingles.known())
        if len(superseded):
            supersede(start, superseded, self._work(int(AT_LEAST)))
        if len(groups):
            self._add_representatives(start, groups)
        work = self._work()
        while start < stop:
            if start in self._failed:
                start += 1
                continue
            try:
                start, work = self._match(start, min([stop, *(i for i in self._failed if i > start)]), work)
            except Exception as error:
                shard.scratch = Scratch.of(0, 0, 0, 0, 0)  # the document has left rows in it
                start, work = self._after(error, start), self._work()
        self._results.progress[PLACE] = -1  # what follows is no document's fault

    def _match(self, start: int, stop: int, work: Work) -> tuple[int, Work]:
        """Start the kernel, and provide what it lacks. Returns how far it is, and its next arguments."""
        shard = self._shard
        try:
            start, code = match(start, stop, work)
        except OSError as error:
            raise DamagedError(f"{shard.state}: {error}; {REMEDY.format(shard.state)}") from None
        if code == NO_OWN_SET:
            self._use_own_sets(self._batch.shingles.with_document(int(work.scratch.wanted[0])))
        elif code == NO_SETS:
            self._load(start, np.unique(work.scratch.wanted[: int(work.scratch.wanted_count)]))
            if start >= self._guessed:
                self._guessed = min(start + GUESSED, stop)
                self._load_ahead(start + 1, work)
        elif code == NO_ROOM:
            self._met *= 2
            # The room that a very long document needs is not kept for others.
            if not self._limits.samples or self._met <= MET:
                shard.met = self._met
            return start, self._work()
        elif code == REPRESENTATIVE_POSTED:
            self._post_representative()
        elif code == NO_LOG:
            shard.counted.frequencies.enlarge()
        elif code == FULL:
            self._results.enlarge()
        return start, work

    def _after(self, error: Exception, start: int) -> int:
        """The document to go on with after an exception in the run that began with `start`: the one that raised it,
        or the next one if it raised twice."""
        rejection, results = rejection_of(error), self._results
        i = int(results.progress[PLACE])
        if not self._limits.store or i < start or not self._unchanged():
            raise error
        self._shard.rows.deleted_rows.aside = -1
        results.drop(i)
        if self._raised != i:
            self._raised = i
            return i
        self.leave_out(i, rejection)
        return i + 1

    def leave_out(self, i: int, rejection: Rejection) -> None:
        """Set the result of a document that is not matched."""
        columns, documents = self._results.columns, self._documents
        self._failed[i] = rejection
        if documents.owner[i] == self._owner:
            columns[i, STATUS] = FAILED
        elif documents.what[i] & VALID:
            columns[i, STATUS], columns[i, NOT_COMPARED] = NEW, documents.starts[i + 1] - documents.starts[i]
            if self._limits.unique:
                columns[i, GROUP_OF] = documents.words[i, SEQ]

    def _unchanged(self) -> bool:
        """Whether the shard is as it was when the latest document began."""
        rows, shard = self._shard.rows, self._shard
        deleted, now = rows.deleted_rows, [rows.total, shard.memory.postings, shard.late.newer.postings]
        before: list[int] = self._results.progress[ROWS_BEFORE:].tolist()
        return [*now, deleted.count, deleted.version_count] == before

    def _make_room(self, start: int, stop: int, groups: int, superseded: int) -> None:
        """Make room for the rows and postings of documents [start, stop), for so many representative rows, and for the
        marks of so many superseded rows."""
        shard, documents, rows = self._shard, stop - start, stop - start + groups
        if self._limits.update or self._limits.keep or self._deletes:
            shard.make_room_for_deletions(rows + superseded)
            rows += documents
        if self._limits.samples:
            shard.memory.reserve(int(self._documents.starts[stop] - self._documents.starts[start]) + 2 * documents)
        else:
            shard.memory.reserve_slots(rows * (shard.shape.bands + 3))

    def _post_representative(self) -> None:
        """Post the last row, a representative row, under the sampled keys of its representative's text."""
        shard = self._shard
        row = shard.count - 1
        words = shard.stored.words(row)
        representative = int(words[OF])
        if representative >= self._first:
            document = int(self._stored[representative - self._first])
            own = self._batch.shingles.with_document(document)
            self._use_own_sets(own)
            shingles = own.shingles[own.offsets[document] : own.offsets[document + 1]]
        else:
            sampler = shard.keyed.sampler
            assert sampler is not None, "keys are no sample of the shingles"
            shingles = sampler.of(representative)
        at = shard.shape.signature_at
        post_sample(shard.memory, shard.hashes, row, shingles, words[at : at + 1])

    def _add_representatives(self, start: int, groups: NDArray[np.int64]) -> None:
        """Add a representative row for each possible representative of the groups."""
        shard, first, groups = self._shard, self._shard.count, groups.copy()
        found = np.empty((len(groups), 2), np.int64)
        n = add_representatives(start, groups, found, self._work(int(AT_LEAST)))
        shard.post_representatives(first)
        self._representatives = np.concatenate(
            (self._representatives, np.column_stack((np.full(n, start), groups[:n], found[:n])))
        )

    def known(self) -> NDArray[np.int64]:
        """The rows of this shard that have the documents' ids, -1 where there is none."""
        self._find_runs()
        look_up(0, len(self._batch), self._work())
        return self._results.columns[: len(self._batch), KNOWN].copy()

    def similarities_to(self, row: int) -> NDArray[np.float64]:
        """Similarity of each document to a row under `tf-idf`, by the document frequencies as they are now."""
        self._shard.rows.known = -1  # rows in files may have been erased
        self._find_runs()
        self._use_own_sets(self._batch.shingles.known())
        work = self._work()
        while similarities_to(len(self._batch), row, work) == NO_LOG:
            self._shard.counted.frequencies.enlarge()
        return self._results.similarity[: len(self._batch)].copy()

    def matches(self) -> Matches:
        """Everything found so far."""
        r, n, m = self._results, len(self._batch), int(self._results.found)
        document = row = seq = effect = NO_NUMBERS
        similarity, same_text, held = NO_SIMILARITIES, NO_SAME, NOTHING_HELD
        if m:
            document, row, seq, same, effect, group = r.matches[:m].T.copy()
            similarity, same_text, held = r.similarities[:m].copy(), same != 0, np.column_stack((row, group))
        status, known, row_of, kind, of, of_seq, group, more, not_compared = r.columns[:n, :PARTITION].T.copy()
        return Matches(
            document, row, seq, similarity, same_text, effect, held, status, known, row_of, kind, of, of_seq,
            r.similarity[:n].copy(), group, more, not_compared, r.columns[:n, REPLACES:SUPERSEDED].copy(),
            self._representatives, failed=self._failed,
        )  # fmt: skip

    def partitions(self) -> NDArray[np.int64]:
        """int64[n], the low byte of the source partition of the live document that had each id, -1 where there was
        none."""
        return self._results.columns[: len(self._batch), PARTITION].copy()

    def _find_runs(self) -> None:
        """Find the runs that may have each key."""
        shard, keys = self._shard, self._documents.keys
        words = (len(shard.table) + 63) >> 6
        if shard.hits.shape[1] != words or not len(keys) <= len(shard.hits) <= max(MET, len(keys)):
            shard.hits = np.empty((max(LEAST, len(keys)), words), np.uint64)
        passing(keys, shard.table, shard.hits)

    def _work(self, least: int = 0) -> Work:
        """The kernel's arguments, with room for at least `least` rows and for as many as a document of this shard has
        met so far."""
        shard, documents = self._shard, self._documents
        scratch, keys, met = shard.scratch, len(documents.keys), max(self._met, power_of_two(least))
        if keys > len(scratch.slots):  # of all documents together
            keys = int(np.diff(documents.starts).max(initial=0))
        if not scratch.has_room(keys, len(shard.table), met):
            scratch = Scratch.of(keys, len(shard.table), met, shard.shape.mask_words, int(self._limits.full))
            if max(keys, met) <= MET:
                shard.scratch = scratch
        given = (
            documents, self._owner, shard.rows, shard.memory, shard.table, shard.hits, shard.late.older,
            shard.late.newer, self._limits, shard.sets, shard.counted.frequencies, scratch, self._results,
        )  # fmt: skip
        if shard.work is None:
            shard.work = Work(**dict(zip(FIELDS, given, strict=True)))
        for name, value, before in zip(FIELDS, given, shard.given, strict=False):
            if value is not before:
                setattr(shard.work, name, value)
        shard.given = given
        return shard.work

    def _use_own_sets(self, own: ShingleSets) -> None:
        """Add the batch's own sets to those of the shard's rows."""
        sets, most = self._shard.sets, len(own.shingles)
        sets.begin(own.shingles, own.offsets, own.have, self._first)
        sets.documents = self._stored
        if not 2 * most <= len(sets.table) <= TABLES * max(32, most):
            most = int(self._documents.sizes.max(initial=0)) if self._limits.exact else 0
            sets.table = np.empty((power_of_two(max(32, 2 * most)), 2), np.uint64)

    def _load(self, document: int, rows: NDArray[np.int64]) -> None:
        """Compute the similarity of a document to rows whose texts have to be read. Their sets are cached, as far as
        there is room."""
        shard, similarity, done = self._shard, np.empty(len(rows)), 0
        before = shard.sets.loaded, shard.sets.similarity, int(shard.sets.document)
        while done < len(rows):
            shingles, offsets = self._read(rows[done:], LOADED_BYTES)
            part = slice(done, done + len(offsets) - 1)
            similarities(shard.sets, document, shingles, offsets, float(self._limits.threshold), similarity[part])
            done = part.stop
        if before[2] == document:  # cached sets had to be read again
            rows, first = np.unique(np.concatenate((before[0], rows)), return_index=True)
            similarity = np.concatenate((before[1], similarity))[first]
        shard.sets.document, shard.sets.loaded, shard.sets.similarity = document, rows, similarity

    def _load_ahead(self, document: int, work: Work) -> None:
        """Read the sets that the next documents are likely to need, as long as the cache has room for them."""
        rows = np.empty(MOST * max(0, self._guessed - document), np.int64)
        rows = np.unique(rows[: guess(document, self._guessed, work, rows)])
        if len(rows):
            # This many bytes of text are an eighth of the ring, and their shingles fill about a sixth of it.
            self._read(rows, len(self._shard.sets.ring))

    def _read(self, rows: NDArray[np.int64], most: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Sets of the first of these rows, up to about `most` bytes of text: shingles, and the offsets of the sets.
        They are cached, as far as there is room.

        Args:
            rows: int64[n], ascending.
        """
        shard = self._shard
        texts = shard.texts.read(rows.tolist(), most)
        shingles, offsets = shard.shingle(b"".join(texts), ends_of(texts))
        keep_all(shard.sets, rows[: len(texts)], shingles, offsets)
        return shingles, offsets
