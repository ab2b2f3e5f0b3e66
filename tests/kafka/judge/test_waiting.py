"""The judge's log names what everything waits for; without a broker, under a simulated clock."""

import pytest

from stream_lsh.kafka.judge.gather import Gather
from stream_lsh.kafka.judge.stage import WAIT_SECONDS, JudgeStage
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.settings import KafkaSettings


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


def test_a_shard_that_does_not_answer_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    play = Play()
    play.answer(0, 1234)
    play.answer(1, 1234)
    play.answer(0, 1235)
    play.pass_time(WAIT_SECONDS - 1)
    assert not caplog.records
    play.pass_time(600)
    [record] = caplog.records
    assert record.getMessage() == "waiting for shard 2: frame 1234" and record.levelname == "WARNING"


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


@pytest.mark.parametrize("moment", ["nothing has come", "complete", "another member judges"])
def test_a_judge_that_waits_for_no_shard_names_none(caplog: pytest.LogCaptureFixture, moment: str) -> None:
    play = Play()
    for shard in range({"nothing has come": 0, "complete": 3}.get(moment, 2)):
        play.answer(shard, 1234)
    if moment == "another member judges":
        play.judge._gather = None
    play.pass_time(600)
    assert not caplog.records
