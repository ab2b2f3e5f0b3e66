"""Every frame complete once and in order, whatever is lost, repeated or begun again; what it waits for is named."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_form import LONG

from stream_lsh.errors import StoreError
from stream_lsh.kafka.judge import stage
from stream_lsh.kafka.judge.gather import Gather, Outcome
from stream_lsh.kafka.judge.stage import WAIT_SECONDS, JudgeStage
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.settings import KafkaSettings

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
def test_replies_lost_repeated_reordered_or_begun_again(
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


class Play:
    """A judge of three shards that has completed frame 1233, and a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        probe = Probe("judge")
        probe.health.clock = lambda: self.now
        self.judge = JudgeStage(KafkaSettings(shards=3), probe)
        self.gather: Gather[bytes] = Gather(3, 1233)
        self.judge._gather = self.gather
        self._position = 0

    def answer(self, shard: int, frame: int) -> None:
        """A shard answers a frame; frames follow each other by 1."""
        self.gather.add(self._position, shard, frame, frame - 1, b"")
        self._position += 1

    def pass_time(self, seconds: float) -> None:
        """Steps of the judge, five a second."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.2
            self.judge._mention_wait()


async def test_missing_reply_names_its_shard(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(stage, "head", lambda value, _: value)
    monkeypatch.setattr(stage, "STUCK_SECONDS", -1)
    play = Play()
    heads: list[Any] = [(2, 1234, 1233), (2, 1236, 1235), (0, 1234, 1233)]
    records: list[Any] = [SimpleNamespace(value=value, offset=offset) for offset, value in enumerate(heads)]
    await play.judge._read(records)
    play.judge._mention_gap()
    assert caplog.messages == [
        "shard 2: its reply after frame 1234 is missing for -1 s: restart the worker of match that has this shard, "
        "which sends it again"
    ]


def test_each_frame_has_its_own_time(caplog: pytest.LogCaptureFixture) -> None:
    """A judge that is always a frame behind waits for nothing."""
    play = Play()
    for frame in range(1234, 1334):
        play.answer(0, frame)
        play.pass_time(WAIT_SECONDS - 1)
        play.answer(1, frame)
        play.answer(2, frame)
        play.gather.take()
        play.pass_time(WAIT_SECONDS / 5)
    assert not caplog.records
    play.answer(1, 1334)
    play.pass_time(WAIT_SECONDS + 1)
    assert [record.getMessage() for record in caplog.records] == ["waiting for shards 0, 2: frame 1334"]
