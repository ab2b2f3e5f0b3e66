"""Rebuilding under a new prefix, as far as topics and positions go: against a real broker, without stages."""

import asyncio
from typing import Any

import pytest
from support.kafka.stages import PATIENCE, commit, send, transaction

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


async def test_the_topics_are_made_and_the_work_is_known(old: KafkaSettings) -> None:
    new = target(old, f"{old.topic_prefix}-2", None)
    await send(old, Topics.of(old).documents, [b"{}"] * 5, partition=1)
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
    await send(old, documents, [b"{}"] * 4)
    await transaction(old, documents, 1, *[b"{}"] * 3)
    goal = await prepare(new)
    assert goal.ends == {0: 4, 1: 4}
    done: list[int] = []
    watching = asyncio.create_task(follow(new, goal, asyncio.Event(), done.append))
    while not done:
        await asyncio.sleep(0.05)
    await commit(new, "forward", documents, 4)
    await commit(new, "forward", documents, 2, partition=1)
    while 6 not in done:
        await asyncio.sleep(0.05)
    await asyncio.sleep(3)
    assert not watching.done()
    await commit(new, "forward", documents, 3, partition=1)
    assert await asyncio.wait_for(watching, PATIENCE)
    assert done[0] == 0 and done[-1] == 7


async def test_it_can_be_stopped(old: KafkaSettings) -> None:
    new = target(old, f"{old.topic_prefix}-2", None)
    await send(old, Topics.of(old).documents, [b"{}"])
    stop = asyncio.Event()
    assert not await follow(new, await prepare(new), stop, lambda done: stop.set())


async def test_other_work_under_the_prefix_is_refused(old: KafkaSettings) -> None:
    new = target(old, f"{old.topic_prefix}-2", None)
    await prepare(new)
    await send(new, Topics.of(new).signatures, [pack(b"F", 2, new.fingerprint, [b""] * 15)])
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
