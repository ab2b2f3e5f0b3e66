"""What signing and sequencing have in common, where Kafka or aiokafka leaves them waiting."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.errors import KafkaTimeoutError
from aiokafka.producer.sender import Sender
from support.kafka.brokers import Make
from support.kafka.parts import whole
from support.kafka.stages import PATIENCE, begun, line, records, running, send, until, until_sequenced, until_signed
from support.simulation import wire
from support.simulation.api import per_topic
from support.simulation.cluster import Cluster
from support.simulation.network import GOOD, Outcome
from support.simulation.runner import simulated
from support.simulation.world import Process

from stream_lsh.kafka.client import clients
from stream_lsh.kafka.consumer import group_member
from stream_lsh.kafka.consumer.output import MOST_BYTES
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Failed, Stage, Unanswered
from stream_lsh.kafka.sequence.stage import SequenceStage
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.stage import SignStage

REQUEST_BYTES = MOST_BYTES + 2**22


@pytest.fixture
async def settings(make: Make) -> KafkaSettings:
    made = await make(partitions=2, session_timeout_ms=6000)
    await begun(made)
    return made


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka is looked after more often. Each test shortens only the limit that it is about."""
    monkeypatch.setattr(group_member, "RECENT", 1.5)


@asynccontextmanager
async def run(stage: Stage) -> AsyncIterator[asyncio.Task[None]]:
    """A single run of a stage."""
    stop = asyncio.Event()
    task = asyncio.create_task(stage.run(stop))
    try:
        yield task
    finally:
        stop.set()
        await asyncio.wait([task], timeout=PATIENCE)
        if not task.cancelled():
            task.exception()


async def for_ever(*_: Any) -> None:
    await asyncio.get_running_loop().create_future()


async def ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait_for(asyncio.shield(task), PATIENCE)


async def ends_unanswered(stage: Stage, words: str) -> None:
    async with run(stage) as task:
        with pytest.raises((Unanswered, KafkaTimeoutError), match=words):
            await ended(task)


@simulated()
async def test_copies_of_a_large_document_for_many_shards_are_no_request_too_large(
    cluster: Cluster, make: Make
) -> None:
    settings = await make(partitions=1, shards=8, max_document_bytes=16 << 20)
    topics, largest = Topics.of(settings), 0

    def look(process: Process, head: wire.Head, ask: dict[str, Any]) -> Outcome:
        nonlocal largest
        if head.name == "Produce":
            largest = max(largest, sum(len(one["messages"]) for _, one in per_topic(ask["topics"])))
        return GOOD

    chance = random.Random(1)
    text = " ".join(f"{chance.getrandbits(60):x}" for _ in range(900_000))
    large = b'{"id":"large","text":"%s"}' % text.encode()
    await begun(settings)
    await send(settings, topics.documents, (line(0), large, line(1)))
    cluster.network.fault = look
    async with running(SignStage, settings):
        await until_signed(settings, 3)
    frames = await records(settings, topics.signatures)
    async with running(SequenceStage, settings):
        await until_sequenced(settings, len(frames))
    copies = [
        list(whole((record.value for record in await records(settings, topics.frames, shard)), settings))
        for shard in range(8)
    ]
    assert max(map(len, copies[0])) * 8 > REQUEST_BYTES > largest > 7_000_000
    assert all(found == copies[0] for found in copies)


@simulated()
async def test_a_failed_reader_ends_the_run(settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = Probe("sign")

    def broken(*_: Any) -> None:
        raise OverflowError("unforeseen")

    async with run(SignStage(settings, probe)) as task:
        await until(lambda: probe.last_idle is not None, "it is idle")
        monkeypatch.setattr(Fetcher, "_get_actions_per_node", broken)
        with pytest.raises(Failed, match=r"stopped reading .*documents: OverflowError\('unforeseen'\)"):
            await ended(task)


@simulated()
async def test_a_producer_that_gets_no_number_is_not_waited_for(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sender, "_maybe_wait_for_pid", for_ever)
    monkeypatch.setattr(clients, "START_SECONDS", 1.0)
    await ends_unanswered(SignStage(settings, Probe("sign")), "no connection was ready for work within 1 s")
