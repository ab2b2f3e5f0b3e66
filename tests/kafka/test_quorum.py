"""A topic's copies fall below min.insync.replicas: nothing is acknowledged, nothing may get lost, somebody is told."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.kafka.brokers import VERSION
from support.kafka.chaos import documents
from support.kafka.cluster import COPIES, cluster
from support.kafka.feeding import Feed, records_of
from support.kafka.harness import Pipeline, until
from support.missing import missing

from stream_lsh.errors import BrokerError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.settings import ROLES, KafkaSettings
from stream_lsh.kafka.tools.broker import KafkaBroker
from stream_lsh.kafka.topics import lacking

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[KafkaBroker]]:
    with ExitStack() as stack:
        try:
            found = stack.enter_context(cluster(tmp_path_factory.mktemp("cluster"), VERSION))
        except BrokerError as error:
            missing(f"no Kafka from Java and Maven for the tests: {error}")
        yield found


async def in_step(settings: KafkaSettings) -> bool:
    """Whether every partition has all its copies in step."""
    async with admin(settings) as client:
        topics = await client.describe_topics(await client.list_topics())
    return all(len(place["isr"]) == len(place["replicas"]) for topic in topics for place in topic["partitions"])


def test_a_lost_quorum(brokers: list[KafkaBroker], prefix: str, shared_data: Path, tmp_path: Path) -> None:
    """Without one of three brokers workers go on; without two they wait, or give up with code 6 and the reason."""
    records = records_of(list(documents(shared_data, 4000, 4)), 2, 4)
    first, *others = brokers
    with Pipeline(first.bootstrap, prefix, tmp_path, partitions=2, shards=2, replication_factor=COPIES) as pipeline:
        workers = [pipeline.worker(ROLES, "groups"), pipeline.worker(("match", "judge", "forward"))]
        # More than can be needed, so that documents come all the time.
        feed = Feed(first.bootstrap, pipeline.topics.documents, records * 20, rate=150)
        feed.start()
        pipeline.wait_for(len(records) // 4)
        until(lambda: pipeline.run(in_step(pipeline.settings)), why="there are copies that lag behind")
        others[0].kill()
        pipeline.wait_for(len(records) // 2)
        assert "min.insync.replicas" not in pipeline.report()
        others[1].kill()
        for worker in workers:
            until(lambda said=worker.said: "min.insync.replicas" in said(100_000), why=pipeline.report())
        until(lambda: asyncio.run(lacking(pipeline.settings)) != "", why="the controller has not noticed")
        impatient = pipeline.worker(give_up_seconds=5)
        assert impatient.wait() == 6, impatient.said()
        said = impatient.said()
        assert "min.insync.replicas" in said and "Given up after" in said and "Traceback" not in said
        for broker in others:
            broker.start()
        pipeline.workers.remove(impatient)
        workers.append(pipeline.worker(name=impatient.name))  # what it does first may take long
        feed.stop()
        pipeline.finish()
        pipeline.stop(*workers)
        for said in (worker.said(1_000_000) for worker in workers[:2]):
            assert "Traceback" not in said, said
        pipeline.check()
