"""The window of an index: its stream time, and the segments that the log is cut into.

A segment ends when it is full, or when the next document belongs to another time slot: an eighth of the window, at
least a minute. Where documents are few a segment extends over several slots, because each segment costs files and
column families. The cuts depend only on the log, and are the same in all shards. A segment can be deleted when its last
document has left the window.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.times import NO_TIME
from stream_lsh.errors import UsageError
from stream_lsh.index.segments.stream_time import BEFORE, StreamTime, begun, jumps, set_back_from
from stream_lsh.settings.model import Settings

SHARE, LEAST = 8, 60_000  # length of a slot as a share of the window, and its least length in ms
FEWEST = 1 << 19  # share of a segment's room that it fills at least before a slot ends it: 256 documents by default


def slot_of(window: int) -> int:
    """The length of a time slot for a window, both in ms."""
    return max(window // SHARE, LEAST)


@dataclass(slots=True)
class Span:
    """A segment of the log.

    Attributes:
        number: of the segment.
        first, last: stream times of its first and its last document, in ms.
        part: the number of documents before it, in full segments.
        place: the number of documents before it.
    """

    number: int
    first: int
    last: int
    part: int
    place: int = 0  # an earlier version did not store it


class Window:
    """The window after the documents so far.

    Args:
        known: `facts`; None = no document yet.

    Attributes:
        spans: the segments that exist, oldest first.
        jumps: how often stream time advanced by more than the window from one document to the next, which empties the
            window.
    """

    def __init__(self, settings: Settings, known: dict[str, Any] | None = None) -> None:
        known = known or {"jumps": 0, "segments": []}
        self._settings = settings
        self._length = settings.window_ms
        self._cut = slot_of(self._length)
        self._log = StreamTime(known.get("log"))
        self.jumps: int = known["jumps"]
        self.spans = [Span(**item) for item in known["segments"]]

    @property
    def now(self) -> int:
        """Stream time in ms since 1970; BEFORE if there was no event time yet."""
        return self.spans[-1].last if self.spans else BEFORE

    @property
    def shown(self) -> int:
        """Stream time as people are shown it (`stream_time.shown`)."""
        return self.now if self.now == BEFORE else self.now - self._log.shift

    @property
    def shift(self) -> int:
        return self._log.shift

    def set_back(self, time: int) -> None:
        """Set stream time back to `time`, ms since 1970.

        Raises:
            UsageError: it has not begun, or is not later.
        """
        set_back_from(self.shown, time)
        self._log.set_back(time)

    @property
    def facts(self) -> dict[str, Any]:
        """Its state, for JSON."""
        return {"log": self._log.facts, "jumps": self.jumps, "segments": [asdict(span) for span in self.spans]}

    def enter(
        self, times: NDArray[np.int64], counts: NDArray[np.bool_], places: NDArray[np.int64], clock: int | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Stream times and segment numbers int64[n] of the next documents.

        Args:
            times: int64[n], event times in ms since 1970, or NO_TIME.
            counts: bool[n]; the times of other documents, the rejected ones, are ignored.
            places: int64[n], number of documents of the log before each.
            clock: ms since 1970, for `max_future`.

        Raises:
            UsageError: the first document that counts has no time; nothing is changed.
        """
        times = np.where(counts, times, NO_TIME)
        timed = np.flatnonzero(times != NO_TIME)
        if self.now == BEFORE and counts.any() and (not len(timed) or counts[: timed[0]].any()):
            raise UsageError(
                f"window = {self._settings.window} needs event times, and the first document has none: name "
                "their field with time_field (--time-field), or give the documents times; later ones may miss"
            )
        if self._settings.max_future_ms is not None and clock is not None:
            times = np.minimum(times, clock + self._settings.max_future_ms)
        log = begun(self._log.advance(times))
        return log, self.cut(log, places)

    def cut(self, log: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Segment numbers int64[n] of the next documents, by their stream times and places."""
        self.jumps += jumps(log, self.now, self._length)
        if not len(log) or log[-1] == BEFORE:  # all of them are rejected
            return np.zeros(len(log), np.int64)
        return self._segments(log, places)

    def _segments(self, log: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same, of at least one document; adds the segments to `spans`."""
        room = self._settings.documents_of_a_segment
        slots, parts, numbers = log // self._cut, places // room, np.empty(len(log), np.int64)
        at = end = 0
        while at < len(log):
            newest = self.spans[-1] if self.spans else None
            if newest is not None:
                slow = np.searchsorted(places, newest.place + room // FEWEST)
                end = int(max(slow, np.searchsorted(slots, newest.first // self._cut, "right")))
                end = min(end, int(np.searchsorted(parts, newest.part, "right")))
            if newest is None or end <= at:
                number, first = newest.number + 1 if newest is not None else 0, int(log[at])
                self.spans.append(Span(number, first, first, int(parts[at]), int(places[at])))
            else:
                numbers[at:end], newest.last = newest.number, int(log[end - 1])
                at = end
        return numbers

    def since(self, number: int) -> tuple[Span, ...]:
        """Copies of the segments from this number on."""
        return tuple(replace(span) for span in self.spans if span.number >= number)

    def follow(self, spans: Iterable[Span]) -> None:
        """Take over the latest segments of another window of the same log."""
        for span in spans:
            if self.spans and self.spans[-1].number == span.number:
                self.spans[-1] = span
            elif not self.spans or self.spans[-1].number < span.number:
                self.spans.append(span)

    @property
    def expired(self) -> list[int]:
        """The numbers of the segments that have left the window, oldest first; never the newest."""
        return [span.number for span in self.spans[:-1] if self.now - span.last > self._length]

    def forget(self, number: int) -> None:
        """Remove the oldest segment, which has this number."""
        assert self.spans[0].number == number
        del self.spans[0]
