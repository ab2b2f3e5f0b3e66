"""What does not fit, what is not there, what is away: clear words, retries with limits, no lost document."""

import random

import pytest
from aiokafka import AIOKafkaProducer
from support.kafka.feeding import Record
from support.kafka.header_play import Name, send
from support.simulation.cluster import Cluster
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.kafka.client.connection import client_options

pytestmark = pytest.mark.long


def post(id: object, text: str) -> bytes:
    return b'{"id": %b, "title": "t", "text": "%b"}' % (
        (f'"{id}"' if isinstance(id, str) else str(id)).encode(), text.encode()
    )  # fmt: skip


def words(seed: int, size: int) -> str:
    """About so many bytes of text that hardly repeats."""
    chance = random.Random(seed)
    return " ".join(f"{chance.randrange(16**7):x}" for _ in range(size // 8))


@simulated()
async def test_a_large_document_and_poison(world: World, cluster: Cluster) -> None:
    """3 MB go through, twice; what is no document is a dead letter, with its bytes."""
    large = words(1, 3_000_000)
    poison = [
        Record(0, b"k", None), Record(0, None, b""), Record(0, b"\xff\xfe", b"\x00\xff\x80binary" * 50),
        Record(0, b"x" * 900_000, post("long-key", "one two three four five")), Record(0, b"", b"[]"),
        Record(0, b"1", b'{"id": 1e400, "text": "a"}'), Record(0, b"1", b'{"id": "a", "title": "b"}'),
        Record(0, b"1", b"[" * 100_000), Record(0, b"1", b'{"id": "\\ud800", "title": "t", "text": "lone surrogate"}'),
        Record(0, "schlüssel".encode(), post("ünïcode-ïd", "one two three four five six seven")),
        Record(0, b"1", b'{"id": "' + b"i" * 70_000 + b'", "title": "t", "text": "a very long id"}'),
        Record(0, b"h", post("headers", "a document with headers"), (("traceparent", b"\xff\xfe"), ("", b""))),
        Record(0, b"spaces", post("spaces", "   ")),
    ]  # fmt: skip
    records = [
        Record(0, b"first", post("first", large)), *poison, Record(0, b"second", post("second", large + " more")),
        Record(0, b"after", post("after", "the pipeline goes on after all that")),
    ]  # fmt: skip
    pipeline = Pipeline(
        world, cluster, partitions=1, shards=2, compare_with="all", max_document_bytes=16 * 2**20,
        text_field=("title", "text"),
    )  # fmt: skip
    await pipeline.create_topics()
    worker = pipeline.start()
    strange = post("strange", "its headers have names that are no text")
    async with AIOKafkaProducer(**client_options(pipeline.settings), max_request_size=2**25) as producer:
        for each in records:
            headers = list(each.headers)
            await producer.send_and_wait(pipeline.topics.documents, each.value, each.key, 0, headers=headers)
        await send(producer, pipeline.topics.documents, [strange], [(Name(b"\xff\xfe"), b"1"), ("traceparent", b"2")])
    await pipeline.finish([worker], 300)
    await pipeline.stop(worker)
    pipeline.check()
    assert [record.key for record in pipeline.records("pairs")] == [b'["first","second"]']
    assert len(pipeline.records("dead_letters")) >= 8
    [found] = [record for record in pipeline.records("unique") if record.value == strange]
    assert found.headers == (("\\xff\\xfe", b"1"), ("traceparent", b"2"))


@simulated()
async def test_a_document_that_its_outputs_cannot_take(world: World, cluster: Cluster) -> None:
    """A producer has compressed it. The beginning is a dead letter."""
    pipeline = Pipeline(world, cluster, partitions=1, text_field=("title", "text"), record_bytes=4000)
    large = post("large", "repeated words " * 200_000)
    await pipeline.create_topics()
    worker = pipeline.start()
    options = {**client_options(pipeline.settings), "compression_type": "gzip", "max_request_size": 2**23}
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait(pipeline.topics.documents, large, partition=0)
    await pipeline.finish([worker], 300)
    [letter] = pipeline.records("dead_letters")
    headers = dict(letter.headers)
    assert letter.value is not None and large.startswith(letter.value) and len(letter.value) > 10**6
    assert (headers["reason"], int(headers["truncated"])) == (b"too_large", len(large))
    assert b"raise max.message.bytes of sim.unique" in headers["detail"]
