"""Which groups end: after two windows, whatever the batches are, a few with every document."""

from bisect import bisect_left

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.models.spreading import reached

from stream_lsh.index.segments.window import SHARE
from stream_lsh.judging.ending import Ending

MINUTE = 60_000
steps = st.lists(st.sampled_from((0, 1, 1000, MINUTE, 10 * MINUTE, 400 * MINUTE)), min_size=1, max_size=300)
gaps = st.integers(1, 3)


@given(
    steps,
    st.lists(gaps, min_size=300, max_size=300),
    st.sampled_from((1000, MINUTE, 5 * MINUTE, 80 * MINUTE)),
    st.data(),
)
def test_it_is_a_function_of_the_log(
    given_steps: list[int], between: list[int], window: int, data: st.DataObject
) -> None:
    log = (1_700_000_000_000 + np.cumsum(given_steps)).tolist()
    seqs = np.cumsum([data.draw(st.sampled_from((0, 4096))), *between[: len(log) - 1]]).tolist()
    expected = reached(log, seqs, window)
    ending, found, at = Ending(window), [], 0
    while at < len(log):
        end = at + data.draw(st.integers(1, 100))
        found += ending.enter(np.array(log[at:end]), np.array(seqs[at:end])).tolist()
        assert len(ending.slots) <= 2 * SHARE + 3
        ending = Ending(window, ending.slots, ending.reached, ending.last)
        at = end
    assert found == expected
    assert ending.reached == expected[-1] <= ending.due
    for end, now in zip(found, log, strict=True):  # who founded a group that has ended came two windows ago
        before = log[: bisect_left(seqs, end)]
        assert not before or now - before[-1] > 2 * window - 1


def test_few_documents_with_many_numbers_catch_up() -> None:
    """On Kafka a frame has 4,096 numbers, be there one document in it."""
    ending, many = Ending(MINUTE), 1000
    seqs = np.arange(0, 2 * many) * 4096
    log = np.where(np.arange(2 * many) < many, 10**12, 10**12 + 10 * MINUTE)
    found = ending.enter(log, seqs)
    assert found[many - 1] == 0 and found[many + many // 4] == seqs[many] == ending.due < seqs[-1]


def test_what_was_rejected_before_the_first_time() -> None:
    """It has no stream time yet, or, if it came in one batch with the first time, that one."""
    for before in (-1, 10**12):
        ending = Ending(MINUTE)
        log = [before, before, 10**12, 10**12 + 10 * MINUTE, 10**12 + 10 * MINUTE]
        assert ending.enter(np.array(log), np.arange(5)).tolist() == [0, 0, 0, 3, 3]
        assert Ending(MINUTE, ending.slots, ending.reached).slots == ending.slots
