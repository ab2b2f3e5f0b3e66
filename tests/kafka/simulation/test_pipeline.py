"""A whole pipeline in a simulated Kafka: whatever happens to its workers, its outputs are the embedded engine's."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from support.kafka import plain
from support.kafka.feeding import Record
from support.long_form import only_long
from support.poison import POISON, WORDS, CrashError, poison_matching
from support.simulation.cluster import Cluster
from support.simulation.pipeline import ROLES, Pipeline, Worker
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.documents import lines
from stream_lsh.documents.refused import Refused
from stream_lsh.kafka.tools import drain
from stream_lsh.wire.parts import is_part

PARTITIONS = 2
UPDATES = {"on_conflict": "update", "deleted_field": "deleted", "key_is_id": "string"}
N = 60


@simulated()
async def test_a_worker_that_has_not_begun_is_stopped(world: World, cluster: Cluster) -> None:
    pipeline = Pipeline(world, cluster)
    await pipeline.create_topics()
    worker = pipeline.start("forward")
    worker.stop()
    await asyncio.wait_for(worker.ended, 60)


@pytest.mark.long
@simulated(most=20)
async def test_partitions_that_are_added_wait_for_the_outputs(world: World, cluster: Cluster) -> None:
    """Documents are in them before the workers know them, and before the outputs have as many."""
    pipeline = Pipeline(world, cluster, **plain.SURE, **UPDATES, partitions=PARTITIONS, frame_documents=8)
    await pipeline.create_topics()
    workers, documents = [pipeline.start(), pipeline.start()], pipeline.topics.documents
    await pipeline.feed(plain.history(N // 2, PARTITIONS, world.seed), 20)
    cluster.grow(documents, 2 * PARTITIONS)
    await pipeline.feed(plain.history(N, 2 * PARTITIONS, world.seed + 1), 20)
    await asyncio.sleep(20)  # longer than any stage would bear it
    assert any("which the outputs do not have" in line for line in world.warnings)
    await pipeline.create_topics()
    await pipeline.finish(workers, 300)
    assert {record.partition for record in pipeline.records("verdicts")} == set(range(2 * PARTITIONS))
    pipeline.check()


@simulated()
async def test_records_that_their_keys_or_headers_fill_are_dead_letters(world: World, cluster: Cluster) -> None:
    """With the headers of a dead letter or of a tombstone they would be more than a topic takes."""
    pipeline = Pipeline(world, cluster, **plain.SURE, **UPDATES, partitions=1)
    await pipeline.create_topics()
    worker = pipeline.start()
    long, most = b"i" * 3000, 1_048_490
    records: list[tuple[bytes, bytes, list[tuple[str, bytes]]]] = [
        (b"a", b'{"id":"a","text":"a b c d e f g"}', []),
        (long, b'{"id":"%b","text":"a b c d e f g"}' % long, []),  # the next representative
        (b"a", b'{"id":"a","text":"other words here now"}', [("h", bytes(most - 1200))]),
        (b"k" * most, b"x", []),
        (b"m", b'{"id":"m","text":"compressed by its producer"}', [("a", b"")] * 400_000),
        (b"z", b'{"id":"z","text":"the last one"}', []),
    ]
    options: dict[str, Any] = {"max_request_size": 1 << 22, "max_batch_size": 1 << 22, "compression_type": "gzip"}
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, **options) as producer:
        for key, value, headers in records:
            await producer.send_and_wait(pipeline.topics.documents, value, key, 0, headers=headers)
    await pipeline.finish([worker], 300)
    await pipeline.stop(worker)
    letters = pipeline.records("dead_letters")
    assert [dict(record.headers)["offset"] for record in letters] == [b"2", b"3", b"4"]
    assert [dict(record.headers).get("truncated") for record in letters] == [None, b"1", b"46"]
    assert [len(record.key or b"") > 1_000_000 for record in letters] == [False, True, False]
    assert [record.key for record in pipeline.records("unique")] == [b"a", b"z"]


@only_long  # a seed takes up to two minutes among other tests
@pytest.mark.long
@pytest.mark.limit(1800)
@simulated(seeds=4, most=100)
async def test_workers_that_are_killed_and_started_again_say_what_the_embedded_engine_says(
    world: World, cluster: Cluster
) -> None:
    """Some seeds have documents on which matching fails. In others most records between the roles are in parts."""
    history = plain.history(N, PARTITIONS, world.seed)
    if world.seed % 2:
        poison_matching(pytest.MonkeyPatch())  # each seed has a process of its own
        for i in range(5, N, 10):
            history[i] = replace(history[i], value=orjson.dumps({"text": POISON}))
    given: dict[str, Any] = {"shards": world.chance.choice([1, 3]), "decision_lag": 1000}
    if world.seed % 3:
        world.mean_latency = world.chance.choice([0.002, 0.02, 0.1])  # with a long one faults strike between parts
        given |= {"record_bytes": world.chance.choice([256, 500]), "groups": True}
    pipeline = await killed_and_started_again(world, cluster, history, **given)
    assert "record_bytes" not in given or (parts(pipeline, "frames") and parts(pipeline, "changelog"))


@pytest.mark.long
@pytest.mark.limit(1800)
@simulated(seeds=2, most=24)
async def test_a_document_at_which_signers_are_killed_costs_itself(world: World, cluster: Cluster) -> None:
    """Signers are killed whenever they read such a document. Its verdict is in the frame, so all workers agree."""
    real, kills = lines.scan_lines, 0

    def scan_lines(buffer: Any, starts: Any, ends: Any, *rest: Any) -> None:
        nonlocal kills
        if any(WORDS.encode() in buffer[i:j].tobytes() for i, j in zip(starts, ends, strict=True)):
            if world._current is world.main:  # the embedded engine
                raise Refused("engine_error", "the worker has ended 3 times while it signed this document")
            kills += 1
            world._current.kill()
            raise CrashError
        real(buffer, starts, ends, *rest)

    pytest.MonkeyPatch().setattr(lines, "scan_lines", scan_lines)  # each seed has a process of its own
    history = plain.history(N, PARTITIONS, world.seed)
    for i in range(5, N, 20):
        history[i] = replace(history[i], value=orjson.dumps({"id": f"bad {i}", "text": WORDS}))
    pipeline = Pipeline(world, cluster, **plain.SURE, partitions=PARTITIONS, frame_documents=8, decision_lag=1000)
    await pipeline.create_topics()
    others = pipeline.start("sequence", "match", "judge", "forward")
    signers = [pipeline.start("sign"), pipeline.start("sign")]

    async def restart() -> None:
        while True:
            await asyncio.sleep(world.chance.choice((1, 12)))
            for i, signer in enumerate(signers):
                if signer.process.killed:
                    signers[i] = pipeline.start("sign", folder=signer.folder)

    restarting = asyncio.ensure_future(restart())
    await pipeline.feed(history, 20)
    await pipeline.finish([others], 900)
    restarting.cancel()
    pipeline.check()
    failed = sum(b"the worker has ended" in record.value for record in pipeline.records("verdicts"))
    assert failed == len(range(5, N, 20)) and kills <= 2 * 3 * failed  # each signer counts for itself


KEEP = ({"keep": "longest"}, {"keep": "newest"}, {"keep": "best", "rank_field": "ts"})
PER_SOURCE = {"keep_per": "source", "source_field": "outlet"}


@pytest.mark.long
@pytest.mark.limit(1800)
@simulated(seeds=2, most=24)
async def test_a_better_copy_supersedes_as_in_the_embedded_engine(world: World, cluster: Cluster) -> None:
    chance, groups = world.chance, world.seed % 2 == 0
    given: dict[str, Any] = {
        **KEEP[world.seed % 3], "groups": groups,
        **({"source_field": "outlet"} if groups else {}), **chance.choice([{}, PER_SOURCE]),
        **chance.choice([{}, {"window": "10m", "time_field": "ts"}]),
        **chance.choice(
            [{}, {"erase_hours": 0, "standbys": 1}, {"shards": 3, "decision_lag": 16, "min_cleanable_bytes": 1}]
        ),
    }  # fmt: skip
    history = plain.history(N, PARTITIONS, world.seed, families=3)
    pipeline = await killed_and_started_again(world, cluster, history, **given)
    superseding = [record for record in pipeline.records("verdicts") if b',"supersedes":' in record.value]
    assert superseding or "keep_per" in given  # a source has few copies


async def killed_and_started_again(
    world: World, cluster: Cluster, history: Sequence[Record], **given: Any
) -> Pipeline:  # fmt: skip
    """A pipeline, two of whose workers were killed, and some frozen. Its outputs are as they should be."""
    chance = world.chance
    pipeline = Pipeline(
        world, cluster, **{**plain.SURE, **UPDATES, "partitions": PARTITIONS, "frame_documents": 8, **given}
    )
    await pipeline.create_topics()
    workers: list[Worker] = [pipeline.start(), pipeline.start()]
    producer = world.process("producer")
    feeding = producer.start(pipeline.feed(history, 3))
    for _ in range(2):
        await asyncio.sleep(chance.uniform(3, 12))
        if chance.random() < 0.5:
            process = workers[chance.randrange(2)].process
            process.freeze()
            await asyncio.sleep(chance.choice((3, 12)))  # the longer one ends its session
            process.thaw()
        place = chance.randrange(2)
        workers[place].process.kill()
        folder = workers[place].folder if chance.random() < 0.7 else None
        workers[place] = pipeline.start(folder=folder)
    await feeding
    await pipeline.finish(workers, 300)
    if pipeline.settings.groups:  # all of them are folded
        await pipeline.drain()
    await pipeline.stop(*workers)
    pipeline.check()
    return pipeline


TOGETHER: dict[str, Any] = {
    "window": "20m", "time_field": "ts", "groups": True, "source_field": "outlet", "decision_lag": 64, "standbys": 1,
    "erase_hours": 0.02, "min_cleanable_bytes": 1, "frame_documents": 8, "allow_weak_topics": ["min.insync.replicas"],
}  # fmt: skip


@only_long
@pytest.mark.long
@pytest.mark.limit(3600)
@simulated(nodes=3)
async def test_two_hours_of_everything_together(world: World, cluster: Cluster) -> None:
    world.most_seconds = 3 * 3600
    pipeline = await everything_together(world, cluster, seconds=2 * 3600, rate=1000 / plain.STEP, pause=60)
    changelog = cluster.topics[pipeline.topics.changelog].logs
    assert all(log.start > 0 and sum(len(batch.data) for batch in log.batches) < 4_000_000 for log in changelog)
    assert world.seconds > 0.8 * 2 * 3600


@pytest.mark.long
@pytest.mark.limit(1800)
@simulated(most=40, nodes=3)
async def test_two_minutes_of_everything_together_with_many_faults(world: World, cluster: Cluster) -> None:
    await everything_together(world, cluster, seconds=120, rate=1, pause=12)


async def everything_together(world: World, cluster: Cluster, seconds: int, rate: float, pause: float) -> Pipeline:
    """A pipeline with updates, a window, groups, erasing and several shards. Its outputs are as they should be.

    Args:
        seconds: for which it is fed. rate: documents a second.
        pause: seconds on average until something is killed, frozen, stopped or moved.
    """
    chance = world.chance
    given = plain.SURE | UPDATES | TOGETHER | {"shards": chance.choice([2, 3])}
    pipeline = Pipeline(world, cluster, partitions=PARTITIONS, **given)
    await pipeline.create_topics()
    workers: list[Worker] = [pipeline.start(), pipeline.start()]
    history = plain.history(round(seconds * rate), PARTITIONS, world.seed)
    feeding = world.process("producer").start(pipeline.feed(history, rate))
    while not feeding.done():
        await asyncio.sleep(chance.expovariate(1 / pause))
        place, node = chance.randrange(2), chance.randrange(3)
        match chance.choice(("kill", "kill", "lose", "freeze", "leave", "broker", "move")):
            case "kill":
                workers[place].process.kill()
                workers[place] = pipeline.start(folder=workers[place].folder)
            case "lose":
                workers[place].process.kill()
                workers[place] = pipeline.start()
            case "freeze":
                workers[place].process.freeze()
                await asyncio.sleep(chance.choice((3, 12)))
                workers[place].process.thaw()
            case "leave":
                await pipeline.stop(workers[place])
                workers[place] = pipeline.start(folder=workers[place].folder)
            case "broker":
                cluster.stop(node)
                await asyncio.sleep(chance.expovariate(1))
                cluster.start(node)
            case "move":
                cluster.move(node)
    await pipeline.finish(workers, 300)
    await pipeline.drain()
    await pipeline.stop(*workers)
    pipeline.check()
    return pipeline


HALF = 24
READ = ("documents", "signatures", "frames", "matches", "verdicts", "memberships")
"""What retention empties while a drained pipeline is stopped."""


@pytest.mark.long
@pytest.mark.limit(600)
@simulated(seeds=4, most=12)
async def test_pipeline_continues_without_its_groups(world: World, cluster: Cluster) -> None:
    """Drained, and the groups are deleted; or their offsets expire; or retention has deleted everything that was read,
    too; or the workers are killed, and the groups are deleted."""
    form = world.seed % 4
    pipeline = Pipeline(
        world, cluster, **plain.SURE, on_conflict="update", deleted_field="deleted", key_is_id="string", groups=True,
        source_field="outlet", shards=world.chance.choice([1, 2]), partitions=PARTITIONS, frame_documents=8,
        decision_lag=1000,
    )  # fmt: skip
    roles, producer = (*ROLES, "group"), world.process("producer")
    history = plain.history(2 * HALF, PARTITIONS, world.seed)
    await pipeline.create_topics()
    first = pipeline.start(*roles)
    await producer.start(pipeline.feed(history[:HALF], 3))
    if form == 3:
        first.process.kill()
    else:
        await pipeline.drain()
        await pipeline.stop(first)
    if form == 1:
        for group in cluster.groups:
            cluster.expire_offsets(group)
    else:
        cluster.groups.clear()
    if form == 2:
        await pipeline.delete_records(*READ)
    second = pipeline.start(*roles, folder=first.folder)
    await producer.start(pipeline.feed(history[HALF:], 3))
    await drain.resume(pipeline.settings)
    await pipeline.finish([second], 300)
    await pipeline.drain()
    await pipeline.stop(second)
    pipeline.check()


@simulated()
async def test_pause_outlives_its_mark(world: World, cluster: Cluster) -> None:
    """Brokers forget the mark after a week, while the workers run."""
    pipeline = Pipeline(world, cluster, **plain.SURE, partitions=1, frame_documents=8)
    history, producer = plain.history(10, 1, world.seed), world.process("producer")
    await pipeline.create_topics()
    worker = pipeline.start()
    await producer.start(pipeline.feed(history[:5], 3))
    await pipeline.finish([worker], 300)
    await pipeline.drain()
    cluster.expire_offsets(pipeline.topics.group("pause"))
    await producer.start(pipeline.feed(history[5:], 3))
    await asyncio.sleep(20)
    assert len(pipeline.records("verdicts")) == 5
    await drain.resume(pipeline.settings)
    await pipeline.finish([worker], 300)


def parts(pipeline: Pipeline, topic: str) -> int:
    return sum(is_part(record.value or b"") for record in pipeline.records(topic))


@pytest.mark.long
@simulated()
async def test_a_dense_frame_passes_a_broker_with_default_limits(world: World, cluster: Cluster) -> None:
    """Every two of 400 documents are a pair: the reply has more than 1 MiB."""
    given = {**plain.SURE, "compare_with": "all", "max_matches": 0, "max_verified_matches": 0, "max_candidates": 4096}
    pipeline = Pipeline(world, cluster, **given)
    await pipeline.create_topics()
    assert all(int(topic.config["max.message.bytes"]) <= 1_048_588 for topic in cluster.topics.values())
    text = " ".join(f"w{i}" for i in range(12))
    history = [
        Record(0, None, orjson.dumps({"id": i, "text": f"{text} own{i}"}), (), 1_700_000_000_000 + i)
        for i in range(400)
    ]
    await pipeline.feed(history, 10_000)
    worker = pipeline.start()
    await pipeline.finish([worker], 300)
    await pipeline.stop(worker)
    assert parts(pipeline, "matches") > 1 and parts(pipeline, "changelog") > 1
    pipeline.check()
