"""The merge policy: which runs of a segment are merged next, and how much a feed is slowed that outruns the merges.

It is Lucene's tiered merging: four neighbours of a level become one run of the next level. A posting is rewritten once
for each level, and the number of runs grows with the logarithm of the segment. A run's level is the number of merges of
its postings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

FANOUT = 4
SHORT_LEVEL = 1  # runs up to this level are merged within seconds
TOLERATED = 2 * FANOUT  # runs of a level before the feed is slowed
PAUSE, DOUBLINGS = 0.001, 12  # seconds per 1,000 documents for the first excess run, doubled for each further one


def next_merge(levels: Sequence[int], busy: Sequence[bool], *, closed: bool = False, short: bool) -> slice | None:
    """The runs that the thread of short or of long merges merges next; None if there are none.

    Args:
        levels, busy: of the runs on disk, oldest first. Busy runs are being merged or written.
        closed: there are no further runs: all are merged into one.
    """
    if closed:
        whole = len(levels) > 1 and not any(busy)
        return slice(0, len(levels)) if whole and not short else None
    # Lowest level first: merging an older level before would leave these runs without neighbours.
    for level in sorted(set(levels)):
        if (level <= SHORT_LEVEL) is not short:
            continue
        for first in range(len(levels) - FANOUT + 1):
            group = slice(first, first + FANOUT)
            if list(levels[group]) == [level] * FANOUT and not any(busy[group]):
                return group
    return None


def pause(levels: Sequence[int]) -> float:
    """Seconds to wait per 1,000 documents, so that merges keep up. A feed is slowed, never refused."""
    if len(levels) <= TOLERATED:
        return 0.0
    excess = sum(max(0, count - TOLERATED) for count in Counter(levels).values())
    return PAUSE * 2 ** min(excess, DOUBLINGS) if excess else 0.0
