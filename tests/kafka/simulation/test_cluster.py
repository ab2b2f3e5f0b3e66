"""What a simulated Kafka does besides answering (`test_contract`): faults, compaction, nodes that go, a lost tail."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from support.simulation import wire
from support.simulation.cluster import Cluster
from support.simulation.network import GOOD, Fault, Outcome
from support.simulation.runner import simulated
from support.simulation.world import Process, World

from stream_lsh.kafka.client import private

N = 60


async def values(cluster: Cluster, topic: str, partition: int = 0) -> list[bytes | None]:
    """The committed values of a partition."""
    place = TopicPartition(topic, partition)
    options = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, **options) as consumer:
        consumer.assign([place])
        end, found = (await consumer.end_offsets([place]))[place], []
        while await consumer.position(place) < end:
            for record in (await consumer.getmany(place, timeout_ms=100)).get(place, []):
                found.append(record.value)
        return found


def lossy(world: World, share: float) -> Callable[[Process, wire.Head, dict[str, Any]], Outcome]:
    """A share of the requests is lost, served late, or its answer lost or late. Not the main process's."""
    outcomes = [Outcome(fault, world.chance.uniform(0, 2)) for fault in (*Fault, None)]

    def fault(process: Process, head: wire.Head, ask: dict[str, Any]) -> Outcome:
        if process is world.main or world.chance.random() > len(outcomes) * share:
            return GOOD
        return world.chance.choice(outcomes)

    return fault


@simulated(seeds=5, most=50)
async def test_an_idempotent_producer_writes_each_record_once_over_a_bad_network(
    world: World, cluster: Cluster
) -> None:
    cluster.create("news")

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True) as producer:
            cluster.network.fault = lossy(world, 0.05)
            for number in range(N):
                await producer.send_and_wait("news", b"%d" % number)

    await world.process("producer").start(produce())
    assert await values(cluster, "news") == [b"%d" % number for number in range(N)]


async def copy(cluster: Cluster, name: str, instance: str | None) -> None:
    """Copies what it reads, exactly once: each record and its offset in one transaction, by one transactional id."""
    private.mend_clients()  # as in the roles
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap, group_id="copiers", group_instance_id=instance, enable_auto_commit=False,
        auto_offset_reset="earliest", isolation_level="read_committed", session_timeout_ms=6000,
        metadata_max_age_ms=1000,
    )  # fmt: skip
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=name, transaction_timeout_ms=8000)
    try:
        await producer.start()  # fences an earlier one, whose offsets are not read before
        await consumer.start()
        consumer.subscribe(["in"])
        while True:
            for place, records in (await consumer.getmany(timeout_ms=200, max_records=7)).items():
                async with producer.transaction():
                    for record in records:
                        await producer.send("out", record.value, partition=place.partition)
                    offsets = {place: records[-1].offset + 1}
                    await producer.send_offsets_to_transaction(offsets, "copiers")
    finally:
        await asyncio.gather(producer.stop(), consumer.stop(), return_exceptions=True)


async def kept_alive(work: Callable[[], Awaitable[None]]) -> None:
    """Begin again after each error of Kafka. One that is fenced may be the successor of a zombie that began later."""
    while True:
        try:
            await work()
        except KafkaError:
            await asyncio.sleep(0.1)


@simulated(seeds=10, most=100, nodes=3)
async def test_transactions_copy_each_record_once_with_any_faults(world: World, cluster: Cluster) -> None:
    """One copier with one transactional id at a time, which is killed, frozen and started again; nodes go and come."""
    cluster.create("in", 2)
    cluster.create("out", 2)
    chance = world.chance
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True) as producer:
        for number in range(2 * N):
            await producer.send("in", b"%d" % number, partition=number % 2)

    def begin() -> Process:
        process = world.process("copier")
        process.start(kept_alive(lambda: copy(cluster, "copier", chance.choice([None, "copier"]))))
        return process

    cluster.network.fault = lossy(world, 0.01)
    process = begin()
    for _ in range(6):
        await asyncio.sleep(chance.expovariate(1))
        match chance.randrange(4):
            case 0:
                process.kill()
                process = begin()
            case 1:  # a zombie: its successor begins meanwhile
                process.freeze()
                await asyncio.sleep(chance.uniform(0, 10))
                zombie, process = process, begin()
                await asyncio.sleep(chance.uniform(0, 10))
                zombie.thaw()
                await asyncio.sleep(chance.uniform(0, 1))
                zombie.kill()
            case 2:
                node = chance.randrange(3)
                cluster.stop(node)
                await asyncio.sleep(chance.expovariate(1))
                cluster.start(node)
            case 3:
                cluster.move(chance.randrange(3))
    cluster.network.fault = lambda *_: GOOD
    for partition in range(2):
        wanted = [b"%d" % number for number in range(2 * N) if number % 2 == partition]
        while len(await values(cluster, "out", partition)) < N:
            await asyncio.sleep(1)
        assert await values(cluster, "out", partition) == wanted


@simulated()
async def test_compaction_keeps_the_last_value_and_the_offset_of_each_key(world: World, cluster: Cluster) -> None:
    topic = cluster.create("state", cleanup_policy="compact", delete_retention_ms="1000")
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="writer") as producer:
        for number in range(20):
            async with producer.transaction():
                await producer.send("state", None if number == 17 else b"%d" % number, key=b"%d" % (number % 5))
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send("state", b"aborted", key=b"0")
                await producer.flush()
                raise ZeroDivisionError
    cluster.clean()
    assert len(await values(cluster, "state")) == 20  # all of it is in the active segment
    topic.logs[0].roll()
    cluster.clean()
    assert await values(cluster, "state") == [b"15", b"16", None, b"18", b"19"]
    await asyncio.sleep(2)
    topic.logs[0].roll()
    cluster.clean()
    assert await values(cluster, "state") == [b"15", b"16", b"18", b"19"]


@simulated()
async def test_retention_deletes_closed_segments(world: World, cluster: Cluster) -> None:
    topic = cluster.create("news", retention_ms="65000", message_timestamp_type="LogAppendTime")
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(10):
            await producer.send_and_wait("news", b"%d" % number, timestamp_ms=1)
            await asyncio.sleep(10)
            topic.logs[0].roll()
        cluster.clean()
        assert await values(cluster, "news") == [b"4", b"5", b"6", b"7", b"8", b"9"]
        assert (await producer.send_and_wait("news", b"last")).offset == 10


@simulated()
async def test_offsets_of_a_lost_tail_are_given_again(world: World, cluster: Cluster) -> None:
    cluster.create("news")
    place = TopicPartition("news", 0)
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(10):
            await producer.send_and_wait("news", b"%d" % number)
        options = {"auto_offset_reset": "none"}
        async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, **options) as consumer:
            consumer.assign([place])
            consumer.seek(place, 10)
            cluster.lose_tail(("news", 0), 3)
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.getone()
        assert (await producer.send_and_wait("news", b"new")).offset == 7
    assert await values(cluster, "news") == [b"%d" % number for number in range(7)] + [b"new"]


@simulated()
async def test_a_transaction_that_is_left_open_holds_readers_until_its_timeout(world: World, cluster: Cluster) -> None:
    cluster.create("news")

    async def leave() -> None:
        options = {"transactional_id": "left", "transaction_timeout_ms": 30_000}
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, **options)
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait("news", b"open")

    process = world.process("left")
    await process.start(leave())
    process.kill()
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap) as producer:
        await producer.send_and_wait("news", b"plain")
    assert await values(cluster, "news") == []
    await asyncio.sleep(31)
    assert await values(cluster, "news") == [b"plain"]
