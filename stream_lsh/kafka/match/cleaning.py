"""Cleaning: the owner of a shard erases what is due, then writes a snapshot into the changelog. The changes before the
snapshot can then be deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest

from stream_lsh.index.erasure.eraser import Erasing
from stream_lsh.index.erasure.queue import ERASED_VERSIONS, behind_window, places
from stream_lsh.index.kernel.document_frequency import folded
from stream_lsh.index.rows.deleted_rows import marked_between
from stream_lsh.index.segments.segment import Segment
from stream_lsh.index.shard import Shard
from stream_lsh.index.store.rocksdb import ERASED_ROWS, IDS, PLACES, ROWS, TEXTS, Store, name_key, rows_key
from stream_lsh.kafka.match.cycle import Cycle
from stream_lsh.kafka.match.forgetting import Forgetting
from stream_lsh.kafka.match.kept_answers import KeptAnswers
from stream_lsh.wire.bases import BEGINS, ENDS, HAS_ROWS, Base, Mark

RECORD_ROWS, RECORD_BYTES = 512, 256 << 10  # limits of a snapshot record; the texts of one frame may exceed them
LOOK_SECONDS = 1.0  # between two checks for what is due
_ALWAYS = float("inf")


class Cleaning:
    """Erasing and snapshots of an open shard.

    Args:
        key: of the index.
        every: seconds between the starts of two cycles.
        forgetting: the window of the shard; None: no window.
    """

    def __init__(
        self, store: Store, shard: Shard, key: bytes, answers: KeptAnswers, erasing: Erasing, cycle: Cycle, every: int,
        forgetting: Forgetting | None,
    ) -> None:  # fmt: skip
        self._store = store
        self._forgetting = forgetting
        self._shard = shard
        self._key = key
        self._answers = answers
        self._erasing = erasing
        self._cycle = cycle
        self._every = every
        self._answered = -1
        self._looked = -_ALWAYS
        self._at = 0  # start of the current cycle
        self._before: int | None = None  # versions that were deleted below this row count are being erased
        self._records: Iterator[Base] | None = None

    @property
    def erasing(self) -> Erasing:
        return self._erasing

    def step(self, now: float, frame: int) -> Base | None:
        """Do one step. Returns the next snapshot record to be sent, after the changes up to that of `frame`, the last
        one.

        Args:
            now: by the append times of frames, seconds since 1970. It may go back.
        """
        if self._records is not None:
            return next(self._records, None)  # after the last one it waits for the acknowledgement: `ended`
        if self._before is None:
            if abs(now - self._looked) < LOOK_SECONDS:
                return None
            self._looked = now
            self._before = self._due(now)
            if self._before is None:
                return None
            self._store.write({}, self._answers.forget(self._answered))
        if not self._erasing.step(_ALWAYS, self._before):
            return None
        self._at = int(now)
        self._records = self._cleaned(frame, self._before)
        return next(self._records)

    def _due(self, now: float) -> int | None:
        """The row count below which all deletions are due and in no answer that may be asked for again. None: there are
        none, or it is too early.

        Once a frame's records are acknowledged, its answer is in the topics for good.
        """
        last = self._cycle.last_frame
        if last is None or abs(now - self._cycle.at) < self._every:
            return None
        self._answered = last
        count = self._shard.count
        if left := behind_window(self._store, self._shard.first):
            self._erasing.forget(left)
        before, oldest = self._answers.first_row(count, behind=last), count
        for place in places(self._store):
            if place.waits(now, self._every):
                if oldest == count:  # what is due first waits
                    return None
                before = min(before, place.there)
            oldest = min(oldest, place.there)
        return before if oldest < before else None

    def _cleaned(self, frame: int, before: int) -> Iterator[Base]:
        """The records of a snapshot. Rows added meanwhile are in changes after its first record. A segment that leaves
        the window meanwhile needs no values: a reader has the change with which it left."""
        shard, last = self._shard, self._shard.count
        first = shard.segments[0].first
        segments = [place for place in shard.segments.places if place[1] < last]
        facts: dict[str, object] = {"segments": segments, "answered": self._answered}
        if self._forgetting is not None:
            facts["window"] = self._forgetting.facts
        counts, _ = folded(self._store, shard.number, trimmed=shard.counted.trimmed)  # now: later frames add to it
        yield self._base(Mark(BEGINS, frame, first, last, before), facts=facts)
        if counts:
            yield self._base(Mark(HAS_ROWS, frame, first, first, before), counts)
            del counts
        values, size = dict[bytes, bytes](), 0
        for place in places(self._store):
            if before <= place.there < last:
                key = name_key(place.name)
                values[key] = self._store.value(key) or b""
                size += len(values[key])
                if size >= RECORD_BYTES:
                    yield self._base(Mark(HAS_ROWS, frame, first, first, before), values)
                    values, size = {}, 0
        if values:
            yield self._base(Mark(HAS_ROWS, frame, first, first, before), values)
        for (number, at), later in zip_longest(segments, segments[1:]):
            end = later[1] if later is not None else last
            while at < end:
                segment = next((known for known in shard.segments if known.number == number), None)
                record = self._rows(segment, at, end, frame, before)
                yield record
                at = record.mark.last
        erased = (self._store.named(ERASED_VERSIONS) or 0) + self._erasing.erased
        yield self._base(Mark(ENDS, frame, first, last, before), facts={"erased": erased, "at": self._at})

    def _base(
        self, mark: Mark, values: Mapping[bytes, bytes] | None = None, facts: Mapping[str, object] | None = None
    ) -> Base:
        return Base(self._shard.number, self._key, mark, values or {}, facts=facts or {})

    def _rows(self, segment: Segment | None, first: int, end: int, frame: int, before: int) -> Base:
        """The next rows of a segment, with everything stored for them. None: it has left the window."""
        if segment is None:
            return self._base(Mark(HAS_ROWS, frame, first, end, before))
        shard, number = self._shard, self._shard.number
        last, size = min(end, first + RECORD_ROWS), 0
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
        for kind in (IDS, TEXTS, PLACES, ERASED_ROWS):
            for row, value in self._store.rows_of(kind, number, segment.number, first):
                if row >= last:
                    break
                values[rows_key(kind, number, segment.number, row)] = value
        deleted_rows = marked_between(self._store, number, segment.number, first, last)
        return Base(number, self._key, Mark(HAS_ROWS, frame, first, last, before), values, deleted_rows)

    def ended(self) -> None:
        """The snapshot counts: everything due is erased."""
        assert self._before is not None
        self._erasing.forget([place.name for place in places(self._store) if place.there < self._before])
        self._cycle.at = self._at
        self._before = self._records = None
