"""`stream-lsh kafka reindex --from-changelog` with all stages, killed and run again, after the documents are gone."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from support.kafka.brokers import settings_for
from support.kafka.feeding import feed_of, lines, records_of
from support.kafka.harness import PATIENCE, Pipeline, until
from support.kafka.oracle import Outputs, json_of, strip
from support.kafka.stages import KEY, commit, delete_before, send, until_committed
from support.long_form import rotating
from support.simulation.runner import simulated

from stream_lsh.errors import StoreError, UsageError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.client.reading import reading
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.sequence.order import sequenced
from stream_lsh.kafka.settings import ROLES
from stream_lsh.kafka.sign.position import Pause, pause_of
from stream_lsh.kafka.tools.from_changelog import Chains, look
from stream_lsh.kafka.tools.reindex import target
from stream_lsh.kafka.tools.topics import create
from stream_lsh.wire.changes import Change

BEFORE, AFTER = 1200, 500
GIVEN: dict[str, Any] = {
    "partitions": 3, "frame_documents": 25, "segment_documents": 400, "decision_lag": 200,
    "session_timeout_ms": 6000,
}  # fmt: skip


async def empty(pipeline: Pipeline) -> None:
    """Delete all documents."""
    for partition in range(3):
        await delete_before(pipeline.settings, pipeline.topics.documents, -1, partition)


async def end_of(pipeline: Pipeline, topic: str) -> int:
    async with AIOKafkaConsumer(bootstrap_servers=pipeline.settings.bootstrap_servers) as consumer:
        place = TopicPartition(topic, 0)
        return int((await consumer.end_offsets([place]))[place])


def start(config: Path, folder: Path, *words: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAM_LSH_")}
    return subprocess.Popen(
        [sys.executable, "-m", "stream_lsh.cli", "kafka", "reindex", "--config", str(config), *words],
        stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True, env=environment,
    )  # fmt: skip


def check(found: Outputs, pipeline: Pipeline, before: set[tuple[int, int]]) -> None:
    """Verdicts are those of the embedded engine, but that what came again before (`before`) is rejected."""
    expected = pipeline.oracle(found.documents)
    theirs = dict(zip(expected.kinds, expected.verdicts, strict=True))
    ours = {
        (verdict["source"]["partition"], verdict["source"]["offset"]): (strip(record.value or b""), verdict)
        for record in found.verdicts
        for verdict in [json_of(record.value)]
    }
    assert len(ours) == len(found.verdicts) and ours.keys() == theirs.keys()
    assert ours.keys() == {record.source for record in found.documents}
    again = {source for source in before if expected.kinds[source] == "redelivered"}
    assert 5 < len(again) < len(before) / 10
    for source, (line, verdict) in ours.items():
        if source in again:
            assert (verdict["kind"], verdict["reason"]) == ("rejected", "redelivered")
        else:
            assert line == theirs[source].rstrip(b"\n"), source
    traced = {record.source: record.headers for record in found.documents if record.headers}
    names = [[name for name, _ in record.headers] for record in found.verdicts]
    own = ["kind", "schema-version"]
    assert names.count(["traceparent", *own]) > 50 and all(found in (own, ["traceparent", *own]) for found in names)
    assert traced
    for kind, name in (("unique", found.unique), ("rejected", found.dead_letters)):
        wanted = sum(expected.kinds[source] == kind for source in ours.keys() - before)
        assert len(name) == wanted


@pytest.mark.first
@pytest.mark.parametrize(
    ("compare_with", "before", "after"), rotating([("all", 2, 3), ("kept", 2, 1), ("kept", 1, 2)], 1)
)
def test_another_number_of_shards_without_the_documents(
    broker: Any, prefix: str, tmp_path: Path, shared_data: Path, compare_with: str, before: int, after: int
) -> None:  # fmt: skip
    feed = feed_of(lines(shared_data, "posts-120k.jsonl.xz", BEFORE + AFTER), 5)
    first, more = feed[: -AFTER - 50], feed[-AFTER - 50 :]
    with Pipeline(broker.bootstrap, prefix, tmp_path, shards=before, compare_with=compare_with, **GIVEN) as old:
        worker = old.worker()
        old.produce(records_of(first, 3, 1))
        old.finish()
        old.stop(worker)
        documents = old.read("documents")["documents"]
        assert len(documents) == len(first)
        old.run(empty(old))
        assert not old.read("documents")["documents"]

        given = {**GIVEN, "shards": after, "compare_with": compare_with, "documents_topic": old.topics.documents}
        new = Pipeline(broker.bootstrap, f"{prefix}-2", tmp_path / "new", **given)
        new.folder.mkdir()
        words = ["--to-prefix", f"{prefix}-2", "--from-changelog", "--shards", str(after)]
        for frames in (3, 20):
            run = start(worker.config, tmp_path, *words)
            until(lambda: run.poll() is not None or old.run(_signed(new)) >= frames)  # noqa: B023
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
            else:
                assert run.returncode == 0, run.communicate()
            assert run.stderr is not None
            run.stderr.close()
            assert old.run(_paused(new)) or run.returncode == 0
        run = start(worker.config, tmp_path, *words)
        _, said = run.communicate(timeout=PATIENCE)
        assert run.returncode == 0 and f"{len(first):,} documents judged" in said, said
        assert f"stream-lsh kafka worker --topic-prefix {prefix}-2" in said and f"--shards {after}" in said
        assert not old.run(_paused(new))
        assert old.run(_key(new)) == old.run(_key(old))

        with new:
            begun = new.worker(ROLES, data_folder=tmp_path / f"worker-0-data-{prefix}-2")
            new.produce(records_of(more, 3, 2))
            new.wait_for(len(feed))
            new.run(_forwarded(new))
            new.stop(begun)
            found = new.outputs()
            found.documents[:0] = documents
            check(found, new, {record.source for record in documents})


async def _signed(pipeline: Pipeline) -> int:
    async with admin(pipeline.settings) as client:
        if pipeline.topics.signatures not in await client.list_topics():
            return 0
    return await end_of(pipeline, pipeline.topics.signatures)


async def _key(pipeline: Pipeline) -> bytes:
    async with admin(pipeline.settings) as client:
        found = await sequenced(client, pipeline.topics)
    assert found is not None
    return found[1].key


async def _paused(pipeline: Pipeline) -> Pause:
    async with admin(pipeline.settings) as client:
        return await pause_of(client, Topics.of(pipeline.settings))


async def _forwarded(pipeline: Pipeline) -> None:
    """Wait until all documents are forwarded."""
    topic = pipeline.topics.documents
    consumer = await pipeline.consumer([topic])
    ends = {place.partition: end for place, end in (await consumer.end_offsets(consumer.assignment())).items()}
    await consumer.stop()
    await until_committed(
        pipeline.settings, "forward", topic,
        lambda found: all(found.get(partition, 0) >= end for partition, end in ends.items()),
    )  # fmt: skip


@simulated()
async def test_what_cannot_be_rebuilt(broker: Any, prefix: str, tmp_path: Path) -> None:
    old = settings_for(broker, prefix, tmp_path, partitions=1, shards=2)
    topics = Topics.of(old)

    async def refused(settings: Any = old) -> Any:
        return await look(settings, target(settings, f"{prefix}-2"))

    with pytest.raises(StoreError, match=f"no topic {topics.changelog}; --topic-prefix names"):
        await refused()
    await create(old)
    with pytest.raises(UsageError, match="verify = exact"):
        await refused(settings_for(broker, prefix, tmp_path, verify="signature"))
    with pytest.raises(UsageError, match="does not support indexes with a window"):
        await refused(settings_for(broker, prefix, tmp_path, window="1d", time_field="ts"))
    with pytest.raises(StoreError, match="is empty: there is nothing to rebuild"):
        await refused()
    await send(old, topics.changelog, [b"a", b"b"])
    await create(target(old, f"{prefix}-2"))
    await commit(target(old, f"{prefix}-2"), "sequence", f"{prefix}-2.signatures", 0, "by somebody")
    with pytest.raises(StoreError, match=f"the prefix {prefix}-2 is in use, or was rebuilt already"):
        await refused()
    await delete_before(old, topics.changelog, 1)
    with pytest.raises(StoreError, match="shard 0 begins at offset 1: it was trimmed"):
        await refused()


@simulated()
async def test_the_chain_rule_decides_what_counts(broker: Any, prefix: str, tmp_path: Path) -> None:
    """Repeats, what came too early, and what is no change at all; and two shards that do not belong together."""
    old = settings_for(broker, prefix, tmp_path, partitions=1, shards=2)
    topic = Topics.of(old).changelog

    def change(shard: int, offset: int, predecessor: int) -> bytes:
        return Change(shard, offset, predecessor, 0, 0, KEY, {}, b"").encode(old)

    await create(old)
    async with AIOKafkaProducer(bootstrap_servers=old.bootstrap_servers) as producer:
        chains = [
            [change(0, 2, -1), change(0, 9, 5), b"hello", change(0, 2, -1), change(0, 5, 2), change(0, 9, 5)],
            [change(1, 2, -1), change(1, 5, 2), change(1, 8, 5), change(1, 10, 8)],
        ]
        for shard, values in enumerate(chains):
            for value in values:
                await producer.send_and_wait(topic, value, partition=shard)
    stop = asyncio.Event()
    async with reading(old) as consumer:
        found = Chains(consumer, old, {0: 6, 1: 3})
        assert [change.offset for change in await found.following(stop)] == [2, 2]
        assert [change.offset for change in await found.following(stop)] == [5, 5]
        with pytest.raises(StoreError, match="shard 0 after that frame 9, shard 1 after that frame 8"):
            await found.following(stop)
    async with reading(old) as consumer:
        found = Chains(consumer, old, {0: 5, 1: 4})
        assert len(await found.following(stop)) == len(await found.following(stop)) == 2
        assert await found.following(stop) == []
        stop.set()
        assert await Chains(consumer, old, {0: 5, 1: 4}).following(stop) == []
