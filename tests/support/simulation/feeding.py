"""Documents that come in one by one."""

import asyncio
from collections.abc import Iterable

from aiokafka import AIOKafkaProducer

from support.kafka.feeding import Record
from support.simulation.cluster import Cluster
from support.simulation.world import World


async def feed(world: World, cluster: Cluster, topic: str, records: Iterable[Record], rate: float) -> None:
    """Produce records, at random intervals, so many a second."""
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True) as producer:
        for one in records:
            await producer.send(
                topic, one.value, one.key, one.partition, timestamp_ms=one.timestamp, headers=list(one.headers)
            )
            await asyncio.sleep(world.chance.expovariate(rate))
