"""bench/times.py: feeds, and what is seen of them."""

from __future__ import annotations

import numpy as np
import pytest

from bench.times import DAY, MAD, START, live, mad
from stream_lsh.index.segments.stream_time import LogTime


@pytest.mark.parametrize("of_64", [31, 33])
def test_any_64_have_so_many_mad_times(of_64: int) -> None:
    feed = mad(live(12), of_64)
    day = np.flatnonzero((feed.written - START) // DAY == 10)
    absurd = (feed.said == MAD)[day]
    assert {int(absurd[at : at + 64].sum()) for at in range(len(day) - 63)} == {of_64}
    assert (feed.said == MAD).sum() == absurd.sum()
    assert (LogTime().advance(feed.said).max() == MAD) == (of_64 > 32)
