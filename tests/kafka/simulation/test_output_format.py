"""Outputs in Avro: they say what outputs in JSON say, also where a topic has both, and while the registry comes and
goes."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.kafka import plain
from support.simulation.cluster import Cluster
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.errors import StreamLshError
from stream_lsh.kafka.registry.client import Client
from stream_lsh.kafka.registry.decoding import Absent, Refused, Unknown
from stream_lsh.kafka.registry.encoding import OUTPUTS, Decoder
from stream_lsh.kafka.tools.tail import tail

PARTITIONS, N = 2, 60
AVRO: dict[str, Any] = {"output_format": "avro", "registry_url": "http://registry"}
RULES = '[[rule]]\nname = "grows"\nkind = "growth"\nmembers = 2\nwithin = "4h"\n'


class Registry:
    """Answers in place of a registry, at first not at all. subjects: schema and id by subject."""

    def __init__(self, absent: int) -> None:
        self.absent = absent
        self.subjects: dict[str, tuple[str, int]] = {}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Client, "register", lambda _, subject, schema: self.register(subject, schema))
        monkeypatch.setattr(Client, "schema", lambda _, id: self.schema(id))

    def register(self, subject: str, schema: str) -> int:
        self._answer()
        return self.subjects.setdefault(subject, (schema, 70 + len(self.subjects)))[1]

    def schema(self, id: int) -> dict[str, Any]:
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


@simulated()
async def test_verdicts_of_an_unknown_schema_stop_forward(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them documents would be in no output."""
    registry = Registry(0)
    registry.install(monkeypatch)
    pipeline = Pipeline(world, cluster, **plain.SURE, **AVRO, partitions=PARTITIONS)
    await pipeline.create_topics()
    worker = pipeline.start("sign", "sequence", "match", "judge")
    await pipeline.feed(plain.history(8, PARTITIONS, world.seed), 20)
    registry.subjects = {"other": ("{}", 1)}
    with pytest.raises(
        StreamLshError, match=r"schema 7\d and cannot be decoded: set registry_url .*kafka skip verdicts"
    ):
        await pipeline.start("forward").ended
    await pipeline.stop(worker)
