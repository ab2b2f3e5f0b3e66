"""Kafka loses records that the pipeline needs: a role says so by name, or the outputs are right; never neither."""

import asyncio
import re

import pytest
from support.kafka import plain
from support.simulation.cluster import Cluster
from support.simulation.pipeline import ROLES, Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.errors import StoreError

PARTITIONS, N, LATER, RATE = 2, 32, 8, 4
PATIENCE = 80.0  # virtual seconds
READERS = {
    "documents": "sign", "signatures": "sequence", "frames": "match", "changelog": "match", "matches": "judge",
    "verdicts": "forward", "state": "judge",
}  # fmt: skip
"""The topics, and the role that the loss meets: frozen, killed or at work."""
REMEDIES = {
    "is ignored until what is missing before it has come": "sign",
    "a position is no longer in its topic: sim.": None,
    "restart the worker of match that has this shard": "match",
    "have no verdict, although later ones have": None,
}  # fmt: skip
"""Warnings after which a role goes on; and the role that has to be restarted, as they say."""


@pytest.mark.long
@pytest.mark.limit(1800)
@simulated(seeds=2, most=28, nodes=3)
async def test_lost_records_are_named(world: World, cluster: Cluster) -> None:
    """An unclean election, which the settings allow, or retention, takes the records of a topic."""
    chance, topic = world.chance, list(READERS)[world.seed % len(READERS)]
    # Retention never deletes records of `state`.
    role, unclean = READERS[topic], topic == "state" or world.seed // len(READERS) % 2 == 0
    pipeline = Pipeline(
        world, cluster, **plain.SURE, allow_weak_topics=["min.insync.replicas", "unclean.leader.election.enable"],
        partitions=PARTITIONS, frame_documents=4, decision_lag=16,
    )  # fmt: skip
    name = getattr(pipeline.topics, topic)

    def warned() -> list[str]:
        return [text for text in REMEDIES if any(text in line for line in world.warnings)]

    async def finish() -> bool:
        """Whether nothing is missing. Raises AssertionError: what is missing is not named, or is still missing after
        the named remedy."""
        try:
            await pipeline.finish(list(workers.values()), PATIENCE)
        except AssertionError:
            found = warned()
            assert found, world.warnings
            restarted = [role for text in found if (role := REMEDIES[text])]
            if not restarted:
                return False
            places = re.findall(r"--accept-deleted-records (\S+),", "\n".join(world.warnings))
            for role in restarted:
                workers[role].process.kill()
                workers[role] = pipeline.start(role, folder=workers[role].folder, accept_deleted_records=places[:1])
            await pipeline.finish(list(workers.values()), PATIENCE)
        return True

    await pipeline.create_topics()
    workers = {role: pipeline.start(role) for role in ROLES}
    history = plain.history(N + LATER, PARTITIONS, world.seed)
    feeding = world.process("producer").start(pipeline.feed(history[:N], RATE))
    await asyncio.sleep(chance.uniform(3, 9))
    state, worker = chance.choice(["frozen", "killed", "at work"]), workers[role]
    if state == "frozen":
        worker.process.freeze()
    elif state == "killed":
        worker.process.kill()
    await asyncio.sleep(chance.uniform(0, 6))
    if unclean:
        for partition in range(len(cluster.topics[name].logs)):
            cluster.lose_tail((name, partition), chance.randint(1, 4))
    else:
        await pipeline.delete_records(topic)
    await asyncio.sleep(chance.uniform(0, 6))
    worker.process.thaw()
    if state == "killed":
        workers[role] = pipeline.start(role, folder=worker.folder)
    await feeding
    await pipeline.feed(history[N:], RATE)
    try:
        whole = await finish()
    except StoreError as error:
        assert any(word in str(error) for word in (name, "changelog", "frames topic")), error
        return
    if whole and (topic != "documents" or not warned()):  # the oracle knows no documents that were lost
        pipeline.check()
