"""Where Faust's own behaviour would be wrong, without a broker: the option of a consumer, what is late."""

import asyncio
import gc
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiokafka
import pytest
from aiokafka.errors import KafkaConnectionError, KafkaError
from faust.tables import recovery
from faust.types import TP

from stream_lsh.errors import StoreError
from stream_lsh.kafka.consumer import position
from stream_lsh.kafka.match.app import MatchApp
from stream_lsh.kafka.match.faust_driver import Consumer, ConsumerThread
from stream_lsh.kafka.match.held import Held, Phase
from stream_lsh.kafka.match.lock import locked
from stream_lsh.kafka.match.recovery import Recovery
from stream_lsh.kafka.match.store import WAITING_BYTES, FrameStore
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings


async def test_options_of_the_consumer_and_its_quota(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    """A spare member never leaves the group for having nothing to ask: Faust's 1000 s would be counted from when it was
    told that it has no shard."""
    given: dict[str, Any] = {}

    class Made(aiokafka.AIOKafkaConsumer):  # type: ignore[misc]
        _closed = True

        def __init__(self, **options: Any) -> None:
            given.update(options)
            self._client = SimpleNamespace(send=self._send)

        async def _send(self) -> object:
            return SimpleNamespace(throttle_time_ms=1500)

    monkeypatch.setattr(aiokafka, "AIOKafkaConsumer", Made)

    app = MatchApp(KafkaSettings(), Probe("match"))
    thread: Any = SimpleNamespace(app=app)
    consumer = ConsumerThread._create_worker_consumer(thread, app.transport)
    await consumer._client.send()
    assert "back by a quota, here for 1.5 s" in caplog.text
    assert given["max_poll_interval_ms"] > 20 * 86_400_000
    assert given["rebalance_timeout_ms"] < 120_000  # a join does not wait as long
    assert given["heartbeat_interval_ms"] <= 500  # a standby learns that soon that the owner has gone


async def test_a_thread_whose_consumer_fails_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    """Neither the end of the thread, nor a task of the client whose error nobody asks for."""

    async def fail() -> None:
        raise KafkaConnectionError("no broker")

    class Failing:
        async def start(self) -> None:
            task = asyncio.create_task(fail())
            await asyncio.sleep(0)
            del task
            gc.collect()
            await fail()

        async def stop(self) -> None: ...

    unasked: list[object] = []
    monkeypatch.setattr(threading, "excepthook", unasked.append)
    monkeypatch.setattr(ConsumerThread, "_create_worker_consumer", lambda *_: Failing())
    caplog.set_level("CRITICAL", "stream_lsh.kafka.match.faust_driver")  # as a worker sets it for services of Faust
    app = MatchApp(KafkaSettings(), Probe("match"))
    thread = ConsumerThread(app.consumer, loop=asyncio.get_running_loop())
    with pytest.raises(KafkaConnectionError):
        await thread.start()
    assert thread._thread is not None
    await asyncio.to_thread(thread._thread.stop)
    assert (caplog.messages, unasked) == ([], [])


async def test_who_lets_go_second_waits_for_the_first(tmp_path: Path) -> None:
    """Faust is still stopping when the stage has waited long enough; the next run would find the shards open."""

    app = MatchApp(KafkaSettings(data_folder=tmp_path), Probe("match"))
    closed = asyncio.Event()

    async def close() -> None:
        with pytest.raises(StoreError, match="in use by another worker"):  # nobody has it yet
            locked(tmp_path).__enter__()
        await asyncio.sleep(0.05)
        closed.set()

    app._open.enter_context(locked(tmp_path))
    app._open.push_async_callback(close)
    first = asyncio.create_task(app.let_go())
    await asyncio.sleep(0)
    await app.let_go()
    assert closed.is_set()
    await first


class Log:
    """Asks for the bounds of a partition: it begins at `start`; its end is told otherwise, and at last the same."""

    bounds = Consumer.bounds

    def __init__(self, start: int, *ends: int) -> None:
        self._start = start
        self._ends = list(ends)

    async def earliest_offsets(self, *places: TP) -> dict[TP, int]:
        return dict.fromkeys(places, self._start)

    async def highwaters(self, *places: TP) -> dict[TP, int]:
        return dict.fromkeys(places, self._ends.pop(0) if len(self._ends) > 1 else self._ends[0])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(position, "PAUSE", 0)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """The shards of a worker, without Faust; the changelog is empty."""
    found: Any = object.__new__(FrameStore)
    found.held, found._closing, found._reading_again, found._ended = {}, {}, {}, False
    found.app = SimpleNamespace(
        names=SimpleNamespace(changelog="changelog"), assignor=SimpleNamespace(assigned_standbys=set), _positions={},
        consumer=Log(0, 0), settings=KafkaSettings(data_folder=tmp_path), probe=Probe("match"), foreign=lambda *_: None,
    )  # fmt: skip
    return found


@pytest.mark.parametrize("handed_over", ["never", "before", "meanwhile"])
async def test_a_recovery_that_ends_after_a_hand_over_makes_no_flows(
    monkeypatch: pytest.MonkeyPatch, handed_over: str
) -> None:  # fmt: skip
    """A rebalance has begun, the next assignment is not there yet: the generation is still the old one. Faust says that
    a recovery has ended, too, when a rebalance interrupts it: shards would be activated that lack changes."""
    answering: list[set[int]] = []
    activated = False
    app: Any = SimpleNamespace(
        hand_overs=3, consumer_generation_id=7, should_stop=False, answer_for=answering.append
    )  # fmt: skip

    async def assigned(self: Any, *_: Any) -> None:
        self.active_tps = {TP("changelog", 0)}

    async def completed(self: Any, generation_id: int) -> None:
        nonlocal activated
        activated = True
        if handed_over == "meanwhile":
            app.hand_overs += 1

    monkeypatch.setattr(recovery.Recovery, "on_rebalance", assigned)
    monkeypatch.setattr(recovery.Recovery, "on_recovery_completed", completed)

    found: Recovery = object.__new__(Recovery)
    found.app, found._beginning = app, asyncio.Lock()
    await found.on_rebalance(set(), set(), set(), 7)
    if handed_over == "before":
        app.hand_overs += 1
    await found.on_recovery_completed(7)
    assert answering == ([{0}] if handed_over == "never" else [])
    assert activated == (handed_over != "before")


async def test_recovery_without_an_answer_ends_the_run_and_prints_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A worker that waits for brokers had a traceback in its log."""
    app = MatchApp(KafkaSettings(), Probe("match"))

    async def answer() -> None:
        await asyncio.sleep(60)

    await app.tables.recovery._execute_task(app.tables.recovery._wait(answer(), 0.01))
    assert repr(app.ended) == "Unanswered('Kafka did not answer in time during recovery')"
    await asyncio.sleep(0)
    assert app.crashed and not [record for record in caplog.records if record.exc_info and record.exc_info[0]]


async def test_recovered_shard_answers_before_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shard 0 has read its changelog, shard 1 is reading, shard 2 looks so by the ends of an earlier recovery."""
    app = MatchApp(KafkaSettings(shards=3), Probe("match"))
    places = [TP(app.names.changelog, shard) for shard in range(3)]
    app.consumer_generation_id, found = 7, app.tables.recovery
    found.active_tps, found._generation_id = set(places), 7
    found.active_highwaters.update(dict.fromkeys(places, 9))
    found.active_offsets.update(dict(zip(places, (9, 4, 9), strict=True)))
    found.tp_to_table.update(dict.fromkeys(places, app.table))
    held: Any = {shard: SimpleNamespace(expected=expected) for shard, expected in enumerate((10, 5, 10))}
    app.store.held = held
    said: list[object] = []

    async def highwaters(*tps: TP) -> dict[TP, int]:
        return {tp: 12 if tp.partition == 2 else 10 for tp in tps}

    async def activate(ends: Any) -> None:
        said.append(ends)

    async def sought() -> None:
        said.append("sought")

    monkeypatch.setattr(app.consumer, "highwaters", highwaters)
    monkeypatch.setattr(app.consumer, "perform_seek", sought)
    monkeypatch.setattr(app, "activate", activate)
    monkeypatch.setattr(app, "answer_for", said.append)
    await found.begin_recovered()
    assert said == [{0: 9}, "sought", {0}]
    assert app.consumer._get_active_partitions() == {TP(app.names.frames, 0)}
    held[0].expected = 9
    await found.begin_recovered()
    assert said[3:] == []


async def test_error_of_look_for_recovered_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    looks = iter((False, False, True))

    async def begin() -> None:
        looking.should_stop = next(looks)
        raise KafkaError("away")

    looking: Any = SimpleNamespace(
        should_stop=False, sleep=asyncio.sleep, in_recovery=True, begin_recovered=begin, _said=-1, _generation_id=7,
        app=SimpleNamespace(consumer=SimpleNamespace(flow_active=True)), _handed_over=lambda _: False,
    )  # fmt: skip
    await Recovery._look_for_recovered(looking)
    assert caplog.messages == ["recovered shards cannot begin before the others; it is tried again: KafkaError('away')"]


def test_resumed_flow_keeps_queued_frames() -> None:
    """Faust resumes several times in a recovery, when frames of recovered shards are queued."""
    app = MatchApp(KafkaSettings(), Probe("match"))
    queue = app.FlowControlQueue(8, clear_on_resume=True)
    app.flow_control.resume()
    queue.put_nowait("frame")
    app.flow_control.resume()
    assert queue.qsize() == 1


class Shard:
    """A shard that cannot be activated, because it is closed while that is tried."""

    shard, expected, phase = 0, 5, Phase.RECOVERING

    def __init__(self, meanwhile: Any) -> None:
        self._meanwhile = meanwhile

    async def activate(self) -> None:
        self._meanwhile()
        raise RuntimeError("shard 0 is not open")


@pytest.mark.parametrize("given_up", [False, True])
async def test_a_shard_given_up_while_it_is_activated_is_no_failure(store: Any, given_up: bool) -> None:
    failures: list[BaseException] = []
    place = TP("changelog", 0)
    highwaters = {place: 4}
    store.app.fail, store.app.tables = (
        failures.append,
        SimpleNamespace(recovery=SimpleNamespace(active_highwaters=highwaters)),
    )
    store.held[0] = Shard(store.held.clear if given_up else lambda: None)

    await store.on_recovery_completed({place, TP("changelog", 1)}, set())
    highwaters[place] = 5
    await store.on_recovery_completed({place}, set())
    assert [type(error) for error in failures] == ([] if given_up else [RuntimeError, Failed])


def test_what_faust_has_seen_of_a_late_record_is_read_again(store: Any) -> None:
    """Its shard, active, did not take it, and nothing else of the changelog either."""
    place = TP("changelog", 0)
    store.held[0] = SimpleNamespace(expected=0, read=None)
    found: Recovery = object.__new__(Recovery)
    found.tp_to_table = {}
    seen: Any = {place: 3}
    found._add(store, place, seen)
    assert seen == {place: -1}


async def test_the_changelog_is_fetched_as_long_as_there_is_room_in_bytes() -> None:
    """Whatever waits: in Faust's queue, and of each shard to be applied."""
    half = WAITING_BYTES // 2

    def holding(size: int) -> SimpleNamespace:
        return SimpleNamespace(backlog=SimpleNamespace(waiting=size))

    app = MatchApp(KafkaSettings(), Probe("match"))
    app.flow_control.resume()
    place, queue = TP(app.names.changelog, 0), app.tables.changelog_queue
    shards: Any = app.store.held
    shards[0] = holding(0)
    event: Any = SimpleNamespace(message=SimpleNamespace(value=bytes(half - 1)))
    await queue.put(event)
    queue.put_nowait_enhanced(event, on_pressure_high=lambda: None, on_pressure_drop=lambda: None)
    assert app.has_room(place)
    shards[1] = holding(2)
    assert not app.has_room(place)
    assert await queue.get() is event
    assert app.has_room(place)
    shards[0] = holding(half)
    assert not app.has_room(place)
    queue.clear()
    assert app.has_room(place) and queue.bytes == 0


@pytest.mark.parametrize(
    ("start", "end", "offset", "begins"),
    [(0, 9, None, 0), (0, 9, 4, 4), (3, 9, 3, 3), (3, 9, 9, 9), (3, 9, None, 3), (3, 9, 2, None), (3, 9, 10, None)],
)
async def test_frames_that_were_deleted_are_noticed_whatever_the_shard_holds(
    start: int, end: int, offset: int | None, begins: int | None
) -> None:  # fmt: skip
    """Without a commit the chain of frames says what is missing."""
    place = TP("frames", 0)
    app: Any = SimpleNamespace(consumer=Log(start, end), _positions={})
    if begins is None:
        what = (
            "ends at offset 9, but has been matched up to 10"
            if offset == 10
            else "were deleted before they were matched"
        )
        with pytest.raises(StoreError, match=what):
            await MatchApp.positions(app, {place: offset})
    else:
        assert await MatchApp.positions(app, {place: offset}) == {place: begins}
        assert app._positions == {0: begins}


@pytest.mark.parametrize("known", [True, False])
async def test_a_broker_that_does_not_know_its_end_yet_has_lost_nothing(store: Any, known: bool) -> None:
    """Neither frames nor changes; what it says at last counts."""
    frames, changes = TP("frames", 0), TP("changelog", 0)
    app, ends = store.app, (0, 4, 7) if known else (0, 4)

    held = Held(app.settings, 0)
    await held.open(0)
    held.read, store.held = 6, {0: held}
    app.consumer = Log(0, *ends)
    with nullcontext() if known else pytest.raises(StoreError, match="has lost records"):
        await store.on_rebalance({changes}, set(), set())
    app.consumer = Log(0, *ends)
    with nullcontext() if known else pytest.raises(StoreError, match="made again"):
        await MatchApp.positions(app, {frames: 7})
    await held.close()


@pytest.mark.parametrize("moment", ["opened", "compared"])
async def test_a_shard_closed_by_the_end_of_a_life_while_it_is_taken_over_is_no_failure(
    store: Any, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    real = Held.open

    async def opening(self: Held, start: int) -> None:
        await real(self, start)
        await store.close()

    async def ends(*places: TP) -> dict[TP, int]:
        await store.close()
        return dict.fromkeys(places, 0)

    if moment == "opened":
        monkeypatch.setattr(Held, "open", opening)
    else:
        store.app.consumer.highwaters = ends
    await store.on_rebalance({TP("changelog", 0)}, set(), set())
    assert store.held == {}


async def test_a_rebalance_waits_for_what_a_cancelled_one_has_begun_to_open(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    changelog, real, go = {TP("changelog", 0)}, Held._open, threading.Event()

    def slow(self: Held) -> None:
        assert go.wait(30)
        real(self)

    monkeypatch.setattr(Held, "_open", slow)
    first = asyncio.create_task(store.on_rebalance(changelog, set(), changelog))
    while not store.held:
        await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.wait([first])
    second = asyncio.create_task(store.on_rebalance(changelog, set(), changelog))
    await asyncio.sleep(0.05)
    go.set()
    await second
    assert store.held[0].reached == 0
    await store.close()


async def test_only_standbys_wait_for_merges(store: Any) -> None:
    places = {TP("changelog", 0), TP("changelog", 1)}
    store.app.assignor.assigned_standbys = lambda: {TP("changelog", 1)}
    await store.on_rebalance(places, set(), places)
    assert [store.held[shard]._in_haste() for shard in range(2)] == [True, False]
    await store.close()


async def test_who_stops_in_a_rebalance_opens_nothing_any_more_and_ends_with_all_closed(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where whoever asked first for it to be closed is cancelled meanwhile."""
    changelog, real, go = {TP("changelog", 0), TP("changelog", 1)}, Held._shut, threading.Event()

    def slow(self: Held) -> None:
        assert go.wait(30)
        real(self)

    await store.on_rebalance(changelog, set(), changelog)
    with monkeypatch.context() as patched:
        patched.setattr(Held, "_shut", slow)
        await store.on_rebalance({TP("changelog", 0)}, {TP("changelog", 1)}, set())
        again = asyncio.create_task(store.on_rebalance(changelog, set(), changelog))
        first = asyncio.create_task(store.close())
        await asyncio.sleep(0.05)
        first.cancel()
        await asyncio.wait([first])
        await store.on_rebalance(changelog, set(), changelog)
        second = asyncio.create_task(store.close())
        await asyncio.sleep(0.05)
        assert not again.done() and not second.done()
        go.set()
        await asyncio.gather(again, second)
    assert store.held == {}
    for shard in range(2):  # in use by nobody
        held = Held(store.app.settings, shard)
        await held.open(0)
        await held.close()


async def test_changelog_is_trimmed_again_after_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    app, results = MatchApp(KafkaSettings(), Probe("match")), iter((False, True))
    flow: Any = SimpleNamespace(held=SimpleNamespace(needed=7, start=0))
    app._flows = {0: flow}

    async def before(*_: object) -> bool:
        return next(results)

    monkeypatch.setattr("stream_lsh.kafka.match.app.admin", nullcontext)
    monkeypatch.setattr(app._deletion, "before", before)
    assert [await app._shorten() for _ in range(3)] == [False, True, True]
    assert list(results) == []
