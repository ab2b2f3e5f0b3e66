"""The sequencing stage in a simulated Kafka."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import NotEnoughReplicasError
from support.commands import run
from support.kafka.brokers import Make
from support.kafka.oracle import order
from support.kafka.sequence_play import frame
from support.kafka.stages import (
    KEY,
    PATIENCE,
    begun,
    commit,
    commits,
    delete_before,
    ended,
    line,
    positions,
    produce,
    records,
    running,
    send,
    until,
    until_sequenced,
    until_signed,
)
from support.simulation import wire
from support.simulation.api import per_topic
from support.simulation.cluster import Cluster
from support.simulation.network import GOOD, Fault, Outcome
from support.simulation.runner import simulated
from support.simulation.world import Process

from stream_lsh.documents.times import moment
from stream_lsh.errors import BrokerError, StoreError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.consumer.decisions import Judged
from stream_lsh.kafka.consumer.relay import Relay
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.sequence import together
from stream_lsh.kafka.sequence.in_flight import Repeat, Window
from stream_lsh.kafka.sequence.order import Accepted
from stream_lsh.kafka.sequence.stage import SequenceStage
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.stage import SignStage
from stream_lsh.kafka.tools.skip import look as find
from stream_lsh.kafka.tools.skip import skip
from stream_lsh.kafka.tools.stream_time import look
from stream_lsh.wire.frames import CONTINUES, STARTS
from stream_lsh.wire.sequenced import Sequenced
from stream_lsh.wire.set_back import SetBack


@pytest.fixture
def make(make: Make) -> Make:
    """Settings with topics that are there, and a sequencer that has begun."""

    async def made(*, begin: bool = True, **given: Any) -> KafkaSettings:
        settings = await make(**{"partitions": 2, "shards": 2, "session_timeout_ms": 6000, **given})
        if begin:
            await begun(settings)
        return settings

    return made


async def sign(settings: KafkaSettings, frames: Sequence[bytes]) -> None:
    await send(settings, Topics.of(settings).signatures, frames)


def offsets(settings: KafkaSettings, copies: Sequence[Any]) -> list[tuple[int, int]]:
    """The documents that a shard takes from its copies, in their order."""
    found = []
    for sequenced, signed in order(settings, copies):
        rows = zip(signed.source.partitions.tolist(), signed.source.offsets.tolist(), strict=True)
        mask = np.ones(len(signed.source), bool) if sequenced.accepted is None else sequenced.accepted
        found += [row for row, yes in zip(rows, mask, strict=True) if yes]
    return found


@simulated()
async def test_every_shard_gets_what_counts_in_the_order_of_the_log(make: Make) -> None:
    settings = await make()
    topics, probe = Topics.of(settings), Probe("sequence")
    log = [
        frame(settings, (0, 3, 6, CONTINUES)),  # its first frame was lost
        frame(settings, (0, 0, 3, STARTS), (1, 5, 5, STARTS)),
        frame(settings, (0, 3, 6, CONTINUES), (1, 7, 9, CONTINUES)),  # half of it a gap
        frame(settings, (0, 2, 5, CONTINUES)),  # a repeat
        frame(settings, (1, 5, 7, CONTINUES), (0, 5, 8, CONTINUES)),  # an overlap
        frame(settings, (1, 7, 9, CONTINUES)),
    ]
    await sign(settings, log)
    async with running(SequenceStage, settings, probe):
        await until_sequenced(settings, len(log))
    copies = [await records(settings, topics.frames, shard) for shard in (0, 1)]
    assert [r.value for r in copies[0]] == [r.value for r in copies[1]]
    found = [sequenced for sequenced, _ in order(settings, copies[0])]
    assert len(copies[0]) < len(found)  # they share a record
    assert [(f.offset, f.predecessor, f.first) for f in found] == [(1, -1, 0), (2, 1, 3), (4, 2, 6), (5, 4, 10)]
    assert {f.key for f in found} == {KEY}
    assert [None if f.accepted is None else f.accepted.tolist() for f in found] == [
        None,
        [True] * 3 + [False] * 2,
        [True] * 2 + [False] + [True] * 2,
        None,
    ]
    assert [bytes(f.frame) for f in found] == [log[f.offset] for f in found]
    wanted = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 5), (1, 6), (0, 6), (0, 7), (1, 7), (1, 8)]
    assert offsets(settings, copies[1]) == wanted
    assert probe.commits > 0


@simulated()
async def test_event_times_are_bounded_by_the_append_time(make: Make) -> None:
    """Signers' clocks are years ahead, and so are the times of the documents: stream time is not."""
    settings, ahead = await make(window="1h", max_future="10s", time_field="ts", shards=1), 4 * 10**12
    topics = Topics.of(settings)
    documents = [(b'{"id": %d, "text": "a b c", "ts": %d}' % (i, ahead)) for i in range(3)]
    await sign(settings, [frame(settings, (0, 0, 3, STARTS), values=documents, signed_at=ahead)])
    async with running(SequenceStage, settings):
        await until_sequenced(settings, 1)
    [signed], [copy] = [await records(settings, topic, 0) for topic in (topics.signatures, topics.frames)]
    found = Sequenced.decode(copy.value, settings)
    assert found.log is not None and found.log.tolist() == 3 * [signed.timestamp + 10_000]
    assert (found.appended, signed.timestamp_type) == (signed.timestamp, 1)  # LogAppendTime


@simulated()
async def test_stream_time_is_set_back_at_its_place_in_the_log(make: Make) -> None:
    """By a command; a second order counts anew, and a restart changes nothing."""
    settings = await make(window="1h", max_future="2d", time_field="ts", shards=1)
    now, day = 1_700_000_000_000, 86_400_000
    topics, probe = Topics.of(settings), Probe("sequence")

    def signed(first: int, times: Sequence[int]) -> bytes:
        values = [b'{"id": %d, "text": "a b c", "ts": %d}' % (first + i, time) for i, time in enumerate(times)]
        segment = (0, first, first + len(times), CONTINUES if first else STARTS)
        return frame(settings, segment, values=values)

    await sign(settings, [signed(0, [now] * 10 + [now + day] * 70)])
    async with running(SequenceStage, settings, probe):
        await until_sequenced(settings, 1)
        given = ["--topic-prefix", settings.topic_prefix, "--bootstrap-servers", settings.bootstrap_servers]
        given += ["--shards", "1", "--window", "1h", "--max-future", "2d", "--time-field", "ts", "--yes"]
        await asyncio.to_thread(run, "kafka", "set-stream-time", moment(now), *given)
        await sign(settings, [signed(80, [now + 1000] * 70), SetBack(now).encode()])
        await until_sequenced(settings, 4)
    assert (await look(settings, now - 1)).before == now
    await sign(settings, [signed(150, [now + 2000] * 70)])
    async with running(SequenceStage, settings):
        await until_sequenced(settings, 5)
    found = [Sequenced.decode(copy.value, settings) for copy in await records(settings, topics.frames, 0)]
    ends = [(int(sequenced.log[-1]) - now, sequenced.shift) for sequenced in found if sequenced.log is not None]
    assert ends == [(day, 0), (day + 1000, day), (day + 3000, day + 1000)]


@simulated()
async def test_an_order_of_a_newer_version_ends_the_role_until_it_is_skipped(make: Make) -> None:
    settings, order = await make(window="1h", time_field="ts", shards=1), bytearray(SetBack(1).encode())
    order[5] += 1  # its version
    await sign(settings, [frame(settings, (0, 0, 3, STARTS)), bytes(order)])
    with pytest.raises(StoreError, match=r"upgrade this worker. Or have .* stream-lsh kafka skip signatures 0 1"):
        await ended(SequenceStage, settings)
    await skip(settings, await find(settings, "signatures", 0, 1))
    async with running(SequenceStage, settings):
        await until_sequenced(settings, 2)


async def test_a_sequencer_without_its_partition_shows_no_stream_time() -> None:
    probe = Probe("sequence")
    stage = SequenceStage(KafkaSettings(window="1h", time_field="ts"), probe)
    probe.stream_time(1_700_000_000_000, 0, 1000)
    stage._forget()
    gauges = probe.registry.stream_time, probe.registry.shift
    assert [gauge.labels("sequence")._value.get() for gauge in gauges] == [0, 0]


@simulated()
async def test_it_waits_for_the_judge(make: Make) -> None:
    settings = await make(partitions=1, decision_lag=6)
    topics = Topics.of(settings)
    log = [frame(settings, (0, i, i + 1, CONTINUES if i else STARTS)) for i in range(19)]
    log.append(frame(settings, (0, 19, 40, CONTINUES)))  # more than may be under way: alone

    async def passed() -> int:
        return len(order(settings, await records(settings, topics.frames)))

    await sign(settings, log)
    for last, decided, expected in ((-1, 0, 6), (3, 4, 10), (8, 9, 15), (9, 10, 16)):
        if last >= 0:
            said = Judged(last, topics.documents, decided).metadata()
            await commit(settings, "judge", topics.matches, last + 1, said)
        async with running(SequenceStage, settings):  # also in a run that finds it so
            await until_sequenced(settings, expected)
            await asyncio.sleep(0.7)
            assert await passed() == expected
    probe = Probe("sequence")
    async with running(SequenceStage, settings, probe):
        await until(
            lambda: probe.last_idle is not None, "it waits"
        )  # what was judged before its run it would not send again
        await commit(settings, "judge", topics.matches, 18, Judged(17, topics.documents, 18).metadata())
        await until_sequenced(settings, 19)
        await asyncio.sleep(0.7)
        assert await passed() == 19
        await commit(settings, "judge", topics.matches, 19, Judged(18, topics.documents, 19).metadata())
        await until_sequenced(settings, 20)
    assert offsets(settings, await records(settings, topics.frames)) == [(0, offset) for offset in range(40)]


def test_the_window_counts_documents() -> None:
    window = Window(40)
    assert window.room(1000)  # one frame may always be sent
    for offset in (3, 10, 11):
        window.sent(offset, 10)
    assert (window.half, window.room(10), window.room(11), len(window)) == (True, True, False, 3)
    window.sent(50, 10)
    window.complete(2)
    assert not window.room(1)
    window.complete(10)
    assert (window.half, window.room(20), window.room(21)) == (True, True, False)
    window.complete(49)
    assert (window.half, window.documents) == (False, 10)


def test_frames_are_sent_again_less_and_less_often_and_are_the_same() -> None:
    repeat, accepted = Repeat(0.0, 30.0), Accepted(KEY).passed_on(7, 20)
    assert (repeat.due(30.0), repeat.due(30.1)) == (False, True)
    repeat.begin(9, accepted)
    repeat.progress(6, 40.0)  # of frames before those
    assert (repeat.due(100.0), repeat.due(100.1)) == (False, True)
    repeat.begin(5, Accepted(KEY).passed_on(4, 10))  # before it has come so far again
    repeat.check("s", 8, Accepted(KEY), "Rebuild.")
    with pytest.raises(StoreError, match=r"^s has other frames before offset 9 .* Rebuild\.$"):
        repeat.check("s", 9, Accepted(KEY).passed_on(7, 21), "Rebuild.")
    with pytest.raises(StoreError):  # the frame at 9 was none that is accepted
        repeat.check("s", 10, accepted, "Rebuild.")
    repeat.check("s", 9, accepted, "Rebuild.")
    repeat.check("s", 10, Accepted(KEY), "Rebuild.")  # new frames
    repeat.progress(7, 50.0)
    assert repeat.due(80.1)


@simulated()
async def test_a_commit_of_the_judge_that_is_none_is_an_error(make: Make) -> None:
    settings = await make(decision_lag=2)
    await commit(settings, "judge", Topics.of(settings).matches, 3, "hello")
    with pytest.raises(StoreError, match=r"group .*\.judge has no frame in its metadata .*'hello'.*reindex"):
        await ended(SequenceStage, settings)


@simulated()
async def test_a_send_that_fails_ends_the_life_and_the_next_one_sends_it_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = await make(partitions=1)
    topics, probe = Topics.of(settings), Probe("sequence")
    log = [frame(settings, (0, i, i + 1, CONTINUES if i else STARTS)) for i in range(60)]
    whole, calls = AIOKafkaProducer.send, 0

    async def faulty(self: AIOKafkaProducer, topic: str, value: bytes, **given: Any) -> asyncio.Future[Any]:
        """Like a producer of which single batches are refused while those behind them land."""
        nonlocal calls
        calls += topic == topics.frames
        if topic == topics.frames and calls in (7, 30, 31):
            refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            refused.set_exception(NotEnoughReplicasError())
            return refused
        future: asyncio.Future[Any] = await whole(self, topic, value, **given)
        return future

    await sign(settings, log)
    monkeypatch.setattr(together, "MOST", 1)
    monkeypatch.setattr(AIOKafkaProducer, "send", faulty)
    async with running(SequenceStage, settings, probe):
        await until_sequenced(settings, len(log))
    assert calls > 2 * len(log)
    for shard in (0, 1):
        copies = await records(settings, topics.frames, shard)
        assert offsets(settings, copies) == [(0, offset) for offset in range(60)]


@simulated()
async def test_it_gives_up_while_frames_are_never_acknowledged(cluster: Cluster, make: Make) -> None:
    """Each run commits its position once more before it fails: that is no progress."""
    settings = await make(partitions=1, give_up_seconds=100)
    topics = Topics.of(settings)

    def lost(process: Process, head: wire.Head, ask: dict[str, Any]) -> Outcome:
        frames = head.name == "Produce" and any(topic == topics.frames for topic, _ in per_topic(ask["topics"]))
        return Outcome(Fault.LOST) if frames else GOOD

    await sign(settings, [frame(settings, (0, 0, 1, STARTS))])
    cluster.network.fault = lost
    with pytest.raises(BrokerError, match="without progress"):
        await ended(SequenceStage, settings)


@simulated()
async def test_frames_deleted_unread_are_an_error_and_the_signers_can_make_them_again(make: Make) -> None:
    settings = await make(partitions=1, frame_documents=5)
    topics = Topics.of(settings)
    await produce(settings, [line(i) for i in range(10)], 1)
    async with running(SignStage, settings), running(SequenceStage, settings):
        await until_signed(settings, 10)
        end = len(await records(settings, topics.signatures))
        await until_sequenced(settings, end)
    careless = settings.model_copy(update={"accept_deleted_records": (f"{topics.signatures}:0:{end}",)})
    await produce(settings, [line(i) for i in range(10, 40)], 1)
    async with running(SignStage, settings):
        await until_signed(settings, 40)
    await delete_before(settings, topics.signatures, end + 2)
    with pytest.raises(StoreError, match=rf"2 frames from offset {end} on .*records {topics.signatures}:0:{end}:"):
        await ended(SequenceStage, settings)
    async with running(SequenceStage, careless), running(SignStage, careless):

        async def all_there() -> bool:
            return len(offsets(settings, await records(settings, topics.frames))) == 40

        await until(all_there, "all documents are passed on")
    found = offsets(settings, await records(settings, topics.frames))
    assert found == [(0, offset) for offset in range(40)]


@simulated()
async def test_a_frame_that_was_sent_and_that_signatures_has_lost_stops_it(make: Make, cluster: Cluster) -> None:
    """What was committed is before it: the sequencer would send another frame at its offset, which shards ignore."""
    settings = await make(partitions=1)
    topics = Topics.of(settings)
    await sign(settings, [frame(settings, (0, i, i + 1, CONTINUES if i else STARTS)) for i in range(2)])
    async with running(SequenceStage, settings):
        await until_sequenced(settings, 2)
    async with admin(settings) as client:
        before = await commits(client, topics.group("sequence"), topics.signatures)
    await sign(settings, [frame(settings, (0, 2, 5, CONTINUES))])
    async with running(SequenceStage, settings):
        await until_sequenced(settings, 3)
    await commit(settings, "sequence", topics.signatures, *before[0])
    async with running(SequenceStage, settings):  # it is there, and is sent again
        await until_sequenced(settings, 3)
    await commit(settings, "sequence", topics.signatures, *before[0])
    cluster.lose_tail((topics.signatures, 0), 1)
    with pytest.raises(StoreError, match="signatures, partition 0, ends at offset 2, but has been sequenced up to 3"):
        await ended(SequenceStage, settings)
    await sign(settings, [frame(settings, (0, 2, 4, CONTINUES))])
    with pytest.raises(StoreError, match="has another frame at offset 2 than the one that was sequenced"):
        await ended(SequenceStage, settings)


@simulated()
async def test_it_begins_though_the_last_record_of_frames_has_no_value(make: Make) -> None:
    settings = await make(partitions=1)
    await sign(settings, [frame(settings, (0, 0, 1, STARTS))])
    await send(settings, Topics.of(settings).frames, [None], key=b"key")
    async with running(SequenceStage, settings):
        await until_sequenced(settings, 1)


@simulated()
@pytest.mark.parametrize("deleted", [0, 2])
async def test_without_a_commit_it_begins_at_the_beginning_or_not_at_all(make: Make, deleted: int) -> None:
    settings = await make(partitions=1, begin=False)
    topics = Topics.of(settings)
    await sign(settings, [frame(settings, (0, i, i + 1, CONTINUES if i else STARTS)) for i in range(4)])
    if deleted:
        await delete_before(settings, topics.signatures, deleted)
    with pytest.raises(StoreError, match=r"no committed offset, but.*key.*reindex"):
        accepted = {"accept_deleted_records": (f"{topics.signatures}:0:0",)}
        async with running(SequenceStage, settings.model_copy(update=accepted)) as task:
            await asyncio.wait([task], timeout=PATIENCE)
    assert await positions(settings, "sequence", topics.signatures) == {}


@simulated()
async def test_another_member_begins_while_one_looks_for_its_commit(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The slow one tries again, and is not told that the commit is lost."""
    settings, bounds = await make(partitions=1, begin=False), Relay.bounds

    async def late(self: Relay, positions: dict[int, int]) -> Any:
        monkeypatch.setattr(Relay, "bounds", bounds)
        await self.record({0: (0, Accepted(KEY))})
        await sign(settings, [frame(settings, (0, 0, 1, STARTS))])
        return await bounds(self, positions)

    monkeypatch.setattr(Relay, "bounds", late)
    async with running(SequenceStage, settings):
        await until_sequenced(settings, 1)
    assert "another member has taken over, and has begun" in caplog.text


@simulated()
async def test_the_first_start_makes_the_key_for_which_signers_wait(make: Make, caplog: Any) -> None:
    """Whoever begins later keeps it, and every frame has it."""
    settings = await make(partitions=1, shards=1, begin=False)
    topics = Topics.of(settings)

    async def key() -> bytes | None:
        async with admin(settings) as client:
            found = await commits(client, topics.group("sequence"), topics.signatures)
        return Accepted.of(found[0][1]).key if 0 in found else None

    with caplog.at_level(logging.INFO):
        await produce(settings, [line(i) for i in range(10)], 1)
        probe = Probe("sign")
        async with running(SignStage, settings, probe):
            await until(lambda: _said(caplog, "waiting for a sequencer"), "the signer waits")
            await asyncio.sleep(1)
            assert await records(settings, topics.signatures) == [] and probe.last_idle is not None
            async with running(SequenceStage, settings):
                await until_signed(settings, 10)
                await until_sequenced(settings, 1)
            made = await key()
            assert made is not None and len(made) == 16 and made != bytes(16)
            async with running(SequenceStage, settings):
                await produce(settings, [line(i) for i in range(10, 20)], 1)
                await until(lambda: _passed_on(settings, 20), "all documents are passed on")
        assert await key() == made
        found = [sequenced for sequenced, _ in order(settings, await records(settings, topics.frames))]
        assert {sequenced.key for sequenced in found} == {made}
    assert caplog.text.count("waiting for a sequencer") == 1


async def _said(caplog: Any, text: str) -> bool:
    return text in caplog.text


async def _passed_on(settings: KafkaSettings, number: int) -> bool:
    return len(offsets(settings, await records(settings, Topics.of(settings).frames))) == number
