"""Forward, where documents, verdicts or positions are gone: a loss is said, and what was compacted is none."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.kafka.brokers import Make, settings_for
from support.kafka.forward_play import (
    NOW,
    OPTIONS,
    Written,
    check,
    until_forwarded,
    verdict,
    write_plain,
    write_verdicts,
)
from support.kafka.stages import (
    COMPACTED,
    commit,
    delete_before,
    ended,
    make_topics,
    records,
    running,
    send,
    until,
)
from support.simulation.cluster import Cluster
from support.simulation.runner import simulated

from stream_lsh.errors import StoreError
from stream_lsh.kafka.forward.stage import ForwardStage
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.topics import create


@pytest.fixture
def make(make: Make) -> Make:
    return partial(make, **OPTIONS)


def plain_documents(number: int) -> list[Written]:
    return [Written(0, i, b"k", b"%d" % i, [], NOW, "unique") for i in range(number)]


async def write_bare_verdicts(settings: KafkaSettings, documents: list[Written]) -> None:
    """Without markers of transactions between them: offsets are counted here."""
    await send(settings, Topics.of(settings).verdicts, [verdict(settings, document) for document in documents])


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
