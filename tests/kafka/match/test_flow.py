"""The way of a shard's frames without a broker: what is sent, acknowledged, given up, and in which order."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from stream_lsh.errors import StoreError
from stream_lsh.kafka.consumer import output
from stream_lsh.kafka.match import flow as module
from stream_lsh.kafka.match.flow import Elsewhere, Flow
from stream_lsh.kafka.match.held import Confirmed, Matched
from stream_lsh.kafka.match.replica import Answer
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.bases import HAS_ROWS, Mark
from stream_lsh.wire.changes import Change
from stream_lsh.wire.sequenced import join_frames

MARK = Mark(HAS_ROWS, 0, 0, 1, 1)


@dataclass
class Place:
    """What aiokafka's futures hold."""

    offset: int


class Shard:
    """Answers frame n with the change cn and the reply rn; to `gap` with nothing, to `old` that it is long done."""

    shard, settled = 3, 100

    def __init__(self) -> None:
        self.settings = KafkaSettings()
        self.erases = self.owes = False
        self.change = b""  # of every frame, in place of its own
        self.bases: list[bytes] = []  # snapshot records to come
        self.confirmed: deque[Confirmed] = deque()
        self.had: list[Confirmed] = []
        self.matched: list[bytes] = []
        self.lost: StoreError | None = None
        self.free = asyncio.Event()
        self.free.set()

    def _take(self) -> None:
        self.had += self.confirmed
        self.confirmed.clear()

    async def clean(self) -> tuple[Mark, bytes] | None:
        self._take()
        found = (MARK, self.bases.pop(0)) if self.bases else None
        self.owes = self.owes and bool(self.bases)
        return found

    async def match(self, values: Sequence[bytes]) -> list[Matched]:
        self._take()
        self.matched += values
        await self.free.wait()
        found: dict[bytes, Answer | None] = {b"gap": None, b"old": Answer(0, -1, None, None)}
        return [Matched(found.get(value, self._answer(value[:9])), 0.0) for value in values]

    def _answer(self, value: bytes) -> Answer:
        return Answer(0, -1, self.change or b"c" + value, b"r" + value, 1)

    def look(self) -> None:
        if self.lost is not None:
            raise self.lost


class Play:
    """A flow from offset 10 on, and what it does; sends are confirmed by hand."""

    def __init__(self) -> None:
        self.sends: list[tuple[str, int, bytes]] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.places = {"changelog": 100, "matches": 7}  # the next offsets
        self.acknowledged: list[int] = []
        self.failures: list[BaseException] = []
        self.shard = Shard()
        self.probe = Probe("match")
        held: Any = self.shard
        unreadable: Any = None
        self.flow = Flow(
            held, 10, self._send, "changelog", "matches", self.failures.append, self.probe, unreadable,
            Elsewhere(KafkaSettings(topic_prefix="news"), self.probe),
        )  # fmt: skip

    async def _send(self, topic: str, partition: int, value: bytes) -> asyncio.Future[Any]:
        self.sends.append((topic, partition, value))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    def offer(self, offset: int, value: bytes) -> None:
        self.flow.offer(offset, value, lambda: self.acknowledged.append(offset))

    async def drained(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def confirm(self) -> None:
        """Acknowledge everything that was sent, and what is sent then."""
        for (topic, _, _), future in zip(self.sends, self.futures, strict=True):
            if not future.done():
                future.set_result(Place(self.places[topic]))
                self.places[topic] += 1
        await self.drained()
        if not all(future.done() for future in self.futures):
            await self.confirm()


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    found = Play()
    yield found
    await found.flow.close()


async def test_gaps_and_what_was_done_long_ago_are_acknowledged_in_their_turn(play: Play) -> None:
    for offset, value in ((10, b"a"), (11, b"gap"), (12, b"old")):
        play.offer(offset, value)
    await play.drained()
    assert len(play.sends) == 1 and play.acknowledged == []
    await play.confirm()
    assert play.acknowledged == [10, 11, 12]


async def test_a_reply_is_sent_when_its_change_is_the_next_in_the_changelog(play: Play) -> None:
    """Another worker's record may be a change of the same frame, and counts then."""
    for offset, value in ((10, b"a"), (11, b"b"), (12, b"c")):
        play.offer(offset, value)
    await play.drained()
    for future, offset in zip(play.futures[:3], (100, 103, 104), strict=True):
        future.set_result(Place(offset))
    await play.drained()
    assert [value for _, _, value in play.sends] == [b"ca", b"cb", b"cc", b"ra"] and play.flow.hole == (101, 103)
    play.flow.agreed(102)
    await play.drained()
    assert len(play.sends) == 4 and play.flow.hole == (102, 103)
    play.flow.agreed(103)
    await play.drained()
    assert [value for _, _, value in play.sends[4:]] == [b"rb", b"rc"] and play.flow.hole is None


async def test_a_change_without_a_place_ends_it(play: Play) -> None:
    play.offer(10, b"a")
    await play.drained()
    play.futures[0].set_result(Place(-1))  # the broker had it already
    await play.drained()
    assert len(play.sends) == 1 and isinstance(play.failures[0], Failed)


@pytest.mark.parametrize("offsets", [(100, 101, 102, 103), (100, 101, 103, 104)])
async def test_a_change_in_parts_counts_if_nothing_is_between_them(play: Play, offsets: tuple[int, ...]) -> None:
    play.shard.settings = KafkaSettings(record_bytes=256)
    play.shard.change = Change(3, 0, -1, 0, 0, bytes(16), {}, bytes(300)).encode(play.shard.settings)
    play.offer(10, b"a")
    await play.drained()
    assert len(play.futures) == 4
    for future, offset in zip(play.futures, offsets, strict=True):
        future.set_result(Place(offset))
    await play.drained()
    if offsets[-1] == 103:
        await play.confirm()
        await play.flow.tell()
        assert play.acknowledged == [10] and play.shard.had == [(0, 100, 4)]
    else:
        assert len(play.sends) == 4 and "between the parts of a change" in str(play.failures[0])


async def test_the_shard_gets_confirmations_without_a_new_frame(play: Play) -> None:
    play.offer(10, b"a")
    await play.drained()
    await play.confirm()
    assert play.shard.had == []
    await play.flow.tell()
    await play.flow.tell()
    assert play.shard.had == [(0, 100, 1)]
    await play.flow.close()
    assert play.shard.had == [(0, 100, 1)]


@pytest.mark.parametrize("which", [0, 2])
async def test_a_send_that_fails_ends_it(play: Play, which: int) -> None:
    play.offer(10, b"a")
    play.offer(11, b"b")
    await play.drained()
    if which == 2:  # the first reply
        play.futures[0].set_result(Place(100))
        await play.drained()
    play.futures[which].set_exception(ConnectionError("gone"))
    await play.confirm()
    play.offer(12, b"c")
    await play.drained()
    assert play.acknowledged == [] and not play.flow.room
    assert play.shard.matched == [b"a", b"b"]
    await play.flow.close()
    assert [str(error) for error in play.failures] == ["gone"]


async def test_a_record_of_several_frames_is_acknowledged_after_the_last(play: Play) -> None:
    play.offer(10, join_frames([b"a", b"gap", b"b"], play.shard.settings))
    play.offer(11, b"c")
    await play.drained()
    assert play.shard.matched == [b"a", b"gap", b"b", b"c"]
    for future in play.futures[:3]:
        future.set_result(Place(1))
    await play.drained()
    assert play.acknowledged == [] and not play.flow.idle
    for future in play.futures[3:]:
        future.set_result(Place(2))
    await play.drained()
    assert play.acknowledged == [10, 11] and play.flow.idle


async def test_frames_that_are_missing_end_it(play: Play) -> None:
    play.offer(10, b"a")
    play.offer(10, b"a")  # again after a seek: passed over
    play.offer(12, b"c")
    await play.drained()
    await play.flow.close()
    assert play.acknowledged == [] and isinstance(play.failures[0], Failed)
    assert "frames from offset 11 to 12" in str(play.failures[0])


async def test_draining_finishes_what_was_begun_and_drops_the_rest(play: Play) -> None:
    play.shard.free.clear()
    for offset in range(10, 10 + module.TOGETHER):
        play.offer(offset, b"x")
    play.offer(10 + module.TOGETHER, b"late")
    await play.drained()
    draining = asyncio.create_task(play.flow.drain(60))
    await play.drained()
    play.offer(99, b"after")
    play.shard.free.set()
    await play.drained()
    assert not draining.done()
    await play.confirm()
    await draining
    assert play.acknowledged == list(range(10, 10 + module.TOGETHER))
    assert play.shard.matched == [b"x"] * module.TOGETHER
    await play.flow.close()
    assert play.failures == []


async def test_draining_ends_when_nothing_is_confirmed(play: Play) -> None:
    play.offer(10, b"x")
    await play.drained()
    await play.flow.drain(0.05)
    assert play.acknowledged == []
    await play.flow.close()
    for future in play.futures:
        future.set_result(Place(1))
    await play.drained()
    assert play.acknowledged == []


async def test_no_room_for_more_than_a_limit(play: Play) -> None:
    play.offer(10, bytes(module.MOST_BYTES - 1))
    assert play.flow.room
    play.offer(11, b"x")
    assert not play.flow.room
    await play.drained()
    await play.confirm()
    assert play.flow.room
    for offset in range(12, 12 + module.MOST_FRAMES):
        assert play.flow.room
        play.offer(offset, b"x")
    assert not play.flow.room


async def test_only_what_was_matched_just_now_is_counted(play: Play) -> None:
    for offset, value in ((10, b"a"), (11, b"gap"), (12, b"old"), (13, b"b")):
        play.offer(offset, value)
    await play.drained()
    assert play.probe.registry.documents.labels("match")._value.get() == 2


async def test_a_frame_that_does_not_come_ends_it(play: Play) -> None:
    play.flow.check()
    assert play.failures == []
    play.shard.lost = StoreError("the next one has not come")
    play.flow.check()
    play.flow.check()
    await play.flow.close()
    assert [str(error) for error in play.failures][:1] == ["the next one has not come"]


async def test_no_confirmation_is_awaited_before_sending(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """A send may wait until there is room: that time is not the broker's."""
    monkeypatch.setattr(output, "ANSWER_SECONDS", 0.0)

    room = asyncio.Event()
    real = play.flow._changes._send

    async def send(topic: str, partition: int, value: bytes) -> asyncio.Future[Any]:
        await room.wait()
        return await real(topic, partition, value)

    play.flow._changes._send = send  # type: ignore[method-assign,assignment]
    play.offer(10, b"a")
    await play.drained()
    play.flow.check()
    assert play.failures == []
    room.set()
    await play.drained()
    play.flow.check()
    assert len(play.failures) == 1


async def test_snapshot_records_come_between_changes_and_while_nothing_waits(play: Play) -> None:
    """A frame has its own change first. A snapshot record has no acknowledgement, and the shard gets its offset."""

    play.shard.erases, play.shard.bases = True, [b"b%d" % n for n in range(module.CLEANING_STEPS + 3)]
    play.offer(10, b"0")
    play.offer(11, b"1")
    await play.drained()
    assert [value for _, _, value in play.sends] == [b"c0", b"c1", b"b0"]
    play.flow.clean()
    await play.drained()
    assert len(play.sends) == 3 + module.CLEANING_STEPS and play.sends[-1] == ("changelog", 3, b"b16")
    await play.confirm()
    assert play.acknowledged == [10, 11] and play.flow.idle
    play.flow.clean()
    await play.drained()
    assert play.shard.had[:3] == [(0, 100, 1), (0, 101, 1), (MARK, 102, 1)]
    assert len(play.sends) == 7 + module.CLEANING_STEPS
    await play.flow.close()
    assert play.failures == []


async def test_frames_wait_for_a_snapshot_that_is_behind(play: Play) -> None:
    play.shard.erases, play.shard.owes, play.shard.bases = True, True, [b"b0", b"b1", b"b2"]
    play.offer(10, b"0")
    await play.drained()
    play.shard.bases = [b"b3", b"b4"]
    play.offer(11, b"1")
    await play.drained()
    assert [value for _, _, value in play.sends] == [b"c0", b"b0", b"b1", b"b2", b"c1", b"b3"]
    await play.flow.close()
    assert play.failures == []


async def test_nothing_is_cleaned_where_nothing_is_erased_or_any_more(play: Play) -> None:
    play.shard.bases = [b"b0", b"b1"]
    play.offer(10, b"0")
    play.flow.clean()
    await play.drained()
    play.shard.erases = True
    await play.confirm()
    await play.flow.drain(1)
    play.flow.clean()
    await play.drained()
    assert play.sends == [("changelog", 3, b"c0"), ("matches", 0, b"r0")]
    await play.flow.close()
    assert play.failures == []


def test_changes_from_another_partition_are_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    probe = Probe("match")
    elsewhere = Elsewhere(KafkaSettings(topic_prefix="news"), probe)
    with caplog.at_level(logging.WARNING):
        for found in ([], [[2, 7, 0], [2, 9, 1]], [[3, 4, 1]]):
            elsewhere.add(np.array(found, np.int64).reshape(-1, 3))
    assert b'stream_lsh_other_partition_total{role="match"} 3.0' in probe.registry.exposition()[0]
    [said] = caplog.messages
    assert said.startswith("news.documents: 2 updates and deletions arrived from another partition")
    assert "offset 9 of partition 2, its document was in partition 1: give all producers the id as key" in said
