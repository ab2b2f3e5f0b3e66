"""A shard with its own store, kept in step with a changelog partition.

Every frame produces a change and a reply. One atomic batch stores both, and the frame's position, before anything is
sent. After any crash the shard has all of a frame or nothing, and can send both again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.documents.columns import Rejection
from stream_lsh.errors import ForeignError, FormatError, StreamLshError
from stream_lsh.families.family import Explains, Signs, explainer_of, signer_of
from stream_lsh.index.batch import Shingles, parts
from stream_lsh.index.batch_run import BatchRun
from stream_lsh.index.erasure.eraser import Erasing, left_by
from stream_lsh.index.erasure.queue import latest_deletion, nothing_left
from stream_lsh.index.evidence import explained
from stream_lsh.index.kernel.work import Results
from stream_lsh.index.matches import Matches, shortlist
from stream_lsh.index.postings.runs import Workers
from stream_lsh.index.resolution import rows_superseded
from stream_lsh.index.rows.deleted_rows import newly_marked
from stream_lsh.index.rows.keys import Hashes
from stream_lsh.index.rows.layout import FAILED, ID_REUSED, OUTDATED, REDELIVERED
from stream_lsh.index.segments.manifest import Manifest
from stream_lsh.index.segments.segment import FOLDER, Segment
from stream_lsh.index.shard import NO_NUMBERS, Shard, most_in_memory
from stream_lsh.index.source_positions import ShardSourcePositions
from stream_lsh.index.store.errors import plainly
from stream_lsh.index.store.rocksdb import DELETED_MARKS, name_key
from stream_lsh.kafka.match.attempts import Attempts
from stream_lsh.kafka.match.cleaning import Cleaning
from stream_lsh.kafka.match.copy import Copy
from stream_lsh.kafka.match.decision_names import DecisionNames
from stream_lsh.kafka.match.forgetting import Forgetting
from stream_lsh.kafka.match.kept_answers import missing
from stream_lsh.settings.model import Settings
from stream_lsh.wire.bases import Mark
from stream_lsh.wire.changes import Change
from stream_lsh.wire.decisions import Decisions
from stream_lsh.wire.frames import Frame
from stream_lsh.wire.replies import Reply, carries, named
from stream_lsh.wire.sequenced import Sequenced
from stream_lsh.wire.signed import signed_batch
from stream_lsh.wire.source import Source, row_bits

REPLY_BYTES = 32 << 20  # limit of the matches in a reply
MATCH_BYTES, HELD_BYTES = 23, 16  # size of one match without its name; with several shards and `keep` more
NOTED_SECONDS = 3600.0  # without a frame, between two writes of the time that has passed
_INPUT = b"documents"  # key of the source positions: all documents come from one topic


@dataclass(frozen=True, slots=True)
class Answer:
    """The records to be sent for a frame: the change for the changelog, the reply for the judge.

    Both are None for a frame that was answered so long ago that the judge must have the reply.

    Attributes:
        offset, predecessor: of the frame, as in `Sequenced`.
        documents: how many were matched just now, 0 for a repeated answer.
        elsewhere: int64[k, 3], the updates and deletions matched just now that arrived from another partition than
            their document: partition, offset, and the document's partition (its low byte).
        failed: why matching has just failed with documents that this shard rejects; with documents of other shards.
    """

    offset: int
    predecessor: int
    change: bytes | None
    reply: bytes | None
    documents: int = field(default=0, compare=False)
    elsewhere: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 3), np.int64), compare=False)
    failed: tuple[Mapping[int, Rejection], Mapping[int, Rejection]] = field(default=({}, {}), compare=False)


class Replica(Copy):
    """A shard and its store in a folder. It follows the changelog until `activate`.

    Attributes:
        answered: the last frame up to which all replies are known to be in their topic; -1 if none are. A former owner
            may have sent a change and no reply.
    """

    def __init__(
        self, settings: Settings, shard: int, folder: Path, *, erase_after: int | None = None,
        limit: int | None = None, foreign: Callable[[int, ForeignError], object] = lambda offset, error: None,
    ) -> None:  # fmt: skip
        super().__init__(settings, shard, folder, erase_after=erase_after, limit=limit, foreign=foreign)
        self._attempts = Attempts(folder, self.store)
        self._in_files = Manifest(self.store, shard, self._base).in_files
        self.answered = -1
        self._cleaning: Cleaning | None = None
        self._appended = 0.0  # append time of the last frame, as far as it is known, in seconds since 1970
        self._noted = self.now  # the time that the store has
        self._workers: Workers | None = None
        self._shard: Shard | None = None
        self._signer: Signs
        self._explain: Explains | None
        self._hashes: Hashes
        self._places: ShardSourcePositions

    def confirmed(self, what: int | Mark, changelog_offset: int, records: int = 1) -> bool:
        """See `Copy.confirmed`. The reply to a frame is acknowledged, too, and those to all frames before it."""
        if not isinstance(what, Mark):
            self.answered = max(self.answered, what)
        counts = super().confirmed(what, changelog_offset, records)
        if counts and self._cleaning is not None:
            self._cleaning.ended()
            self.store.write(self._facts())
        return counts

    # -- matching ---------------------------------------------------------------------------------------------------

    def activate(self) -> None:
        """Open the shard for matching. Postings of rows after the last flush are rebuilt. An empty shard is opened by
        its first frame, which contains the index's key.

        Raises:
            DamagedError: a file is missing, truncated or changed.
            StoreError: the shard cannot be opened.
        """
        if self._shard is None and self._key is not None:
            with plainly(self.folder / FOLDER):
                self._shard = self._opened(self._key)

    def _opened(self, key: bytes) -> Shard:
        self._signer, self._hashes = signer_of(self.settings.signing, key), Hashes(self.settings.signing, key)
        self._explain = explainer_of(self.settings.signing)
        self._workers = workers = Workers()
        try:
            shard = Shard(
                self.number, self.settings, self.store, self.folder, self._hashes, self._signer.shingle, workers,
                base=self._base,
            )  # fmt: skip
        except BaseException:
            workers.close()
            raise
        shard.results = Results.of(0, self._attempts.progress)
        self._places = ShardSourcePositions(shard, self.store)
        if self._erases:
            self._cleaning = self._new_cleaning(shard, key)
            self._appended = max(self.now, latest_deletion(self.store, self._appended))
        return shard

    def _new_cleaning(self, shard: Shard, key: bytes) -> Cleaning:
        erasing = Erasing(
            self.folder, self.store, [shard], self._erase_after or 0, self._deletes, self.settings.id_field,
            deletes_entries=False,
        )  # fmt: skip
        limit = None if self.store.joint else self._limit
        names = DecisionNames(self.store, shard) if shard.limits.late else None
        return Cleaning(
            self.store, shard, key, self._answers, erasing, self.cycle, names, self._erase_after, limit,
            self.volume, self.forgetting, self.cycle.unfinished(self.began),
        )  # fmt: skip

    def go_on(self) -> None:
        """Of an open shard that was handed over and came back: its last snapshot records may not have been sent. The
        snapshot continues behind those that are confirmed."""
        if self._cleaning is None or self._shard is None or self._key is None or not self._cleaning.begun:
            return
        self._cleaning.erasing.finish()
        self.volume.forget_made()
        self._cleaning = self._new_cleaning(self._shard, self._key)

    @property
    def shard(self) -> Shard:
        """The open shard. Raises RuntimeError if it is not active."""
        if self._shard is None:
            raise RuntimeError(f"shard {self.number} is not active")
        return self._shard

    @property
    def owes(self) -> bool:
        """Whether the snapshot in progress is slower than the changes: see `Cleaning.owes`."""
        return self._cleaning is not None and self._cleaning.owes

    def clean(self, elapsed: float, *, deletes: bool = True) -> tuple[Mark, bytes] | None:
        """Do one cleaning step. Returns the next snapshot record to be sent, after all that was matched before.

        Args:
            elapsed: seconds since the last frame was matched or applied, or since the replica was opened.
            deletes: whether Kafka has deleted what is not needed any more.

        Raises:
            OutputError, DamagedError: see `Erasing.step`.
        """
        if self._cleaning is None:
            return None
        self.now = self._appended + elapsed
        if abs(self.now - self._noted) >= NOTED_SECONDS:  # else no time would pass between frequent restarts
            self._noted = self.now
            self.store.write(self._facts())
        base = self._cleaning.step(self.now, self.last, self.answered, deletes)
        if base is None:
            return None
        record = self.volume.made(base.mark, base.values, base.encode(self.settings))
        self._cleaning.pay(len(record))
        return base.mark, record

    def deactivate(self) -> None:
        """Close the shard. The store stays open. A merge in progress is dropped, and done again later."""
        shard, workers, self._shard, self._workers = self._shard, self._workers, None, None
        self.volume.forget_made()
        cleaning, self._cleaning = self._cleaning, None
        if shard is None or workers is None:
            return
        try:
            if cleaning is not None:
                cleaning.erasing.finish()
            shard.finish()
            if not self.torn:
                manifest, passed = shard.manifest()
                self.store.write(manifest | self._facts(), ranges=passed)
                shard.committed()
        finally:
            workers.close()
            shard.close()

    def flush(self, ends: Callable[[], bool]) -> None:
        """Of a shard that follows the changelog: write its rows and postings into files if they fill a memtable, and
        merge runs, as its owner does. So `activate` has at most a memtable to rebuild, whatever the number of rows.

        Args:
            ends: whether to leave the merging for later.

        Raises:
            DamagedError, StoreError: see `activate`.
        """
        if self.cycle.taking is not None or self.gap or self.count - self._in_files <= most_in_memory(self.settings):
            return
        self.activate()
        try:
            if self._shard is not None:
                self._shard.merge(ends)
        finally:
            self.deactivate()
        self._in_files = Manifest(self.store, self.number, self._base).in_files

    @property
    def pause(self) -> float:
        """Seconds to wait per 1,000 documents, so that merges keep up."""
        return 0.0 if self._shard is None else self._shard.pause

    def match(self, value: bytes) -> Answer | None:
        """Match and store one record of the topic frames. When this returns, everything is in the store.

        A frame that was matched before gives the same answer again.

        Returns:
            None if the frame's predecessor is missing. The sender will send both again.

        Raises:
            FormatError: the record is unreadable.
        """
        sequenced = Sequenced.decode(value, self.settings)
        self._check_key(sequenced.key, "the frames topic")
        if sequenced.offset <= self.last:
            return self._again(sequenced.offset, sequenced.predecessor)
        if sequenced.predecessor != self.last:
            return None
        left_out = self._attempts.begin(sequenced.offset)
        try:
            answer = self._match(sequenced, left_out)
        except (StreamLshError, MemoryError, OSError):
            self._attempts.end()
            raise
        self._attempts.end()
        return answer

    def _match(self, sequenced: Sequenced, left_out: Mapping[int, Rejection]) -> Answer:
        """Match and store the next frame. left_out: documents of it that are not matched."""
        self._appended = sequenced.appended / 1000
        self.activate()
        shard = self.shard
        frame = Frame.decode(sequenced.frame, self.settings)
        batch = signed_batch(frame, sequenced, self.settings, self._hashes, self._signer)
        shard.poll()
        self.torn = True  # no other write until the one below: the store has all of a frame or nothing
        first, values = shard.count, dict[bytes, bytes]()
        step, places, block = BatchRun(shard, batch), sequenced.places(len(batch)), self.settings.block
        shingled = {i: why for i, why in batch.rejected.items() if i not in frame.source.rejected}
        for i, why in {**shingled, **left_out}.items():
            step.leave_out(i, why)
        forgetting, expired, seen, named = self.forgetting, dict[int, list[Segment]](), None, batch.documents.deletes
        if forgetting is None:
            segments = places // self.settings.documents_of_a_segment
        else:
            segments = forgetting.cut(sequenced.offset, batch.documents.log, places, sequenced.accepted)
        for segment, start, stop in parts(places, segments, block):
            values.update(shard.pending())  # `begin` flushes these into files, but standbys need the values
            groups, superseded = NO_NUMBERS, NO_NUMBERS
            if block:
                groups, superseded, chosen = self._enter(shard, int(places[start]) // block, sequenced)
                named = named or chosen
            shard.begin(segment)
            # A block begins with a document that counts. Rows before it in the frame leave no trace.
            begin = start if sequenced.accepted is None else start + int(np.argmax(sequenced.accepted[start:stop]))
            step.run(begin, stop, groups, superseded)
            shard.keep(step.matches(), batch, start, stop)
            if self.settings.updates and self.settings.compare_with == "kept":  # else there are no representatives
                row_of, source = step.matches().row_of[start:stop], frame.source
                partitions = source.partitions[start:stop].astype(np.int64)
                self._places.add(_INPUT, row_of, partitions, source.offsets[start:stop])
        matches = step.matches()
        reply = self._reply(sequenced, frame, matches, shard, batch.shingles).encode(self.settings)
        if forgetting is not None:
            seen = forgetting.behind(segments, shard.segments.places, shard.count)
            expired = self._forgotten(shard, forgetting, sequenced.offset)
        waits: dict[str, Any] = {}
        if self._erases:
            waits = left_by(shard, sequenced.appended // 1000, self._erase_after or 0)
        named = named or bool((matches.status == OUTDATED).any())  # perhaps of a deleted id
        if named and not waits and self._erase_after is not None:
            there = max(first, shard.count - 1)  # of a frame that added rows: no later one has to
            waits = nothing_left(self.number, there, sequenced.appended // 1000, self._erase_after)
        local, passed = shard.take()
        local |= self._places.take()
        values.update((key, taken) for key, taken in local.items() if not key.startswith((name_key(""), DELETED_MARKS)))
        local |= {name_key(name): orjson.dumps(fact) for name, fact in waits.items()}
        self.count = shard.count
        late = (shard.late.block, shard.late.first, shard.late.second) if block else None
        deleted_rows = newly_marked(local, self.store)
        if seen is not None:  # deleted rows of expired segments are left out, whether these are still here or not
            deleted_rows = deleted_rows[deleted_rows >> 2 >= seen.first]
        change = Change(
            self.number, sequenced.offset, sequenced.predecessor, first, self.count, sequenced.key, values, reply, late,
            deleted_rows, seen, orjson.dumps(waits) if waits else b"",
        )  # fmt: skip
        deleted: list[bytes] = []
        kept = self._answers.add(change, deleted, {})
        self.last = sequenced.offset
        self.store.write(local | kept | self._facts(), deleted, passed)
        self.torn = False
        shard.committed()
        self._leaving.add(expired)
        record = self.volume.made(change.offset, values, change.encode(self.settings))
        if self._cleaning is not None:
            self._cleaning.added(waits, len(record))
        if shard.full:
            shard.flush()
        elsewhere = _elsewhere(step.partitions(), matches.status, frame.source)
        mine = {i: why for i, why in matches.failed.items() if matches.status[i] == FAILED}
        failed = mine, {i: why for i, why in matches.failed.items() if i not in mine}
        return Answer(sequenced.offset, sequenced.predecessor, record, reply, len(batch), elsewhere, failed)

    def _forgotten(self, shard: Shard, forgetting: Forgetting, frame: int) -> dict[int, list[Segment]]:
        """Drop expired segments from the shard. They remain on disk until the next manifest."""
        expired = forgetting.forget(
            shard.segments.places,
            lambda number, behind: shard.lets_go(number) and behind < self._answers.first_row(self.count),
            frame,
        )
        return {number: shard.drop(number) for number in expired}

    def _enter(
        self, shard: Shard, block: int, sequenced: Sequenced
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], bool]:  # fmt: skip
        """Enter the block of the next document. At the start of a block, first apply the decisions that the frame
        contains. Returns the groups that need new representatives, the rows that were superseded, and whether new
        representatives were chosen: from here on, no verdict repeats the ids of those before them.

        Raises:
            FormatError: a block begins, but the frame has no decisions.
        """
        groups, superseded, chosen = NO_NUMBERS, NO_NUMBERS, False
        if block > shard.late.block and block > 1:
            if not len(sequenced.decisions):
                raise FormatError("a sequenced frame is damaged: a block begins in it, and it has no decisions")
            decided = Decisions.decode(sequenced.decisions, self.settings)
            shard.tell(decided.states, decided.names, decided.representatives.seq)
            groups, superseded = decided.deleted[:, 1].copy(), rows_superseded(decided.superseded, self.number)
            chosen = len(decided.representatives) > 0
        shard.enter(block)
        return groups, superseded, chosen

    def _reply(self, sequenced: Sequenced, frame: Frame, matches: Matches, shard: Shard, shingles: Shingles) -> Reply:
        rows = np.concatenate((matches.removed[matches.removed[:, 2] >= 0, 2:4], matches.representatives[:, 2:]))
        representatives = {seq: self._place(row) for row, seq in rows.tolist()}
        matches, names = self._listed(matches, shard, shingles)
        mine = carries(self.number, sequenced.offset, self.settings.shards)
        return Reply(
            self.number, sequenced.offset, sequenced.predecessor, matches, names, frame.source if mine else None,
            sequenced.accepted if mine else None, representatives, sequenced.log if mine else None,
            sequenced.shift,
        )  # fmt: skip

    def _place(self, row: int) -> tuple[int, int]:
        """Source partition and offset of the document of a row.

        Raises:
            DamagedError: they are missing.
        """
        found = self._places.of(row)
        if found is None:
            raise missing(self.store, self.number, row)
        return found[1:]

    def _listed(self, matches: Matches, shard: Shard, shingles: Shingles) -> tuple[Matches, list[bytes]]:
        """The matches for the reply, and their names: as many as fit, and no more than the judge would list."""
        # With several shards and `compare_with = "kept"` only the judge knows which matches count: send all that fit.
        most = 0 if self.settings.late else self.settings.max_matches
        most = most or len(matches.document)
        each = MATCH_BYTES + HELD_BYTES * self.settings.superseded_late
        while True:
            if self._explain is None:
                listed = shortlist(matches, most)
            else:
                listed = explained(matches, shingles, shard, self._explain, most)
            size = len(listed.document) * each + sum(map(len, listed.evidence))
            if not most or size <= REPLY_BYTES:
                found, said = named(listed, shard.ids)
                if not most or size + sum(map(len, said)) <= REPLY_BYTES:
                    return found, said
            most //= 2

    def _again(self, offset: int, predecessor: int) -> Answer:
        assert self._key is not None, "a frame was applied, which has it"
        change = self._answers.change(offset, self._key, self._flushed)
        if change is None:
            return Answer(offset, predecessor, None, None)
        record = self.volume.made(offset, change.values, change.encode(self.settings))
        return Answer(offset, predecessor, record, change.reply)

    def _flushed(self, first: int, last: int) -> bytes:
        shard = self.shard
        return (shard.stored.value_untold if self.settings.late else shard.stored.value)(first, last)

    def close(self) -> None:
        """Close shard and store without losing anything."""
        try:
            self.deactivate()
            if not self.torn:
                self.store.write(self._facts())
        finally:
            self._release()


def _elsewhere(known: NDArray[np.int64], status: NDArray[np.int64], source: Source) -> NDArray[np.int64]:
    """See `Answer.elsewhere`. known: see `BatchRun.partitions`."""
    differs = (known >= 0) & (known != row_bits(source.partitions))
    found = np.flatnonzero(differs & (status != REDELIVERED) & (status != ID_REUSED))
    return np.column_stack((source.partitions[found], source.offsets[found], known[found]))
