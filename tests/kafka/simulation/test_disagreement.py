"""Matching fails with documents in some workers only, and several workers have a shard at the same time."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from support.kafka import plain
from support.poison import POISON, poison_matching
from support.simulation.cluster import Cluster
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.index.rows.layout import FAILED, SEQ
from stream_lsh.wire.changes import Change
from stream_lsh.wire.replies import Reply

N, PARTITIONS, FAULTS = 40, 2, 5


@pytest.mark.long
@pytest.mark.limit(1800)
@simulated(seeds=4, most=100)
async def test_verdicts_are_those_of_the_changelog(world: World, cluster: Cluster) -> None:
    chance, again = world.chance, set[tuple[int, int]]()

    def fails(work: Any, place: int) -> bool:
        """By chance, then a second time, too."""
        key = id(work), int(work.batch.words[place, SEQ])
        if key in again:
            again.remove(key)
            return True
        if chance.random() < 0.5:
            again.add(key)
            return True
        return False

    poison_matching(pytest.MonkeyPatch(), where=fails)  # each seed has a process of its own
    world.mean_latency = 0.1  # so that a fault often strikes between matching and the changelog
    pipeline = Pipeline(world, cluster, **plain.SURE, partitions=PARTITIONS, frame_documents=4, decision_lag=1000)
    await pipeline.create_topics()
    others = pipeline.start("sign", "sequence", "judge", "forward")
    workers = [pipeline.start("match"), pipeline.start("match")]
    history = plain.history(N, PARTITIONS, world.seed)
    for i in range(0, N, 3):
        history[i] = replace(history[i], value=orjson.dumps({"id": f"poison {i}", "text": POISON}))
    feeding = world.process("producer").start(pipeline.feed(history, 2))
    for _ in range(FAULTS):
        await asyncio.sleep(chance.uniform(0.5, 5))
        place = chance.randrange(2)
        if chance.random() < 0.5:
            workers[place].process.freeze()
            await asyncio.sleep(chance.choice((3, 12)))
            workers[place].process.thaw()
        else:
            workers[place].process.kill()
            await asyncio.sleep(chance.choice((0, 12)))  # until the other worker has its shard
            workers[place] = pipeline.start("match", folder=workers[place].folder)
    await feeding
    await pipeline.finish([others, *workers], 300)
    await pipeline.stop(others, *workers)
    assert _rejected(pipeline) == _left_out(pipeline)


def _rejected(pipeline: Pipeline) -> set[tuple[int, int]]:
    """Partition and offset of the documents that verdicts say matching has failed with."""
    verdicts = [orjson.loads(record.value or b"") for record in pipeline.records("verdicts")]
    return {
        (said["source"]["partition"], said["source"]["offset"])
        for said in verdicts
        if said.get("reason") == "engine_error"
    }


def _left_out(pipeline: Pipeline) -> set[tuple[int, int]]:
    """The same by the changes that count."""
    found, last = set(), -1
    for record in pipeline.records("changelog"):
        change = Change.decode(record.value or b"", pipeline.settings)
        if change.predecessor != last:
            continue
        last, reply = change.offset, Reply.decode(change.reply, pipeline.settings)
        assert reply.source is not None, "it is the only shard"
        for i in np.flatnonzero(reply.matches.status == FAILED).tolist():
            found.add((int(reply.source.partitions[i]), int(reply.source.offsets[i])))
    return found
