"""Stream time: the time by the event times of documents. It never decreases, and depends on no clock.

It is the running maximum of the median of the last 64 event times (of all, while there are fewer; of an even number,
the lower of the two middle ones). Up to 31 wrong times among any 64 have no effect, and late documents do not set it
back. A document without an event time has the current stream time.

After wrong event times, an operator can say which time it is (`set_back`). Stream time then does not decrease: what
follows is later by a fixed shift, and people are shown stream time without the shift.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.times import NO_TIME, moment
from stream_lsh.errors import UsageError
from stream_lsh.hashing.kernels import njit

LAST = 64
BEFORE = -1  # before the first event time


class StreamTime:
    """Stream time after the documents so far.

    Args:
        known: `facts`; None = no document yet.

    Attributes:
        now: stream time in ms since 1970, and the shift; BEFORE if there was no event time yet.
        shift: ms that are added to event times.
    """

    def __init__(self, known: Mapping[str, Any] | None = None) -> None:
        known = known or {"last": [], "time": BEFORE}
        self._last = np.zeros(LAST, np.int64)  # a ring of the last event times
        self._entered = len(known["last"])
        self._last[: self._entered] = known["last"]
        self.now: int = known["time"]
        self.shift: int = known.get("shift", 0)

    @property
    def facts(self) -> dict[str, Any]:
        """Its state, for JSON."""
        oldest = max(0, self._entered - LAST)
        last = [int(self._last[k % LAST]) for k in range(oldest, self._entered)]
        return {"last": last, "time": self.now} | ({"shift": self.shift} if self.shift else {})

    def set_back(self, time: int) -> None:
        """From now on event times around `time` (ms since 1970) follow what was before. A later time than stream time
        is ignored: it would be a jump."""
        if self.now != BEFORE:
            self.follow(self.now - time)

    def follow(self, shift: int) -> None:
        """From now on the shift is at least that of another stream time of the same log, which was set back."""
        if shift > self.shift:
            self.shift = shift
            np.minimum(self._last, self.now, out=self._last)  # wrong times that are later would count with new ones

    def advance(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Stream times int64[n] of the next documents.

        Args:
            times: int64[n], event times in ms since 1970, or NO_TIME.
        """
        if times.tolist().count(NO_TIME) == len(times):
            out = np.empty(len(times), np.int64)
            out.fill(self.now)
            return out
        if self.shift:
            times = np.where(times == NO_TIME, times, times + self.shift)
        out = np.empty(len(times), np.int64)
        ordered = np.full(LAST, np.iinfo(np.int64).max)
        ordered[: min(self._entered, LAST)] = np.sort(self._last[: min(self._entered, LAST)])
        self._entered, self.now = (int(n) for n in _advance(times, self._last, ordered, self._entered, self.now, out))
        if self._entered > LAST:
            self._entered = LAST + self._entered % LAST  # only the position in the ring matters, not the count
        return out


def set_back_from(before: int, to: int) -> None:
    """Check that stream time can be set back from `before`, as it is shown, to `to`; ms since 1970.

    Raises:
        UsageError: it has not begun, or is not later.
    """
    if before == BEFORE:
        raise UsageError("stream time has not begun: no document with an event time was accepted")
    if to >= before:
        raise UsageError(
            f"stream time is {moment(before)}, not later than {moment(to)}: only event times move it ahead, and "
            "nothing was changed"
        )


def shown(facts: Mapping[str, Any] | None) -> int:
    """Stream time of `StreamTime.facts` as people are shown it, in ms since 1970; BEFORE if it has not begun."""
    return BEFORE if facts is None or facts["time"] == BEFORE else facts["time"] - facts.get("shift", 0)


def begun(log: NDArray[np.int64]) -> NDArray[np.int64]:
    """Stream times in which those before the first event time are set to it; they belong to rejected documents only."""
    first = int(np.searchsorted(log, BEFORE, "right"))
    return log if first in (0, len(log)) else np.maximum(log, log[first])


def jumps(log: NDArray[np.int64], before: int, window: int) -> int:
    """How often stream time advances by more than the window (ms) from one document to the next.

    Args:
        before: stream time before the first of these documents.
    """
    known = log if before == BEFORE else np.concatenate(([before], log))
    return int(np.count_nonzero(np.diff(known[known != BEFORE]) > window))


@njit
def _advance(times, last, ordered, entered, now, out):  # type: ignore[no-untyped-def]
    """last: ring of event times; entered: how many were ever entered; ordered: the event times of the ring,
    ascending."""
    for i in range(len(times)):
        time = times[i]
        if time != NO_TIME:
            size, place = min(entered, np.int64(LAST)), entered % LAST
            if size == LAST:
                size -= 1
                at = 0
                while ordered[at] < last[place]:
                    at += 1
                for k in range(at, size):
                    ordered[k] = ordered[k + 1]
            at = size
            while at > 0 and ordered[at - 1] > time:
                ordered[at] = ordered[at - 1]
                at -= 1
            ordered[at] = time
            last[place] = time
            entered += 1
            now = max(now, ordered[size >> 1])
        out[i] = now
    return entered, now
