"""Outputs in Avro: they say what outputs in JSON say, also where a topic has both, and while the registry comes and
goes."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.feeds import START
from support.kafka import plain
from support.kafka.feeding import Record
from support.kafka.harness import passed_on
from support.simulation.clock import Clock
from support.simulation.cluster import Cluster
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import Loop, World

from stream_lsh.errors import BrokerError, StoreError, StreamLshError
from stream_lsh.kafka.consumer.output_values import BLOCKING_BYTES, OutputValues
from stream_lsh.kafka.registry.client import Client
from stream_lsh.kafka.registry.decoding import Absent, Refused, Unknown
from stream_lsh.kafka.registry.encoding import OUTPUTS, Decoder, Encoder
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.observer import observing
from stream_lsh.kafka.tools.skip import look, skip
from stream_lsh.kafka.tools.tail import tail
from stream_lsh.serve.counts import Tally
from stream_lsh.serve.events import Ring
from stream_lsh.serve.pipeline.following import follow
from stream_lsh.serve.pipeline.outputs import Outputs
from stream_lsh.serve.pipeline.verdicts import Verdicts

PARTITIONS, N = 2, 60
AVRO: dict[str, Any] = {"output_format": "avro", "registry_url": "http://registry"}
RULES = '[[rule]]\nname = "grows"\nkind = "growth"\nmembers = 2\nwithin = "4h"\n'


class Registry:
    """Answers in place of a registry, at first not at all. subjects: schema and id by subject. asked:
    requests by the id of the schema."""

    def __init__(self, absent: int) -> None:
        self.absent = absent
        self.asked: Counter[int] = Counter()
        self.subjects: dict[str, tuple[str, int]] = {}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Client, "register", lambda _, subject, schema: self.register(subject, schema))
        monkeypatch.setattr(Client, "schema", lambda _, id: self.schema(id))

    def register(self, subject: str, schema: str) -> int:
        self._answer()
        return self.subjects.setdefault(subject, (schema, 70 + len(self.subjects)))[1]

    def schema(self, id: int) -> dict[str, Any]:
        self.asked[id] += 1
        self._answer()
        for schema, known in self.subjects.values():
            if known == id:
                return {"schema": schema}
        raise Unknown

    def _answer(self) -> None:
        self.absent -= 1
        if self.absent >= 0:
            raise Absent("the registry is absent")


@simulated()
async def test_outputs_in_avro_are_those_of_the_embedded_engine(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Half of the seeds begin with JSON. Workers are killed, and the registry is absent again afterwards."""
    registry = Registry(3)
    registry.install(monkeypatch)
    (tmp_path / "rules.toml").write_text(RULES)
    first = {"output_format": "json"} if world.seed % 2 else {}
    pipeline = Pipeline(
        world, cluster, **plain.SURE, **AVRO, partitions=PARTITIONS, frame_documents=8, decision_lag=1000,
        shards=world.chance.choice([1, 2]), on_conflict="update", deleted_field="deleted", key_is_id="string",
        time_field="ts", groups=True, alerts=tmp_path / "rules.toml",
    )  # fmt: skip
    await pipeline.create_topics()
    workers = [pipeline.start(**first), pipeline.start(**first)]
    history = plain.history(N, PARTITIONS, world.seed)
    await pipeline.feed(history[: N // 2], 20)
    for worker in workers:
        worker.process.kill()
    registry.absent = 3
    workers = [pipeline.start(), pipeline.start()]
    await pipeline.feed(history[N // 2 :], 20)
    await pipeline.finish(workers, 300)
    await pipeline.drain()
    values = {output: [r.value for r in pipeline.records(f"{output}s") if r.value] for output in OUTPUTS}
    assert {bool(value[0]) for value in values["verdict"]} == ({False, True} if first else {False})
    assert registry.absent < 0 and any("waiting for it" in line for line in world.warnings)
    pipeline.decoders = {id.to_bytes(5): Decoder(schema) for schema, id in registry.subjects.values()}
    assert sorted(registry.subjects) == sorted(f"sim.{output}s-value" for output in OUTPUTS)
    pipeline.check()
    for output in ("verdicts", "groups"):
        lines = [line async for line in tail(pipeline.settings, output, from_beginning=True, follow=False)]
        assert sorted(lines) == sorted(record.value for record in pipeline.records(output) if record.value)
    assert all(json.loads(line)["key"] for line in [record.value or b"" for record in pipeline.records("alerts")])


@simulated()
async def test_a_schema_that_the_registry_refuses_ends_the_worker(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def register(*_: object) -> int:
        raise Refused("the Schema Registry refuses the schema: incompatible")

    monkeypatch.setattr(Client, "register", register)
    pipeline = Pipeline(world, cluster, **AVRO)
    await pipeline.create_topics()
    with pytest.raises(StreamLshError, match=r"incompatible.* look at the subject sim.verdicts-value"):
        await pipeline.start("judge").ended


def start_avro(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, **given: Any
) -> tuple[Registry, Pipeline]:
    """A pipeline whose outputs are Avro, and its registry."""
    registry = Registry(0)
    registry.install(monkeypatch)
    return registry, Pipeline(world, cluster, **{**plain.SURE, **AVRO, "partitions": PARTITIONS, **given})


@simulated()
async def test_dense_verdicts_in_avro_are_converted_beside_the_event_loop(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every two of 300 documents are a pair. A loop that converts for seconds sends no heartbeats. Threads take long
    here, and no member leaves its group."""
    world.work = 0.5
    registry, pipeline = start_avro(
        world, cluster, monkeypatch, compare_with="all", max_matches=0, max_verified_matches=0, max_candidates=4096
    )
    in_thread, sizes = False, dict[bool, list[int]]({False: [], True: []})
    in_executor = Loop.run_in_executor

    def run_in_executor(self: Loop, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        def marked() -> Any:
            nonlocal in_thread
            in_thread = True
            try:
                return func(*args)
            finally:
                in_thread = False

        return in_executor(self, executor, marked)

    def noted(convert: Callable[[Any, bytes], bytes]) -> Callable[[Any, bytes], bytes]:
        def call(self: Any, value: bytes) -> bytes:
            sizes[in_thread].append(len(value))
            return convert(self, value)

        return call

    monkeypatch.setattr(Loop, "run_in_executor", run_in_executor)
    for kind in (Encoder, Decoder):
        monkeypatch.setattr(kind, "__call__", noted(kind.__call__))
    await pipeline.create_topics()
    text = " ".join(f"w{i}" for i in range(12))
    documents = [orjson.dumps({"id": i, "text": f"{text} own{i}"}) for i in range(300)]
    await pipeline.feed([Record(i % PARTITIONS, None, value, (), START + i) for i, value in enumerate(documents)], 1000)
    worker = pipeline.start()
    while not all(map(pipeline.forwarded, range(PARTITIONS))):
        await asyncio.sleep(1)
    assert [cluster.group(f"sim.{role}").generation for role in ("judge", "forward")] == [1, 1]
    await pipeline.stop(worker)
    pipeline.decoders = {id.to_bytes(5): Decoder(schema) for schema, id in registry.subjects.values()}
    matches = [record.value.count(b'"similarity"') for record in pipeline.records("verdicts") if record.value]
    assert sum(matches) > 40_000
    assert sum(sizes[True]) > 100 * BLOCKING_BYTES
    assert max(sizes[False], default=0) <= BLOCKING_BYTES
    pipeline.check()


@simulated()
async def test_verdicts_of_an_unknown_schema_stop_forward_until_they_are_skipped(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them documents are in no output."""
    registry, pipeline = start_avro(world, cluster, monkeypatch)
    await pipeline.create_topics()
    worker, history = pipeline.start("sign", "sequence", "match", "judge"), plain.history(12, PARTITIONS, world.seed)
    await pipeline.feed(history[:8], 20)
    while len(pipeline.records("verdicts")) < 8:
        await asyncio.sleep(1)
    settings, written, registry.subjects = pipeline.settings, registry.subjects, {"other": ("{}", 1)}
    with pytest.raises(
        StreamLshError, match=r"schema 7\d and cannot be decoded: set registry_url .*kafka skip verdicts"
    ):
        await pipeline.start("forward").ended
    for record in pipeline.records("verdicts"):
        unread = await look(settings, "verdicts", record.partition, record.offset)
        assert "cannot be decoded" in unread.why and unread.size == len(record.value or b"")
        await skip(settings, unread)
    registry.absent = 10**9
    with pytest.raises(BrokerError, match="the registry is absent"):
        await look(settings, "verdicts", 0, 0)
    registry.absent, registry.subjects = 0, written
    with pytest.raises(StoreError, match="can be read with these settings"):
        await look(settings, "verdicts", 0, 0)
    registry.subjects = {}
    forward = pipeline.start("forward")
    while sum("have no verdict and get none" in line for line in world.warnings) < PARTITIONS:
        await asyncio.sleep(1)
    await pipeline.stop(forward)
    assert not pipeline.records("unique") and not pipeline.records("dead_letters")
    registry.subjects, forward = written, pipeline.start("forward")
    await pipeline.feed(history[8:], 20)
    while not all(map(pipeline.forwarded, range(PARTITIONS))):
        await asyncio.sleep(1)
    await pipeline.stop(worker, forward)
    pipeline.decoders = {id.to_bytes(5): Decoder(schema) for schema, id in written.values()}
    later = [record for record in pipeline.records("verdicts") if json.loads(record.value or b"")["seq"] >= 4104]
    assert len(later) == 4
    passed = sum(passed_on(record.value) for record in later)
    assert len(pipeline.records("unique")) + len(pipeline.records("dead_letters")) == passed > 0


@simulated()
async def test_forward_keeps_documents_while_it_cannot_decode_their_verdicts(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge has judged them all, and forward has read all verdicts: they are not taken for lost."""
    registry, pipeline = start_avro(world, cluster, monkeypatch)
    await pipeline.create_topics()
    pipeline.start("sign", "sequence", "match", "forward")
    decoding, decode = asyncio.Event(), OutputValues.read

    async def read(self: OutputValues, records: Any, stop: asyncio.Event | None = None) -> Any:
        if records:
            await decoding.wait()
        return await decode(self, records, stop)

    monkeypatch.setattr(OutputValues, "read", read)
    await pipeline.feed(plain.history(N, PARTITIONS, world.seed), 20)
    pipeline.start("judge")  # all verdicts at once
    await asyncio.sleep(60)
    assert len(pipeline.records("verdicts")) == N and not pipeline.records("unique")
    decoding.set()
    while not all(map(pipeline.forwarded, range(PARTITIONS))):
        await asyncio.sleep(1)
    pipeline.decoders = {id.to_bytes(5): Decoder(schema) for schema, id in registry.subjects.values()}
    pipeline.check()
    assert not any("have no verdict" in line for line in world.warnings)


@simulated(seeds=2)
async def test_forward_gives_partitions_up_while_it_cannot_decode_verdicts(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, pipeline = start_avro(world, cluster, monkeypatch)
    await pipeline.create_topics()
    workers = [pipeline.start("sign", "sequence", "match", "judge")]
    await pipeline.feed(plain.history(N, PARTITIONS, world.seed), 20)
    while len(pipeline.records("verdicts")) < N:
        await asyncio.sleep(1)
    registry.absent = 10**9
    workers.append(pipeline.start("forward"))
    await asyncio.sleep(20)
    workers += [pipeline.start("forward") for _ in range(4)]
    await asyncio.sleep(20)
    registry.absent = 0
    pipeline.decoders = {id.to_bytes(5): Decoder(schema) for schema, id in registry.subjects.values()}
    await pipeline.finish(workers, 300)
    await pipeline.stop(*workers)
    pipeline.check()


@simulated()
async def test_status_counts_verdicts_in_avro(world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the registry, or its address, a document is done when forward has passed it on."""
    registry, pipeline = start_avro(world, cluster, monkeypatch)
    await pipeline.create_topics()
    worker = pipeline.start("sign", "sequence", "match", "judge")
    await pipeline.feed(plain.history(8, PARTITIONS, world.seed), 20)
    while len(pipeline.records("verdicts")) < 8:
        await asyncio.sleep(1)

    async def left(settings: KafkaSettings) -> int:
        async with observing(settings, None) as observer:
            return sum(number for number, _ in (await observer.look()).provisional.values())

    assert await left(pipeline.settings) == 0
    assert await left(pipeline.settings.model_copy(update={"registry_url": None})) == 8
    registry.absent, asked = 10**9, registry.asked.total()
    assert (await left(pipeline.settings), registry.asked.total()) == (8, asked + 1)
    registry.absent = 0
    forward = pipeline.start("forward")
    while not all(map(pipeline.forwarded, range(PARTITIONS))):
        await asyncio.sleep(1)
    registry.absent = 10**9
    assert await left(pipeline.settings) == 0
    await pipeline.stop(worker, forward)


def served(settings: KafkaSettings) -> tuple[Ring, asyncio.Task[None]]:
    """The events of a service, and its reader."""
    ring = Ring(0)
    outputs = Outputs(ring, Verdicts(1000, keeps=True), Tally(int, int, int), 10_000)
    return ring, asyncio.create_task(follow(settings, outputs, 10_000, lambda up_to_date: None))


async def until_served(ring: Ring, reader: asyncio.Task[None], expected: list[bytes]) -> None:
    """Wait until a service has these events."""
    end = Clock.now + 60
    while (found := sorted(event.data for block in ring._blocks for event in block.events)) != sorted(expected):
        assert not reader.done() or reader.result() is None
        assert Clock.now < end, (len(found), len(expected))
        await asyncio.sleep(0.5)


@simulated()
async def test_a_service_reads_outputs_in_avro(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Records with a schema that the registry does not have are named and skipped. It is asked for at most every 30
    seconds, three times. If the registry has it a moment later, nothing is skipped."""
    (tmp_path / "rules.toml").write_text(RULES)
    registry, pipeline = start_avro(
        world, cluster, monkeypatch, time_field="ts", groups=True, alerts=tmp_path / "rules.toml"
    )
    await pipeline.create_topics()
    worker, history = pipeline.start(), plain.history(N, PARTITIONS, world.seed)
    await pipeline.feed(history[: N // 2], 20)
    await pipeline.finish([worker], 100)
    written = dict(registry.subjects)
    pipeline.decoders = {id.to_bytes(5): Decoder(schema) for schema, id in written.values()}

    def events(*outputs: str) -> list[bytes]:
        return [r.value for output in outputs for r in pipeline.records(f"{output}s") if r.value]

    _, verdicts = registry.subjects.pop("sim.verdicts-value")
    asked, before = registry.asked[verdicts], Clock.now
    ring, reader = served(pipeline.settings)
    await pipeline.feed(history[N // 2 :], 2)
    await pipeline.finish([worker], 100)
    await pipeline.drain()
    await until_served(ring, reader, events("pair", "group", "alert"))
    assert registry.asked[verdicts] - asked <= 3 + (Clock.now - before) / 10
    assert any(f"schema {verdicts} and cannot be decoded" in line for line in world.warnings)
    reader.cancel()
    without = pipeline.settings.model_copy(update={"registry_url": None})
    for reading in (served(without)[1], anext(tail(without, "verdicts", from_beginning=True))):
        with pytest.raises(StoreError, match=r"offset \d+: its value is Avro .* set registry_url"):
            await reading
    registry.asked[verdicts] = -2
    ring, reader = served(pipeline.settings)
    async with asyncio.timeout(10):
        while registry.asked[verdicts] < 0:
            await asyncio.sleep(0.1)
    registry.subjects = written
    await until_served(ring, reader, events(*OUTPUTS))
    reader.cancel()
    await pipeline.stop(worker)
