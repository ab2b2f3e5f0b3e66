"""The owner of a shard erases what is due, then writes what it holds anew into the changelog, so that the changes
before can go: a cleaning cycle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest

from stream_lsh.index.erasure.eraser import Erasing
from stream_lsh.index.erasure.queue import ERASED_VERSIONS
from stream_lsh.index.kernel.document_frequency import folded
from stream_lsh.index.rows.deleted_rows import dead_between
from stream_lsh.index.segments.segment import Segment
from stream_lsh.index.shard import Shard
from stream_lsh.index.store.rocksdb import ERASED_KEYS, IDS, PLACES, ROWS, TEXTS, Store, name_key, rows_key
from stream_lsh.kafka.match.cycle import Cycle
from stream_lsh.kafka.match.kept_answers import KeptAnswers
from stream_lsh.wire.bases import BEGINS, ENDS, HAS_ROWS, Base, Mark

RECORD_ROWS, RECORD_BYTES = 512, 256 << 10  # of a base record; its texts may come to a frame of them more
LOOK_SECONDS = 1.0  # from one look at what is due to the next
_ALWAYS = float("inf")


class Cleaning:
    """What an owner does about what is to be erased, from its opening to its end.

    Args:
        key: of the index. every: seconds from the beginning of a cycle to the next one.
    """

    def __init__(
        self, store: Store, shard: Shard, key: bytes, answers: KeptAnswers, erasing: Erasing, cycle: Cycle, every: int
    ) -> None:
        self._store = store
        self._shard = shard
        self._key = key
        self._answers = answers
        self._erasing = erasing
        self._cycle = cycle
        self._every = every
        self._answered = -1
        self._looked = -_ALWAYS
        self._at = 0  # when the cycle under way began
        self._before: int | None = None  # what went when there were fewer rows is being erased
        self._records: Iterator[Base] | None = None

    @property
    def erasing(self) -> Erasing:
        return self._erasing

    def step(self, now: float, frame: int) -> Base | None:
        """Do a little: the next base record to be sent, behind the changes up to that of `frame`, the last one.

        now: seconds since 1970.
        """
        if self._records is not None:
            return next(self._records, None)  # behind the last one it is waited for its acknowledgement: `ended`
        if self._before is None:
            if now < self._looked + LOOK_SECONDS:
                return None
            self._looked = now
            self._before = self._due(now)
            if self._before is None:
                return None
            self._store.write({}, self._answers.forget(self._answered))
        self._erasing.step(_ALWAYS, self._before)
        if any(not item.swept for item in self._erasing.waiting if item.there < self._before):
            return None
        self._at = int(now)
        self._records = self._cleaned(frame, self._before)
        return next(self._records)

    def _due(self, now: float) -> int | None:
        """With fewer rows than this all went that is due and that no answer names which may be asked for again. None:
        there is nothing, or it is too early.

        Where a frame's records are acknowledged, its answer stands in the topics for good.
        """
        told = self._cycle.told
        if told is None or now < self._cycle.at + self._every:
            return None
        count, waiting = self._shard.count, self._erasing.waiting
        early = min((item.there for item in waiting if item.due > now), default=count)
        before = min(early, self._answers.first_row(count, behind=told))
        self._answered = told
        return before if any(item.there < before for item in waiting) else None

    def _cleaned(self, frame: int, before: int) -> Iterator[Base]:
        """The records of a cycle. Rows that come meanwhile are in changes behind the first one."""
        shard, last = self._shard, self._shard.count
        first = shard.segments[0].first
        segments = [place for place in shard.segments.places if place[1] < last]
        facts = {"segments": segments, "answered": self._answered}
        counts, _ = folded(self._store, shard.number, trimmed=shard.counted.trimmed)  # now: what comes adds to it
        yield self._base(Mark(BEGINS, frame, first, last, before), facts=facts)
        if counts:
            yield self._base(Mark(HAS_ROWS, frame, first, first, before), counts)
            del counts
        values, size = dict[bytes, bytes](), 0
        for item in self._erasing.waiting:
            if item.there >= before and item.there < last:
                key = name_key(item.name)
                values[key] = self._store.value(key) or b""
                size += len(values[key])
                if size >= RECORD_BYTES:
                    yield self._base(Mark(HAS_ROWS, frame, first, first, before), values)
                    values, size = {}, 0
        if values:
            yield self._base(Mark(HAS_ROWS, frame, first, first, before), values)
        for (number, at), later in zip_longest(segments, segments[1:]):
            segment = next(known for known in shard.segments if known.number == number)
            end = later[1] if later is not None else last
            while at < end:
                record = self._rows(segment, at, end, frame, before)
                yield record
                at = record.mark.last
        gone = sum(item.versions for item in self._erasing.waiting if item.there < before)
        erased = (self._store.named(ERASED_VERSIONS) or 0) + gone
        yield self._base(Mark(ENDS, frame, first, last, before), facts={"erased": erased, "at": self._at})

    def _base(
        self, mark: Mark, values: Mapping[bytes, bytes] | None = None, facts: Mapping[str, object] | None = None
    ) -> Base:
        return Base(self._shard.number, self._key, mark, values or {}, facts=facts or {})

    def _rows(self, segment: Segment, first: int, end: int, frame: int, before: int) -> Base:
        """The next rows of a segment, with all that is stored of them."""
        shard, number = self._shard, self._shard.number
        last, size = min(end, first + RECORD_ROWS), 0
        base = int(shard.rows.base)
        if first < base < last:  # a value is of flushed rows or of others
            last = base
        for row, value in self._store.rows_of(TEXTS, number, segment.number, first):
            if row >= last:
                break
            if size and size + len(value) > RECORD_BYTES:
                last = row
                break
            size += len(value)
        values = {rows_key(ROWS, number, segment.number, first): shard.stored.value(first, last)}
        for kind in (IDS, TEXTS, PLACES, ERASED_KEYS):
            for row, value in self._store.rows_of(kind, number, segment.number, first):
                if row >= last:
                    break
                values[rows_key(kind, number, segment.number, row)] = value
        dead = dead_between(self._store, number, segment.number, first, last)
        return Base(number, self._key, Mark(HAS_ROWS, frame, first, last, before), values, dead)

    def ended(self) -> None:
        """The cycle counts: everything is erased."""
        self._erasing.forget()
        self._cycle.at = self._at
        self._before = self._records = None
