"""What an index with a window remembers of the log: its time, and the segments that it is cut into.

A segment ends where it is full, or where the next one's documents are of another part of the log: an eighth of the
window, but at least a minute. Where documents are few it goes on over several parts, for a segment has its price,
however small: files, a column family, and both again when it goes. All that is a function of the log, and so the same
for all shards. A segment whose last document has left the window is seen by nobody who comes, and can go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.times import NO_TIME
from stream_lsh.errors import UsageError
from stream_lsh.index.segments.stream_time import BEFORE, StreamTime, begun, jumps
from stream_lsh.settings.model import Settings

SHARE, LEAST = 8, 60_000  # a segment is this share of the window, and at least so long (ms)
FEWEST = 1 << 19  # and at least one in so many of the documents that it has room for: 256 by default


def slot_of(window: int) -> int:
    """How long the parts of the log are by which a window (ms) forgets: ms."""
    return max(window // SHARE, LEAST)


@dataclass(slots=True)
class Span:
    """A segment: stream times of its first and its last document; documents before it, and in segments' worth."""

    number: int
    first: int
    last: int
    part: int
    place: int = 0  # where a version before did not say, as if it had begun long ago


class Window:
    """The window up to some document.

    Args:
        known: as `facts` gave it; None = no document yet.

    Attributes:
        spans: the segments that are there, oldest first. jumps: how often stream time went on by more than the window
        from one document to the next, so that everything was forgotten.
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
        """Stream time as it stands; BEFORE if there was no event time yet."""
        return self.spans[-1].last if self.spans else BEFORE

    @property
    def facts(self) -> dict[str, Any]:
        """What it goes on from, ready for JSON."""
        return {"log": self._log.facts, "jumps": self.jumps, "segments": [asdict(span) for span in self.spans]}

    def enter(
        self, times: NDArray[np.int64], counts: NDArray[np.bool_], places: NDArray[np.int64], clock: int | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Stream times and segments int64[n] of the next documents.

        Args:
            times: event times, NO_TIME without one. counts: bool[n]; of what is rejected no time counts. places: how
                many documents came before each. clock: ms since 1970, for `max_future`.

        Raises:
            UsageError: the very first document that counts has no time; nothing has changed.
        """
        times = np.where(counts, times, NO_TIME)
        timed = np.flatnonzero(times != NO_TIME)
        if self.now == BEFORE and counts.any() and (not len(timed) or counts[: timed[0]].any()):
            raise UsageError(
                f"window = {self._settings.window} needs event times, and the first document has none: name "
                "their field with time_field (--time-field), or give the documents times; later ones may miss"
            )
        if self._settings.max_ahead_ms is not None and clock is not None:
            times = np.minimum(times, clock + self._settings.max_ahead_ms)
        log = begun(self._log.advance(times))
        return log, self.cut(log, places)

    def cut(self, log: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Segments int64[n] of the next documents, by their stream times and places."""
        self.jumps += jumps(log, self.now, self._length)
        if not len(log) or log[-1] == BEFORE:  # all of them are rejected
            return np.zeros(len(log), np.int64)
        return self._segments(log, places)

    def _segments(self, log: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Segments of documents, at least one, with these stream times and places; they are entered."""
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
        """The segments from this number on, as they are now."""
        return tuple(replace(span) for span in self.spans if span.number >= number)

    def follow(self, spans: Iterable[Span]) -> None:
        """Go where another one has gone, of whom these are the latest segments."""
        for span in spans:
            if self.spans and self.spans[-1].number == span.number:
                self.spans[-1] = span
            elif not self.spans or self.spans[-1].number < span.number:
                self.spans.append(span)

    @property
    def gone(self) -> list[int]:
        """The numbers of the segments that nobody sees any more, oldest first; never the newest."""
        return [span.number for span in self.spans[:-1] if self.now - span.last > self._length]

    def forget(self, number: int) -> None:
        """The oldest segment, which has this number, is not there any more."""
        assert self.spans[0].number == number
        del self.spans[0]
