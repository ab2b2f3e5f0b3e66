"""Forward in a simulated Kafka, and killed on a real one: unique documents, once and in order; a loss is said."""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import KafkaConnectionError
from support.kafka.brokers import Make, settings_for
from support.kafka.forward_play import (
    NOW,
    OPTIONS,
    PARTITIONS,
    Written,
    check,
    until_forwarded,
    verdict,
    write_documents,
    write_plain,
    write_verdicts,
)
from support.kafka.last_steps import DEATHS, Victim
from support.kafka.stages import (
    COMPACTED,
    commit,
    delete_before,
    ended,
    make_topics,
    positions,
    records,
    running,
    send,
    until,
)
from support.simulation.cluster import Cluster
from support.simulation.runner import simulated

from stream_lsh.errors import BrokerError, StoreError
from stream_lsh.kafka.client.connection import admin, client_options
from stream_lsh.kafka.forward import lost_verdicts, partition
from stream_lsh.kafka.forward import stage as forward
from stream_lsh.kafka.forward.stage import ForwardStage
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.skip import look, skip
from stream_lsh.kafka.tools.topics import create

REJECTED = "stream_lsh_rejected_total"


@pytest.fixture
def make(make: Make) -> Make:
    return partial(make, **OPTIONS)


@simulated()
async def test_unchanged_in_order_and_once_over_several_runs(make: Make) -> None:
    settings, probe = await make(), Probe("forward")
    first = await write_documents(settings, 300)
    await write_verdicts(settings, first)
    async with running(ForwardStage, settings, probe):
        await until_forwarded(settings, first)
    async with running(ForwardStage, settings, probe):
        second = await write_documents(settings, 300, seed=2)
        await write_verdicts(settings, second)
        await until_forwarded(settings, second)
    await check(settings, first + second)
    assert probe.registry.documents.labels("forward")._value.get() == len(first + second)
    assert probe.commits > 0
    reported = probe.registry.exposition()[0].decode()
    assert f'verdict_latency_seconds_count{{role="forward"}} {len(first + second)}.0' in reported
    rejected = sum(float(line.split()[-1]) for line in reported.splitlines() if line.startswith(REJECTED))
    assert rejected == sum(verdict.kind == "rejected" for verdict in first + second) > 0


@simulated()
async def test_memory_is_bounded_with_either_topic_ahead(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = await make()
    monkeypatch.setattr(forward, "WAITING_BYTES", 30_000)
    monkeypatch.setattr(forward, "LEAST_BYTES", 10_000)
    monkeypatch.setattr(forward, "PARTITION_BYTES", 20_000)
    monkeypatch.setattr(partition, "MOST_VERDICTS", 20)
    monkeypatch.setattr(partition, "MOST_DOCUMENTS", 7)
    most = [0, 0]
    offer = partition.SourcePartition.offer

    def offered(self: partition.SourcePartition, documents: Any, verdicts: Any) -> None:
        offer(self, documents, verdicts)
        [join] = self.joins.values()
        most[0] = max(most[0], join.size)
        most[1] = max(most[1], join.waiting[1])

    monkeypatch.setattr(partition.SourcePartition, "offer", offered)

    documents = await write_documents(settings, 900)
    async with running(ForwardStage, settings):
        await until(lambda: most[0] > 10_000, "documents wait")
        await asyncio.sleep(1)
        await write_verdicts(settings, documents)
        await until_forwarded(settings, documents)
    await check(settings, documents)
    assert most[0] < 120_000 < sum(len(d.value or b"") for d in documents) / PARTITIONS
    assert most[1] < 250


@simulated()
async def test_documents_that_unique_does_not_take_end_the_role(cluster: Cluster, make: Make) -> None:
    """Each run commits its positions once more before it fails: that is no progress."""
    settings = await make(partitions=1)
    documents = await write_documents(settings, 30, partitions=1)
    cluster.topics[Topics.of(settings).unique].config["max.message.bytes"] = "100"
    await write_verdicts(settings, documents)
    with pytest.raises(BrokerError, match=r"max\.message\.bytes"):
        await ended(ForwardStage, settings)


@simulated()
async def test_a_document_that_unique_does_not_take_is_not_hidden_by_another_partition(
    cluster: Cluster, make: Make
) -> None:
    """In which each run forwards something before it fails."""
    settings = await make(partitions=2)
    large = Written(0, 0, b"k", bytes(5000), [], NOW, "unique")
    small = [Written(1, offset, b"k", b"x", [], NOW, "unique") for offset in range(400)]
    cluster.topics[Topics.of(settings).unique].config["max.message.bytes"] = "1000"

    async def feed() -> None:
        await write_plain(settings, [large])
        await write_verdicts(settings, [large])
        for document in small:
            await write_plain(settings, [document])
            await write_verdicts(settings, [document])
            await asyncio.sleep(0.5)

    feeding = asyncio.create_task(feed())
    with pytest.raises(BrokerError, match=r"max\.message\.bytes"):
        await ended(ForwardStage, settings)
    assert not feeding.done()
    feeding.cancel()


async def test_killed_in_a_transaction(make: Make) -> None:
    settings = await make(**DEATHS)
    # Commits 1 to 3 are those of the beginnings.
    victim = Victim("forward", settings, 5)
    documents = await write_documents(settings, 600)
    await write_verdicts(settings, documents)
    await asyncio.to_thread(victim.wait_until_dead)
    async with running(ForwardStage, settings):
        await until_forwarded(settings, documents)
    await check(settings, documents)


@simulated()
async def test_a_quiet_partition_is_committed_to_its_end(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention may empty it then, and nothing is missing."""
    settings = await make(partitions=1)
    topics = Topics.of(settings)
    monkeypatch.setattr(forward, "QUIET_SECONDS", 0.5)

    async def at_the_end(places: Sequence[TopicPartition]) -> bool:
        async with AIOKafkaConsumer(**client_options(settings)) as consumer:
            ends = await consumer.end_offsets(places)
        return all([(await positions(settings, "forward", place.topic)).get(0) == ends[place] for place in places])

    documents = await write_documents(settings, 100, partitions=1)
    await write_verdicts(settings, documents)
    places = [TopicPartition(topic, 0) for topic in (topics.documents, topics.verdicts)]
    async with running(ForwardStage, settings):
        await until_forwarded(settings, documents)
        await until(lambda: at_the_end(places), "both positions stand at the end")
    async with admin(settings) as client:
        await client.delete_records({place: RecordsToDelete(before_offset=-1) for place in places})
    more = await write_documents(settings, 20, seed=2, partitions=1)
    await write_verdicts(settings, more)
    async with running(ForwardStage, settings):
        await until_forwarded(settings, more)
    await check(settings, documents + more, 1)


async def write(settings: KafkaSettings, *values: bytes | None) -> None:
    """Records among the verdicts."""
    await send(settings, Topics.of(settings).verdicts, values, key=b"k")


@simulated()
async def test_what_is_no_verdict_is_passed_over(make: Make, caplog: Any) -> None:
    settings = await make(partitions=1)
    probe = Probe("forward")
    documents = await write_documents(settings, 60, partitions=1)
    await write(settings, b"x", b"{}", None, b'{"kind":"unique","source":7}', b"[]")
    await write_verdicts(settings, documents[:30])
    await write(settings, b"x")
    await write_verdicts(settings, documents[30:])
    async with running(ForwardStage, settings, probe):
        await until_forwarded(settings, documents)
    await check(settings, documents, 1)
    assert probe.registry.ignored.labels("forward", "foreign")._value.get() == 6
    assert "verdicts, partition 0, offset 0 is passed over: a record is no verdict" in caplog.text


@simulated()
async def test_a_verdict_on_another_topic_ends_the_role_until_it_is_skipped(make: Make) -> None:
    settings = await make(partitions=1)
    probe = Probe("forward")
    documents = await write_documents(settings, 30, partitions=1)
    await write(settings, b'{"kind":"unique","source":{"topic":"t","partition":0,"offset":1}}')
    await write_verdicts(settings, documents)
    where = "partition 0, offset 0: a verdict is on t, partition 0, not on .*documents"
    with pytest.raises(StoreError, match=rf"{where}.*stream-lsh kafka skip verdicts 0 0"):
        await ended(ForwardStage, settings)
    await skip(settings, await look(settings, "verdicts", 0, 0))
    async with running(ForwardStage, settings, probe):
        await until_forwarded(settings, documents)
    await check(settings, documents, 1)
    assert probe.registry.ignored.labels("forward", "skipped")._value.get() == 1


def plain_documents(number: int) -> list[Written]:
    return [Written(0, i, b"k", b"%d" % i, [], NOW, "unique") for i in range(number)]


async def write_bare_verdicts(settings: KafkaSettings, documents: list[Written]) -> None:
    """Without markers of transactions between them: offsets are counted here."""
    topics = Topics.of(settings)
    await send(settings, topics.verdicts, [verdict(topics.documents, document) for document in documents])


async def scene(make: Make, lost: str) -> tuple[KafkaSettings, list[Written], str]:
    """Settings, documents, and the topic that loses some of its records."""
    settings = await make(partitions=1)
    return settings, plain_documents(12), getattr(Topics.of(settings), lost)


@simulated()
@pytest.mark.parametrize("lost", ["documents", "verdicts"])
async def test_what_was_deleted_too_early_is_an_error_unless_the_loss_is_accepted(
    make: Make, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings, documents, place = await scene(make, lost)
    await write_plain(settings, documents)
    await write_bare_verdicts(settings, documents[:3])
    async with running(ForwardStage, settings):
        await until_forwarded(settings, documents[:3])
    await write_bare_verdicts(settings, documents[3:])
    await delete_before(settings, place, 7)
    with pytest.raises(StoreError, match=rf"partition 0: 4 {lost} from offset 3 on were deleted.*records {place}:0:3;"):
        await ended(ForwardStage, settings)
    with caplog.at_level("WARNING", "stream_lsh.kafka"):
        async with running(ForwardStage, settings.model_copy(update={"accept_deleted_records": (f"{place}:0:3",)})):
            await until_forwarded(settings, documents)
    assert "4 documents of" in caplog.text
    await check(settings, documents[:3] + documents[7:], 1)


@simulated()
@pytest.mark.parametrize("lost", ["documents", "verdicts"])
async def test_what_was_deleted_before_the_first_start(make: Make, lost: str, caplog: pytest.LogCaptureFixture) -> None:
    """Every time, as long as the loss is not accepted: where it begins was committed by the first run."""
    settings, documents, place = await scene(make, lost)
    await write_plain(settings, documents)
    await write_bare_verdicts(settings, documents[:10])
    await delete_before(settings, place, 7)
    at = 7 if lost == "documents" else 0
    for _ in range(2):
        with pytest.raises(StoreError, match=rf"partition 0: 7 {lost}.* were deleted.*records {place}:0:{at};"):
            await ended(ForwardStage, settings)
    with caplog.at_level("WARNING", "stream_lsh.kafka"):
        accepted = {"accept_deleted_records": (f"{place}:0:{at}",)}
        async with running(ForwardStage, settings.model_copy(update=accepted)):
            await until_forwarded(settings, documents[:10])
    assert "7 documents of" in caplog.text
    async with running(ForwardStage, settings):
        await write_bare_verdicts(settings, documents[10:])
        await until_forwarded(settings, documents)
    await check(settings, documents[7:], 1)


@simulated()
async def test_documents_whose_verdicts_are_lost_are_named(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    settings, documents, _ = await scene(make, "verdicts")
    probe, left = Probe("forward"), documents[:3] + documents[7:]
    await write_plain(settings, documents)
    await write_bare_verdicts(settings, left)
    with caplog.at_level("WARNING", "stream_lsh.kafka"):
        for _ in range(2):  # the second run has nothing to say
            async with running(ForwardStage, settings, probe):
                await until_forwarded(settings, documents)
    assert caplog.text.count("partition 0: 4 documents from offset 3 to 6 have no verdict") == 1
    assert probe.registry.ignored.labels("forward", "no_verdict")._value.get() == 4
    await check(settings, left, 1)


@simulated()
async def test_documents_older_than_the_pipeline_are_no_loss(make: Make) -> None:
    settings = await make(partitions=1)
    documents = plain_documents(5)
    await write_plain(settings, documents)
    await delete_before(settings, Topics.of(settings).documents, 3)
    await write_bare_verdicts(settings, documents[3:])
    async with running(ForwardStage, settings):
        await until_forwarded(settings, documents)
    await check(settings, documents[3:], 1)


@simulated()
async def test_a_topic_that_was_made_anew(make: Make) -> None:
    settings = await make(partitions=1)
    topics = Topics.of(settings)
    await commit(settings, "forward", topics.documents, 5)
    await commit(settings, "forward", topics.verdicts, 0)
    with pytest.raises(StoreError, match=r"ends at offset 0, but has been forwarded up to 5.*reindex"):
        await ended(ForwardStage, settings)


KEYS, NUMBER = 7, 40


@simulated()
async def test_lost_verdicts_are_looked_for_less_often_while_brokers_refuse(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[float] = []

    def refused(_: KafkaSettings) -> None:
        tried.append(time.monotonic())
        raise KafkaConnectionError

    class Waiting:
        verdicts = TopicPartition("verdicts", 0)

        def waits(self, _: float) -> bool:
            return True

    monkeypatch.setattr(lost_verdicts, "admin", refused)
    member: Any = None  # of a group: none is asked
    sources: Any = {0: Waiting()}
    watching = asyncio.create_task(lost_verdicts.LostVerdicts(await make(), member, sources).watch())
    await asyncio.sleep(1500)
    watching.cancel()
    assert [round(b - a) for a, b in pairwise(tried)] == [6, 12, 24, 48, 96, 192, 300, 300, 300]


@pytest.fixture
async def settings(broker: Any, prefix: str, tmp_path: Path) -> KafkaSettings:
    """Of a pipeline whose documents topic, with one partition, is compacted."""
    found = settings_for(broker, prefix, tmp_path, **{**OPTIONS, "partitions": 1})
    await make_topics(found, COMPACTED, Topics.of(found).documents)
    await create(found)
    return found


async def compacted(settings: KafkaSettings, documents: Sequence[Written]) -> list[Written]:
    """Those that are left, when Kafka has done its work."""
    left: set[int] = set()

    async def done() -> bool:
        left.clear()
        left.update(record.offset for record in await records(settings, Topics.of(settings).documents))
        return len(left) == KEYS + 1

    await until(done, "the documents are compacted")
    return [document for document in documents if document.offset in left]


@simulated()
async def test_documents_that_were_compacted_before_they_were_forwarded(
    cluster: Cluster, settings: KafkaSettings
) -> None:
    # Documents that replace one another, and one of a later time: it closes the segment of the others.
    kinds = ("unique", "unique", "near_duplicate", "rejected")
    found = [Written(0, i, b"k%d" % (i % KEYS), b"%d" % i, [], NOW, kinds[i % 4]) for i in range(NUMBER)]
    probe, documents = Probe("forward"), [*found, Written(0, NUMBER, b"last", b"last", [], NOW + 10_000, "unique")]
    await write_plain(settings, documents)
    await write_verdicts(settings, documents)
    cluster.clean(active=True)
    left = await compacted(settings, documents)
    async with running(ForwardStage, settings, probe):
        await until_forwarded(settings, documents)
    await check(settings, left, 1)
    assert probe.registry.ignored.labels("forward", "compacted")._value.get() == NUMBER - KEYS
