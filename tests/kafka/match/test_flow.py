"""The way of a shard's frames without a broker: what is sent, acknowledged, given up, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from stream_lsh.errors import StateError
from stream_lsh.kafka.group import output
from stream_lsh.kafka.match import flow as module
from stream_lsh.kafka.match.flow import Flow
from stream_lsh.kafka.match.held import Matched
from stream_lsh.kafka.match.replica import Answer
from stream_lsh.kafka.run.lives import Failed
from stream_lsh.kafka.run.metrics import Watch
from stream_lsh.wire.bases import HAS_ROWS, Mark

MARK = Mark(HAS_ROWS, 0, 0, 1, 1)


@dataclass
class Place:
    """What aiokafka's futures hold."""

    offset: int


class Shard:
    """Answers frame n with the change cn and the reply rn; to `gap` with nothing, to `old` that it is long done."""

    shard = 3

    def __init__(self) -> None:
        self.erases = False
        self.bases: list[bytes] = []  # base records to come
        self.confirmed: list[tuple[int | Mark, int]] = []
        self.matched: list[bytes] = []
        self.lost: StateError | None = None
        self.free = asyncio.Event()
        self.free.set()

    async def clean(self, confirmed: Sequence[tuple[int | Mark, int]]) -> tuple[Mark, bytes] | None:
        self.confirmed += confirmed
        return (MARK, self.bases.pop(0)) if self.bases else None

    async def match(self, values: Sequence[bytes], confirmed: Sequence[tuple[int | Mark, int]]) -> list[Matched]:
        self.confirmed += confirmed
        self.matched += values
        await self.free.wait()
        found: dict[bytes, Answer | None] = {b"gap": None, b"old": Answer(0, None, None)}
        return [Matched(found.get(value, Answer(0, b"c" + value, b"r" + value, 1)), 0.0) for value in values]

    def look(self) -> None:
        if self.lost is not None:
            raise self.lost


class Play:
    """A flow from offset 10 on, and what it does; sends are confirmed by hand."""

    def __init__(self) -> None:
        self.sends: list[tuple[str, int, bytes]] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.acknowledged: list[int] = []
        self.failures: list[BaseException] = []
        self.shard = Shard()
        self.watch = Watch("match")
        held: Any = self.shard
        unreadable: Any = None
        self.flow = Flow(held, 10, self._send, "changelog", "matches", self.failures.append, self.watch, unreadable)

    async def _send(self, topic: str, partition: int, value: bytes) -> asyncio.Future[Any]:
        self.sends.append((topic, partition, value))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    def offer(self, offset: int, value: bytes) -> None:
        self.flow.offer(offset, value, lambda: self.acknowledged.append(offset))

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


def play(scenario: Callable[[Play], Coroutine[Any, Any, None]]) -> Play:
    async def run() -> Play:
        found = Play()
        try:
            await scenario(found)
        finally:
            await found.flow.close()
        return found

    return asyncio.run(run())


def test_acknowledged_in_order_when_change_and_reply_are_confirmed() -> None:
    async def scenario(p: Play) -> None:
        for offset in (10, 11, 12):
            p.offer(offset, b"%d" % offset)
        await p.settle()
        assert p.sends[:2] == [("changelog", 3, b"c10"), ("matches", 0, b"r10")]
        assert [value for _, _, value in p.sends[2:]] == [b"c11", b"r11", b"c12", b"r12"]
        for number in (5, 4, 1, 3, 2):
            p.futures[number].set_result(Place(100 + number))
        await p.settle()
        assert p.acknowledged == []
        p.futures[0].set_result(Place(100))
        await p.settle()
        assert p.acknowledged == [10, 11, 12]
        assert p.flow.idle

    assert play(scenario).shard.confirmed == [(0, 100), (0, 102), (0, 104)]


def test_gaps_and_what_was_done_long_ago_are_acknowledged_in_their_turn() -> None:
    async def scenario(p: Play) -> None:
        for offset, value in ((10, b"a"), (11, b"gap"), (12, b"old")):
            p.offer(offset, value)
        await p.settle()
        assert len(p.sends) == 2 and p.acknowledged == []
        for future in p.futures:
            future.set_result(None)  # as where the broker had the record already
        await p.settle()
        assert p.acknowledged == [10, 11, 12]

    assert play(scenario).shard.confirmed == []


def test_the_shard_is_told_what_is_confirmed_though_no_frame_comes() -> None:
    async def scenario(p: Play) -> None:
        p.offer(10, b"a")
        await p.settle()
        p.futures[0].set_result(Place(100))
        p.futures[1].set_result(Place(7))
        await p.settle()
        assert p.shard.confirmed == []
        await p.flow.tell()
        await p.flow.tell()
        assert p.shard.confirmed == [(0, 100)]

    assert play(scenario).shard.confirmed == [(0, 100)]


@pytest.mark.parametrize("which", [0, 1])
def test_a_send_that_fails_ends_it(which: int) -> None:
    async def scenario(p: Play) -> None:
        p.offer(10, b"a")
        p.offer(11, b"b")
        await p.settle()
        p.futures[which].set_exception(ConnectionError("gone"))
        p.futures[1 - which].set_result(Place(1))
        for future in p.futures[2:]:
            future.set_result(Place(2))
        await p.settle()
        p.offer(12, b"c")
        await p.settle()
        assert p.acknowledged == [] and not p.flow.room
        assert p.shard.matched == [b"a", b"b"]

    assert [str(error) for error in play(scenario).failures] == ["gone"]


def test_frames_that_are_missing_end_it() -> None:
    async def scenario(p: Play) -> None:
        p.offer(10, b"a")
        p.offer(10, b"a")  # again after a seek: passed over
        p.offer(12, b"c")
        await p.settle()

    found = play(scenario)
    assert found.acknowledged == [] and isinstance(found.failures[0], Failed)
    assert "frames from offset 11 to 12" in str(found.failures[0])


def test_draining_finishes_what_was_begun_and_drops_the_rest() -> None:
    async def scenario(p: Play) -> None:
        p.shard.free.clear()
        for offset in range(10, 10 + module.TOGETHER):
            p.offer(offset, b"x")
        p.offer(10 + module.TOGETHER, b"late")
        await p.settle()
        draining = asyncio.create_task(p.flow.drain(60))
        await p.settle()
        p.offer(99, b"after")
        p.shard.free.set()
        await p.settle()
        assert not draining.done()
        for future in p.futures:
            future.set_result(Place(1))
        await draining
        assert p.acknowledged == list(range(10, 10 + module.TOGETHER))
        assert p.shard.matched == [b"x"] * module.TOGETHER

    assert play(scenario).failures == []


def test_draining_ends_when_nothing_is_confirmed() -> None:
    async def scenario(p: Play) -> None:
        p.offer(10, b"x")
        await p.settle()
        await p.flow.drain(0.05)
        assert p.acknowledged == []
        await p.flow.close()
        for future in p.futures:
            future.set_result(Place(1))
        await p.settle()
        assert p.acknowledged == []

    play(scenario)


def test_no_room_for_more_than_a_limit() -> None:
    async def scenario(p: Play) -> None:
        p.offer(10, bytes(module.MOST_BYTES - 1))
        assert p.flow.room
        p.offer(11, b"x")
        assert not p.flow.room
        await p.settle()
        for future in p.futures:
            future.set_result(Place(1))
        await p.settle()
        assert p.flow.room
        for offset in range(12, 12 + module.MOST_FRAMES):
            assert p.flow.room
            p.offer(offset, b"x")
        assert not p.flow.room

    play(scenario)


def test_only_what_was_matched_just_now_is_counted() -> None:
    async def scenario(p: Play) -> None:
        for offset, value in ((10, b"a"), (11, b"gap"), (12, b"old"), (13, b"b")):
            p.offer(offset, value)
        await p.settle()
        assert p.watch.registry.documents.labels("match")._value.get() == 2

    play(scenario)


def test_a_frame_that_does_not_come_ends_it() -> None:
    async def scenario(p: Play) -> None:
        p.flow.check()
        assert p.failures == []
        p.shard.lost = StateError("the next one has not come")
        p.flow.check()
        p.flow.check()

    assert [str(error) for error in play(scenario).failures][:1] == ["the next one has not come"]


def test_nobody_waits_for_confirmation_of_what_is_not_sent_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A send may wait until there is room: that time is not the broker's."""
    monkeypatch.setattr(output, "ANSWER_SECONDS", 0.0)

    async def scenario(p: Play) -> None:
        room = asyncio.Event()
        real = p.flow._order._send

        async def send(topic: str, partition: int, value: bytes) -> asyncio.Future[Any]:
            await room.wait()
            return await real(topic, partition, value)

        p.flow._order._send = send  # type: ignore[method-assign,assignment]
        p.offer(10, b"a")
        await p.settle()
        p.flow.check()
        assert p.failures == []
        room.set()
        await p.settle()
        p.flow.check()
        assert len(p.failures) == 1

    play(scenario)


def test_base_records_come_between_changes_and_while_nothing_waits() -> None:
    """A frame has its own records first; nobody acknowledges a base record, but the shard is told where it stands."""

    async def scenario(p: Play) -> None:
        p.shard.erases, p.shard.bases = True, [b"b%d" % n for n in range(module.CLEANING_STEPS + 3)]
        p.offer(10, b"0")
        p.offer(11, b"1")
        await p.settle()
        assert [value for _, _, value in p.sends] == [b"c0", b"r0", b"c1", b"r1", b"b0"]
        p.flow.clean()
        await p.settle()
        assert len(p.sends) == 5 + module.CLEANING_STEPS and p.sends[-1] == ("changelog", 3, b"b16")
        for offset, future in enumerate(p.futures):
            future.set_result(Place(offset))
        await p.settle()
        assert p.acknowledged == [10, 11] and p.flow.idle
        p.flow.clean()
        await p.settle()
        assert p.shard.confirmed[:3] == [(0, 0), (0, 2), (MARK, 4)] and len(p.sends) == 7 + module.CLEANING_STEPS

    assert play(scenario).failures == []


def test_nothing_is_cleaned_where_nothing_is_erased_or_any_more() -> None:
    async def scenario(p: Play) -> None:
        p.shard.bases = [b"b0", b"b1"]
        p.offer(10, b"0")
        p.flow.clean()
        await p.settle()
        p.shard.erases = True
        for future in p.futures:
            future.set_result(Place(0))
        await p.flow.drain(1)
        p.flow.clean()
        await p.settle()
        assert p.sends == [("changelog", 3, b"c0"), ("matches", 0, b"r0")]

    assert play(scenario).failures == []
