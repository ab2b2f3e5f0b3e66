"""The merge policy, without a disk: however slow merges are, a feed goes on, and runs do not become many."""

import math
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.index.postings.merge_policy import DOUBLINGS, FANOUT, PAUSE, SHORT_LEVEL, TOLERATED, next_merge, pause

DOCUMENTS = 65.536  # thousands of a flush


class Simulation:
    """Flushes, and one worker each for short and for long merges, by a clock of its own.

    slow: seconds that a worker needs to merge what one flush has written, which takes the feed one second.
    """

    def __init__(self, slow: float) -> None:
        self.slow = slow
        self.levels: list[int] = []
        self.sizes: list[int] = []  # flushes that went into each run
        self.now = 0.0
        self.under_way: dict[bool, tuple[float, int, int]] = {}  # end, and the runs: first, last
        self.waited: list[float] = []  # seconds, by flush

    def busy(self) -> list[bool]:
        busy = [False] * len(self.levels)
        for _, first, last in self.under_way.values():
            busy[first:last] = [True] * (last - first)
        return busy

    def begin(self) -> None:
        for short in (True, False):
            if short in self.under_way:
                continue
            found = next_merge(self.levels, self.busy(), short=short)
            if found is not None:
                assert found.stop - found.start == FANOUT
                assert len(set(self.levels[found])) == 1
                end = self.now + self.slow * sum(self.sizes[found])
                self.under_way[short] = end, found.start, found.stop

    def go_on_until(self, then: float) -> None:
        while self.under_way and min(self.under_way.values())[0] <= then:
            short = min(self.under_way, key=lambda which: self.under_way[which][0])
            self.now, first, last = self.under_way.pop(short)
            self.levels[first:last] = [self.levels[first] + 1]
            self.sizes[first:last] = [sum(self.sizes[first:last])]
            for other, (end, begin, stop) in self.under_way.items():
                moved = last - first - 1 if begin >= last else 0
                self.under_way[other] = end, begin - moved, stop - moved
            self.begin()
        self.now = then

    def flush(self) -> None:
        wait = pause(self.levels) * DOCUMENTS
        self.waited.append(wait)
        self.go_on_until(self.now + 1.0 + wait)
        self.levels.append(0)
        self.sizes.append(1)
        self.begin()


def levels_of(flushes: int) -> int:
    return 1 + math.ceil(math.log(flushes, FANOUT))


@pytest.mark.parametrize("slow", [0.01, 1.0, 20.0, 100.0])
def test_merges_never_stop_a_feed(slow: float) -> None:
    """Also where they are 20 times slower than flushes: the feed is slowed to what merges can do, and goes on."""
    simulation = Simulation(slow)
    for number in range(1, 4001):
        simulation.flush()
        assert len(simulation.levels) <= TOLERATED * levels_of(number) + 2 * FANOUT
    assert sum(simulation.sizes) == 4000
    # Who feeds it waits for merges, not for nothing: for less than what they all would take one after the other.
    assert simulation.now <= 4000 * (1 + slow * levels_of(4000))
    assert max(simulation.waited) <= PAUSE * 2**DOUBLINGS * DOCUMENTS
    if slow < 1 / (2 * math.log(4000, FANOUT)):
        assert sum(simulation.waited) == 0  # who is not outrun is not slowed


def test_runs_are_as_good_as_logarithmic_when_merges_keep_up() -> None:
    simulation = Simulation(0.0)
    for number in range(1, 3000):
        simulation.flush()
        assert max(Counter(simulation.levels).values()) <= FANOUT + 1
        assert max(simulation.levels) <= math.log(number, FANOUT) + 1
        assert simulation.levels == sorted(simulation.levels, reverse=True)  # nothing is stranded


def test_what_is_written_again_and_again_is_written_once_a_level() -> None:
    written, levels, sizes = 0, [], []
    for _ in range(4**6):
        levels.append(0)
        sizes.append(1)
        while found := next_merge(levels, [False] * len(levels), short=True) or next_merge(
            levels, [False] * len(levels), short=False
        ):
            first, last = found.start, found.stop
            written += sum(sizes[first:last])
            levels[first:last], sizes[first:last] = [levels[first] + 1], [sum(sizes[first:last])]
    assert levels == [6] and written == 6 * 4**6


runs = st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=40)


@given(runs, st.booleans())
def test_a_merge_is_of_free_neighbours_of_one_level(found: Sequence[tuple[int, bool]], short: bool) -> None:
    """The oldest of the smallest level that has four; each worker has its levels."""
    levels, busy = [level for level, _ in found], [taken for _, taken in found]
    possible = [
        first for first in range(len(levels) - FANOUT + 1)
        if len(set(levels[first : first + FANOUT])) == 1 and not any(busy[first : first + FANOUT])
        and (levels[first] <= SHORT_LEVEL) is short
    ]  # fmt: skip
    merge = next_merge(levels, busy, short=short)
    if not possible:
        assert merge is None
    else:
        first = min(possible, key=lambda at: (levels[at], at))
        assert merge == slice(first, first + FANOUT)


@given(runs, st.booleans())
def test_a_closed_segment_becomes_one_run(found: Sequence[tuple[int, bool]], short: bool) -> None:
    """By the worker of long merges, once all of it is on disk and free."""
    levels, busy = [level for level, _ in found], [taken for _, taken in found]
    merge = next_merge(levels, busy, closed=True, short=short)
    whole = len(levels) > 1 and not any(busy) and not short
    assert merge == (slice(0, len(levels)) if whole else None)


def test_a_pause_grows_with_what_is_left_to_merge_and_has_an_end() -> None:
    assert pause([]) == pause([0] * TOLERATED + [1] * TOLERATED + [2]) == 0
    pauses = [pause([0] * (TOLERATED + many)) for many in range(1, 40)]
    assert pauses == sorted(pauses) and pauses[0] == PAUSE * 2
    assert pauses[-1] == PAUSE * 2**DOUBLINGS  # some seconds for a thousand documents, never a refusal
