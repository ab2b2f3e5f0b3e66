"""The changelog records of all shards, released so that all shards stop at the same frame. Pure.

Every frame is sent to every shard, so each frame has a change in every changelog. A change counts if it follows the
last one (the chain rule of docs/internals/protocol.md). Other records change no frame, and are released in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from stream_lsh.errors import FormatError
from stream_lsh.settings.model import Settings
from stream_lsh.wire.bases import BEGINS, Base, is_base
from stream_lsh.wire.changes import frame_of
from stream_lsh.wire.parts import Adjacent

MOST = 4096  # commits of the judge that are remembered
WAITING_BYTES = 8 << 20  # of a shard, above which no more is wanted
Record = tuple[int, bytes]
"""Offset in the changelog, and value."""


@dataclass(slots=True)
class _Waiting:
    last: int  # the last frame of the chain, in the store or among the records
    trimmed: bool  # the changelog does not begin at its beginning
    parts: Adjacent
    records: deque[tuple[int, Record]] = field(default_factory=deque)  # each with the last frame up to there
    size: int = 0


class Alignment:
    """The records that are not in the shards' stores yet.

    Args:
        lasts: by shard, the last frame in its store; -1 if there is none.
        starts: by shard, the first offset of its changelog.
    """

    def __init__(self, settings: Settings, lasts: Sequence[int], starts: Sequence[int]) -> None:
        self._settings = settings
        self._waiting = [
            _Waiting(last, start > 0, Adjacent(settings)) for last, start in zip(lasts, starts, strict=True)
        ]

    @property
    def frame(self) -> int:
        """The last frame that all shards can have: offset in signatures, -1 if there is none."""
        return min(waiting.last for waiting in self._waiting)

    def wants(self, shard: int) -> bool:
        """Whether there is room for more records of a shard."""
        return self._waiting[shard].size < WAITING_BYTES

    def makes_room(self, frame: int) -> bool:
        """Whether `take` up to a frame releases records of a shard that has no room."""
        return any(waiting.size >= WAITING_BYTES and waiting.records[0][0] <= frame for waiting in self._waiting)

    def add(self, shard: int, offset: int, value: bytes) -> None:
        """Add the next record of a shard's changelog."""
        waiting = self._waiting[shard]
        waiting.last = self._followed(waiting, offset, value)
        waiting.records.append((waiting.last, (offset, value)))
        waiting.size += len(value)

    def _followed(self, waiting: _Waiting, place: int, value: bytes) -> int:
        """The last frame of the chain after the record at this offset. That of a change in parts comes with its last
        part."""
        begins = waiting.last < 0 and waiting.trimmed
        try:
            if (whole := waiting.parts.add(place, value)) is None:
                return waiting.last
            value = whole[1]
            if is_base(value):
                mark = Base.decode(value, self._settings).mark if begins else None
                return waiting.last if mark is None or mark.part != BEGINS else mark.frame
            offset, predecessor = frame_of(value, self._settings)
        except FormatError:  # the shard skips the record, or refuses it with its place
            return waiting.last
        follows = offset > waiting.last and (predecessor == waiting.last or begins)
        return offset if follows else waiting.last

    def take(self, shard: int, frame: int) -> list[Record]:
        """Release the records of a shard up to a frame."""
        waiting, found = self._waiting[shard], list[Record]()
        while waiting.records and waiting.records[0][0] <= frame:
            record = waiting.records.popleft()[1]
            waiting.size -= len(record[1])
            found.append(record)
        return found


@dataclass(frozen=True, slots=True)
class Behind:
    """How far a frame is behind the last one that the judge has committed: what later frames have.

    Attributes:
        documents: at most so many documents have verdicts in later frames.
        seconds: since the first of these verdicts was seen, 0 if there is none.
    """

    documents: int
    seconds: float


class Lag:
    """The commits of the judge that were seen, oldest first: last frame, documents until there, and time of seeing."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int, float]] = deque(maxlen=MOST)

    def note(self, last: int, documents: int, now: float) -> None:
        """Note a commit. now: seconds, of the clock that `behind` is given."""
        if not self._seen or last > self._seen[-1][0]:
            self._seen.append((last, documents, now))

    def behind(self, frame: int, now: float) -> Behind:
        """How far this frame is behind. Later calls are for this frame or later ones."""
        while len(self._seen) > 1 and self._seen[1][0] <= frame:
            self._seen.popleft()
        later = [seen for seen in self._seen if seen[0] > frame]
        if not later:
            return Behind(0, 0.0)
        before = self._seen[0][1] if self._seen[0][0] <= frame else 0
        return Behind(later[-1][1] - before, now - later[0][2])
