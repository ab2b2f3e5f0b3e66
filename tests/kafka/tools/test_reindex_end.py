"""When rebuilding is done, and when that cannot be told: brokers that do not answer, documents that were deleted."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import RecordsToDelete
from aiokafka.structs import TopicPartition
from support.kafka.brokers import settings_for
from support.kafka.proxy import Proxied
from support.kafka.stages import PATIENCE, settled

from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools import reindex
from stream_lsh.kafka.tools.reindex import Goal, _anything, follow
from stream_lsh.kafka.tools.topics import create


@pytest.fixture
def settings(broker: Any, prefix: str, tmp_path: Path) -> KafkaSettings:
    found = settings_for(broker, prefix, tmp_path, partitions=2)
    asyncio.run(create(found))
    return found


async def transaction(settings: KafkaSettings, partition: int, *values: bytes) -> None:
    """Documents, and a mark behind them."""
    topic = Topics.of(settings).documents
    options = {"bootstrap_servers": settings.bootstrap_servers, "transactional_id": settings.topic_prefix}
    async with AIOKafkaProducer(**options) as producer, producer.transaction():
        for value in values:
            await producer.send(topic, value, partition=partition)
    await settled(settings.bootstrap_servers, topic)


async def delete(settings: KafkaSettings, partition: int, before: int) -> None:
    place = TopicPartition(Topics.of(settings).documents, partition)
    async with admin(settings) as client:
        await client.delete_records({place: RecordsToDelete(before)})


def anything(settings: KafkaSettings, goal: Goal, positions: dict[int, int]) -> bool:
    return asyncio.run(_anything(settings, goal, positions, asyncio.Event()))


def test_marks_are_no_documents(settings: KafkaSettings) -> None:
    asyncio.run(transaction(settings, 0, b"a", b"b"))
    asyncio.run(transaction(settings, 1, b"c"))
    goal = Goal({0: 0, 1: 0}, {0: 3, 1: 2})
    assert not anything(settings, goal, {0: 2, 1: 1})
    assert anything(settings, goal, {0: 2, 1: 0})
    assert anything(settings, goal, {0: 1})
    assert not anything(settings, Goal({0: 0}, {0: 1}), {0: 1})


def test_no_answer_is_not_the_end(settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a partition without a leader: nothing comes, and no error."""
    asyncio.run(transaction(settings, 0, b"a", b"b"))

    async def nothing(*_: object, timeout_ms: int, **__: object) -> dict[TopicPartition, list[Any]]:
        await asyncio.sleep(timeout_ms / 1000)
        return {}

    monkeypatch.setattr(reindex, "READ_MS", 1000)
    monkeypatch.setattr(AIOKafkaConsumer, "getmany", nothing)
    assert anything(settings, Goal({0: 0}, {0: 3}), {0: 0})


def test_what_was_deleted_is_told_and_is_not_the_end(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reindex, "LOOK", 0.02)
    asyncio.run(transaction(settings, 0, b"a", b"b", b"c"))
    asyncio.run(delete(settings, 0, 2))

    async def watched() -> None:
        stop = asyncio.Event()
        watching = asyncio.create_task(follow(settings, Goal({0: 0}, {0: 4}), stop, lambda _: None))
        end = time.monotonic() + PATIENCE
        while caplog.text.count("was deleted before it was known to be done") < 2:
            assert not watching.done() and time.monotonic() < end
            await asyncio.sleep(0.05)
        stop.set()
        assert not await watching

    asyncio.run(watched())
    assert f"{settings.topic_prefix}.documents at offset 0 of partition 0 was deleted" in caplog.text


def test_looking_can_be_stopped(settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reindex, "READ_MS", 3_600_000)
    asyncio.run(transaction(settings, 0, b"a"))
    stop = asyncio.Event()

    async def look(*_: object, **__: object) -> dict[TopicPartition, list[Any]]:
        stop.set()
        return {}

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", look)
    assert asyncio.run(_anything(settings, Goal({0: 0}, {0: 100}), {0: 0}, stop))


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_it_while_nobody_answers(
    proxied: Proxied, prefix: str, tmp_path: Path, number: int
) -> None:
    proxy = proxied.proxies[0]
    asyncio.run(create(settings_for(proxied.broker, prefix, tmp_path, partitions=1)))
    words = ["reindex", "--to-prefix", f"{prefix}-2", "--topic-prefix", prefix, "--log-level", "info"]
    words += ["--bootstrap-servers", f"127.0.0.1:{proxy.port}"]

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=proxied.broker.bootstrap) as producer:
            await producer.send_and_wait(f"{prefix}.documents", b"{", partition=0)

    asyncio.run(send())
    running = subprocess.Popen(
        [sys.executable, "-m", "stream_lsh.cli", *words], stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("STREAM_LSH_")},
    )  # fmt: skip
    try:
        assert running.stderr is not None
        said = ""
        while "started sequence" not in said:
            line = running.stderr.readline()
            said += line
            assert line, said
        proxy.freeze()
        running.send_signal(number)
        while "stopping" not in said:
            line = running.stderr.readline()
            said += line
            assert line, said
        running.send_signal(number)
        said += running.stderr.read()
        assert running.wait(PATIENCE) == 128 + number, said
        assert "Traceback" not in said and "run the same command again to go on" in said
    finally:
        proxy.thaw()
        running.kill()
        running.communicate()
