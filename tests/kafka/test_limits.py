"""What does not fit, what is not there, what is away: clear words, retries with limits, no lost document."""

import random
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from support.kafka.chaos import documents
from support.kafka.feeding import Record, records_of
from support.kafka.harness import Pipeline
from support.kafka.header_play import Name, send
from support.long_form import rotating

from stream_lsh.embedded.warming import warm_up
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


async def send_with_strange_headers(pipeline: Pipeline, value: bytes) -> None:
    async with AIOKafkaProducer(**client_options(pipeline.settings)) as producer:
        await send(producer, pipeline.topics.documents, [value], [(Name(b"\xff\xfe"), b"1"), ("traceparent", b"2")])


def test_a_large_document_and_poison(broker: Any, prefix: str, tmp_path: Path) -> None:
    """10 MB go through, twice; what is no document is a dead letter, with its bytes."""
    large = words(1, 10_000_000)
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
    with Pipeline(
        broker.bootstrap, prefix, tmp_path, partitions=1, shards=2, session_timeout_ms=30_000,
        transaction_timeout_ms=60_000, max_document_bytes=16 * 2**20,
    ) as pipeline:  # fmt: skip
        worker = pipeline.worker()
        pipeline.produce(records)
        pipeline.run(send_with_strange_headers(pipeline, post("strange", "its headers have names that are no text")))
        pipeline.finish()
        worker.terminate()
        assert worker.wait() == 0, worker.said()
        found = pipeline.check()
    assert [record.key for record in found.pairs] == [b'["first","second"]']
    assert len(found.dead_letters) >= 8
    [strange] = [record for record in found.unique if (record.value or b"").startswith(b'{"id": "strange"')]
    assert strange.headers == (("\\xff\\xfe", b"1"), ("traceparent", b"2"))
    assert b"Traceback" not in worker.log.read_bytes()


def test_topics_with_default_limits(broker: Any, prefix: str, tmp_path: Path) -> None:
    """Most records between the roles are in parts. Documents that a producer has compressed are dead letters."""
    values = [post(f"d{i}", f"{words(i % 40, 400)} {i}") for i in range(400)]
    large = post("large", "repeated words " * 200_000)
    with Pipeline(broker.bootstrap, prefix, tmp_path, partitions=1, shards=2, record_bytes=4000) as pipeline:
        worker = pipeline.worker()
        pipeline.run(send_compressed(pipeline, large))
        pipeline.produce([Record(0, None, value) for value in values])
        pipeline.finish()
        worker.terminate()
        assert worker.wait() == 0, worker.said()
        [letter] = pipeline.outputs().dead_letters
    headers = dict(letter.headers)
    assert letter.value is not None and large.startswith(letter.value) and len(letter.value) > 10**6
    assert (headers["reason"], int(headers["truncated"])) == (b"too_large", len(large))
    assert f"raise max.message.bytes of {prefix}.unique".encode() in headers["detail"]


async def send_compressed(pipeline: Pipeline, value: bytes) -> None:
    options = {"compression_type": "gzip", "max_request_size": 2**23}
    async with AIOKafkaProducer(**client_options(pipeline.settings), **options) as producer:
        await producer.send_and_wait(pipeline.topics.documents, value, partition=0)


@pytest.mark.parametrize(("role", "largest"), rotating([("match", 400_000), ("group", 40_000)], 1))
def test_a_full_disk(
    broker: Any, prefix: str, shared_data: Path, tmp_path: Path, role: str, largest: int
) -> None:  # fmt: skip
    """The limit on file sizes stands for the full disk: the worker ends with a message, and loses nothing."""
    values = list(documents(shared_data, 3000, 3))
    given = {"partitions": 2, "shards": 2, "memtable_documents": 256, "groups": True, "compare_with": "kept"}
    with Pipeline(broker.bootstrap, prefix, tmp_path, **given) as pipeline:
        pipeline.worker([other for other in pipeline.settings.roles if other != role])
        worker = pipeline.worker((role,), start=False)
        warm_up(pipeline.settings)  # what is compiled could not be written, either
        worker.start(largest_file=largest)
        pipeline.produce(records_of(values, 2, 3))
        assert worker.wait() in (3, 5), worker.said()
        assert "Traceback" not in worker.said() and "stream-lsh:" in worker.said()
        worker.start()
        pipeline.finish()
        pipeline.check()
