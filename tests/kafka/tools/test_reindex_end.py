"""When rebuilding is done, and when that cannot be told: brokers that do not answer, documents that were deleted."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition
from support.kafka.brokers import Make, settings_for
from support.kafka.proxy import Proxied
from support.kafka.stages import PATIENCE, delete_before, send, transaction, until

from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools import reindex
from stream_lsh.kafka.tools.reindex import Goal, _anything, follow
from stream_lsh.kafka.tools.topics import create


@pytest.fixture
async def settings(make: Make) -> KafkaSettings:
    return await make(partitions=2)


async def anything(settings: KafkaSettings, goal: Goal, positions: dict[int, int]) -> bool:
    return await _anything(settings, goal, positions, asyncio.Event())


async def test_marks_are_no_documents(settings: KafkaSettings) -> None:
    await transaction(settings, Topics.of(settings).documents, 0, b"a", b"b")
    await transaction(settings, Topics.of(settings).documents, 1, b"c")
    goal = Goal({0: 0, 1: 0}, {0: 3, 1: 2})
    assert not await anything(settings, goal, {0: 2, 1: 1})
    assert await anything(settings, goal, {0: 2, 1: 0})
    assert await anything(settings, goal, {0: 1})
    assert not await anything(settings, Goal({0: 0}, {0: 1}), {0: 1})


async def test_no_answer_is_not_the_end(settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a partition without a leader: nothing comes, and no error."""
    await transaction(settings, Topics.of(settings).documents, 0, b"a", b"b")

    async def nothing(*_: object, timeout_ms: int, **__: object) -> dict[TopicPartition, list[Any]]:
        await asyncio.sleep(timeout_ms / 1000)
        return {}

    monkeypatch.setattr(reindex, "READ_MS", 1000)
    monkeypatch.setattr(AIOKafkaConsumer, "getmany", nothing)
    assert await anything(settings, Goal({0: 0}, {0: 3}), {0: 0})


async def test_deleted_documents_are_reported_and_are_not_the_end(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reindex, "LOOK", 0.02)
    await transaction(settings, Topics.of(settings).documents, 0, b"a", b"b", b"c")
    await delete_before(settings, Topics.of(settings).documents, 2)

    stop = asyncio.Event()
    watching = asyncio.create_task(follow(settings, Goal({0: 0}, {0: 4}), stop, lambda _: None))
    reported = "were deleted before they were known to be done"
    await until(lambda: watching.done() or caplog.text.count(reported) > 1, "it is told twice")
    assert not watching.done()
    stop.set()
    assert not await watching
    assert f"{settings.topic_prefix}.documents at offset 0 of partition 0 were deleted" in caplog.text


async def test_looking_can_be_stopped(settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reindex, "READ_MS", 3_600_000)
    await transaction(settings, Topics.of(settings).documents, 0, b"a")
    stop = asyncio.Event()

    async def look(*_: object, **__: object) -> dict[TopicPartition, list[Any]]:
        stop.set()
        return {}

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", look)
    assert await _anything(settings, Goal({0: 0}, {0: 100}), {0: 0}, stop)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_signal_ends_it_without_an_answer(
    proxied: Proxied, prefix: str, tmp_path: Path, number: int
) -> None:
    proxy = proxied.proxies[0]
    settings = settings_for(proxied.broker, prefix, tmp_path, partitions=1)
    await create(settings)
    words = ["kafka", "reindex", "--to-prefix", f"{prefix}-2", "--topic-prefix", prefix, "--log-level", "info"]
    words += ["--bootstrap-servers", f"127.0.0.1:{proxy.port}"]

    await send(settings, f"{prefix}.documents", [b"{"])
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
