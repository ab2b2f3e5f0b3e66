"""Match alone in a simulated Kafka: shards that move between workers keep working."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from support.simulation.cluster import Cluster
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.kafka.match.watchdog import Again, Finding, Seen, Watchdog

SHARDS = 3
FRAMES = 40
PATIENCE = 20.0  # virtual seconds in which every shard takes a frame, whatever happens to the workers


def watched() -> list[Finding | Again]:
    """What every watchdog finds from now on: it ends a stall within seconds, by reading again or a new run."""
    findings: list[Finding | Again] = []
    look = Watchdog.look

    def kept(watchdog: Watchdog, seen: Seen, now: float) -> list[Finding | Again]:
        found = look(watchdog, seen, now)
        findings.extend(found)
        return found

    Watchdog.look = kept  # type: ignore[method-assign]  # each seed has a process of its own
    return findings


@pytest.mark.long
@pytest.mark.limit(1800)
@simulated(seeds=6, most=200)
async def test_no_shard_stalls_when_workers_come_and_go(world: World, cluster: Cluster) -> None:
    """Frames that are none: match acknowledges and answers nothing. The next is sent once all shards have had it."""
    chance = world.chance
    world.mean_latency = chance.choice([0.0005, 0.002, 0.006])
    world.work = chance.choice([0.0005, 0.005])
    pause = chance.choice([0.005, 0.02, 0.1])
    pipeline = Pipeline(world, cluster, shards=SHARDS, compare_with="all")
    frames, group = pipeline.topics.frames, pipeline.topics.group("match")
    await pipeline.create_topics()
    found = watched()
    first, second = pipeline.start("match"), None
    joins = chance.sample(range(2, FRAMES), 6)

    def slowest() -> int:
        committed = cluster.offsets(group).committed
        return min(committed[frames, shard].offset if (frames, shard) in committed else 0 for shard in range(SHARDS))

    try:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True) as producer:
            for number in range(FRAMES):
                for shard in range(SHARDS):
                    await producer.send_and_wait(frames, b"foreign %d" % number, partition=shard)
                began = world.seconds
                while slowest() <= number:
                    assert world.seconds < began + PATIENCE, f"a shard does not take frame {number}"
                    assert not found, f"the watchdog has to mend a stall at frame {number}: {found}"
                    await asyncio.sleep(0.05)
                await asyncio.sleep(chance.expovariate(1 / pause))
                if number not in joins:
                    continue
                if second is None:
                    second = pipeline.start("match")
                elif chance.random() < 0.5:
                    second.process.kill()
                    second = None
                else:
                    second.stop()
                    second = None
                await asyncio.sleep(chance.uniform(0, 3))
        assert not first.ended.done()
        crashes = [line for line in world.warnings if "stream_lsh.kafka.match.app:" in line]  # mode's, of the app
        assert not crashes, crashes
    finally:
        pipeline.clear()
