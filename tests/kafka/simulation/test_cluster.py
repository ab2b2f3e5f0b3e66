"""What a simulated Kafka does besides answering (`test_contract`): faults, compaction, nodes that go, a lost tail."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from support.simulation.cluster import Cluster
from support.simulation.runner import simulated
from support.simulation.world import World


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
async def test_a_lost_tail_is_gone_and_its_offsets_are_given_again(world: World, cluster: Cluster) -> None:
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
