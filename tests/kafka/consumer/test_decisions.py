"""The log of decisions: read from its first record on, shortened, and never guessed."""

import asyncio
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.structs import TopicPartition
from support.kafka.brokers import Make
from support.simulation.runner import simulated

from stream_lsh.errors import StoreError
from stream_lsh.index.resolution import States
from stream_lsh.kafka.client.connection import admin, client_options
from stream_lsh.kafka.consumer.decisions import BEHIND, DecisionLog, KnownDecisions
from stream_lsh.kafka.names import Topics, wanted
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.decisions import Decisions

SIZE = 50


def decisions(frame: int) -> Decisions:
    """On frames of 50 documents, all of which were dropped."""
    places = np.arange(frame * SIZE, frame * SIZE + SIZE)
    states = States(places, places, np.ones(SIZE, np.int64), np.full(SIZE, 0.9), np.zeros(SIZE, np.int64))
    return Decisions(frame, frame - 1, (frame + 1) * SIZE, states, np.zeros(SIZE, np.uint16), [b"1"] * SIZE)


async def write(settings: KafkaSettings, values: list[bytes]) -> None:
    async with AIOKafkaProducer(**client_options(settings)) as producer:
        for value in values:
            await producer.send_and_wait(Topics.of(settings).decisions, value, partition=0)


async def begins(settings: KafkaSettings, log: DecisionLog) -> int:
    place = TopicPartition(Topics.of(settings).decisions, 0)
    found: dict[TopicPartition, int] = await log._consumer.beginning_offsets([place])
    return found[place]


@simulated()
async def test_it_is_read_and_shortened(make: Make) -> None:
    settings = await make(shards=2, compare_with="kept", decision_lag=100, frame_documents=50, replication_factor=1)
    data = [decisions(frame).encode(settings) for frame in range(40)]
    repeats = [data[i] for i in range(30) for _ in range(1 + (i % 7 == 3))]  # some were written again
    probe = Probe("sequence")
    await write(settings, [*repeats, b"foreign", *data[28:]])
    async with DecisionLog.open(settings, probe) as log, admin(settings) as client:
        await log.read_to(39)
        assert (log.known.last, log.known.documents) == (39, 2000)
        assert [found.offset for found in log.known.since(0)] == list(range(40))
        await log.trim(client)
        assert await begins(settings, log) > 30
        with pytest.raises(StoreError, match=r"decisions on documents from number 100 on"):
            log.known.since(100)
    async with DecisionLog.open(settings, probe) as log:
        await log.read_to(35)
        place = 2000 - BEHIND * settings.decision_lag + SIZE
        known = log.known.since(place)
        assert [found.offset for found in known] == list(range(place // SIZE, 40))
        assert [found.offset for found in log.known.since(place, last=35)] == list(range(place // SIZE, 36))
        with pytest.raises(StoreError, match=r"decisions on the frame at offset 40 of signatures"):
            await log.read_to(40)


@simulated()
async def test_a_failed_reader_is_not_waited_for(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the sequencer would wait for decisions for ever."""

    def broken(*_: Any) -> None:
        raise OverflowError("unforeseen")

    settings = await make(shards=2, compare_with="kept", decision_lag=100, frame_documents=50, replication_factor=1)
    async with asyncio.timeout(60), DecisionLog.open(settings, Probe("sequence")) as log:
        await log.read()
        monkeypatch.setattr(Fetcher, "_get_actions_per_node", broken)
        with pytest.raises(Failed, match=r"stopped reading .*decisions: OverflowError\('unforeseen'\)"):
            while True:
                await log.read()


def test_the_topic_is_there_only_where_it_is_needed() -> None:
    late = KafkaSettings(shards=2)
    (spec,) = [spec for spec in wanted(late) if spec.name.endswith(".decisions")]
    assert (spec.partitions, spec.cleanup_policy, spec.retention_ms) == (1, "delete", -1)
    for settings in (KafkaSettings(), KafkaSettings(shards=2, compare_with="all")):
        assert not [spec for spec in wanted(settings) if spec.name.endswith(".decisions")]


FRAMES = (1, 2, 1, 2, 2)  # documents of the frames: blocks of two begin within them and between them
FIRST = [sum(FRAMES[:i]) for i in range(len(FRAMES) + 1)]


def decided(frame: int, names: tuple[str, ...]) -> Decisions:
    """All documents of a frame were dropped; the names say all that was known when it was decided."""
    n, places = FRAMES[frame], np.arange(FIRST[frame], FIRST[frame + 1])
    states = States(places, places, np.ones(n, np.int64), np.zeros(n), np.zeros(n, np.int64))
    return Decisions(
        frame, frame - 1, FIRST[frame + 1], states, (places % 2).astype(np.uint16), [name.encode() for name in names]
    )


def test_missing_decisions_are_noticed() -> None:
    log = KnownDecisions("decisions")
    for frame in range(2, 5):  # the first ones were deleted
        log.add(frame, decided(frame, ("x",) * FRAMES[frame]))
    assert [found.offset for found in log.since(FIRST[3])] == [3, 4]
    with pytest.raises(StoreError, match="does not have the decisions on documents from number 2 on"):
        log.since(2)


def test_what_is_trimmed_is_not_needed() -> None:
    log = KnownDecisions("decisions")
    for frame in range(len(FRAMES)):
        log.add(10 + frame, decided(frame, ("x",) * FRAMES[frame]))
        again = max(0, frame - 1)
        log.add(100, decided(again, ("x",) * FRAMES[again]))
    assert [found.offset for found in log.since(0)] == [0, 1, 2, 3, 4]
    assert log.trim(4) == 13  # documents up to the fourth are not asked for any more
    assert [found.offset for found in log.since(6)] == [4]
    with pytest.raises(StoreError):
        log.since(0)
