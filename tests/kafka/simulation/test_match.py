"""Match alone in a simulated Kafka: shards that move between workers keep working, and no reply is wrong or missing."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from support.kafka.match_play import expected, frames
from support.kafka.parts import whole
from support.kafka.replica_play import changing
from support.simulation import wire
from support.simulation.api import per_topic
from support.simulation.cluster import Cluster
from support.simulation.coverage import REACHED
from support.simulation.faults import Aim, Faults
from support.simulation.network import GOOD, Outcome
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.shrinking import Schedule
from support.simulation.world import Process, World

from stream_lsh.kafka.client import private
from stream_lsh.kafka.match import faust_driver
from stream_lsh.kafka.match.watchdog import Again, Finding, Seen, Watchdog
from stream_lsh.wire.replies import head

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
    faust_driver.IDLE_WAIT_MS = chance.choice([25, 100])  # each seed has a process of its own
    pipeline = Pipeline(world, cluster, shards=SHARDS, compare_with="all")
    frames, group = pipeline.topics.frames, pipeline.topics.group("match")
    await pipeline.create_topics()
    found = watched()
    first, second = pipeline.start("match"), None
    joins = chance.sample(range(2, FRAMES), 6)

    def slowest() -> int:
        committed = cluster.offsets(group).committed
        return min(committed[frames, shard].offset if (frames, shard) in committed else 0 for shard in range(SHARDS))

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
    crashes = [line for line in world.warnings if "Crashed reason" in line]
    assert not crashes, crashes


@simulated()
async def test_an_idle_worker_asks_ten_times_a_second(world: World, cluster: Cluster) -> None:
    pipeline, asked = Pipeline(world, cluster, shards=SHARDS, compare_with="all"), set[tuple[float, int]]()

    def look(process: Process, head: wire.Head, ask: dict[str, Any]) -> Outcome:
        if head.name == "Fetch":
            asked.add((world.seconds, ask["max_wait_time"]))
        return GOOD

    await pipeline.create_topics()
    pipeline.start("match")
    await asyncio.sleep(20)
    cluster.network.fault = look
    await asyncio.sleep(10)
    assert 80 <= len(asked) <= 100


@simulated()
async def test_partitions_wait_shortly_for_a_request_that_leaves_them_out(world: World, cluster: Cluster) -> None:
    topic, asked = cluster.create("news", 2), set[tuple[int, int]]()

    def look(process: Process, head: wire.Head, ask: dict[str, Any]) -> Outcome:
        if head.name == "Fetch":
            asked.add((len(per_topic(ask["topics"])), ask["max_wait_time"]))
        return GOOD

    cluster.network.fault = look
    reader = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, fetch_max_wait_ms=25)
    async with reader, AIOKafkaProducer(bootstrap_servers=cluster.bootstrap) as producer:
        private.wait_longer_when_idle(reader, 100)
        reader.assign([TopicPartition("news", number) for number in range(len(topic.logs))])
        await asyncio.sleep(1)
        await producer.send_and_wait("news", b"held", partition=0)
        await asyncio.sleep(2)
    assert asked == {(2, 100), (1, 25)}


MOVES = "killed", "disk_lost", "disk_older", *2 * ("drained", "joined", "session_ended")
"""Faults after which shards move. None stops a worker for long: there is nothing for the watchdog to do."""
STATES = [state for state in REACHED["match"] if state not in ("connecting", "leaving")]
MOST = 12  # faults
CHANGING = {"shards": 2, "compare_with": "all", "on_conflict": "update", "time_field": "ts", "segment_documents": 90}
ANEW = "others have written to its changelog meanwhile", "begins again from its changelog"
"""Why a worker that cleans may begin anew."""
CLEANED = CHANGING | {"shards": 1, "compare_with": "kept", "erase_hours": 0, "min_cleanable_bytes": 1}


class Answered:
    """The replies of each shard, by the chain rule, and whether each is there before its frame counts as matched."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.found: dict[int, list[bytes]] = {shard: [] for shard in range(pipeline.settings.shards)}
        self.wrong: list[str] = []
        self._pipeline, self._cluster, self._read = pipeline, pipeline.cluster, 0
        commit = self._cluster.api._offset_commit

        def committed(*args: Any) -> None:
            commit(*args)
            self.look()

        self._cluster.api._offset_commit = committed  # type: ignore[method-assign]

    def look(self) -> None:
        """Read what is new, and compare it with what is committed."""
        settings = self._pipeline.settings
        given = list(whole([record.value or b"" for record in self._pipeline.records("matches")], settings))
        for reply in given[self._read :]:
            shard, offset, predecessor = head(reply, settings)
            if (offset, predecessor) == (len(self.found[shard]), len(self.found[shard]) - 1):
                self.found[shard].append(reply)
            elif offset >= len(self.found[shard]):
                self.wrong.append(f"shard {shard} replies to {offset} after {predecessor}, and lacks replies")
        self._read = len(given)
        topics = self._pipeline.topics
        for (topic, shard), place in self._cluster.offsets(topics.group("match")).committed.items():
            if topic == topics.frames and place.offset > len(self.found[shard]):
                self.wrong.append(
                    f"shard {shard} has committed {place.offset}, and replied to {len(self.found[shard])}"
                )


@pytest.mark.long
@pytest.mark.limit(1800)
@simulated(seeds=3, most=200, and_schedules=[Schedule(17)], nodes=3)
async def test_each_frame_is_answered_once_and_as_by_an_undisturbed_shard(
    world: World, cluster: Cluster, tmp_path: Path
) -> None:
    """Documents that are replaced and deleted; several frames in flight; faults at any state of match. Odd seeds have
    replies and changes in parts."""
    await answered_as_by_an_undisturbed_shard(world, cluster, tmp_path, CHANGING)


@pytest.mark.long
@pytest.mark.limit(1800)
@simulated(seeds=2, most=60, and_schedules=[Schedule(5), Schedule(39)], nodes=3)
async def test_each_frame_is_answered_while_the_changelog_is_cleaned(
    world: World, cluster: Cluster, tmp_path: Path
) -> None:
    """Everything that was removed is due at once."""
    await answered_as_by_an_undisturbed_shard(world, cluster, tmp_path, CLEANED, ANEW)


async def answered_as_by_an_undisturbed_shard(
    world: World, cluster: Cluster, folder: Path, given: dict[str, Any], anew: Sequence[str] = ()
) -> None:
    chance = world.chance
    world.work = chance.choice([0.002, 0.02, 0.1])
    world.mean_latency = chance.choice([0.0005, 0.002, 0.006])
    parts = {"record_bytes": 300} if world.seed % 2 else {}
    pipeline = Pipeline(world, cluster, **given, **parts, allow_weak_topics=["min.insync.replicas"])
    await pipeline.create_topics()
    log = frames(pipeline.settings, changing(400), 4)
    wanted = expected(pipeline.settings, log, folder)
    found, answered = watched(), Answered(pipeline)
    rate = chance.choice([4.0, 16.0])
    workers = [pipeline.start("match"), pipeline.start("match")]
    aims = [
        Aim(chance.choice(MOVES), "match", chance.choice(STATES), 3 + chance.uniform(0, len(log) / rate + 5))
        for _ in range(MOST)
    ]
    faults = Faults(pipeline, workers, aims)
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True) as producer:
        for data in log:
            for shard in range(pipeline.settings.shards):
                await producer.send(pipeline.topics.frames, data, partition=shard)
            await asyncio.sleep(chance.expovariate(rate))
    began = world.seconds
    while min(map(len, answered.found.values())) < len(log) or not faults.over:
        assert world.seconds < began + 10 * PATIENCE, [len(replies) for replies in answered.found.values()]
        assert not [worker for worker in workers if worker.ended.done()]
        if world.seconds > began + PATIENCE:
            faults.end()
        await asyncio.sleep(0.1)
        answered.look()
    assert not found, f"the watchdog has to mend a stall: {found}"
    assert not answered.wrong, answered.wrong
    crashes = [line for line in world.warnings if "Crashed reason" in line and not any(why in line for why in anew)]
    assert not crashes, crashes
    assert answered.found == wanted
