"""`stream-lsh kafka drain`: nothing new is read, everything that was is finished, and who still has what is said."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from aiokafka.protocol.admin import DeleteGroupsRequest
from click.testing import CliRunner, Result
from support import commands
from support.kafka.brokers import settings_for
from support.kafka.feeding import Feed, feed_of, lines, records_of
from support.kafka.harness import Pipeline, until
from support.kafka.stages import positions
from support.simulation.runner import simulated

from stream_lsh.cli import main
from stream_lsh.kafka.client import private
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


def run(pipeline: Pipeline, *words: str) -> Result:
    config = str(pipeline.workers[0].config)
    return CliRunner().invoke(main, ["kafka", "drain", "--config", config, *words])


def verdicts(pipeline: Pipeline) -> int:
    return len(pipeline.outputs().verdicts)


def test_a_feed_is_stopped_and_goes_on(broker: Any, prefix: str, tmp_path: Path, shared_data: Path) -> None:
    values = feed_of(lines(shared_data, "posts-120k.jsonl.xz", 3000), 5)
    given: dict[str, Any] = {"partitions": 3, "session_timeout_ms": 30_000}
    with Pipeline(broker.bootstrap, prefix, tmp_path, **given) as pipeline:
        first, second = pipeline.worker(), pipeline.worker()
        pipeline.produce(records_of(values[:500], 3, 1))
        pipeline.wait_for(500)
        feed = Feed(broker.bootstrap, pipeline.topics.documents, records_of(values[500:], 3, 2), 150)
        feed.start()
        drained = run(pipeline)
        assert drained.exit_code == 0, drained.output + pipeline.report()
        number = verdicts(pipeline)
        assert 500 <= number < len(values) and f"drained: {number:,} documents read" in drained.output
        settings, topics = pipeline.settings, pipeline.topics
        signed = pipeline.run(positions(settings, "sign", topics.documents))
        assert pipeline.run(positions(settings, "forward", topics.documents)) == signed
        found = pipeline.outputs()
        kinds = [
            b'"kind":"%b"' % kind in (record.value or b"")
            for kind in (b"unique", b"rejected")
            for record in found.verdicts
        ]
        assert sum(kinds) == len(found.unique) + len(found.dead_letters)

        shown = CliRunner().invoke(main, ["kafka", "status", "--json", "--config", str(pipeline.workers[0].config)])
        assert "has not been read for" in shown.output and "drain --resume" in shown.output

        # Neither time nor another worker changes that; what the command says does not either.
        first.terminate()
        assert first.wait() == 0
        first.start()
        until(lambda: first.started)
        time.sleep(4)
        assert verdicts(pipeline) == number and pipeline.run(positions(settings, "sign", topics.documents)) == signed
        again = run(pipeline, "--quiet")
        assert again.exit_code == 0 and f"{number:,} documents read" in again.output

        resumed = run(pipeline, "--resume")
        assert resumed.exit_code == 0 and resumed.output == "the signers read again\n"
        assert "nothing to resume" in run(pipeline, "--resume").output
        feed.end()
        pipeline.finish()
        for worker in (first, second):
            worker.terminate()
            assert worker.wait() == 0, pipeline.report()
        pipeline.check()
        assert "reading nothing more of" in second.said(1 << 20) and "stream-lsh kafka drain --resume" in second.said(
            1 << 20
        )


def test_drained_pipeline_continues_without_its_groups(
    broker: Any, prefix: str, tmp_path: Path, shared_data: Path
) -> None:
    """Commands read its settings from the topic `state`."""
    values = feed_of(lines(shared_data, "posts-120k.jsonl.xz", 600), 5)
    given: dict[str, Any] = {"partitions": 2, "shards": 2, "groups": True, "compare_with": "kept"}
    with Pipeline(broker.bootstrap, prefix, tmp_path, **given) as pipeline:
        worker, settings = pipeline.worker(), pipeline.settings
        pipeline.produce(records_of(values[:300], 2, 1))
        pipeline.wait_for(300)
        connection = {"bootstrap_servers": settings.bootstrap_servers, "topic_prefix": prefix}
        options = [f"--{name.replace('_', '-')}={value}" for name, value in connection.items()]
        commands.run("kafka", "drain", *options)
        recorded = pipeline.run(with_recorded(KafkaSettings(**connection)))
        assert (recorded.shards, recorded.groups, recorded.fingerprint) == (2, True, settings.fingerprint)
        worker.terminate()
        assert worker.wait() == 0
        pipeline.run(delete_groups(settings))
        worker.start()
        assert commands.run("kafka", "drain", *options, "--resume").output == "the signers read again\n"
        pipeline.produce(records_of(values[300:], 2, 2))
        pipeline.finish()
        worker.terminate()
        assert worker.wait() == 0, pipeline.report()
        pipeline.check()


async def delete_groups(settings: KafkaSettings) -> None:
    """Delete all consumer groups of a pipeline, once they have no members."""
    async with admin(settings) as client:
        found = [name for name, _ in await client.list_consumer_groups() if name.startswith(settings.topic_prefix)]
        assert len(found) > 6
        for name in found:
            node = await client.find_coordinator(name)
            response = await private.ask(client, DeleteGroupsRequest([name]), node)
            assert [code for _, code in response.results] == [0]


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
