"""Cleaning: the owner of a shard erases versions, then writes a snapshot into the changelog. The changes before the
snapshot can then be deleted. A cleaning begins when versions are due, or when the changelog is much larger than the
snapshot would be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from stream_lsh.index.erasure.eraser import Erasing
from stream_lsh.index.erasure.queue import (
    ERASED_VERSIONS,
    REPRESENTATIVE_ROW,
    QueueEntry,
    behind_window,
    entry_of,
    places,
    queue_entries,
)
from stream_lsh.index.kernel.document_frequency import folded
from stream_lsh.index.rows.deleted_rows import marked_between
from stream_lsh.index.segments.segment import Segment
from stream_lsh.index.shard import Shard
from stream_lsh.index.store.rocksdb import DECISIONS, ERASED_ROWS, IDS, PLACES, ROWS, TEXTS, Store, name_key, rows_key
from stream_lsh.kafka.match.cycle import Cycle
from stream_lsh.kafka.match.decision_names import DecisionNames
from stream_lsh.kafka.match.forgetting import Forgetting
from stream_lsh.kafka.match.kept_answers import KeptAnswers
from stream_lsh.kafka.match.volume import BEGIN_SHARE, PACE, Volume, weights
from stream_lsh.wire.bases import BEGINS, ENDS, HAS_ROWS, Base, Mark

RECORD_ROWS, RECORD_BYTES = 512, 256 << 10  # limits of a snapshot record; the texts of one frame may exceed them
LOOK_SECONDS = 1.0  # between two checks for what is due
SIZE_SECONDS = 60  # between the starts of two cycles for the size: readers of the changelog have to follow
_ALWAYS = float("inf")
_TOGETHER = 256  # entries of the queue whose versions are weighed together
_BLOCK = 1024  # rows; the weights of versions that were deleted in one block are added up


class Cleaning:
    """Erasing and snapshots of an open shard.

    Args:
        key: of the index.
        names: None: the shard has no decisions.
        every: seconds between the starts of two cycles in which versions are due. None: no time counts.
        limit: bytes of the changelog below which its size does not count. None: it never does.
        volume: of the changelog.
        forgetting: the window of the shard; None: no window.
        unfinished: a snapshot to be continued, see `Cycle.unfinished`.
    """

    def __init__(
        self, store: Store, shard: Shard, key: bytes, answers: KeptAnswers, erasing: Erasing, cycle: Cycle,
        names: DecisionNames | None, every: int | None, limit: int | None, volume: Volume,
        forgetting: Forgetting | None, unfinished: tuple[Mark, int] | None,
    ) -> None:  # fmt: skip
        self._store = store
        self._forgetting = forgetting
        self._shard = shard
        self._names = names
        self._named = False  # whether the ids in decisions are erased for the next snapshot
        self._key = key
        self._answers = answers
        self._erasing = erasing
        self._cycle = cycle
        self._every = every
        self._limit = limit
        self._volume = volume
        # Weights of the versions in the queue, by the number of rows at their deletion; None: to be read from there.
        self._waiting: Counter[int] | None = None
        self._unweighed: list[QueueEntry] = []
        self._debt = 0
        self._answered = -1
        self._looked = -_ALWAYS
        self._at = 0  # start of the current cycle
        self._unfinished = unfinished
        # Versions that were deleted below this row count are being erased.
        self._before = None if unfinished is None else unfinished[0].before
        self._records: Iterator[Base] | None = None

    @property
    def erasing(self) -> Erasing:
        return self._erasing

    @property
    def begun(self) -> bool:
        """Whether records of a snapshot are being made."""
        return self._records is not None

    @property
    def owes(self) -> bool:
        """Whether the snapshot in progress is slower than `PACE`: then no frame shall be matched before the next step.
        Otherwise a busy feed would write any number of changes meanwhile."""
        return self._records is not None and self._debt > 0

    def pay(self, size: int) -> None:
        """A snapshot record has this size."""
        self._debt -= size

    def added(self, waits: Mapping[str, Any], size: int) -> None:
        """A change of this size was stored, with these facts for the queue."""
        self._erasing.added(waits)
        self._debt += PACE * size
        if self._waiting is not None:
            self._unweighed += (entry_of(name, fact) for name, fact in waits.items())
            if len(self._unweighed) >= _TOGETHER:
                self._weigh(self._waiting)

    def _weigh(self, waiting: Counter[int]) -> None:
        """Add the weights of the versions of `_unweighed`, which is emptied."""
        entries, self._unweighed = self._unweighed, []
        if not entries:
            return
        blocks = np.repeat([e.place.there // _BLOCK for e in entries], [e.versions.shape[1] for e in entries])
        rows, begins = np.concatenate([entry.versions[:2] for entry in entries], axis=1)
        mine = (begins != REPRESENTATIVE_ROW) & (rows >= self._shard.first)
        found = weights(self._shard.stored.flags(rows[mine]))
        for block, weight in zip(blocks[mine].tolist(), found.tolist(), strict=True):
            waiting[block] += weight

    def _weighed(self) -> int:
        """The weight of the versions that a snapshot could erase, without those that have left the window. With several
        shards those wait that were deleted in a block that is not decided."""
        if self._waiting is None:
            self._waiting, entries = Counter(), queue_entries(self._store)
            while some := [*islice(entries, _TOGETHER)]:
                self._unweighed = some
                self._weigh(self._waiting)
        self._weigh(self._waiting)
        for there in [there for there in self._waiting if there < self._shard.first // _BLOCK]:
            del self._waiting[there]
        shard = self._shard
        if not shard.limits.late:
            return self._waiting.total()
        return sum(weight for there, weight in self._waiting.items() if there * _BLOCK < shard.late.first)

    def step(self, now: float, frame: int, answered: int, deletes: bool) -> Base | None:
        """Do one step. Returns the next snapshot record to be sent, after the changes up to that of `frame`, the last
        one.

        Args:
            now: by the append times of frames, seconds since 1970. It may go back.
            answered: the last frame up to which all replies are in their topic.
            deletes: whether Kafka has deleted what is not needed any more. If not, another snapshot would not make the
                changelog smaller.
        """
        if self._records is not None:
            found = next(self._records, None)  # after the last one it waits for the acknowledgement: `ended`
            if found is None:
                self._debt = 0
            return found
        if self._before is None:
            if abs(now - self._looked) < LOOK_SECONDS:
                return None
            self._looked = now
            large = deletes and abs(now - self._cycle.at) >= SIZE_SECONDS and self._is_large()
            self._before = self._due(now, answered, large)
            if self._before is None:
                return None
            self._store.write({}, self._answers.forget(self._answered))
        if self._names is not None and not self._named:
            self._named = self._names.step()
            if not self._named:
                return None
            self._erasing.rewrite(self._names.take())
        if not self._erasing.step(_ALWAYS, self._before):
            return None
        self._at, self._debt = int(now), 0
        unfinished, self._unfinished = self._unfinished, None
        self._records = self._cleaned(frame, self._before) if unfinished is None else self._rest(*unfinished)
        return next(self._records)

    def _is_large(self) -> bool:
        """Whether the changelog is much larger than a snapshot would be."""
        size, shard = self._volume.size, self._shard
        if self._limit is None or size < self._limit:
            return False
        waiting, rows = self._weighed(), shard.count - shard.first
        return size >= BEGIN_SHARE * self._volume.lives(waiting, rows, shard.rows.recent[0].nbytes)

    def _due(self, now: float, answered: int, large: bool) -> int | None:
        """The row count below which all deletions are due and in no answer that may be asked for again. None: there are
        none, or it is too early. large: all that were made are due.

        Once a frame's change and reply are acknowledged, its answer is in the topics for good.
        """
        known, every = self._cycle.last_frame, self._every
        if known is None or not (large or (every is not None and abs(now - self._cycle.at) >= every)):
            return None
        self._answered = last = min(known, answered)
        shard, count = self._shard, self._shard.count
        if left := behind_window(self._store, shard.first):
            self._erasing.forget(left)
        before, oldest = self._answers.first_row(count, behind=last), count
        if shard.limits.late:  # decisions about later rows are to come
            before = min(before, shard.late.first)
        for place in places(self._store):
            if not large and every is not None and place.waits(now, every):
                if oldest == count:  # what is due first waits
                    return None
                before = min(before, place.there)
            oldest = min(oldest, place.there)
        return before if oldest < before else None

    def _cleaned(self, frame: int, before: int) -> Iterator[Base]:
        """The records of a snapshot. Rows added meanwhile are in changes after its first record."""
        shard, last = self._shard, self._shard.count
        first = shard.segments[0].first
        segments = [place for place in shard.segments.places if place[1] < last]
        facts: dict[str, object] = {"segments": segments, "answered": self._answered}
        if self._forgetting is not None:
            facts["window"] = self._forgetting.facts
        if shard.limits.late:
            facts["provisional"] = shard.late.facts
        counts, _ = folded(self._store, shard.number, trimmed=shard.counted.trimmed)  # now: later frames add to it
        mark = Mark(BEGINS, frame, first, last, before)
        yield self._base(mark, facts=facts)
        if counts:
            yield self._base(Mark(HAS_ROWS, frame, first, first, before), counts)
            del counts
        values, size = dict[bytes, bytes](), 0
        for place in places(self._store):
            if before <= place.there <= last:  # a frame may delete and add no row
                key = name_key(place.name)
                values[key] = self._store.value(key) or b""
                size += len(values[key])
                if size >= RECORD_BYTES:
                    yield self._base(Mark(HAS_ROWS, frame, first, first, before), values)
                    values, size = {}, 0
        if values:
            yield self._base(Mark(HAS_ROWS, frame, first, first, before), values)
        yield from self._rest(mark, first)

    def _rest(self, mark: Mark, at: int) -> Iterator[Base]:
        """The records of a snapshot from a row on, given its first record. A segment that leaves the window meanwhile
        needs no values: a reader has the change with which it left."""
        shard, mark = self._shard, mark._replace(part=HAS_ROWS)
        while at < mark.last:
            first = shard.first
            if at < first:
                record = self._base(mark._replace(first=at, last=min(first, mark.last)))
            else:
                segment = shard.segments.of(at)
                later = (place for _, place in shard.segments.places if at < place < mark.last)
                record = self._rows(segment, mark._replace(first=at, last=next(later, mark.last)))
            yield record
            at = record.mark.last
        erased = (self._store.named(ERASED_VERSIONS) or 0) + self._erasing.erased
        yield self._base(mark._replace(part=ENDS), facts={"erased": erased, "at": self._at})

    def _base(
        self, mark: Mark, values: Mapping[bytes, bytes] | None = None, facts: Mapping[str, object] | None = None
    ) -> Base:
        return Base(self._shard.number, self._key, mark, values or {}, facts=facts or {})

    def _rows(self, segment: Segment, mark: Mark) -> Base:
        """The first of these rows of a segment, with everything stored for them."""
        shard, number, first = self._shard, self._shard.number, mark.first
        last, size = min(mark.last, first + RECORD_ROWS), 0
        base = int(shard.rows.base)
        if first < base < last:  # a value has either flushed rows or others
            last = base
        for row, value in self._store.rows_of(TEXTS, number, segment.number, first):
            if row >= last:
                break
            if size and size + len(value) > RECORD_BYTES:
                last = row
                break
            size += len(value)
        values = {rows_key(ROWS, number, segment.number, first): shard.stored.value(first, last)}
        for kind in (IDS, TEXTS, PLACES, ERASED_ROWS, DECISIONS):
            for row, value in self._store.rows_of(kind, number, segment.number, first):
                if row >= last:
                    break
                values[rows_key(kind, number, segment.number, row)] = value
        deleted_rows = marked_between(self._store, number, segment.number, first, last)
        return Base(number, self._key, mark._replace(last=last), values, deleted_rows)

    def ended(self) -> None:
        """The snapshot counts: everything due is erased."""
        assert self._before is not None
        self._erasing.forget([place.name for place in places(self._store) if place.there < self._before])
        self._waiting, self._unweighed = None, []
        self._cycle.at = self._at
        self._before, self._records, self._named = None, None, False
