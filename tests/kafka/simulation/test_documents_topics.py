"""Several documents topics in one pipeline, each with its own fields, as one topic in the embedded engine."""

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from support.kafka import plain
from support.kafka.feeding import Record
from support.kafka.oracle import Outputs, answers, check, order
from support.schema_registry import encoded
from support.simulation.cluster import Cluster
from support.simulation.fixtures import folder
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.errors import StoreError
from stream_lsh.kafka.registry.client import Client
from stream_lsh.kafka.registry.decoding import Absent
from stream_lsh.kafka.tools import reindex
from stream_lsh.kafka.tools.observer import observing
from stream_lsh.wire.source import TOPIC_BITS

N, WIRE = 60, 1 << TOPIC_BITS  # the number of the first partition of `wire`
NAMES = (b"news", b"wire", b"rows", b"pages")
"""Topics by their number."""
FIELDS = {b'"id"': b'"ix"', b'"text"': b'"txet"', b'"deleted"': b'"removed"', b'"outlet"': b'"teltuo"'}
GIVEN: dict[str, Any] = {
    **plain.SURE, "on_conflict": "update", "key_is_id": "string", "deleted_field": "deleted", "frame_documents": 8,
}  # fmt: skip
NEWS = {"news": {"id_prefix": ""}}
BOTH = NEWS | {
    "wire": {"id_field": "ix", "text_field": "txet", "deleted_field": "removed", "id_prefix": ""},
}  # fmt: skip


def history(n: int, news: int, wire: int, seed: int, first: int = 0, families: int = 60) -> list[Record]:
    """Records of so many partitions of each topic. Their timestamps differ, and so say which record an output is of.
    first: how many records there are already. families: how many texts are told at a time."""
    found = []
    for i, record in enumerate(plain.history(n, news + wire, seed, families), first):
        assert record.timestamp is not None
        at, value = record.partition, record.value
        if at >= news:
            at = WIRE + at - news
            for ours, theirs in FIELDS.items():
                value = None if value is None else value.replace(ours, theirs)
        found.append(
            replace(record, partition=at, value=value, timestamp=record.timestamp // plain.STEP * plain.STEP + i)
        )
    return found


def plainly(value: bytes | None) -> bytes | None:
    """A value with the fields of `news`, and with source partitions of one topic."""
    if value is None:
        return None
    for ours, theirs in FIELDS.items():
        value = value.replace(theirs, ours).replace(theirs.replace(b'"', b'\\"'), ours.replace(b'"', b'\\"'))
    return re.sub(
        rb'"topic":"(\w+)","partition":(\d+)',
        lambda place: b'"topic":"news","partition":%d' % (int(place[2]) + (NAMES.index(place[1]) << TOPIC_BITS)),
        value,
    )


def as_one(
    records: list[Record], numbers: dict[int, int] | None = None, values: Mapping[int, bytes] | None = None
) -> list[Record]:
    """Records of an output as if the documents were in one topic. By timestamp, numbers: their source partitions;
    values: those of `news`, of documents in envelopes."""
    found = []
    for record in records:
        value, headers = plainly(record.value), dict(record.headers)
        if values is not None and record.timestamp in values and value is not None:
            value = values[record.timestamp]
        headers |= {name: plainly(said) for name, said in headers.items() if name == "detail"}
        number = record.partition
        if numbers is not None and record.timestamp is not None:
            number = numbers[record.timestamp]
        elif (place := re.search(rb'"source":\{"topic":"news","partition":(\d+)', value or b"")) is not None:
            number = int(place[1])
        for name in ("", "new-representative-"):
            if (topic := headers.get(f"{name}topic")) is not None and f"{name}partition" in headers:
                there = int(headers[f"{name}partition"]) + (NAMES.index(topic) << TOPIC_BITS)
                headers |= {f"{name}topic": b"news", f"{name}partition": b"%d" % there}
        if "reason" not in headers and (topic := headers.pop("topic", None)) is not None:
            assert topic == NAMES[number >> TOPIC_BITS] and value is not None
        found.append(replace(record, partition=number, value=value, headers=tuple(headers.items())))
    return sorted(found, key=lambda record: record.partition)


def check_as_one(pipeline: Pipeline, values: Mapping[int, bytes] | None = None) -> None:
    """values: see `as_one`."""
    documents = pipeline.records("documents")
    numbers = {record.timestamp: record.partition for record in documents if record.timestamp is not None}
    assert len(numbers) == len(documents)
    plain_values = [(values or {}).get(record.timestamp or 0, plainly(record.value)) for record in documents]
    found = Outputs(
        [replace(record, value=value) for record, value in zip(documents, plain_values, strict=True)],
        as_one(pipeline.records("verdicts")), as_one(pipeline.records("pairs")),
        as_one(pipeline.records("unique"), numbers, values), as_one(pipeline.records("dead_letters"), numbers, values),
        pipeline.records("groups"),
    )  # fmt: skip
    settings = pipeline.settings.by_topic["news"]
    recorded = order(settings, (record for record in pipeline.records("frames") if record.partition == 0))
    check(
        found, answers(settings, Path(folder()) / f"oracle-{settings.topic_prefix}", recorded, found.documents), "news"
    )


async def with_topics(world: World, cluster: Cluster, **given: Any) -> Pipeline:
    """A pipeline whose topic `news` has 3 partitions, and `wire` has 2."""
    pipeline = Pipeline(world, cluster, **{**GIVEN, "partitions": 2, "documents": BOTH, **given})
    await pipeline.create_topics()
    cluster.grow("news", 3)
    await pipeline.create_topics()
    return pipeline


@pytest.mark.long
@pytest.mark.limit(1800)
@simulated(seeds=2, most=20)
async def test_workers_that_are_killed_say_what_the_embedded_engine_says_of_one_topic(
    world: World, cluster: Cluster
) -> None:
    """Meanwhile one of the topics gets a partition, whose number the other one has already."""
    window = {"window": "10m", "time_field": "ts", "groups": True} if world.seed % 2 else {}
    pipeline = await with_topics(world, cluster, shards=world.chance.choice([1, 3]), decision_lag=1000, **window)
    workers = [pipeline.start(), pipeline.start()]

    async def feed() -> None:
        await pipeline.feed(history(N // 2, 3, 2, world.seed), 3)
        cluster.grow("wire", 3)
        await pipeline.feed(history(N // 2, 3, 3, world.seed + 1, N // 2), 3)

    feeding = world.process("producer").start(feed())
    for place in (0, 1):
        await asyncio.sleep(world.chance.uniform(3, 15))
        workers[place].process.kill()
        workers[place] = pipeline.start(folder=workers[place].folder if world.chance.random() < 0.7 else None)
    await feeding
    await pipeline.finish(workers, 300)
    async with observing(pipeline.settings, None) as observer:
        # A killed signer may have sent what its successor has still to read; a drain does not wait for that.
        while any(reader.waiting for reader in (await observer.look()).readers if reader.role == "sign"):
            await asyncio.sleep(1)
        await pipeline.drain()
        seen, end = await observer.look(), world.seconds + 60
        while any(reader.waiting for reader in seen.readers) and world.seconds < end:  # positions that repeats moved
            await asyncio.sleep(1)
            seen = await observer.look()
    assert seen.provisional == dict.fromkeys((0, 1, 2, WIRE, WIRE + 1, WIRE + 2), (0, None))
    assert {reader.waiting for reader in seen.readers} == {0}
    await pipeline.stop(*workers)
    check_as_one(pipeline)


@pytest.mark.long
@simulated(seeds=2, most=6)
async def test_topics_have_their_own_scopes_and_ranks(world: World, cluster: Cluster) -> None:
    given: dict[str, Any] = {"match_within": ["outlet"]}
    if world.seed % 2:
        given = {"keep": "best", "rank_field": "outlet", "rank_order": ["radio", "7", "wire", "herald"]}
    own: dict[str, Any] = {"rank_field": "teltuo"} if world.seed % 2 else {"match_within": ["teltuo"]}
    pipeline = await with_topics(
        world, cluster, **given, shards=world.chance.choice([1, 2]), decision_lag=1000,
        documents=NEWS | {"wire": BOTH["wire"] | own},
    )  # fmt: skip
    worker = pipeline.start()
    await pipeline.feed(history(2 * N, 3, 2, world.seed, families=10), 20)
    await pipeline.finish([worker], 300)
    await pipeline.stop(worker)
    check_as_one(pipeline)
    found = [json.loads(record.value) for record in pipeline.records("verdicts") if record.value is not None]
    assert {verdict["source"]["topic"] for verdict in found if "duplicate" in verdict["kind"]} == {"news", "wire"}
    assert any("supersedes" in verdict for verdict in found) == bool(world.seed % 2)


@pytest.mark.long
@simulated(most=10)
async def test_a_topic_is_added_and_none_is_missing(world: World, cluster: Cluster) -> None:
    given = {**GIVEN, "partitions": 2}
    one, both = (
        Pipeline(world, cluster, **given, documents_topic="news"),
        Pipeline(world, cluster, **given, documents=BOTH),
    )
    for pipeline, documents in (
        (one, history(N // 2, 2, 0, world.seed)),
        (both, history(N, 2, 2, world.seed + 1, N // 2)),
    ):
        await pipeline.create_topics()
        worker = pipeline.start()
        await pipeline.feed(documents, 20)
        await pipeline.finish([worker], 300)
        await pipeline.stop(worker)
    check_as_one(both)
    wrong = (
        ("sign", {"documents_topic": "news"}, "has read news, wire so far, and the documents topics are news now"),
        ("judge", {"documents_topic": "news"}, "has judged news,wire so far, and documents_topic is news now"),
        ("sign", {"documents": dict(reversed(BOTH.items()))}, "is number . of the documents topics so far"),
        ("judge", {"documents": dict(reversed(BOTH.items()))}, "keep the order of the tables"),
        ("sign", {"documents": NEWS | {"wire": {}}}, "wire was signed with other settings so far"),
    )  # fmt: skip
    for role, tables, said in wrong:
        worker = one.start(role, documents_topic=None, **tables) if "documents" in tables else one.start(role)
        with pytest.raises(StoreError, match=said):
            await asyncio.wait_for(worker.ended, 300)


@pytest.mark.long
@simulated(most=4)
async def test_reindex_reads_all_topics(world: World, cluster: Cluster) -> None:
    """Meanwhile documents arrive, and a partition."""
    old = await with_topics(world, cluster)
    workers = [old.start()]
    await old.feed(history(N, 3, 2, world.seed), 20)
    await old.finish(workers, 300)
    changes = {"threshold": 0.7, "shards": 2, "decision_lag": 1000}
    again = Pipeline(
        world, cluster, **{**GIVEN, "partitions": 2, "documents": BOTH, "topic_prefix": "again", **changes}
    )
    new = reindex.target(reindex.changed(old.settings, "", **changes), "again")
    assert new.answers == again.settings.answers and new.by_topic.keys() == again.settings.by_topic.keys()
    goal = await reindex.prepare(new)
    assert goal.begins == dict.fromkeys((0, 1, 2, WIRE, WIRE + 1), 0) and goal.total == N
    workers.append(again.start())
    cluster.grow("wire", 3)
    more = world.process("producer").start(old.feed(history(N // 2, 3, 3, world.seed + 1, N), 20))
    seen = list[int]()
    assert await asyncio.wait_for(reindex.follow(new, goal, asyncio.Event(), seen.append), 300)
    assert seen[-1] == N
    await more
    for pipeline, worker in zip((old, again), workers, strict=True):
        await pipeline.finish([worker], 300)
        await pipeline.stop(worker)
        check_as_one(pipeline)


ROW: dict[str, Any] = {
    "type": "record", "name": "Row",
    "fields": [{"name": "id", "type": ["string", "long"]}, {"name": "text", "type": ["null", "string"]}],
}  # fmt: skip
CHANGE = {
    "type": "record", "name": "Change",
    "fields": [
        {"name": "op", "type": "string"}, {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Row"]},
    ],
}  # fmt: skip
EVENT = [("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/pages"), ("ce_type", b"page")]


def changed(document: dict[str, Any]) -> bytes:
    """A document as Debezium's event in Avro."""
    row = {"id": document["id"], "text": document.get("text")}
    deleted = document.get("deleted")
    event = {"op": "d", "before": row, "after": None} if deleted else {"op": "c", "before": None, "after": row}
    stream = BytesIO()
    schemaless_writer(stream, parse_schema(CHANGE), event)
    return encoded(7, stream.getvalue())


@pytest.mark.long
@simulated(most=4)
async def test_topics_with_a_registry_and_with_events_are_beside_a_plain_one(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answers of the registry fail."""
    refusals = [Absent("the registry is absent")] * 2

    def schema(_: object, id: int) -> dict[str, Any]:
        if refusals:
            raise refusals.pop()
        return {7: {"schema": json.dumps(CHANGE)}}[id]

    monkeypatch.setattr(Client, "schema", schema)
    tables = {
        "news": {"deleted_field": "deleted"}, "wire": {**BOTH["wire"]},
        "rows": {"document_format": "registry", "envelope": "debezium"},
        "pages": {"envelope": "cloudevents", "deleted_field": "deleted"},
    }  # fmt: skip
    documents, values = list[Record](), dict[int, bytes]()
    for record in history(N, 2, 2, world.seed):
        number, document = world.chance.choice((0, 2, 3)) << TOPIC_BITS, None
        if record.partition < WIRE and record.value:
            with suppress(ValueError):
                document = json.loads(record.value)
        if number and isinstance(document, dict) and isinstance(document.get("text", ""), str):
            assert record.timestamp is not None and record.value is not None
            values[record.timestamp] = record.value
            value = changed(document) if number >> TOPIC_BITS == 2 else record.value
            headers = EVENT if number >> TOPIC_BITS == 3 else ()
            record = replace(record, partition=number + record.partition, value=value, headers=tuple(headers))
        documents.append(record)
    pipeline = Pipeline(
        world, cluster, **{**GIVEN, "key_is_id": None, "deleted_field": None}, partitions=2, registry_url="http://registry",
        documents={topic: {"id_prefix": "", **table} for topic, table in tables.items()},
    )  # fmt: skip
    await pipeline.create_topics()
    workers = [pipeline.start(), pipeline.start()]
    await pipeline.feed(documents, 20)
    await pipeline.finish(workers, 300)
    await pipeline.stop(*workers)
    check_as_one(pipeline, values)
    assert not refusals and {record.partition >> TOPIC_BITS for record in pipeline.records("documents")} == {0, 1, 2, 3}
