"""`stream-lsh kafka skip`: it shows what it is about, refuses what it is not for, and changes nothing without --yes."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from click.testing import CliRunner, Result
from support import commands
from support.kafka.brokers import settings_for
from support.kafka.oracle import order
from support.kafka.sequence_play import frame
from support.kafka.stages import begun, commit, records, running, until_sequenced
from support.simulation.runner import simulated

from stream_lsh.cli import main
from stream_lsh.errors import FormatError
from stream_lsh.kafka.client.connection import admin, client_options
from stream_lsh.kafka.consumer.unreadable import named
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.sequence.order import Accepted
from stream_lsh.kafka.sequence.stage import SequenceStage
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.topics import create
from stream_lsh.wire.frames import CONTINUES, STARTS

Run = Callable[..., Result]


@pytest.fixture
def settings(broker: Any, prefix: str, tmp_path: Path) -> KafkaSettings:
    """A log of four frames: two of these settings, one of others, and what is none."""
    made = settings_for(broker, prefix, tmp_path, partitions=1, session_timeout_ms=6000)
    other = KafkaSettings(threshold=0.7)
    log = [
        frame(made, (0, 0, 1, STARTS)), frame(other, (0, 1, 2, CONTINUES)), b"hello",
        frame(made, (0, 1, 2, CONTINUES)), frame(other, (0, 2, 3, CONTINUES)),
    ]  # fmt: skip

    async def write() -> None:
        await create(made)
        await begun(made)
        async with AIOKafkaProducer(**client_options(made)) as producer:
            for value in log:
                await producer.send_and_wait(Topics.of(made).signatures, value, partition=0)

    asyncio.run(write())
    return made


@pytest.fixture
def run(settings: KafkaSettings) -> Run:
    def skip(*words: object) -> Result:
        given = ["kafka", "skip", *map(str, words), "--topic-prefix", settings.topic_prefix]
        return CliRunner().invoke(main, [*given, "--bootstrap-servers", settings.bootstrap_servers])

    return skip


async def offsets(settings: KafkaSettings) -> list[int]:
    async with admin(settings) as client:
        return await named(client, settings, Topics.of(settings).signatures, 0)


@simulated()
def test_a_record_that_stops_its_reader(settings: KafkaSettings, run: Run) -> None:
    topics, probe = Topics.of(settings), Probe("sequence")

    async def sequenced() -> None:
        async with running(SequenceStage, settings, probe) as task:
            waiting = asyncio.ensure_future(until_sequenced(settings, 5))
            await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()

    with pytest.raises(FormatError, match=r"offset 1: .*stream-lsh kafka skip signatures 0 1"):
        asyncio.run(sequenced())
    assert [found.offset for found, _ in order(settings, asyncio.run(records(settings, topics.frames)))] == [0]
    found = run("signatures", 0, 1)
    assert found.exit_code == 2 and "nothing was changed; give --yes" in found.output
    assert f"{topics.signatures}, partition 0, offset 1: " in found.output
    assert "cannot be read: a frame was made with other settings" in found.output
    assert "lost without it: its documents, unless other frames have them." in found.output
    assert asyncio.run(offsets(settings)) == []
    assert run("signatures", 0, 1, "--yes").exit_code == 0
    assert asyncio.run(offsets(settings)) == [1]
    with pytest.raises(FormatError, match=r"offset 4: .*stream-lsh kafka skip signatures 0 4"):
        asyncio.run(sequenced())
    assert run("signatures", 0, 4, "--yes").exit_code == 0
    asyncio.run(sequenced())
    copies = asyncio.run(records(settings, topics.frames))
    assert [sequenced.offset for sequenced, _ in order(settings, copies)] == [0, 3]
    ignored = probe.registry.ignored
    assert ignored.labels("sequence", "skipped")._value.get() >= 2
    assert ignored.labels("sequence", "foreign")._value.get() >= 1


@simulated()
def test_offsets_behind_the_reader_are_forgotten(settings: KafkaSettings, run: Run) -> None:
    topics = Topics.of(settings)
    assert run("signatures", 0, 4, "--yes").exit_code == 0
    assert run("signatures", 0, 1, "--yes").exit_code == 0
    assert asyncio.run(offsets(settings)) == [1, 4]
    asyncio.run(commit(settings, "sequence", topics.signatures, 2, Accepted(bytes(16)).metadata()))
    assert run("signatures", 0, 4, "--yes").exit_code == 0
    assert asyncio.run(offsets(settings)) == [4]


@simulated()
def test_what_it_refuses(settings: KafkaSettings, run: Run) -> None:
    topics = Topics.of(settings)
    for words, says in (
        (("signatures", 0, 0), "can be read with these settings"),
        (("signatures", 0, 2), "needs no skip"),
        (("signatures", 0, 5), "offset 5 has no record"),
        (("signatures", 1, 0), "has no partition 1"),
    ):
        found = run(*words, "--yes")
        assert found.exit_code == 3 and says in found.output, found.output
    asyncio.run(commit(settings, "sequence", topics.signatures, 2, Accepted(bytes(16)).metadata()))
    found = run("signatures", 0, 1, "--yes")
    assert found.exit_code == 3 and "was passed by sequence, which continues at 2" in found.output
    found = run("changelog", 0, 1, "--yes")
    assert found.exit_code == 2 and "signatures" in found.output
    words = ["frames", "0", "1", "--topic-prefix", "nobody", "--bootstrap-servers", settings.bootstrap_servers]
    assert "does not have the topic nobody.frames" in commands.run("kafka", "skip", *words, code=3).output
    assert asyncio.run(offsets(settings)) == []
