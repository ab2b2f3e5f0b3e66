"""No frame is lost between client and flow, and what stands still is noticed: aiokafka's fetcher, no broker."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import Fetcher, FetchResult
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import KafkaConnectionError
from faust.types import TP

from stream_lsh.kafka.match.app import MatchApp
from stream_lsh.kafka.match.faust_driver import ConsumerThread
from stream_lsh.kafka.match.watchdog import UNANSWERED_LOOKS, UNREAD_LOOKS, Stall
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings

PARTITIONS = 3
FIRST = 40  # the offset from which frames wait


class Records:
    """What a broker has sent of a partition from an offset on."""

    def __init__(self, offset: int, number: int) -> None:
        self.next_fetch_offset = offset
        self._end = offset + number

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.next_fetch_offset >= self._end:
            raise StopIteration
        self.next_fetch_offset += 1
        return SimpleNamespace(offset=self.next_fetch_offset - 1)


class Flow:
    """Takes whatever comes; idle at the first frame."""

    room, idle, position = True, True, FIRST

    async def drain(self, seconds: float) -> None:
        pass

    async def close(self) -> None:
        pass


class Play:
    """The app, its consumer and aiokafka's fetcher, in one event loop; partitions of frames are 0 to 2.

    Attributes:
        late: set while results of the consumer's thread may reach the app.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app = MatchApp(KafkaSettings(shards=PARTITIONS), Probe("match"))
        self.places = [TP(self.app.names.frames, number) for number in range(PARTITIONS)]
        self._state = SubscriptionState()
        self._state.subscribe({self.app.names.frames})
        client: Any = SimpleNamespace(_loop=asyncio.get_running_loop(), _metadata_max_age_ms=1000)
        self.fetcher = Fetcher(client, self._state)
        self.fetcher._fetch_task.cancel()  # `arrive` does what it does
        self.fetching = self.fetcher._fetch_task = asyncio.get_running_loop().create_future()
        self.now = 0.0
        self.app.probe.health.clock = lambda: self.now
        self.consumer = SimpleNamespace(
            _closed=False, _fetcher=self.fetcher, _subscription=self._state, _max_poll_records=64,
            seek=self.fetcher.seek_to, assignment=self._state.assigned_partitions,
        )  # fmt: skip
        self.reached = asyncio.Event()
        self.reached.set()
        thread: Any = self.app.consumer._thread
        thread._consumer = self.consumer
        thread.thread_loop = asyncio.get_running_loop()
        monkeypatch.setattr(thread, "call_thread", self._call)
        monkeypatch.setattr(self.app, "_commit", self._nothing)
        self.assign()
        self.answer()

    async def _call(self, work: Callable[..., Awaitable[Any]], *values: Any, **named: Any) -> Any:
        found = await work(*values, **named)
        await self.reached.wait()
        return found

    async def _nothing(self) -> None:
        pass

    def assign(self) -> None:
        """The group gives out all partitions anew; no position is known yet."""
        self._state.assign_from_subscribed({TopicPartition(*place) for place in self.places})

    def begin_reassignment(self) -> None:
        """The group shares out the work."""
        self._state.begin_reassignment()

    def seek(self, number: int) -> None:
        """Seek a partition to what is committed."""
        self.fetcher.seek_to(TopicPartition(*self.places[number]), FIRST)

    def answer(self) -> None:
        """All positions are known, and there are flows for all partitions."""
        for number in range(PARTITIONS):
            self.seek(number)
        flows: Any = {number: Flow() for number in range(PARTITIONS)}
        self.app._flows.update(flows)

    def position(self, number: int) -> int | None:
        """Of the client in a partition."""
        found: int | None = self._state.subscription.assignment.state_value(
            TopicPartition(*self.places[number])
        ).position
        return found

    def arrive(self, number: int, frames: int = 1) -> None:
        """The broker sends frames of a partition, from where the client is."""
        place = TopicPartition(*self.places[number])
        position = self.position(number)
        assert position is not None and place not in self.fetcher._records
        assignment = self._state.subscription.assignment
        self.fetcher._records[place] = FetchResult(
            place, assignment=assignment, partition_records=Records(position, frames), backoff=0.0
        )
        for waiter in list(self.fetcher._fetch_waiters):
            self.fetcher._notify(waiter)

    async def call(self) -> asyncio.Task[dict[Any, list[Any]]]:
        """A call for records that waits, as nothing is there."""
        task = asyncio.create_task(self.app.consumer._getmany(set(self.places), 600.0))
        await self.drained()
        assert not task.done()
        return task

    async def look(self) -> bool:
        """Look whether anything stands still, a second after the look before; whether this run goes on."""
        self.now += 1.0
        found = self.app._look()
        await self.drained()
        return found

    def stalls(self) -> dict[str, float]:
        """How often each has been counted, as far as it has."""
        counter = self.app.probe.registry.stalls
        found = {stall.value: counter.labels("match", stall)._value.get() for stall in Stall}
        return {reason: number for reason, number in found.items() if number}

    async def drained(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


def offsets(found: dict[Any, list[Any]]) -> dict[int, list[int]]:
    return {place.partition: [record.offset for record in records] for place, records in found.items()}


@pytest.fixture
async def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    return Play(monkeypatch)


async def test_idle_fetch_returns_frames(play: Play) -> None:
    call = await play.call()
    play.arrive(1, frames=2)
    assert offsets(await call) == {1: [FIRST, FIRST + 1]}
    assert play.position(1) == FIRST + 2


@pytest.mark.parametrize("moment", ["between the seeks", "before the flows", "after the flows"])
async def test_fetch_that_outlives_a_rebalance_loses_no_frame(play: Play, moment: str) -> None:
    """The call began idle before the rebalance; the frame comes after its partition's own seek."""
    call = await play.call()
    await play.app.hand_over()
    play.assign()
    play.seek(1)
    if moment == "between the seeks":
        play.arrive(1)
        await play.drained()
    play.seek(0)
    play.seek(2)
    if moment == "before the flows":
        play.arrive(1)
        await play.drained()
    play.app._flows.update({number: Flow() for number in range(PARTITIONS)})  # type: ignore[misc]
    if moment == "after the flows":
        play.arrive(1)
    # `_read` has no flow for what is handed on too early: it must not be handed on, and has to come again.
    assert await call == {}
    assert [play.position(number) for number in range(PARTITIONS)] == [FIRST] * PARTITIONS
    call = await play.call()
    play.arrive(1)
    assert offsets(await call) == {1: [FIRST]}


async def test_all_partitions_of_a_stale_fetch_go_back(play: Play) -> None:
    call = await play.call()
    await play.app.hand_over()
    play.assign()
    play.answer()
    play.arrive(0, frames=3)
    play.arrive(2, frames=100)  # more than a call returns
    assert await call == {}
    assert [play.position(number) for number in range(PARTITIONS)] == [FIRST] * PARTITIONS
    assert not play.fetcher._records


async def test_frames_that_reach_the_app_after_a_hand_over_are_dropped(play: Play) -> None:
    """They were drained before it, for a flow that is gone: a flow made anew begins at what is committed."""
    call = await play.call()
    play.reached.clear()
    play.arrive(1)
    await play.drained()
    assert play.position(1) == FIRST + 1
    await play.app.hand_over()
    play.assign()
    play.answer()
    play.reached.set()
    assert await call == {}
    assert play.position(1) == FIRST


class Suspended:
    """Awaited, it suspends once: a call that waits for records."""

    def __await__(self) -> Iterator[None]:
        yield


def test_stale_frames_go_back_before_anything_else_runs() -> None:
    """With an await between draining and seeking, a seek of the new assignment could come in between and be undone."""
    place, sought = TP("frames", 1), list[tuple[Any, int]]()

    async def drained(*_: Any, **__: Any) -> dict[TP, list[Any]]:
        await Suspended()
        return {place: [SimpleNamespace(offset=7), SimpleNamespace(offset=8)]}

    consumer = SimpleNamespace(seek=lambda *found: sought.append(found))
    thread: Any = SimpleNamespace(
        app=SimpleNamespace(hand_overs=3), _fetch_records=drained, _ensure_consumer=lambda: consumer
    )
    call = ConsumerThread._fetch(thread, {place}, 1.0, 3)
    call.send(None)
    thread.app.hand_overs += 1
    assert not sought
    with pytest.raises(StopIteration) as ended:
        call.send(None)
    assert ended.value.value == {} and sought == [(place, 7)]


async def test_frames_that_never_reach_their_flow_end_the_life(play: Play) -> None:
    call = await play.call()
    assert await play.look() and await play.look()
    play.arrive(1, frames=2)
    assert offsets(await call) == {1: [FIRST, FIRST + 1]}  # and from there on they are lost
    assert await play.look()
    assert not await play.look()
    assert isinstance(play.app.failure, Failed)
    assert "shard 1: frames from offset 40 to 42 were fetched and got lost" in str(play.app.failure)
    assert play.stalls() == {"frames_lost": 1}


async def test_frames_that_the_client_has_passed_over_are_read_again(play: Play) -> None:
    play.fetcher.seek_to(TopicPartition(*play.places[1]), FIRST + 3)
    assert await play.look() and await play.look()
    assert play.position(1) == FIRST
    assert play.app.failure is None and play.stalls() == {}


async def test_reading_again_is_not_for_the_next_assignment(play: Play) -> None:
    before = play.app.hand_overs
    await play.app.hand_over()
    play.assign()
    play.answer()
    play.app.consumer.read_again(1, FIRST - 9, before)
    await play.drained()
    assert play.position(1) == FIRST


async def test_frames_at_the_broker_without_a_fetch_are_logged(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """As the broker says: what the client has heard of its end is as old as its last fetch."""

    thread = play.app.consumer._thread

    async def answer(places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: FIRST + place.partition for place in places}

    async def away(places: list[TopicPartition]) -> dict[TopicPartition, int]:
        raise KafkaConnectionError("away")

    play.consumer.beginning_offsets = play.consumer.end_offsets = away
    assert await thread._bounds_of_frames() == {}
    play.consumer.beginning_offsets = play.consumer.end_offsets = answer
    thread.frame_bounds = await thread._bounds_of_frames()
    assert thread.frame_bounds[play.places[2]] == (FIRST + 2, FIRST + 2)
    thread.frame_bounds = {place: (0, end) for place, (_, end) in thread.frame_bounds.items()}
    for _ in range(UNREAD_LOOKS + 1):
        assert await play.look()
    assert play.stalls() == {"frames_unread": 2}
    said = "shard {}: frames from offset 40 on wait for 10 s, and none is fetched"
    assert [record.getMessage() for record in caplog.records] == [said.format(1), said.format(2)]


@pytest.mark.parametrize("task", ["aiokafka", "Faust"])
async def test_a_fetch_task_that_has_ended_ends_the_life(play: Play, task: str) -> None:
    assert await play.look() and await play.look()
    if task == "aiokafka":
        play.fetching.set_exception(ValueError("out of range"))
    else:
        play.app._fetcher._shutdown.set()
    assert await play.look()
    assert not await play.look()
    assert isinstance(play.app.failure, Failed) and task in str(play.app.failure)
    assert play.stalls() == {"fetch_ended": 1}


@pytest.mark.parametrize("moment", ["recovering", "reassigning", "settled"])
async def test_a_recovered_shard_without_a_flow_ends_the_life(play: Play, moment: str) -> None:
    app = play.app
    app.consumer_generation_id, recovery = 7, app.tables.recovery
    recovery.active_tps = {TP(app.names.changelog, shard) for shard in range(PARTITIONS)}
    recovery._recovered = 6 if moment == "recovering" else 7
    del app._flows[1]
    if moment == "reassigning":
        play.begin_reassignment()
    ended = [not await play.look() for _ in range(UNANSWERED_LOOKS)]
    assert ended == [False] * (UNANSWERED_LOOKS - 1) + [moment == "settled"]
    if moment == "settled":
        assert str(app.failure) == "shards are recovered and not answered for: 1"
        assert play.stalls() == {"no_flow": 1}


async def test_all_reasons_are_counted_from_the_beginning(play: Play) -> None:
    """A series that begins with 1 has not increased: the alert would miss it."""

    text = play.app.probe.registry.exposition()[0].decode()
    for stall in Stall:
        assert f'stream_lsh_stalls_total{{reason="{stall.value}",role="match"}} 0.0' in text
