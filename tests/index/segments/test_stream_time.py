"""Stream time: the running maximum of the median of the last 64 event times."""

import random
from statistics import median_low

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_lsh.documents.times import LAST_TIME, NO_TIME
from stream_lsh.index.segments.stream_time import BEFORE, LAST, StreamTime

MAD = LAST_TIME - 1


def slowly(times: list[int]) -> list[int]:
    """The same in plain Python."""
    now, seen, out = BEFORE, list[int](), []
    for time in times:
        if time != NO_TIME:
            seen.append(time)
            now = max(now, median_low(seen[-LAST:]))
        out.append(now)
    return out


times_of_documents = st.lists(st.sampled_from((NO_TIME, 0, MAD)) | st.integers(10_000, 10_400), max_size=300)


@settings(max_examples=60, deadline=None)
@given(times_of_documents, st.integers(1, 200), st.booleans())
def test_it_is_that_of_the_rule_however_the_log_is_cut(times: list[int], batch: int, restarted: bool) -> None:
    """A restart goes on from what was committed, which says the same after the same documents, to the byte."""
    log, found = StreamTime(), list[int]()
    for at in range(0, len(times), batch):
        found += log.advance(np.array(times[at : at + batch], np.int64)).tolist()
        if restarted:
            log = StreamTime(orjson.loads(orjson.dumps(log.facts)))
    assert found == slowly(times)
    whole = StreamTime()
    whole.advance(np.array(times, np.int64))
    assert orjson.dumps(log.facts) == orjson.dumps(whole.facts)


@pytest.mark.parametrize(("mad", "moved"), [(31, False), (32, False), (33, True), (64, True)])
def test_up_to_half_of_64_mad_times_move_nothing(mad: int, moved: bool) -> None:
    """The same places in each 64, so that any 64 in a row have as many."""
    start = 1_700_000_000_000
    calm = [start + 1000 * i for i in range(1000)]
    places = random.Random(mad).sample(range(64), mad)
    times = [MAD if i >= 200 and i % 64 in places else time for i, time in enumerate(calm)]
    found = StreamTime().advance(np.array(times))
    assert bool(found.max() == MAD) is moved
    if not moved:
        assert found.max() <= max(calm)
        assert found.max() >= calm[-64]  # nor does it stand still
