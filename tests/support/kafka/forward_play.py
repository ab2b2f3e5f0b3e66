"""Documents of all sorts with verdicts, as feeds and judges write them, and what forward has to make of them."""

import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.structs import TopicPartition

from stream_lsh.kafka.client.connection import client_options
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from support.kafka.stages import records_of, until_committed

PARTITIONS = 3
NOW = int(time.time() * 1000)  # retention goes by the documents' own timestamps: older ones may be deleted at any time
OPTIONS: dict[str, Any] = {
    "partitions": PARTITIONS, "session_timeout_ms": 30_000, "transaction_timeout_ms": 30_000, "give_up_seconds": 300,
}  # fmt: skip
KINDS = ("unique", "unique", "unique", "near_duplicate", "exact_duplicate", "redelivered", "rejected")


@dataclass(frozen=True)
class Written:
    """A document and the kind of the verdict on it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int
    kind: str


async def write_documents(
    settings: KafkaSettings, number: int, seed: int = 1, partitions: int = PARTITIONS
) -> list[Written]:
    """Documents of all sorts, some in transactions that are committed or aborted."""
    chance, found, topic = random.Random(seed), [], Topics.of(settings).documents
    async with (
        AIOKafkaProducer(**client_options(settings)) as plain,
        AIOKafkaProducer(**client_options(settings), transactional_id=f"{settings.topic_prefix}.feed") as transactional,
    ):
        made = 0
        while made < number:
            n = chance.randint(1, 30)
            producer = chance.choice((plain, plain, transactional))
            aborted = producer is transactional and chance.random() < 0.4
            if producer is transactional:
                await producer.begin_transaction()
            written = []
            for i in range(made, made + n):
                kind = chance.choice(KINDS)
                value = (
                    None
                    if kind == "rejected" and chance.random() < 0.3
                    else b"%d:" % i + chance.randbytes(chance.choice((3, 200, 5000)))
                )
                key = b"k%d" % i if value is None or chance.random() < 0.8 else None
                headers = [("h", b"\xff"), ("h", b""), ("reason", b"mine")] if chance.random() < 0.3 else []
                timestamp = NOW - chance.randrange(10**6)
                partition = chance.randrange(partitions)
                future = await producer.send(
                    topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp
                )
                written.append((future, key, value, headers, timestamp, kind))
            for future, key, value, headers, timestamp, kind in written:
                at = await future
                if not aborted:
                    found.append(Written(at.partition, at.offset, key, value, headers, timestamp, kind))
            if producer is transactional:
                await (producer.abort_transaction() if aborted else producer.commit_transaction())
            made += n
    return sorted(found, key=lambda written: (written.partition, written.offset))


def verdict(topic: str, document: Written) -> bytes:
    """The verdict on a document of a topic."""
    source = {"topic": topic, "partition": document.partition, "offset": document.offset}
    value = {"id": "x", "kind": document.kind, "matches": [], "source": source}
    if document.kind == "rejected":
        value |= {"reason": "not_json", "detail": f"ä {document.offset}"}
    return json.dumps(value).encode()


async def write_plain(settings: KafkaSettings, documents: Sequence[Written]) -> None:
    """The documents one after the other, not in a transaction."""
    async with AIOKafkaProducer(**client_options(settings)) as producer:
        for d in documents:
            await producer.send_and_wait(
                Topics.of(settings).documents, d.value, key=d.key, partition=d.partition, timestamp_ms=d.timestamp
            )


async def write_verdicts(settings: KafkaSettings, documents: Sequence[Written]) -> None:
    """Verdicts as a judge writes them: by partition in order, in rounds."""
    options = {**client_options(settings), "transactional_id": f"{settings.topic_prefix}.play"}
    topics = Topics.of(settings)
    async with AIOKafkaProducer(**options) as producer:
        for start in range(0, len(documents), 50):
            await producer.begin_transaction()
            for document in documents[start : start + 50]:
                value = verdict(topics.documents, document)
                await producer.send(topics.verdicts, value, partition=document.partition)
            await producer.commit_transaction()


def expected(
    settings: KafkaSettings, documents: Sequence[Written], partition: int
) -> dict[str, list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]]]:
    topics = Topics.of(settings)
    mine = [document for document in documents if document.partition == partition]
    unique = [(d.key, d.value, d.headers, d.timestamp) for d in mine if d.kind == "unique"]
    dead = []
    for d in mine:
        if d.kind == "rejected":
            added = {
                "reason": "not_json", "detail": f"ä {d.offset}", "topic": topics.documents,
                "partition": str(partition), "offset": str(d.offset),
            }  # fmt: skip
            headers = [*d.headers, *((name, text.encode()) for name, text in added.items())]
            dead.append((d.key, d.value, headers, d.timestamp))
    return {topics.unique: unique, topics.dead_letters: dead}


async def check(settings: KafkaSettings, documents: Sequence[Written], partitions: int = PARTITIONS) -> None:
    rows = {
        TopicPartition(topic, partition): rows
        for partition in range(partitions)
        for topic, rows in expected(settings, documents, partition).items()
    }
    for place, found in (await records_of(settings, list(rows), "read_committed")).items():
        got = [(record.key, record.value, list(record.headers), record.timestamp) for record in found]
        assert got == rows[place], place


async def until_forwarded(settings: KafkaSettings, documents: Sequence[Written]) -> None:
    ends: dict[int, int] = {}
    for document in documents:
        ends[document.partition] = document.offset + 1
    await until_committed(
        settings, "forward", Topics.of(settings).documents,
        lambda found: all(found.get(partition, -1) >= end for partition, end in ends.items()),
    )  # fmt: skip
