"""A pipeline under faults that aim, or whose records Kafka loses: nothing is lost without a word, and nothing waits."""

import asyncio
import re
from typing import Any

import pytest
from aiokafka import TopicPartition
from support.kafka import plain
from support.simulation import wire
from support.simulation.cluster import Cluster
from support.simulation.coverage import Triple
from support.simulation.faults import Faults, aims
from support.simulation.network import GOOD, Fault, Outcome
from support.simulation.pipeline import ROLES, Pipeline, Worker
from support.simulation.runner import simulated
from support.simulation.shrinking import Schedule
from support.simulation.world import Process, World

from stream_lsh.errors import StoreError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.consumer.position import commit_alone, offset_lost
from stream_lsh.kafka.match import cleaning
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.sequence import stage

PARTITIONS = 2
N = 30
RATE = 3
AIMS = 6
FOUND: list[Schedule] = []
"""What has failed once, as `support.simulation.report --shrink` writes it."""
PATIENCE = 400.0
"""Virtual seconds after the last fault in which everything has to be done."""


@pytest.mark.long
@pytest.mark.limit(1800)
@simulated(seeds=2, most=170, and_schedules=FOUND, nodes=3)
async def test_with_any_faults_the_outputs_are_the_embedded_engines(world: World, cluster: Cluster) -> list[Triple]:
    chance = world.chance
    cleaning.SIZE_SECONDS = 0  # each seed has a process of its own
    pipeline = Pipeline(
        world, cluster, **plain.SURE, allow_weak_topics=["min.insync.replicas"],
        on_conflict="update", deleted_field="deleted", key_is_id="string",
        shards=chance.choice([1, 2]), partitions=PARTITIONS, frame_documents=8, decision_lag=16, min_cleanable_bytes=1,
    )  # fmt: skip
    await pipeline.create_topics()
    apart = chance.random() < 0.7
    workers = (
        [pipeline.start(), *(pipeline.start(role) for role in ROLES)] if apart else [pipeline.start(), pipeline.start()]
    )
    aimed = enumerate(aims(chance, world.seed, AIMS, N / RATE))
    faults = Faults(pipeline, workers, [aim for place, aim in aimed if place not in world.schedule.omitted])
    history = plain.history(N, PARTITIONS, world.seed)[: world.schedule.documents]
    await world.process("producer").start(pipeline.feed(history, RATE))
    await asyncio.sleep(5)
    faults.end()
    while not faults.over:
        await asyncio.sleep(0.5)
    await pipeline.finish(workers, PATIENCE)
    for worker in workers:
        worker.stop()
    await faults.ended()
    pipeline.check()
    return faults.met


@pytest.mark.long
@simulated()
async def test_no_role_waits_when_its_first_metadata_are_lost(world: World, cluster: Cluster) -> None:
    """Found in match: the only member of its group assigned nothing to itself, for five minutes."""
    pipeline, lost = Pipeline(world, cluster, **plain.SURE, partitions=PARTITIONS, frame_documents=8), set[str]()

    def lose(process: Process, head: wire.Head, ask: dict[str, Any]) -> Outcome:
        if process is not worker.process or head.name != "Metadata" or not ask["topics"] or head.client in lost:
            return GOOD
        lost.add(head.client)
        return Outcome(Fault.LOST)

    await pipeline.create_topics()
    worker = pipeline.start()
    cluster.network.fault = lose
    await pipeline.feed(plain.history(8, PARTITIONS, world.seed), 20)
    await pipeline.finish([worker], 60)


@simulated()
async def test_an_offset_that_another_member_has_committed_meanwhile_is_not_lost(
    world: World, cluster: Cluster
) -> None:
    """Found in forward and in judge: a member that was slow had lost its partition to one that began."""
    pipeline = Pipeline(world, cluster)
    settings, group, place = pipeline.settings, pipeline.topics.group("judge"), TopicPartition("sim.matches", 0)
    await pipeline.create_topics()
    assert isinstance(await offset_lost(settings, group, place, "", ""), StoreError)
    async with admin(settings) as client:
        await commit_alone(client, group, {place: (0, "")})
    assert isinstance(await offset_lost(settings, group, place, "", ""), Failed)


TWO, FEW, LATER, PACE = 2, 32, 8, 4
ENOUGH = 80.0  # virtual seconds
READERS = {
    "documents": "sign", "signatures": "sequence", "frames": "match", "changelog": "match", "matches": "judge",
    "verdicts": "forward", "state": "judge",
}  # fmt: skip
"""The topics, and the role that the loss meets: frozen, killed or at work."""
REMEDIES = {
    "is ignored until what is missing before it has come": "sign",
    "a position is no longer in its topic: sim.": None,
    "restart the worker of match that has this shard": "match",
    "have no verdict and get none": None,
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
        partitions=TWO, frame_documents=4, decision_lag=16,
    )  # fmt: skip
    name = getattr(pipeline.topics, topic)

    def warned() -> list[str]:
        return [text for text in REMEDIES if any(text in line for line in world.warnings)]

    async def finish() -> bool:
        """Whether nothing is missing. Raises AssertionError: what is missing is not named, or is still missing after
        the named remedy."""
        try:
            await pipeline.finish(list(workers.values()), ENOUGH)
        except AssertionError:
            found = warned()
            # Verdicts that forward has read and that later ones have replaced are not missed.
            assert found or (topic == "verdicts" and all(map(pipeline.forwarded, range(TWO)))), world.warnings
            restarted = [role for text in found if (role := REMEDIES[text])]
            if not restarted:
                return False
            places = re.findall(r"--accept-deleted-records (\S+),", "\n".join(world.warnings))
            for role in restarted:
                workers[role].process.kill()
                workers[role] = pipeline.start(role, folder=workers[role].folder, accept_deleted_records=places[:1])
            await pipeline.finish(list(workers.values()), ENOUGH)
        return True

    await pipeline.create_topics()
    workers = {role: pipeline.start(role) for role in ROLES}
    history = plain.history(FEW + LATER, TWO, world.seed)
    feeding = world.process("producer").start(pipeline.feed(history[:FEW], PACE))
    await asyncio.sleep(chance.uniform(3, 9))
    state, worker = chance.choice(["frozen", "killed", "at work"]), workers[role]
    if state == "frozen":
        worker.process.freeze()
    elif state == "killed":
        worker.process.kill()
    await asyncio.sleep(chance.uniform(0, 6))
    if unclean:
        for partition in range(len(cluster.topics[name].logs)):
            pipeline.lose_tail(topic, partition, chance.randint(1, 4))
    else:
        await pipeline.delete_records(topic)
    await asyncio.sleep(chance.uniform(0, 6))
    worker.process.thaw()
    if state == "killed":
        workers[role] = pipeline.start(role, folder=worker.folder)
    await feeding
    await pipeline.feed(history[FEW:], PACE)
    try:
        whole = await finish()
    except StoreError as error:
        assert any(word in str(error) for word in (name, "changelog", "frames topic")), error
        return
    if whole and (topic != "documents" or not warned()):  # the oracle knows no documents that were lost
        pipeline.check()


AWAY = {"signatures": "sequence", "frames": "match", "matches": "judge", "verdicts": "forward"}
"""Topics between two roles, and their reader."""


async def with_unclean_elections(
    world: World, cluster: Cluster, shards: int = 1
) -> tuple[Pipeline, dict[str, Worker], list[plain.Record]]:
    """A pipeline whose topics may lose acknowledged records; a worker of each role; and the documents, of which the
    first FEW have their verdicts."""
    pipeline = Pipeline(
        world, cluster, **plain.SURE, allow_weak_topics=["min.insync.replicas", "unclean.leader.election.enable"],
        partitions=TWO, frame_documents=4, decision_lag=16, shards=shards,
    )  # fmt: skip
    await pipeline.create_topics()
    workers = {role: pipeline.start(role) for role in ROLES}
    history = plain.history(FEW + LATER, TWO, world.seed)
    await pipeline.feed(history[:FEW], PACE)
    await pipeline.finish([*workers.values()], ENOUGH)
    await asyncio.sleep(5)
    return pipeline, workers, history


@pytest.mark.long
@pytest.mark.limit(1800)
@simulated(seeds=2, most=32, nodes=3)
async def test_a_lost_tail_is_sent_again_or_named_though_nothing_follows(world: World, cluster: Cluster) -> None:
    """An unclean election takes what a role has not read that is away. No document comes afterwards. The role that has
    written it may have begun again, so that it remembers nothing."""
    chance, seed = world.chance, world.seed
    topic = list(AWAY)[seed % len(AWAY)]
    role, killed, again, shards = AWAY[topic], seed // 4 % 2 == 0, seed // 8 % 2 == 0, 1 + seed // 16 % 2
    writer = ROLES[ROLES.index(role) - 1]
    pipeline, workers, history = await with_unclean_elections(world, cluster, shards)
    logs = cluster.topics[getattr(pipeline.topics, topic)].logs
    read = [log.end for log in logs]
    workers[role].process.kill() if killed else workers[role].process.freeze()
    await pipeline.feed(history[FEW:], PACE)
    await asyncio.sleep(5)
    unread = {number: log.end - read[number] for number, log in enumerate(logs) if log.end > read[number]}
    ends = [log.end for log in logs]
    for partition in sorted(chance.sample(sorted(unread), chance.randint(1, len(unread)))):
        pipeline.lose_tail(topic, partition, chance.randint(1, unread[partition]))
    if again:
        workers[writer].process.kill()
        workers[writer] = pipeline.start(writer, folder=workers[writer].folder)
    await asyncio.sleep(chance.uniform(0, 6))
    workers[role].process.thaw()
    if killed:
        workers[role] = pipeline.start(role, folder=workers[role].folder)
    if topic != "verdicts":
        try:
            await pipeline.finish([*workers.values()], 2 * ENOUGH)
        except StoreError as error:
            # A frozen worker may have had what is lost in its buffers.
            assert not killed and re.search(r"ends at offset \d+, but has been \w+ up to", str(error)), error
            return
        pipeline.check()
        return
    end = world.seconds + 2 * ENOUGH
    for number, log in enumerate(logs):
        if log.end < ends[number]:
            lost = f"documents, partition {number}: .* have no verdict and|verdicts, partition {number}: the judge has"
            # A frozen worker may have had verdicts in its buffers.
            while not any(re.search(lost, one) for one in world.warnings) and (
                killed or not pipeline.forwarded(number)
            ):
                if not killed and workers[role].ended.done():  # it had read what is lost
                    with pytest.raises(StoreError, match=r"verdicts, partition [01], ends at offset"):
                        workers[role].ended.result()
                    return
                assert world.seconds < end, world.warnings
                await asyncio.sleep(1)


@pytest.mark.long
@simulated(seeds=2, most=12, nodes=3)
async def test_frames_that_take_the_place_of_lost_ones_are_signed_again(world: World, cluster: Cluster) -> None:
    """Signatures lose frames that are judged. Later frames take their offsets while the sequencer is away, so it never
    reads these. Found by `test_lost_records_are_named`: the documents had no verdict, and nothing said so."""
    pipeline, workers, history = await with_unclean_elections(world, cluster)
    workers["sequence"].process.kill()
    (log,) = cluster.topics[pipeline.topics.signatures].logs
    end = log.end
    pipeline.lose_tail("signatures", 0, world.chance.randint(1, 2))
    await pipeline.feed(history[FEW:], PACE / 4)
    assert log.end > end
    workers["sequence"] = pipeline.start("sequence", folder=workers["sequence"].folder)
    await pipeline.finish([*workers.values()], ENOUGH)
    pipeline.check()
    assert any("sim.signatures has lost frames that were acknowledged" in one for one in world.warnings)


@pytest.mark.long
@simulated(seeds=2, most=12, nodes=3)
async def test_frames_that_are_sent_again_leave_none_out(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents come while the sequencer begins again at its checkpoint, several times. It does not while match has
    frames to read: these are not lost."""
    monkeypatch.setattr(stage, "AGAIN_SECONDS", 3.0)
    pipeline = Pipeline(
        world, cluster, **plain.SURE, allow_weak_topics=["min.insync.replicas"], partitions=TWO, frame_documents=4,
        decision_lag=64,
    )  # fmt: skip
    await pipeline.create_topics()
    workers = {role: pipeline.start(role) for role in ROLES}
    history = plain.history(FEW + 36, TWO, world.seed)
    await pipeline.feed(history[:FEW], PACE)
    await pipeline.finish([*workers.values()], ENOUGH)

    def again() -> bool:
        return any("sending what follows again" in one for one in world.warnings)

    workers["match"].process.kill()
    await pipeline.feed(history[FEW : FEW + 4], PACE)
    await asyncio.sleep(30)
    assert not again()
    workers["match"] = pipeline.start("match", folder=workers["match"].folder)
    workers["judge"].process.kill()
    await pipeline.feed(history[FEW + 4 : FEW + 20], PACE)
    await pipeline.feed(history[FEW + 20 : FEW + 28], world.chance.uniform(0.2, 0.5))
    assert again()
    workers["judge"] = pipeline.start("judge", folder=workers["judge"].folder)
    await pipeline.feed(history[FEW + 28 :], PACE)
    await pipeline.finish([*workers.values()], 2 * ENOUGH)
    await asyncio.sleep(5)  # a transaction ends in one partition after the other
    pipeline.check()
