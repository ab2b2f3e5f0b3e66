"""The state of a pipeline outlives its consumer groups: without them its outputs are the embedded engine's."""

import asyncio

import pytest
from support.kafka import plain
from support.simulation.cluster import Cluster
from support.simulation.pipeline import ROLES, Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.kafka.tools import drain

PARTITIONS = 2
N = 24
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
    history = plain.history(2 * N, PARTITIONS, world.seed)
    await pipeline.create_topics()
    first = pipeline.start(*roles)
    await producer.start(pipeline.feed(history[:N], 3))
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
    await producer.start(pipeline.feed(history[N:], 3))
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
