"""Which runs of a segment are merged next, and how much a feed is slowed that outruns the merges; no disk, no clock.

The pattern is Lucene's tiered merging: four neighbours of a level become one of the next, so that a posting is written
again once a level and the number of runs grows with the logarithm of the segment. A run's level says how often
what is in it was merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

FANOUT = 4
SHORT_LEVEL = 1  # runs up to this level are merged within seconds
TOLERATED = 2 * FANOUT  # runs of a level before the feed is slowed
PAUSE, DOUBLINGS = 0.001, 12  # seconds for 1,000 documents at the first run too many; doubled with each further one


class Merge(NamedTuple):
    """The runs [first, last) are to be merged."""

    first: int
    last: int
    short: bool


def next_merge(levels: Sequence[int], busy: Sequence[bool], *, closed: bool = False, short: bool) -> Merge | None:
    """The next merge for the worker of short or of long merges; None if there is nothing to do for it.

    Args:
        levels, busy: of the runs that are on disk, oldest first; busy ones are being merged, or not written yet.
        closed: no more runs will come: all are merged to one.
    """
    if closed:
        whole = len(levels) > 1 and not any(busy)
        return Merge(0, len(levels), False) if whole and not short else None
    # The smallest level first: merging an older one meanwhile would strand the younger ones before it.
    for level in sorted(set(levels)):
        if (level <= SHORT_LEVEL) is not short:
            continue
        for first in range(len(levels) - FANOUT + 1):
            group = range(first, first + FANOUT)
            if all(levels[i] == level and not busy[i] for i in group):
                return Merge(first, first + FANOUT, short)
    return None


def pause(levels: Sequence[int]) -> float:
    """Seconds to wait for every 1,000 documents, so that merges keep up: a feed is slowed, never refused."""
    excess = sum(max(0, count - TOLERATED) for count in Counter(levels).values())
    return PAUSE * 2 ** min(excess, DOUBLINGS) if excess else 0.0
