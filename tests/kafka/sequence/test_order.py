"""The sequencer's rule against every interleaving of loss, repeat, reordering, zombies, restarts of a small model."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.long_form import seeds

from stream_lsh.documents.times import LAST_TIME, NO_TIME
from stream_lsh.errors import FormatError, StoreError
from stream_lsh.index.segments.stream_time import BEFORE, LAST, StreamTime
from stream_lsh.kafka.sequence.order import Accepted, Decision, Gap
from stream_lsh.wire.frames import CONTINUES, JUMPS, STARTS, Places

KEY = bytes(range(16))
Segment = tuple[int, int, int, int]


def accept(
    accepted: Accepted, *segments: Segment, missing: frozenset[tuple[int, int]] = frozenset(),
    times: list[int] | None = None,
) -> Decision:  # fmt: skip
    """Judge a frame of these segments, with a document at every offset but the missing ones."""
    rows = [(p, o) for p, begin, end, _ in segments for o in range(begin, end) if (p, o) not in missing]
    return accepted.accept(
        Places(
            np.array(segments, np.int64).reshape(-1, 4), np.array([p for p, _ in rows], np.int32),
            np.array([o for _, o in rows], np.int64), None if times is None else np.array(times, np.int64),
        )
    )  # fmt: skip


def counted(decision: Decision, *segments: Segment) -> list[tuple[int, int]]:
    rows = [(p, o) for p, begin, end, _ in segments for o in range(begin, end)]
    return rows if decision.mask is None else [row for row, yes in zip(rows, decision.mask, strict=True) if yes]


def test_a_repeat_is_dropped_and_an_overlap_counts_from_where_it_is_new() -> None:
    accepted = Accepted(KEY, {0: 5}, 7)
    repeat = accept(accepted, (0, 2, 5, CONTINUES))
    assert (repeat.documents, repeat.repeats, repeat.after) == (0, 3, accepted)
    overlap = accept(accepted, (0, 2, 8, CONTINUES))
    assert counted(overlap, (0, 2, 8, 0)) == [(0, 5), (0, 6), (0, 7)]
    assert (overlap.repeats, overlap.after.positions) == (3, {0: 8})
    again = accept(accepted, (0, 0, 6, STARTS))
    assert counted(again, (0, 0, 6, 0)) == [(0, 5)]


@pytest.mark.parametrize("first", [CONTINUES, STARTS])
def test_a_gap_is_ignored_until_it_is_filled(first: int) -> None:
    assert accept(Accepted(KEY), (3, 10, 12, CONTINUES)).gaps == (Gap(3, -1, 10),)  # nothing has begun there
    accepted = Accepted(KEY, {0: 5})
    gap = accept(accepted, (0, 6, 8, first))
    assert (gap.documents, gap.repeats, gap.gaps, gap.after) == (0, 0, (Gap(0, 5, 6),), accepted)
    assert accept(accept(accepted, (0, 5, 6, CONTINUES)).after, (0, 6, 8, first)).after.positions == {0: 8}


def test_only_an_operator_jumps_over_a_gap() -> None:
    jump = accept(Accepted(KEY, {0: 5}), (0, 9, 11, JUMPS))
    assert (jump.documents, jump.mask, jump.after.positions) == (2, None, {0: 11})
    assert accept(Accepted(KEY, {0: 50}), (0, 9, 11, JUMPS)).after.positions == {0: 50}


def test_a_damaged_segment_is_refused() -> None:
    for begins, ends in ((5, 4), (-1, 4)):
        with pytest.raises(FormatError):
            accept(Accepted(KEY), (0, begins, ends, STARTS))


@given(
    st.binary(min_size=16, max_size=16), st.dictionaries(st.integers(0, 5000), st.integers(0, 2**62)),
    st.integers(-1, 2**60), st.integers(0, 2**60),
    st.none() | st.lists(st.integers(0, LAST_TIME - 1), max_size=LAST), st.integers(0, LAST_TIME),
)  # fmt: skip
def test_the_metadata_says_the_same_when_it_is_read_again(
    key: bytes, positions: dict[int, int], last: int, documents: int, times: list[int] | None, shift: int
) -> None:
    log = None if times is None else {"last": times, "time": max(times, default=BEFORE)}
    log = {**log, "shift": shift} if log and shift else log
    accepted = Accepted(key, positions, last, documents, log)
    assert Accepted.of(accepted.metadata()) == accepted


def test_the_positions_of_hundreds_of_partitions_fit_into_a_commit() -> None:
    numbers = random.Random(1)
    accepted = Accepted(KEY, {p: 10**10 + numbers.randrange(10**6) for p in range(700)}, 10**9, 10**12)
    assert len(accepted.metadata()) < 4096
    positions = {p: accepted.positions[p] for p in range(600)}
    times = [1_700_000_000_000 + numbers.randrange(10**6) for _ in range(LAST)]  # within a quarter of an hour
    assert len(replace(accepted, positions=positions, log={"last": times, "time": max(times)}).metadata()) < 4096


@pytest.mark.parametrize("seed", seeds(8, 30, 60))
def test_stream_time_does_not_depend_on_frames_and_restarts(seed: int) -> None:
    """As of the documents in their order: of those that come again, or that are ignored for now, no time counts."""
    chance = random.Random(seed)
    odd, likely = chance.choice((0.0, 0.1, 0.6)), chance.choice((1, 400))
    times = [
        chance.choice((NO_TIME, 0, LAST_TIME - 1))
        if chance.random() < odd
        else chance.randrange(10_000, 10_000 + likely)
        for _ in range(chance.randrange(200))
    ]
    accepted, found, at = Accepted(KEY), list[int](), 0
    while at < len(times):
        begin = chance.randint(max(0, at - 5), at)
        end = chance.randint(begin, min(len(times), at + 60))
        first = chance.choice((CONTINUES, STARTS)) if at else STARTS
        segments, seen = ((0, begin, end, first), (1, 3, 5, CONTINUES)), [*times[begin:end], 5, LAST_TIME - 1]
        decision = accept(accepted, *segments, times=seen)
        assert decision.mask is not None  # of the second partition nothing counts
        if decision.documents:
            assert decision.log is not None and len(decision.log) == len(seen) and (np.diff(decision.log) >= 0).all()
            found += decision.log[decision.mask].tolist()
            at = end
        accepted = decision.after
        if chance.random() < 0.5:  # another goes on
            accepted = Accepted.of(accepted.metadata())
    log = StreamTime().advance(np.array(times, np.int64))
    timed = log[log != BEFORE]
    assert found[len(found) - len(timed) :] == timed.tolist()
    assert all(time in (BEFORE, *timed[:1]) for time in found[: len(found) - len(timed)])


WHOLE = Accepted(KEY, {0: 70}).metadata()


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "hello",
        "3:AQ==",
        "2:",
        "2:A",
        "2:gA==",
        "2:AQI=",
        WHOLE[:20],
        WHOLE + ":",
        WHOLE + ":gA==",
        WHOLE + ":A",
        '{"last": 3}',
    ],
)
def test_metadata_of_another_program_is_refused(metadata: str) -> None:
    with pytest.raises(FormatError, match="topic_prefix"):
        Accepted.of(metadata)


def test_metadata_of_the_version_before_is_refused_with_the_remedy() -> None:
    with pytest.raises(StoreError, match=r"written by version 1, this is 2: start under a new topic_prefix.*reindex"):
        Accepted.of("1:AQI=")
