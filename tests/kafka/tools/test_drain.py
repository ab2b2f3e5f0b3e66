"""`stream-lsh kafka drain`, `skip` and `status`: what an operator sees and does, with workers that run or not."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from click.testing import CliRunner, Result
from support import commands
from support.kafka import plain
from support.kafka.brokers import settings_for
from support.kafka.oracle import order
from support.kafka.sequence_play import frame
from support.kafka.stages import begun, commit, line, positions, produce, records, running, until_sequenced
from support.listening import Quiet, listening
from support.simulation.cluster import Cluster
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.cli import main
from stream_lsh.errors import FormatError
from stream_lsh.kafka.client.connection import admin, client_options
from stream_lsh.kafka.consumer.state import encode_settings, recorded, with_recorded, write
from stream_lsh.kafka.consumer.unreadable import SKIPPED, named
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.sequence.order import Accepted
from stream_lsh.kafka.sequence.stage import SequenceStage
from stream_lsh.kafka.settings import ROLES, KafkaSettings
from stream_lsh.kafka.sign.position import PAUSE, Last, Note, Pause, pause_of
from stream_lsh.kafka.tools import status
from stream_lsh.kafka.tools.drain import BY, Standing, mark
from stream_lsh.kafka.tools.observer import LOOKED_AT
from stream_lsh.kafka.tools.topics import create
from stream_lsh.kafka.tools.workers import ask
from stream_lsh.wire.frames import CONTINUES, STARTS

KEY = bytes(16)


def test_recorded_settings_go_together() -> None:
    given = KafkaSettings(shards=3, compare_with="kept", decision_lag=400, frame_documents=100)
    recorded = orjson.loads(encode_settings(given))["settings"]
    assert KafkaSettings().where_not_given(**recorded).fingerprint == given.fingerprint


def test_which_role_has_work_left() -> None:
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
    assert Note.of(note.metadata(), "group") == note
    assert "paused" not in Note("f", "json", "murmur2").metadata()
    assert not Pause() and Pause("another tool", 5)


@simulated()
def test_a_feed_is_stopped_and_continues(world: World, cluster: Cluster) -> None:
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
    pause = Pause(BY, 7)  # of a drain that was killed while it marked
    asyncio.run(write(settings, PAUSE, {TopicPartition(topics.documents, 0): (0, pause.metadata())}))
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
    return named(await recorded(settings, SKIPPED), Topics.of(settings).signatures, 0)


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
    assert "lost without it: nothing; the signers sign its documents again" in found.output
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
    words = ["frames", "0", "1", "--topic-prefix", "nowhere", "--bootstrap-servers", settings.bootstrap_servers]
    assert "does not have the topic nowhere.frames" in commands.run("kafka", "skip", *words, code=3).output
    assert asyncio.run(offsets(settings)) == []


DAY = 86_400.0


def status_of(settings: KafkaSettings, *more: str) -> Result:
    names = ("bootstrap_servers", "topic_prefix", "shards", "compare_with", "text_field")
    values = {name: getattr(settings, name) for name in names}
    given = [
        word
        for name, value in values.items()
        for part in (value if isinstance(value, tuple) else (value,))
        for word in (f"--{name.replace('_', '-')}", str(part))
    ]
    return CliRunner().invoke(main, ["kafka", "status", *given, *more])


def reported(settings: KafkaSettings, *more: str) -> dict[str, Any]:
    found = status_of(settings, "--json", *more)
    assert found.exit_code == 0, found.output
    got: dict[str, Any] = json.loads(found.stdout)
    return got


def alerts(found: dict[str, Any]) -> list[str]:
    return [trouble["alert"] for trouble in found["troubles"]]


def role(found: dict[str, Any], name: str) -> dict[str, Any]:
    (got,) = [role for role in found["roles"] if role["name"] == name]
    return dict(got)


def documents(numbers: range) -> list[bytes]:
    return [line(number).replace(b'"text"', b'"title":"","text"') for number in numbers]


@simulated()
def test_a_pipeline_from_before_its_start_to_after_its_end(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(world, cluster, shards=2, compare_with="all", partitions=2, text_field=("title", "text"))
    settings = pipeline.settings

    def reached(what: Callable[[], object]) -> None:
        end = world.seconds + 200
        while not what():
            assert world.seconds < end
            asyncio.run(asyncio.sleep(1))

    # No worker has run, but documents have come.
    asyncio.run(pipeline.create_topics())
    asyncio.run(produce(settings, documents(range(31)), 2))
    found = reported(settings)
    assert alerts(found) == ["StreamLshNoWorker"] * len(ROLES)
    assert found["provisional"] == 31 and found["under_way"] == found["with_verdict"] == 0 and found["workers"] is None
    assert role(found, "sign")["waiting"] == 31 and role(found, "sign")["seconds"] < 300
    assert [shard["owner"] for shard in found["shards"]] == [None, None]

    # Signed and sequenced, not matched.
    first = pipeline.start("sign", "sequence")
    reached(lambda: role(reported(settings), "match")["waiting"] == 31)
    found = reported(settings)
    assert len(role(found, "sign")["working"]) == 1
    assert role(found, "match") == {
        "name": "match", "working": [], "standing_by": [], "waiting": 31, "unit": "document",
        "seconds": role(found, "match")["seconds"], "left": role(found, "match")["left"],
    }  # fmt: skip
    assert 6.9 * DAY < role(found, "match")["left"][0] < 7 * DAY
    assert [role(found, name)["waiting"] for name in ("sign", "sequence", "judge", "forward")] == [0, 0, 0, 0]
    assert (found["provisional"], found["under_way"]) == (31, 31)
    with monkeypatch.context() as patched:
        patched.setattr(status, "WAITED", 0.0)
        waits = reported(settings)["waits"]
        assert waits["shards"] == [0, 1]
        assert f"; waiting for shards 0, 1: frame {waits['frame']}\n" in status_of(settings).stdout

    # With other settings than the workers': what can be told is.
    other = reported(settings.model_copy(update={"text_field": ("text",)}))
    assert role(other, "match")["unit"] == "frame" and "with other settings" in other["unread"]

    # All of it done.
    second = pipeline.start("match", "judge", "forward")
    asyncio.run(pipeline.finish([first, second], 300))
    reached(lambda: not alerts(reported(settings)))
    found = reported(settings)
    assert (found["provisional"], found["under_way"], found["with_verdict"], found["waits"]) == (0, 0, 31, None)
    assert [role(found, name)["waiting"] for name in ROLES] == [0] * 5
    assert all(shard["owner"] for shard in found["shards"])
    text = status_of(settings).stdout
    assert "\nNothing is wrong.\n" in text and "with a verdict     31" in text

    # Killed.
    first.process.kill()
    second.process.kill()
    asyncio.run(produce(settings, documents(range(40, 71)), 2))
    reached(lambda: alerts(reported(settings)).count("StreamLshNoWorker") == len(ROLES))
    found = reported(settings)
    assert found["provisional"] == 31 and role(found, "sign")["waiting"] == 31
    said = status_of(settings).stdout
    assert said.index("CRITICAL") < said.index("without a verdict")


@simulated()
def test_topics_that_are_missing(broker: Any, prefix: str, tmp_path: Path) -> None:
    settings = settings_for(broker, prefix, tmp_path)
    found = status_of(settings)
    assert found.exit_code == 6
    names = sorted(getattr(Topics.of(settings), name) for name in LOOKED_AT)
    assert f"does not have the topics {', '.join(names)}. `stream-lsh kafka topics create`" in found.output


def test_processes_behind_one_that_is_silent() -> None:
    """A process that compiles does not listen yet; those that do name each other."""
    metrics = ('stream_lsh_build_info{version="9.9"} 1', 'stream_lsh_index_bytes{role="match",shard="3"} 7', "")
    body = {"/health": b'{"live": true, "roles": {}, "ports": []}', "/metrics": "\n".join(metrics).encode()}

    class Answers(Quiet):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(BrokenPipeError):
                self.wfile.write(body[self.path])

    with listening(Answers) as url:
        silent, behind = ask([("127.0.0.1", int(url.rpartition(":")[2]) - 1)])
    assert silent.error is not None and "no answer" in silent.error
    assert (behind.version, behind.shards, behind.error) == ("9.9", {3: {"bytes": 7}}, None)
