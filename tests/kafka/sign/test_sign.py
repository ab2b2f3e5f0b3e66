"""The signing stage in a simulated Kafka."""

import asyncio
import time
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from support.kafka.brokers import Make
from support.kafka.stages import (
    KEY,
    accepted_documents,
    begun,
    commit,
    commits,
    delete_before,
    ended,
    line,
    produce,
    records,
    running,
    settled,
    until_committed,
    until_signed,
)
from support.simulation import wire
from support.simulation.api import per_topic
from support.simulation.cluster import Cluster
from support.simulation.network import GOOD, Fault, Outcome
from support.simulation.runner import simulated
from support.simulation.world import Process

from stream_lsh.errors import BrokerError, StoreError
from stream_lsh.kafka.client.connection import admin, client_options
from stream_lsh.kafka.consumer.relay import Relay
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.sequence.order import Accepted
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.position import Last, Note
from stream_lsh.kafka.sign.stage import SignStage
from stream_lsh.kafka.tools.topics import create
from stream_lsh.wire.frames import FIRST, JUMPS, STARTS, Frame


@pytest.fixture
def make(make: Make) -> Make:
    """Settings with topics that are there; small frames, so that there are several."""

    async def made(**given: Any) -> KafkaSettings:
        timeouts = {"session_timeout_ms": 30_000, "transaction_timeout_ms": 30_000}
        settings = await make(**{"partitions": 2, "frame_documents": 50, **timeouts, **given})
        await begun(settings)
        return settings

    return made


def complete(settings: KafkaSettings, found: list[tuple[int, int]], counts: dict[int, int]) -> None:
    """Every document once, in the order of its partition."""
    for partition, count in counts.items():
        assert [offset for p, offset in found if p == partition] == list(range(count))
    assert len(found) == sum(counts.values())


@simulated()
async def test_documents_become_frames_and_a_restart_continues_behind_them(make: Make) -> None:
    settings = await make()
    topics, probe = Topics.of(settings), Probe("sign")
    await produce(settings, [line(i) for i in range(300)] + [b"not json", b""], 2)
    async with running(SignStage, settings, probe):
        await until_signed(settings, 302)
    before = await records(settings, topics.signatures)
    found = [Frame.decode(record.value, settings) for record in before]
    assert {p for frame in found for p, _, _, first in frame.segments.tolist() if first == STARTS} == {0, 1}
    ids = [id for frame in found for id in frame.source.ids]
    assert sorted(ids) == sorted([b'"d%d"' % i for i in range(300)] + [b"null"] * 2)
    reasons = [why.reason for frame in found for why in frame.source.rejected.values()]
    assert sorted(reasons) == ["no_value", "not_json"]
    complete(settings, accepted_documents(settings, before), {0: 151, 1: 151})
    assert probe.commits > 0

    await produce(settings, [line(i) for i in range(300, 400)], 2)
    async with running(SignStage, settings):
        await until_signed(settings, 402)
    after = await records(settings, topics.signatures)
    complete(settings, accepted_documents(settings, after), {0: 201, 1: 201})
    new = [Frame.decode(record.value, settings) for record in after[len(before) :]]
    assert sum(len(frame.source) for frame in new) == 100  # nothing is signed again
    assert not any(frame.segments[:, FIRST].any() for frame in new)


@simulated()
async def test_a_partition_without_documents_is_committed_at_its_beginning(make: Make) -> None:
    settings = await make()
    async with running(SignStage, settings):
        await until_committed(settings, "sign", Topics.of(settings).documents, lambda found: found == {0: 0, 1: 0})


@simulated()
async def test_raw_text_and_trace_headers(make: Make) -> None:
    settings = await make(document_format="text", partitions=1)
    topics = Topics.of(settings)
    async with AIOKafkaProducer(**client_options(settings)) as producer:
        headers, now = [("traceparent", b"00-1"), ("mine", b"2")], time.time_ns() // 10**6
        await producer.send_and_wait(topics.documents, b"some text", key=b"k1", timestamp_ms=now, headers=headers)
        await producer.send_and_wait(topics.documents, None, key=b"k2", timestamp_ms=now + 1)
    async with running(SignStage, settings):
        await until_signed(settings, 2)
    found = [Frame.decode(record.value, settings) for record in await records(settings, topics.signatures)]
    assert [id for frame in found for id in frame.source.ids] == [b'"k1"', b'"k2"']
    assert [time for frame in found for time in frame.source.times.tolist()] == [now, now + 1]
    assert [h for frame in found for h in frame.source.headers.values()] == [[("traceparent", b"00-1")]]


@simulated()
async def test_transactions_that_were_given_up_are_not_read_and_their_markers_are_passed(make: Make) -> None:
    settings = await make(partitions=1)
    topics = Topics.of(settings)
    async with AIOKafkaProducer(
        **client_options(settings), transactional_id=f"{settings.topic_prefix}-feed"
    ) as producer:
        for number in range(6):
            await producer.begin_transaction()
            await producer.send_and_wait(topics.documents, line(number), partition=0)
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
    async with running(SignStage, settings):
        await until_signed(settings, 12)  # the last marker counts as read
    found = [Frame.decode(record.value, settings) for record in await records(settings, topics.signatures)]
    assert [id for frame in found for id in frame.source.ids] == [b'"d0"', b'"d2"', b'"d4"']
    accepted = accepted_documents(settings, await records(settings, topics.signatures))
    assert accepted == [(0, 0), (0, 4), (0, 8)]


@simulated()
async def test_documents_deleted_unread_are_an_error_until_it_is_accepted(make: Make) -> None:
    settings = await make(partitions=1)
    topics = Topics.of(settings)
    await sign_ten(settings)
    await produce(settings, [line(i) for i in range(10, 30)], 1)
    await delete_before(settings, topics.documents, 25)
    with pytest.raises(
        StoreError,
        match=rf"{topics.documents}, partition 0: 15 documents from offset 10 on.*records {topics.documents}:0:10;",
    ):
        await ended(SignStage, settings)
    async with running(
        SignStage, settings.model_copy(update={"accept_deleted_records": (f"{topics.documents}:0:10",)})
    ):
        await until_signed(settings, 30)
    async with running(SignStage, settings):  # once is enough
        await produce(settings, [line(30)], 1)
        await until_signed(settings, 31)
    frames = await records(settings, topics.signatures)
    assert accepted_documents(settings, frames) == [(0, offset) for offset in (*range(10), *range(25, 31))]
    firsts = [first for record in frames for first in Frame.decode(record.value, settings).segments[:, FIRST]]
    assert [int(first) for first in firsts if first] == [STARTS, JUMPS]


async def refused(settings: KafkaSettings, words: str) -> None:
    with pytest.raises(StoreError, match=words):
        await ended(SignStage, settings)


async def make_again(settings: KafkaSettings) -> None:
    """Delete the documents topic and make another one of its name."""
    topics = Topics.of(settings)
    async with admin(settings) as client:
        await client.delete_topics([topics.documents])
        while topics.documents in await client.list_topics():
            await asyncio.sleep(0.1)
    await create(settings)


async def sign_ten(settings: KafkaSettings) -> None:
    """A signer's run, in which partition 0 has ten documents."""
    await produce(settings, [line(i) for i in range(10)], 1)
    async with running(SignStage, settings):
        await until_signed(settings, 10)


async def note(settings: KafkaSettings) -> tuple[int, str]:
    """What is written down of partition 0."""
    topics = Topics.of(settings)
    async with admin(settings) as client:
        return (await commits(client, topics.group("sign"), topics.documents))[0]


@simulated()
@pytest.mark.parametrize("documents", [5, 20])
async def test_a_topic_made_again_is_not_read_as_if_it_were_the_old_one(make: Make, documents: int) -> None:
    """Whether it has fewer documents than were read of the old one, or more."""
    settings = await make(partitions=1)
    topics = Topics.of(settings)
    await sign_ten(settings)
    await make_again(settings)
    await produce(settings, [line(100 + i) for i in range(documents)], 1)
    # The broker drops the commits with the topic; those of the sequencer, and the records in `state`, are there.
    await commit(settings, "sequence", topics.signatures, 1, Accepted(KEY, {0: 10}, 0).metadata())
    await refused(settings, rf"{topics.documents}, partition 0, .*deleted and made again.*another topic_prefix")


@simulated()
@pytest.mark.parametrize("documents", [10, 20])
async def test_other_records_in_the_places_of_those_that_were_read(make: Make, documents: int) -> None:
    """As brokers leave it that have lost the end of a topic, and take other documents afterwards."""
    settings = await make(partitions=1)
    topics = Topics.of(settings)
    await sign_ten(settings)
    position, metadata = await note(settings)
    async with running(SignStage, settings):  # the record is the one that it was
        await asyncio.sleep(1)
    assert await note(settings) == (position, metadata)
    await make_again(settings)
    await produce(settings, [line(100 + i) for i in range(documents)], 1)
    await commit(settings, "sign", topics.documents, position, metadata)
    await refused(settings, rf"{topics.documents}, partition 0, has another record at offset 9, .*topic_prefix")
    assert len(accepted_documents(settings, await records(settings, topics.signatures))) == 10


@simulated()
async def test_a_last_record_that_is_in_no_topic_but_a_compacted_one(make: Make, caplog: Any) -> None:
    settings = await make(partitions=1)
    topics = Topics.of(settings)
    with caplog.at_level("INFO", "stream_lsh.kafka"):
        async with (
            AIOKafkaProducer(**client_options(settings), transactional_id=f"{settings.topic_prefix}-feed") as producer,
            producer.transaction(),
        ):
            await producer.send_and_wait(topics.documents, line(0), partition=0)
        await settled(settings.bootstrap_servers, topics.documents)  # brokers write the marker a little later
        await produce(settings, [line(i) for i in range(1, 5)], 1)
        # What the marker of the transaction, which is no record, leaves where it stands, compaction leaves as well.
        gone = Note(settings.fingerprint, "json", "murmur2", Last(1, 1000, 7))
        await commit(settings, "sign", topics.documents, 2, gone.metadata())
        await refused(settings, rf"{topics.documents}, partition 0, has no record at offset 1, .*topic_prefix")
        async with admin(settings) as client:
            resource = ConfigResource(ConfigResourceType.TOPIC, topics.documents, {"cleanup.policy": "compact"})
            await client.alter_configs([resource])
        async with running(SignStage, settings):
            await until_signed(settings, 6)
        frames = [Frame.decode(record.value, settings) for record in await records(settings, topics.signatures)]
        assert [offset for frame in frames for offset in frame.source.offsets.tolist()] == [2, 3, 4, 5]
        assert "compacted" in caplog.text


@simulated()
async def test_a_limit_that_was_lowered_rejects_no_document(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """A signer that begins meanwhile waits until it is mended."""
    settings = await make(partitions=1)
    topics = Topics.of(settings)

    async def limit(size: int) -> None:
        given = {"max.message.bytes": str(size), "message.timestamp.type": "LogAppendTime"}
        async with admin(settings) as client:
            await client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topics.signatures, given)])

    await limit(1000)
    await produce(settings, [line(0)], 1)
    async with running(SignStage, settings):
        await asyncio.sleep(20)
        assert not await records(settings, topics.signatures)
        await limit(1_048_588)
        await until_signed(settings, 1)
    frames = [Frame.decode(record.value, settings) for record in await records(settings, topics.signatures)]
    assert [id for frame in frames for id in frame.source.ids] == [b'"d0"']
    assert not any(frame.source.rejected for frame in frames)
    assert f"{topics.signatures} has max.message.bytes = 1000, which is too small; set it to 1048588" in caplog.text


@simulated()
async def test_another_documents_topic_is_not_read_from_the_positions_of_the_first(make: Make, prefix: str) -> None:
    settings = await make(partitions=1)
    other = settings.model_copy(update={"documents_topic": f"{prefix}.others"})
    topics = Topics.of(settings)
    await sign_ten(settings)
    await commit(settings, "sequence", topics.signatures, 1, Accepted(KEY, {0: 10}, 0).metadata())
    await create(other)
    await produce(other, [line(100 + i) for i in range(20)], 1)
    signed = len(await records(settings, topics.signatures))
    await refused(other, rf"has read {topics.documents} so far.*topic is {prefix}.others now.*one topic_prefix")
    assert len(await records(settings, topics.signatures)) == signed


@simulated()
async def test_commits_with_only_a_fingerprint_are_resumed(make: Make) -> None:
    settings = await make(partitions=1)
    topics = Topics.of(settings)
    await produce(settings, [line(i) for i in range(10)], 1)
    await commit(settings, "sign", topics.documents, 4, settings.fingerprint)
    async with running(SignStage, settings):
        await until_signed(settings, 10)
    frames = [Frame.decode(record.value, settings) for record in await records(settings, topics.signatures)]
    assert [offset for frame in frames for offset in frame.source.offsets.tolist()] == list(range(4, 10))
    found = Note.of((await note(settings))[1], "g")
    assert found.last is not None and found.last.offset == 9 and found.format == "json"
    other = KafkaSettings(threshold=0.7).fingerprint
    await commit(settings, "sign", topics.documents, 10, other)
    await refused(settings, rf"other settings.*{other}")


@simulated()
async def test_that_it_has_begun_is_committed_before_anything_is_sent(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = await make(partitions=1)
    sent: list[str] = []
    send = Relay.send

    async def sending(self: Relay, *given: Any) -> None:
        sent.append((await note(settings))[1])
        await send(self, *given)

    monkeypatch.setattr(Relay, "send", sending)
    await produce(settings, [line(i) for i in range(20)], 1)
    async with running(SignStage, settings):
        await until_signed(settings, 20)
    assert Note.of(sent[0], "g").begun
    assert not Note.of((await note(settings))[1], "g").begun


@simulated()
async def test_frames_lost_before_a_position_set_by_hand_are_signed_again(make: Make) -> None:
    """Also without new documents."""
    settings = await make(partitions=1)
    topics = Topics.of(settings)
    await sign_ten(settings)
    lost = len(await records(settings, topics.signatures))
    await commit(settings, "sequence", topics.signatures, lost, Accepted(KEY, {0: 4}, 0).metadata())
    await commit(settings, "sign", topics.documents, 10, settings.fingerprint)
    async with asyncio.timeout(60), running(SignStage, settings):
        while len(found := await records(settings, topics.signatures)) == lost:
            await asyncio.sleep(1)
    frames = [Frame.decode(record.value, settings) for record in found[lost:]]
    assert [offset for frame in frames for offset in frame.source.offsets.tolist()] == [*range(4, 10)]


@simulated()
async def test_a_partition_of_which_all_frames_were_lost_is_signed_again_from_its_beginning(make: Make) -> None:
    """Its first frame had the mark without which the sequencer takes nothing of a partition."""
    settings = await make(partitions=2)
    topics = Topics.of(settings)
    await produce(settings, [line(i) for i in range(20)], 1)
    async with running(SignStage, settings):
        await until_signed(settings, 20)
    lost = len(await records(settings, topics.signatures))
    # As a sequencer leaves it that has gone over the frames, but for partition 1.
    await commit(settings, "sequence", topics.signatures, lost, Accepted(KEY, {1: 0}).metadata())
    await delete_before(settings, topics.documents, 5)
    frames: list[Any] = []
    async with asyncio.timeout(60), running(SignStage, settings):
        while accepted_documents(settings, frames) != [(0, offset) for offset in range(5, 20)]:
            await asyncio.sleep(1)
            frames = (await records(settings, topics.signatures))[lost:]
    firsts = [row for record in frames for row in Frame.decode(record.value, settings).segments.tolist() if row[3]]
    assert firsts == [[0, 5, firsts[0][2], STARTS]]


@simulated()
async def test_partitions_are_given_up_while_their_last_records_are_looked_for(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last records are compacted away, and another member joins: nothing is signed twice."""
    settings = await make(partitions=2)
    topics = Topics.of(settings)
    async with admin(settings) as client:
        resource = ConfigResource(ConfigResourceType.TOPIC, topics.documents, {"cleanup.policy": "compact"})
        await client.alter_configs([resource])
    for partition in range(2):
        name = f"{settings.topic_prefix}-{partition}"
        async with AIOKafkaProducer(**client_options(settings), transactional_id=name) as producer:
            for number in (partition, 10 + partition):
                async with producer.transaction():
                    await producer.send_and_wait(topics.documents, line(number), partition=partition)
        gone = Note(settings.fingerprint, "json", "murmur2", Last(1, 1000, 7))  # the offset of a transaction's marker
        await commit(settings, "sign", topics.documents, 2, gone.metadata(), partition)
    await commit(settings, "sequence", topics.signatures, 0, Accepted(KEY, {0: 2, 1: 2}, 0).metadata())
    looking, revoked, bounds, give_up = asyncio.Event(), asyncio.Event(), Relay.bounds, Relay._give_up

    async def slow(self: Relay, positions: dict[int, int]) -> Any:
        if len(positions) == 1 and not looking.is_set():
            looking.set()
            await revoked.wait()
        return await bounds(self, positions)

    async def giving_up(self: Relay) -> None:
        await give_up(self)
        if looking.is_set():
            revoked.set()

    monkeypatch.setattr(Relay, "bounds", slow)
    monkeypatch.setattr(Relay, "_give_up", giving_up)
    async with running(SignStage, settings):
        await looking.wait()
        async with running(SignStage, settings.model_copy(update={"data_folder": settings.data_folder / "other"})):
            await until_signed(settings, 8)
    frames = [Frame.decode(record.value, settings) for record in await records(settings, topics.signatures)]
    signed = [(int(p), int(o)) for f in frames for p, o in zip(f.source.partitions, f.source.offsets, strict=True)]
    assert sorted(signed) == [(0, 2), (1, 2)]


@simulated()
async def test_it_gives_up_while_state_acknowledges_nothing(cluster: Cluster, make: Make) -> None:
    settings = await make(partitions=1, give_up_seconds=100)
    topics = Topics.of(settings)
    await sign_ten(settings)

    def lost(process: Process, head: wire.Head, ask: dict[str, Any]) -> Outcome:
        state = head.name == "Produce" and any(topic == topics.state for topic, _ in per_topic(ask["topics"]))
        return Outcome(Fault.LOST) if state else GOOD

    with pytest.raises(BrokerError, match="without progress"):
        async with running(SignStage, settings) as task:
            await asyncio.sleep(20)
            cluster.network.fault = lost
            await produce(settings, [line(i) for i in range(10, 20)], 1)
            done, _ = await asyncio.wait([task], timeout=200)
    assert done


@simulated()
async def test_what_was_seen_before_an_assignment_says_nothing_about_it(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """An answer about the pause is late: it was asked for between two assignments."""
    settings = await make(partitions=3)
    paused, late = SignStage._paused, False

    async def slow(self: SignStage, *, lost: bool) -> Any:
        nonlocal late
        found = await paused(self, lost=lost)
        if not lost and self._relay.epoch and not self._relay.positions:
            while not self._relay.positions:
                await asyncio.sleep(0.01)
            late = True
        return found

    monkeypatch.setattr(SignStage, "_paused", slow)
    other = settings.model_copy(update={"data_folder": settings.data_folder / "other"})
    async with running(SignStage, settings):
        while not late:
            async with running(SignStage, other):
                await asyncio.sleep(5)
        await asyncio.sleep(1)
    assert "which the outputs do not have" not in caplog.text
