"""Rebuilding under a new prefix, as far as topics and positions go: against a real broker, without stages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata
from support.kafka.stages import PATIENCE, settled

from stream_lsh.errors import StoreError
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools import reindex
from stream_lsh.kafka.tools.reindex import follow, prepare, target
from stream_lsh.kafka.tools.topics import create, show
from stream_lsh.wire.envelope import pack


@pytest.fixture
def old(broker: Any, prefix: str) -> KafkaSettings:
    settings = KafkaSettings(bootstrap_servers=broker.bootstrap, topic_prefix=prefix, partitions=2)
    asyncio.run(create(settings))
    return settings


async def send(settings: KafkaSettings, topic: str, partition: int, values: list[bytes], transaction: bool) -> None:
    options = {"transactional_id": f"{topic}-{partition}"} if transaction else {}
    async with AIOKafkaProducer(bootstrap_servers=settings.bootstrap_servers, **options) as producer:
        if transaction:
            await producer.begin_transaction()
        for value in values:
            await producer.send_and_wait(topic, value, partition=partition)
        if transaction:
            await producer.commit_transaction()
    await settled(settings.bootstrap_servers, topic)


async def commit(settings: KafkaSettings, offsets: dict[int, int]) -> None:
    topics = Topics.of(settings)
    group = topics.group("forward")
    async with AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap_servers, group_id=group, enable_auto_commit=False
    ) as consumer:
        places = [TopicPartition(topics.documents, number) for number in offsets]
        consumer.assign(places)
        await consumer.commit({place: OffsetAndMetadata(offsets[place.partition], "") for place in places})


async def test_the_topics_are_made_and_the_work_is_known(old: KafkaSettings) -> None:
    new = target(old, f"{old.topic_prefix}-2", None)
    await send(old, Topics.of(old).documents, 1, [b"{}"] * 5, transaction=False)
    goal = await prepare(new)
    assert goal.begins == {0: 0, 1: 0} and goal.ends == {0: 0, 1: 5} and goal.total == 5
    states = {state.wanted.name: state for state in await show(new)}
    assert states[Topics.of(new).verdicts].partitions == 2 and states[Topics.of(new).frames].partitions == 1
    assert await prepare(new) == goal  # again, as after an interruption


async def test_it_is_done_when_everything_is_passed_on(old: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a transaction takes an offset, too: nobody ever gets there."""
    monkeypatch.setattr(reindex, "LOOK", 0.05)
    new = target(old, f"{old.topic_prefix}-2", None)
    documents = Topics.of(old).documents
    await send(old, documents, 0, [b"{}"] * 4, transaction=False)
    await send(old, documents, 1, [b"{}"] * 3, transaction=True)
    goal = await prepare(new)
    assert goal.ends == {0: 4, 1: 4}
    done: list[int] = []
    watching = asyncio.create_task(follow(new, goal, asyncio.Event(), done.append))
    while not done:
        await asyncio.sleep(0.05)
    await commit(new, {0: 4, 1: 2})
    while 6 not in done:
        await asyncio.sleep(0.05)
    await asyncio.sleep(3)
    assert not watching.done()
    await commit(new, {0: 4, 1: 3})
    assert await asyncio.wait_for(watching, PATIENCE)
    assert done[0] == 0 and done[-1] == 7


async def test_it_can_be_stopped(old: KafkaSettings) -> None:
    new = target(old, f"{old.topic_prefix}-2", None)
    await send(old, Topics.of(old).documents, 0, [b"{}"], transaction=False)
    stop = asyncio.Event()
    assert not await follow(new, await prepare(new), stop, lambda done: stop.set())


async def test_other_work_under_the_prefix_is_refused(old: KafkaSettings) -> None:
    new = target(old, f"{old.topic_prefix}-2", None)
    await prepare(new)
    await send(new, Topics.of(new).signatures, 0, [pack(b"F", 2, new.fingerprint, [b""] * 15)], transaction=False)
    await prepare(new)
    other = KafkaSettings.model_validate(
        {name: getattr(new, name) for name in KafkaSettings.model_fields} | {"threshold": 0.5}
    )
    with pytest.raises(StoreError, match=r"is in use.*Give another --to-prefix"):
        await prepare(other)


def test_without_documents(broker: Any, prefix: str) -> None:
    settings = KafkaSettings(bootstrap_servers=broker.bootstrap, topic_prefix=prefix)
    with pytest.raises(StoreError, match=f"no topic {prefix}.documents"):
        asyncio.run(prepare(target(settings, f"{prefix}-2", None)))
