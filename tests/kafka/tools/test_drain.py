"""`stream-lsh kafka drain`: nothing new is read, everything that was is finished, and who still has what is said."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from click.testing import CliRunner
from support import commands
from support.kafka import plain
from support.kafka.brokers import settings_for
from support.kafka.stages import positions
from support.simulation.cluster import Cluster
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.cli import main
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.consumer.state import encode_settings, with_recorded
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.sequence.order import Accepted
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.position import Last, Note, Pause, pause_of
from stream_lsh.kafka.tools.drain import Standing, mark
from stream_lsh.kafka.tools.topics import create

KEY = bytes(16)


def test_recorded_settings_go_together() -> None:
    given = KafkaSettings(shards=3, compare_with="kept", decision_lag=400, frame_documents=100)
    recorded = orjson.loads(encode_settings(given))["settings"]
    assert KafkaSettings().where_not_given(**recorded).fingerprint == given.fingerprint


def test_who_still_has_what() -> None:
    assert Standing().left() == []
    accepted = Accepted(KEY, {0: 10, 1: 20}, 7, 30)
    done = Standing((), {0: 10, 1: 20}, (8, 8), accepted, {0: (5, 5), 1: (5, 5)}, 7, 30, {0: (12, 12)})
    assert done.left() == [] and done.documents == 30
    standing = Standing((2, 1), {0: 11}, (6, 8), accepted, {0: (5, 5), 1: (4, 5)}, 6, 12, {0: (3, 12), 1: (2, 2)})
    assert standing.left() == [
        "sign may still read partition 1, 2: its signer has not confirmed the pause yet",
        "sequence has 2 frames to read",
        "match has 1 frame of shard 1 to answer",
        "judge has 18 documents without a verdict, after frame 6",
        "forward has verdicts of partition 0 from offset 3 to 12",
    ]
    # What was signed and never came to the sequencer is under way, too.
    lost = Standing((), {0: 11, 1: 20, 2: 3}, (8, 8), accepted, {}, 7)
    assert lost.left() == ["sequence has not read all signed documents of partition 0, 2"]
    assert replace(done, folded=7).left() == replace(done, kept=8).left() == []
    assert replace(done, kept=7).left() == ["sequence has not written its checkpoint yet"]
    assert replace(done, folded=5).left() == ["group has frames to fold, after frame 5"]
    assert Standing(accepted=accepted).left() == ["judge has 30 documents without a verdict, after frame -1"]


def test_a_pause_beside_a_position() -> None:
    note = Note("f", "json", "murmur2", Last(1, 2, 3), paused=1234)
    assert Note.of(note.text(), "group") == note
    assert "paused" not in Note("f", "json", "murmur2").text()
    assert not Pause() and Pause("somebody", 5)


@simulated()
def test_a_feed_is_stopped_and_goes_on(world: World, cluster: Cluster) -> None:
    pipeline = Pipeline(world, cluster, **plain.SURE, partitions=3, shards=2, decision_lag=32, frame_documents=8)
    settings, topics = pipeline.settings, pipeline.topics

    def said(*words: str) -> str:
        of = ["--bootstrap-servers", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix]
        return commands.run("kafka", *words, *of).output

    def verdicts() -> int:
        return len(pipeline.records("verdicts"))

    asyncio.run(pipeline.create_topics())
    first, second = pipeline.start(), pipeline.start()
    history, producer = plain.history(200, 3, world.seed), world.process("producer")
    feeding = producer.start(pipeline.feed(history, 5))
    asyncio.run(asyncio.sleep(10))
    drained, number = said("drain"), verdicts()
    assert 10 < number < len(history) and f"drained: {number:,} documents read" in drained
    signed = asyncio.run(positions(settings, "sign", topics.documents))
    assert asyncio.run(positions(settings, "forward", topics.documents)) == signed
    connection = {"bootstrap_servers": settings.bootstrap_servers, "topic_prefix": settings.topic_prefix}
    recorded = asyncio.run(with_recorded(KafkaSettings(**connection)))
    assert (recorded.shards, recorded.fingerprint) == (2, settings.fingerprint)
    # Neither time nor another worker changes that; what the command says does not either.
    first.stop()
    asyncio.run(done(first.ended))
    first = pipeline.start(folder=first.folder)
    asyncio.run(asyncio.sleep(80))
    assert verdicts() == number and asyncio.run(positions(settings, "sign", topics.documents)) == signed
    shown = said("status", "--json")
    assert "has not been read for" in shown and "drain --resume" in shown
    assert f"{number:,} documents read" in said("drain", "--quiet")
    assert said("drain", "--resume") == "the signers read again\n"
    assert "nothing to resume" in said("drain", "--resume")
    asyncio.run(done(feeding))
    asyncio.run(pipeline.finish([first, second], 300))
    pipeline.check()
    assert any("reading nothing more of" in line and "drain --resume" in line for line in world.warnings)


async def done(work: Awaitable[None]) -> None:
    await work


@simulated()
def test_a_pause_for_something_else(broker: Any, prefix: str, tmp_path: Path) -> None:
    settings = settings_for(broker, prefix, tmp_path, partitions=1)
    asyncio.run(create(settings))

    async def pause() -> None:
        async with admin(settings) as client:
            await mark(client, settings, Pause("stream-lsh kafka reindex", 7))

    asyncio.run(pause())
    words = ["kafka", "drain", "--topic-prefix", prefix, "--bootstrap-servers", settings.bootstrap_servers]
    for more in ([], ["--resume"]):
        assert "pause for stream-lsh kafka reindex: finish that" in commands.run(*words, *more, code=3).output

    async def found() -> Pause:
        async with admin(settings) as client:
            return await pause_of(client, Topics.of(settings))

    assert asyncio.run(found()) == Pause("stream-lsh kafka reindex", 7)


@simulated()
def test_it_needs_the_topics(broker: Any, prefix: str) -> None:
    result = CliRunner().invoke(
        main, ["kafka", "drain", "--topic-prefix", prefix, "--bootstrap-servers", broker.bootstrap]
    )
    assert result.exit_code == 6 and "stream-lsh kafka topics create" in result.output
