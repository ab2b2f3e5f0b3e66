"""Records in parts: whatever happens to the workers of match, the outputs are the embedded engine's."""

import asyncio
from typing import Any

import orjson
import pytest
from support.kafka import plain
from support.kafka.feeding import Record
from support.simulation.cluster import Cluster
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.wire.parts import is_part

PARTITIONS = 2
UPDATES = {"on_conflict": "update", "deleted_field": "deleted", "key_is_id": "string"}


def parts(pipeline: Pipeline, topic: str) -> int:
    return sum(is_part(record.value or b"") for record in pipeline.records(topic))


@pytest.mark.long
@pytest.mark.limit(1800)
@simulated(seeds=4, most=100)
async def test_match_is_killed_and_moved_while_everything_is_in_parts(world: World, cluster: Cluster) -> None:
    chance = world.chance
    world.mean_latency = chance.choice([0.002, 0.02, 0.1])  # with a long one faults strike between parts
    given: dict[str, Any] = {
        **plain.SURE, **UPDATES, "shards": chance.choice([1, 3]), "partitions": PARTITIONS, "frame_documents": 8,
        "decision_lag": 1000, "record_bytes": chance.choice([256, 500]), "groups": True,
    }  # fmt: skip
    pipeline = Pipeline(world, cluster, **given)
    await pipeline.create_topics()
    others = pipeline.start("sign", "sequence", "judge", "forward", "group")
    workers = [pipeline.start("match"), pipeline.start("match")]
    history = plain.history(40, PARTITIONS, world.seed)
    feeding = world.process("producer").start(pipeline.feed(history, 3))
    for _ in range(5):
        await asyncio.sleep(chance.uniform(0.5, 4))
        place, what = chance.randrange(2), chance.random()
        if what < 0.4:
            workers[place].process.freeze()
            await asyncio.sleep(chance.choice((3, 12)))  # the longer one ends its session
            workers[place].process.thaw()
        elif what < 0.8:
            workers[place].process.kill()
            folder = workers[place].folder if chance.random() < 0.7 else None
            workers[place] = pipeline.start("match", folder=folder)
        else:
            others.process.kill()
            others = pipeline.start("sign", "sequence", "judge", "forward", "group", folder=others.folder)
    await feeding
    await pipeline.finish([others, *workers], 300)
    await pipeline.stop(others, *workers)
    assert parts(pipeline, "frames") and parts(pipeline, "changelog")
    pipeline.check()


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
