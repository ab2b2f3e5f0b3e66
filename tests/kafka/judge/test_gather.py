"""Every frame complete exactly once and in order, whatever is lost, repeated, out of order or begun again."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_form import LONG

from stream_lsh.errors import StoreError
from stream_lsh.kafka.judge.gather import Gather, Outcome, Waits

OFFSETS = [3, 4, 9, 10, 17, 40]  # frames' offsets in the signatures topic have holes
Log = Sequence[tuple[int, int]]  # of the matches topic: shard, number of the frame


def add(gather: Gather[str], position: int, shard: int, frame: int) -> Outcome:
    predecessor = OFFSETS[frame - 1] if frame else -1
    return gather.add(position, shard, OFFSETS[frame], predecessor, f"{shard}:{frame}")


class Judge:
    """A judge whose commits are atomic with what it puts out; `crash` forgets everything else."""

    def __init__(self, shards: int, log: Log) -> None:
        self.shards = shards
        self.log = log
        self.out: list[tuple[int, list[str]]] = []
        self.committed = (0, -1)
        self.crash()

    def crash(self) -> None:
        self.position, last = self.committed
        self.gather: Gather[str] = Gather(self.shards, last)
        self.pending: list[tuple[int, list[str]]] = []

    def read(self, number: int) -> None:
        for shard, frame in self.log[self.position : self.position + number]:
            add(self.gather, self.position, shard, frame)
            self.position += 1

    def decide(self) -> None:
        while (frame := self.gather.take()) is not None:
            self.pending.append((frame.offset, list(frame.replies)))

    def commit(self) -> None:
        needed = self.gather.needed(self.position)
        assert self.committed[0] <= needed <= self.position
        self.committed = needed, self.gather.last
        self.out += self.pending
        self.pending = []

    def check(self, frames: int) -> None:
        assert self.out == [
            (OFFSETS[frame], [f"{shard}:{frame}" for shard in range(self.shards)]) for frame in range(frames)
        ]


@st.composite
def shard_logs(draw: st.DrawFn, frames: int) -> list[int]:
    """Some failing runs, one that lasts, and late sends of zombies anywhere."""
    log: list[int] = []
    committed = 0
    for _ in range(draw(st.integers(0, 3))):
        sent = draw(st.lists(st.booleans(), max_size=frames - committed))
        log += [committed + i for i, landed in enumerate(sent) if landed]
        whole = sent.index(False) if False in sent else len(sent)
        committed = draw(st.integers(committed, committed + whole))
    log += range(committed, frames)
    for frame in draw(st.lists(st.integers(0, frames - 1), max_size=4)):
        log.insert(draw(st.integers(0, len(log))), frame)
    return log


@st.composite
def merged_logs(draw: st.DrawFn) -> tuple[int, int, Log]:
    shards, frames = draw(st.integers(1, 3)), draw(st.integers(1, len(OFFSETS)))
    rests = [[(shard, frame) for frame in draw(shard_logs(frames))] for shard in range(shards)]
    log = []
    while any(rests):
        rest = draw(st.sampled_from([rest for rest in rests if rest]))
        log.append(rest.pop(0))
    return shards, frames, log


@settings(max_examples=4000 if LONG else 200, deadline=None)
@given(merged_logs(), st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["read", "decide", "commit", "crash"]))))
def test_whatever_is_lost_repeated_reordered_or_begun_again(
    made: tuple[int, int, Log], steps: list[tuple[int, str]]
) -> None:
    shards, frames, log = made
    judge = Judge(shards, log)
    for number, step in [*steps, (len(log), "read")]:
        if step == "read":
            judge.read(number)
        elif step == "decide":
            judge.decide()
        elif step == "commit":
            judge.decide()
            judge.commit()
        else:
            judge.crash()
    judge.read(len(log))
    judge.decide()
    judge.commit()
    judge.check(frames)
    assert judge.gather.waiting == 0
    assert judge.committed == (len(log), OFFSETS[frames - 1])


def test_outcomes_and_what_is_still_needed() -> None:
    gather: Gather[str] = Gather(2, -1)
    assert gather.needed(7) == 7
    assert add(gather, 7, 0, 1) is Outcome.GAP
    assert add(gather, 8, 0, 0) is Outcome.APPLIED
    assert add(gather, 9, 0, 0) is Outcome.REPEAT
    assert add(gather, 10, 0, 1) is Outcome.APPLIED
    assert not gather.ready and gather.take() is None
    assert (gather.needed(11), gather.waiting, gather.last) == (8, 2, -1)
    assert add(gather, 11, 1, 0) is Outcome.APPLIED
    assert gather.ready
    frame = gather.take()
    assert frame is not None and frame.offset == OFFSETS[0] and list(frame.replies) == ["0:0", "1:0"]
    assert (gather.needed(12), gather.waiting, gather.last) == (10, 1, OFFSETS[0])
    assert gather.take() is None


@pytest.mark.parametrize(
    ("shard", "offset", "predecessor", "says"),
    [
        (2, 5, -1, "shards = 2"),
        (-1, 5, -1, "shards = 2"),
        (0, 12, 7, "forked"),  # beside the frame after 9
        (0, 9, 9, "forked"),
    ],
)
def test_what_cannot_be(shard: int, offset: int, predecessor: int, says: str) -> None:
    gather: Gather[str] = Gather(2, 9)
    with pytest.raises(StoreError, match=says):
        gather.add(0, shard, offset, predecessor, "")


def test_shards_that_follow_different_chains() -> None:
    gather: Gather[str] = Gather(2, -1)
    gather.add(0, 0, 3, -1, "")
    gather.add(1, 1, 4, -1, "")
    with pytest.raises(StoreError, match="forked"):
        gather.take()


def test_the_shards_that_a_frame_waits_for_are_known() -> None:
    """From the first answer to it on; before, nothing here tells that there is a frame."""
    gather: Gather[str] = Gather(3, -1)
    assert gather.waits is None
    add(gather, 0, 1, 0)
    assert gather.waits == Waits((0, 2), OFFSETS[0])
    add(gather, 1, 1, 1)
    add(gather, 2, 0, 0)
    assert gather.waits == Waits((2,), OFFSETS[0])
    add(gather, 3, 2, 0)
    assert gather.waits is None and gather.ready
    gather.take()
    assert gather.waits == Waits((0, 2), OFFSETS[1])
    assert [str(Waits(shards, 1234)) for shards in ((2,), (0, 2))] == [
        "waiting for shard 2: frame 1234", "waiting for shards 0, 2: frame 1234",
    ]  # fmt: skip
