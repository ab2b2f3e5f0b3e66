"""What a member reads, and when it lets go; with a consumer that does what the test says, and late ends."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError

from stream_lsh.kafka.consumer import group_member as module
from stream_lsh.kafka.consumer import position
from stream_lsh.kafka.consumer.group_member import SILENCE, GroupMember, OutOfRange
from stream_lsh.kafka.consumer.position import LOOKS, bounds
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings

ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Clock:
    """Stands still unless it is told to go on."""

    now = 1e9

    def time(self) -> float:
        return self.now

    monotonic = time


class Consumer:
    """Gives what was put into `gives`, then nothing."""

    def __init__(self) -> None:
        self.gives: list[Any] = []
        self.before: Callable[[], Any] = lambda: None
        self.answered: float | None = time.time()
        self.asked = 0
        self.silent = False
        # Of aiokafka's own reader: see `private`.
        self._fetcher = SimpleNamespace(error_future=asyncio.get_running_loop().create_future(), _records={})

    def paused(self) -> set[TopicPartition]:
        return set()

    def subscribe(self, topics: Any, listener: Any) -> None:
        pass

    async def getmany(self, timeout_ms: int) -> Any:
        found = self.before()
        if asyncio.iscoroutine(found):
            await found
        given = self.gives.pop(0) if self.gives else {}
        if isinstance(given, Exception):
            raise given
        return given

    async def end_offsets(self, partitions: list[TopicPartition]) -> Any:
        assert partitions == [ONE]
        self.asked += 1
        if self.silent:
            await asyncio.Event().wait()
        return {ONE: 0}

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        return None if self.answered is None else int(self.answered * 1000)

    def highwater(self, partition: TopicPartition) -> int | None:
        return 10 if partition == ONE else None


class Play:
    def __init__(self) -> None:
        self.consumer = Consumer()
        self.done: list[Any] = []
        self.error: Exception | None = None

    async def set_up(self, given: frozenset[TopicPartition]) -> None:
        self.done.append(set(given))
        if self.error:
            raise self.error

    async def tear_down(self) -> None:
        self.done.append("gave up")

    def member(self) -> GroupMember:
        member = GroupMember(KafkaSettings(), "judge", ["t"], self.set_up, self.tear_down)
        member.consumer = self.consumer
        return member


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
async def play() -> Play:
    return Play()


@pytest.fixture
async def member(play: Play) -> AsyncIterator[GroupMember]:
    async with play.member() as member:
        yield member
    assert play.done.pop() == "gave up"


async def stands_by(play: Play, member: GroupMember) -> None:
    """The group has given it nothing."""
    await member.on_partitions_assigned(set())
    assert await member.poll(0.1) is None and play.done.pop() == set()


async def test_only_what_is_set_up_is_read(play: Play, member: GroupMember) -> None:
    await stands_by(play, member)
    assert await member.poll(0.1) == {} and member.assigned == frozenset()
    await member.on_partitions_assigned({ONE})
    play.consumer.gives = [{ONE: ["before the seek"]}, {ONE: ["first"], OTHER: ["foreign"]}]
    assert await member.poll(0.1) is None
    assert member.assigned == {ONE} and play.done == [{ONE}]
    assert await member.poll(0.1) == {ONE: ["first"]}
    await member.on_partitions_revoked({ONE})
    assert play.done == [{ONE}, "gave up"] and member.assigned == frozenset()
    play.consumer.gives = [{ONE: ["late"]}]
    assert not await member.poll(0.1)


async def test_positions_from_before_the_seek_are_no_errors(play: Play, member: GroupMember) -> None:
    for error in (NoOffsetForPartitionError(ONE), OffsetOutOfRangeError({ONE: 3})):
        await member.on_partitions_assigned({ONE})
        play.consumer.gives = [error, error]
        assert await member.poll(0.1) is None
        with pytest.raises((NoOffsetForPartitionError, OutOfRange)):
            await member.poll(0.1)


async def test_a_stop_does_not_wait_for_what_cannot_be_set_up(play: Play, member: GroupMember) -> None:
    """Brokers without a quorum do not answer a transaction's beginning."""
    asked = asyncio.Event()

    async def never(given: frozenset[TopicPartition]) -> None:
        asked.set()
        await asyncio.Event().wait()

    member._set_up = never
    await member.on_partitions_assigned({ONE})
    assert await asyncio.wait_for(member.poll(0.1, asyncio.ensure_future(asked.wait())), 10) is None
    assert member.assigned == frozenset() and not member.working.locked()


async def test_what_fails_in_setting_up_ends_the_life(play: Play, member: GroupMember) -> None:
    play.error = KafkaError("no")
    await member.on_partitions_assigned({ONE})
    with pytest.raises(KafkaError, match="no"):
        await member.poll(0.1)
    assert member.assigned == frozenset()


async def test_a_revocation_waits_for_what_is_in_flight(play: Play, member: GroupMember) -> None:
    await member.on_partitions_assigned({ONE})
    await member.poll(0.1)
    async with member.working:
        revoking = asyncio.create_task(member.on_partitions_revoked({ONE}))
        await asyncio.sleep(0.05)
        assert member.assigned == {ONE} and not revoking.done()
    await revoking
    assert member.assigned == frozenset()


async def test_a_wait_ends_when_another_thing_is_done(play: Play, member: GroupMember) -> None:
    play.consumer.before = lambda: asyncio.sleep(3600)
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.05, done.set_result, None)
    assert await member.poll(3000, done) is None


async def test_a_standby_asks_now_and_then(clock: Clock, play: Play, member: GroupMember) -> None:
    await stands_by(play, member)
    for asked in (1, 2):
        assert await member.poll(0.01) == {}
        assert await member.poll(0.01) is None and play.consumer.asked == asked
        clock.now += module.RECENT


async def test_a_stop_does_not_wait_for_an_answer(play: Play, member: GroupMember) -> None:
    await stands_by(play, member)
    play.consumer.silent = True
    asked = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, asked.set)
    assert await asyncio.wait_for(member.poll(0.01, asyncio.ensure_future(asked.wait())), 2) is None


@pytest.mark.parametrize("assigned", [{ONE}, set(), None])
@pytest.mark.parametrize("hangs", [True, False])
async def test_silence_is_not_taken_for_having_nothing_to_do(
    clock: Clock, play: Play, member: GroupMember, monkeypatch: pytest.MonkeyPatch,
    assigned: set[TopicPartition] | None, hangs: bool,
) -> None:  # fmt: skip
    """Whether this member works, stands by, or waits for its first assignment."""
    monkeypatch.setattr(module, "RECENT", 0.05)
    monkeypatch.setattr(module, "_GROUP_SECONDS", 0.05)
    if assigned is not None:
        await member.on_partitions_assigned(assigned)
        await member.poll(0.01)
    play.consumer.answered = clock.now - 60
    play.consumer.silent = True
    if hangs:
        play.consumer.before = lambda: asyncio.sleep(3600)
    for _ in range(4):
        assert await member.poll(0.01) is None
        clock.now += (SILENCE if assigned is not None else member._patience) / 3.5
    with pytest.raises(Failed, match="has not answered"):
        await member.poll(0.01)


async def test_lag_follows_the_ends_that_the_broker_sent(play: Play, member: GroupMember) -> None:
    assert member.lag(ONE, 4) == 6
    assert member.lag(ONE, 12) == 0
    assert member.lag(OTHER, 4) == 0


async def test_a_member_without_an_assignment_is_not_idle(play: Play, member: GroupMember) -> None:
    assert await member.poll(0.01) is None
    await stands_by(play, member)
    assert await member.poll(0.01) == {}
    await member.on_partitions_revoked(set())
    play.done.pop()
    assert await member.poll(0.01) is None


async def test_what_fails_in_giving_up_ends_the_life(play: Play, member: GroupMember) -> None:
    """aiokafka, which waits for it, only logs a line."""
    await member.on_partitions_assigned({ONE})
    await member.poll(0.1)
    real = member._tear_down

    async def failing() -> None:
        raise Failed("not delivered")

    member._tear_down = failing
    await member.on_partitions_revoked({ONE})
    member._tear_down = real
    with pytest.raises(Failed, match="not delivered"):
        await member.poll(0.1)


async def test_one_silent_partition_of_several_is_enough_and_a_paused_one_is_none(
    play: Play, member: GroupMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    play.consumer.last_poll_timestamp = lambda place: int(time.time() * 1000) if place == ONE else None  # type: ignore[method-assign,assignment]
    await member.on_partitions_assigned({ONE, OTHER})
    await member.poll(0.01)
    assert await member.poll(0.01) is None
    monkeypatch.setattr(module, "SILENCE", 0.0)
    with pytest.raises(Failed, match="t, partition 1, for 0 s"):
        await member.poll(0.01)
    monkeypatch.setattr(play.consumer, "paused", lambda: {OTHER})
    assert await member.poll(0.01) == {}


@pytest.mark.parametrize("late", [0, 1, LOOKS - 1, LOOKS])
async def test_an_end_that_arrives_late(monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    monkeypatch.setattr(position, "PAUSE", 0)
    asked = 0

    async def begins(places: list[str]) -> Mapping[str, int]:
        assert places == ["known", "new"]
        return {"known": 3, "new": 0}

    async def ends(_: list[str]) -> Mapping[str, int]:
        nonlocal asked
        asked += 1
        return {"known": 9 if asked > late else 4, "new": 0}

    found = await bounds(begins, ends, {"known": 7, "new": 0})
    assert found == {"known": (3, 9 if late < LOOKS else 4), "new": (0, 0)}
    assert asked == min(late + 1, LOOKS)
