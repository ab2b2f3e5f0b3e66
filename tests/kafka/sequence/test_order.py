"""The sequencer's rule against every interleaving of loss, repeat, reordering, zombies, restarts of a small model."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_form import LONG, seeds

from stream_lsh.documents.times import LAST_TIME, NO_TIME
from stream_lsh.errors import FormatError, StateError
from stream_lsh.index.logtime import BEFORE, LAST, LogTime
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


def test_a_partition_begins_with_a_frame_that_says_so() -> None:
    decision = accept(Accepted(KEY), (3, 10, 12, CONTINUES))
    assert (decision.documents, decision.gaps, decision.after.positions) == (0, (Gap(3, -1, 10),), {})
    assert decision.mask is not None and not decision.mask.any()
    decision = accept(Accepted(KEY), (3, 10, 12, STARTS))
    assert (decision.documents, decision.mask, decision.after.positions) == (2, None, {3: 12})


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
    accepted = Accepted(KEY, {0: 5})
    gap = accept(accepted, (0, 6, 8, first))
    assert (gap.documents, gap.repeats, gap.gaps, gap.after) == (0, 0, (Gap(0, 5, 6),), accepted)
    assert accept(accept(accepted, (0, 5, 6, CONTINUES)).after, (0, 6, 8, first)).after.positions == {0: 8}


def test_only_an_operator_jumps_over_a_gap() -> None:
    jump = accept(Accepted(KEY, {0: 5}), (0, 9, 11, JUMPS))
    assert (jump.documents, jump.mask, jump.after.positions) == (2, None, {0: 11})
    assert accept(Accepted(KEY, {0: 50}), (0, 9, 11, JUMPS)).after.positions == {0: 50}


def test_each_partition_of_a_frame_is_judged_by_itself() -> None:
    accepted = Accepted(KEY, {0: 5, 1: 5, 2: 5})
    segments = (0, 5, 7, CONTINUES), (1, 6, 8, CONTINUES), (2, 3, 6, CONTINUES)
    decision = accept(accepted, *segments)
    assert counted(decision, *segments) == [(0, 5), (0, 6), (2, 5)]
    assert decision.after.positions == {0: 7, 1: 5, 2: 6}
    assert (decision.gaps, decision.repeats) == ((Gap(1, 5, 6),), 2)


def test_positions_move_over_offsets_without_documents() -> None:
    decision = accept(Accepted(KEY, {0: 5}), (0, 5, 7, CONTINUES), missing=frozenset({(0, 5), (0, 6)}))
    assert (decision.documents, decision.mask, decision.after.positions) == (0, None, {0: 7})


def test_a_damaged_segment_is_refused() -> None:
    for begins, ends in ((5, 4), (-1, 4)):
        with pytest.raises(FormatError):
            accept(Accepted(KEY), (0, begins, ends, STARTS))


@given(
    st.binary(min_size=16, max_size=16), st.dictionaries(st.integers(0, 5000), st.integers(0, 2**62)),
    st.integers(-1, 2**60), st.integers(0, 2**60),
    st.none() | st.lists(st.integers(0, LAST_TIME - 1), max_size=LAST),
)  # fmt: skip
def test_the_metadata_says_the_same_when_it_is_read_again(
    key: bytes, positions: dict[int, int], last: int, documents: int, times: list[int] | None
) -> None:
    log = None if times is None else {"last": times, "time": max(times, default=BEFORE)}
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
def test_log_times_are_those_of_what_counts_whatever_the_frames_are_and_whoever_goes_on(seed: int) -> None:
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
    log = LogTime().advance(np.array(times, np.int64))
    timed = log[log != BEFORE]
    assert found[len(found) - len(timed) :] == timed.tolist()
    assert all(time in (BEFORE, *timed[:1]) for time in found[: len(found) - len(timed)])


def test_the_count_is_that_of_what_was_passed_on() -> None:
    accepted = Accepted(KEY, {0: 5}, 7, 100)
    decision = accept(accepted, (0, 2, 8, CONTINUES))
    after = decision.after.passed_on(9, decision.documents)
    assert (after.key, after.last, after.documents, after.positions) == (KEY, 9, 103, {0: 8})


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
def test_metadata_of_somebody_else_is_refused(metadata: str) -> None:
    with pytest.raises(FormatError, match="topic_prefix"):
        Accepted.of(metadata)


def test_metadata_of_the_version_before_is_refused_with_the_remedy() -> None:
    with pytest.raises(StateError, match=r"written by version 1, this is 2: start under a new topic_prefix.*reindex"):
        Accepted.of("1:AQI=")


# Every interleaving of a small model: source partitions of two documents and of one, two signers at a time.

ENDS = 2, 1


class Life(NamedTuple):
    """A signer's life. owns: next position of each partition, None if it is not its own. unstarted: partitions whose
    first frame has yet to say so. commits: what it may commit next, None for no more, because a send was refused, or
    because it was taken for dead (a zombie, which goes on sending)."""

    owns: tuple[int | None, int | None]
    unstarted: frozenset[int]
    acked: tuple[int | None, int | None]
    broken: bool = False
    zombie: bool = False


class World(NamedTuple):
    committed: tuple[int | None, int | None] = (None, None)
    accepted: tuple[int | None, int | None] = (None, None)
    lives: tuple[Life, ...] = ()


@cache
def judged(accepted: tuple[int | None, int | None], segments: tuple[Segment, ...]) -> tuple[int | None, int | None]:
    """The positions after a frame. What counts is exactly what lies between them: nothing twice, nothing left out."""
    decision = accept(Accepted(KEY, {p: at for p, at in enumerate(accepted) if at is not None}), *segments)
    after, rows = decision.after.positions, counted(decision, *segments)
    for p in (0, 1):
        assert [o for q, o in rows if q == p] == list(range(accepted[p] or 0, after.get(p) or 0)), (accepted, segments)
    return after.get(0), after.get(1)


def landed(world: World, segments: tuple[Segment, ...]) -> World:
    return world._replace(accepted=judged(world.accepted, segments))


@cache
def frames(life: Life) -> list[tuple[tuple[Segment, ...], Life]]:
    """What a life may send next: some of the next documents of some of its partitions."""
    found = []
    for ends0 in range(life.owns[0] or 0, ENDS[0] + 1) if life.owns[0] is not None else [None]:
        for ends1 in range(life.owns[1] or 0, ENDS[1] + 1) if life.owns[1] is not None else [None]:
            segments = []
            owns, unstarted = list(life.owns), life.unstarted
            for p, ends in ((0, ends0), (1, ends1)):
                begins = life.owns[p]
                if begins is None or ends is None or (ends == begins and p not in unstarted):
                    continue
                segments.append((p, begins, ends, STARTS if p in unstarted else CONTINUES))
                owns[p], unstarted = ends, unstarted - {p}
            if segments:
                found.append((tuple(segments), life._replace(owns=(owns[0], owns[1]), unstarted=unstarted)))
    return found


def with_life(world: World, i: int, life: Life) -> World:
    return world._replace(lives=(*world.lives[:i], life, *world.lives[i + 1 :]))


def steps(world: World) -> Iterator[World]:
    for i, life in enumerate(world.lives):
        yield world._replace(lives=world.lives[:i] + world.lives[i + 1 :])  # killed
        for segments, after in frames(life):
            # The broker takes the frame; or refuses it, and may still take the ones behind it.
            acked = list(life.acked)
            for p, _, ends, _ in segments:
                acked[p] = ends
            took = after if life.broken else after._replace(acked=(acked[0], acked[1]))
            yield landed(with_life(world, i, took), segments)
            yield with_life(world, i, after._replace(broken=True))
        if not life.zombie and any(at is not None for at in life.acked):
            committed = tuple(
                new if new is not None else old for old, new in zip(world.committed, life.acked, strict=True)
            )
            yield with_life(world, i, life._replace(acked=(None, None)))._replace(committed=committed)
    if len(world.lives) < 2:
        for mine in ({0, 1}, {0}, {1}):  # a new member takes some partitions; who had them is a zombie from now on
            owns = tuple((world.committed[p] or 0) if p in mine else None for p in (0, 1))
            unstarted = frozenset(p for p in mine if world.committed[p] is None)
            old = tuple(
                life._replace(zombie=True) if any(life.owns[p] is not None for p in mine) else life
                for life in world.lives
            )
            yield world._replace(lives=(*old, Life((owns[0], owns[1]), unstarted, (None, None))))


@cache
def finished(world: World) -> World:
    """What a signer without any trouble makes of a world without others."""
    owns = tuple(at or 0 for at in world.committed)
    unstarted = frozenset(p for p in (0, 1) if world.committed[p] is None)
    life = Life((owns[0], owns[1]), unstarted, (None, None))
    segments = frames(life)[-1][0] if frames(life) else ()
    return landed(world, segments)


def test_no_interleaving_loses_or_repeats_a_document() -> None:
    seen: set[World] = set()
    waiting = deque([World()])
    while waiting:
        world = waiting.popleft()
        if world in seen:
            continue
        seen.add(world)
        for p in (0, 1):  # nothing is committed that is not accepted
            assert world.committed[p] is None or (world.accepted[p] or 0) >= (world.committed[p] or 0), world
        assert finished(world._replace(lives=())).accepted == ENDS, world
        waiting.extend(steps(world))
    assert len(seen) > 10_000


# A larger one at random: frames over holes, restarts of the sequencer from its commits, retention.


class Signer:
    """A life of a signer over several partitions, from what is committed."""

    def __init__(self, committed: dict[int, int], partitions: list[int]) -> None:
        self.positions = {p: committed.get(p, 0) for p in partitions}
        self.unstarted = {p for p in partitions if p not in committed}
        self.acked: dict[int, int] = {}
        self.broken = self.zombie = False

    def frame(self, numbers: random.Random, most: int) -> tuple[Segment, ...]:
        segments = []
        for p, begins in self.positions.items():
            ends = min(most, begins + numbers.choice([0, 0, 1, 2, 5]))
            if ends > begins or p in self.unstarted:
                segments.append((p, begins, ends, STARTS if p in self.unstarted else CONTINUES))
                self.positions[p] = ends
                self.unstarted.discard(p)
        return tuple(segments)


@settings(max_examples=2000 if LONG else 100, deadline=None)
@given(st.integers(0, 2**32))
def test_documents_are_passed_on_once_and_in_order_whatever_happens(seed: int) -> None:
    numbers = random.Random(seed)
    partitions, most = numbers.choice([1, 2, 3]), 12
    missing = frozenset((p, o) for p in range(partitions) for o in range(most) if numbers.random() < 0.15)
    log: list[tuple[Segment, ...]] = []
    committed: dict[int, int] = {}
    signers: list[Signer] = []

    def send(signer: Signer) -> None:
        segments = signer.frame(numbers, most)
        if not segments:
            return
        if numbers.random() < 0.15:
            signer.broken = True
            return
        log.append(segments)
        if not signer.broken:
            signer.acked.update({p: ends for p, _, ends, _ in segments})

    for _ in range(numbers.randrange(5, 80)):
        action = numbers.random()
        if not signers or action < 0.1:
            mine = [p for p in range(partitions) if numbers.random() < 0.7]
            for signer in signers:
                signer.zombie |= any(p in signer.positions for p in mine)
            signers.append(Signer(committed, mine))
        elif action < 0.2:
            signers.remove(numbers.choice(signers))
        elif action < 0.3:
            signer = numbers.choice(signers)
            if not signer.zombie:
                committed.update(signer.acked)
        else:
            send(numbers.choice(signers))
    last = Signer(committed, list(range(partitions)))
    while any(position < most for position in last.positions.values()) or last.unstarted:
        log.append(last.frame(numbers, most))

    def sequence(crashes: bool) -> list[tuple[int, int, tuple[tuple[int, int], ...]]]:
        """The frames passed on: offset, predecessor, documents; a crash goes back to the last commit."""
        passed: dict[int, tuple[int, int, tuple[tuple[int, int], ...]]] = {}
        accepted, at = Accepted(KEY), 0
        commit = 0, accepted.metadata()
        while at < len(log):
            if crashes and numbers.random() < 0.1:
                at, accepted = commit[0], Accepted.of(commit[1])
            decision = accept(accepted, *log[at], missing=missing)
            rows = [(p, o) for p, a, b, _ in log[at] for o in range(a, b) if (p, o) not in missing]
            if decision.mask is not None:
                rows = [row for row, yes in zip(rows, decision.mask, strict=True) if yes]
            assert len(rows) == decision.documents
            accepted, predecessor = decision.after, decision.after.last
            if rows:
                frame = at, predecessor, tuple(rows)
                assert passed.setdefault(at, frame) == frame  # whoever sends it: the same
                accepted = accepted.passed_on(at, len(rows))
            at += 1
            if numbers.random() < 0.3:
                commit = at, accepted.metadata()
        return [passed[offset] for offset in sorted(passed)]

    found = sequence(crashes=False)
    assert sequence(crashes=True) == found
    assert [predecessor for _, predecessor, _ in found] == [-1, *[offset for offset, _, _ in found]][: len(found)]
    documents = [row for _, _, rows in found for row in rows]
    for p in range(partitions):
        assert [o for q, o in documents if q == p] == [o for o in range(most) if (p, o) not in missing]
