"""The smallest schedule that still fails: fewer faults, fewer documents.

    PYTHONPATH=tests python -m support.simulation.report 123 124 --shrink

A scenario that can be shrunk leaves out what its world's schedule says. What is left out changes the order of all that
follows: whether a smaller schedule fails, only a run says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Schedule:
    """A seed, and what of it happens.

    Attributes:
        omitted: the places of the faults that do not happen.
        documents: how many of them come. None = all.
    """

    seed: int
    omitted: Sequence[int] = ()
    documents: int | None = None

    def __str__(self) -> str:
        omitted = f", omitted={tuple(self.omitted)}" if self.omitted else ""
        return f"Schedule({self.seed}{omitted}{f', documents={self.documents}' if self.documents else ''})"


def shrunk(schedule: Schedule, faults: int, documents: int, fails: Callable[[Schedule], bool]) -> Schedule:
    """The smallest schedule that was found to fail; each step tries one fault less, or a share of the documents less.

    faults, documents: how many the whole schedule has. fails: runs a schedule.
    """
    for place in range(faults):
        if place not in schedule.omitted:
            without = replace(schedule, omitted=tuple(sorted({*schedule.omitted, place})))
            schedule = without if fails(without) else schedule
    have, step = documents, documents // 2
    while step:
        fewer = replace(schedule, documents=have - step)
        if have > step and fails(fewer):
            schedule, have = fewer, have - step
        else:
            step //= 2
    return schedule
