"""Forward beside a compacted documents topic: what a later record with the same key has replaced is no loss."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.kafka.brokers import settings_for
from support.kafka.forward_play import NOW, OPTIONS, Written, check, until_forwarded, write_plain, write_verdicts
from support.kafka.stages import COMPACTED, make_topics, positions, records, running, until

from stream_lsh.kafka.forward.partition import SourcePartition
from stream_lsh.kafka.forward.stage import ForwardStage
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.topics import create

KEYS, NUMBER = 7, 40


@pytest.fixture
async def settings(broker: Any, prefix: str, tmp_path: Path) -> KafkaSettings:
    """Of a pipeline whose documents topic, with one partition, is compacted."""
    found = settings_for(broker, prefix, tmp_path, **{**OPTIONS, "partitions": 1})
    await make_topics(found, COMPACTED, Topics.of(found).documents)
    await create(found)
    return found


def few_keys() -> list[Written]:
    """Documents that replace one another, and one of a later time: it closes the segment of the others."""
    kinds = ("unique", "unique", "near_duplicate", "rejected")
    found = [Written(0, i, b"k%d" % (i % KEYS), b"%d" % i, [], NOW, kinds[i % 4]) for i in range(NUMBER)]
    return [*found, Written(0, NUMBER, b"last", b"last", [], NOW + 10_000, "unique")]


async def compacted(settings: KafkaSettings, documents: Sequence[Written]) -> list[Written]:
    """Those that are left, when Kafka has done its work."""
    left: set[int] = set()

    async def done() -> bool:
        left.clear()
        left.update(record.offset for record in await records(settings, Topics.of(settings).documents))
        return len(left) == KEYS + 1

    await until(done, "the documents are compacted")
    return [document for document in documents if document.offset in left]


async def test_documents_that_were_compacted_before_they_were_forwarded(settings: KafkaSettings) -> None:
    probe, documents = Probe("forward"), few_keys()
    await write_plain(settings, documents)
    await write_verdicts(settings, documents)
    left = await compacted(settings, documents)
    async with running(ForwardStage, settings, probe):
        await until_forwarded(settings, documents)
    await check(settings, left, 1)
    assert probe.registry.ignored.labels("forward", "compacted")._value.get() == NUMBER - KEYS


async def test_documents_that_were_compacted_before_they_were_signed(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forward had read them already, and waits for verdicts that will not come."""
    offered = 0
    offer = SourcePartition.offer

    def offering(self: SourcePartition, documents: Sequence[Any], verdicts: Sequence[Any]) -> None:
        nonlocal offered
        offered += len(documents)
        offer(self, documents, verdicts)

    monkeypatch.setattr(SourcePartition, "offer", offering)
    documents = few_keys()

    await write_plain(settings, documents[:-1])
    async with running(ForwardStage, settings):
        await until(lambda: offered == NUMBER, "forward has the documents")
        await write_plain(settings, documents[-1:])
        left = await compacted(settings, documents)
        await write_verdicts(settings, left)
        await until_forwarded(settings, left)
        found = await positions(settings, "forward", Topics.of(settings).verdicts)
        assert found[0] >= len(left)
    await check(settings, left, 1)
