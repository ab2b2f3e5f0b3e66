"""bench/times.py: feeds, and what is seen of them."""

from __future__ import annotations

import numpy as np
import pytest

from bench.times import DAY, EVERY, MAD, START, WINDOW, Feed, drained, filled_in, live, mad, seen
from stream_lsh.index.logtime import LogTime


def test_what_is_seen() -> None:
    written = START + DAY * np.arange(20)
    pairs = np.array([(0, 7), (0, 8), (3, 5)])
    feed = Feed(written, written, written, pairs)
    assert seen(feed, written) == (1.0, 0.0)
    assert seen(feed, written * 0) == (1.0, 0.5)
    assert seen(feed, written * 2) == (0.5, 0.0)
    assert WINDOW == 7 * DAY


@pytest.mark.parametrize("of_64", [31, 33])
def test_any_64_have_so_many_mad_times(of_64: int) -> None:
    feed = mad(live(12), of_64)
    day = np.flatnonzero((feed.written - START) // DAY == 10)
    absurd = (feed.said == MAD)[day]
    assert {int(absurd[at : at + 64].sum()) for at in range(len(day) - 63)} == {of_64}
    assert (feed.said == MAD).sum() == absurd.sum()
    assert (LogTime().advance(feed.said).max() == MAD) == (of_64 > 32)


@pytest.mark.parametrize("make", [lambda feed: filled_in(feed, 4, 2), lambda feed: drained(feed, 3)])
def test_another_order_has_the_same_documents_and_pairs(make: object) -> None:
    before = live(8)
    after = make(before)  # type: ignore[operator]
    assert sorted(after.written.tolist()) == before.written.tolist() == sorted(after.said.tolist())
    assert (np.diff(after.clock) >= 0).all() and (after.pairs[:, 0] < after.pairs[:, 1]).all()

    def told(feed: Feed) -> list[tuple[int, ...]]:
        return sorted(tuple(sorted(pair)) for pair in feed.written[feed.pairs].tolist())

    assert told(before) == told(after)
    assert EVERY == 120_000
