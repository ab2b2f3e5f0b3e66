"""Events in a simulated Kafka: what follows a deletion is passed over, and an absent Schema Registry is waited for."""

import asyncio
import json
from typing import Any

import pytest
from support.kafka.brokers import Make
from support.kafka.forward_play import OPTIONS
from support.kafka.stages import begun, positions, records, running, send, until, until_signed
from support.schema_registry import encoded, schema_registry
from support.simulation.runner import simulated

from stream_lsh.kafka.forward.stage import ForwardStage
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.sign.stage import SignStage
from stream_lsh.wire.frames import Frame

ROW = {"id": 1, "text": "The council has voted for the new bridge over the river"}
SCHEMA = {"type": "record", "name": "R", "fields": [{"name": name, "type": "string"} for name in ("id", "text")]}


@simulated()
async def test_a_tombstone_of_a_change_has_no_verdict(make: Make) -> None:
    given: dict[str, Any] = {"envelope": "debezium", "on_conflict": "update", "partitions": 1}
    settings = await make(**given)
    await begun(settings)
    topic = Topics.of(settings).documents
    events = [{"op": "c", "after": ROW}, {"op": "d", "before": ROW}, None, {"op": "c", "after": ROW}, None]
    values = [None if event is None else json.dumps(event).encode() for event in events]
    await send(settings, topic, values, key=b"1")
    async with running(SignStage, settings):
        await until_signed(settings, 5)
    await send(
        settings, topic, [None, values[1]], key=b"1"
    )  # the first record after a start is compared with the last before
    async with running(SignStage, settings):
        await until_signed(settings, 7)
    found = [Frame.decode(record.value, settings) for record in await records(settings, Topics.of(settings).signatures)]
    assert [at for frame in found for at in frame.source.offsets.tolist()] == [0, 1, 3, 6]
    assert not any(frame.source.rejected for frame in found)


@simulated()
async def test_forward_waits_for_no_verdict_of_a_tombstone(make: Make) -> None:
    settings = await make(**{**OPTIONS, "envelope": "debezium", "on_conflict": "update", "partitions": 1})
    topics, values = Topics.of(settings), [json.dumps({"op": "c", "after": ROW}).encode(), None, None]
    await send(settings, topics.documents, values, key=b"1")
    verdict = {"id": 1, "kind": "unique", "source": {"topic": topics.documents, "partition": 0, "offset": 0}}
    await send(settings, topics.verdicts, [json.dumps(verdict).encode()])
    probe = Probe("forward")
    async with running(ForwardStage, settings, probe):

        async def reached() -> bool:
            return (await positions(settings, "forward", topics.documents)).get(0) == 3

        await until(reached, "the tombstones are passed")
    assert [record.value for record in await records(settings, topics.unique)] == values[:1]
    assert b'reason="compacted"' not in probe.registry.exposition()[0]


@simulated()
async def test_an_absent_registry_is_waited_for(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    with schema_registry() as registry:
        registry.crime = "failure"
        given = {"document_format": "registry", "registry_url": registry.url, "partitions": 1}
        settings, probe = await make(**given), Probe("sign")
        await begun(settings)
        texts = [b"\x02%d\x06abc" % i for i in range(3)]
        values = [encoded(1, texts[0]), encoded(2, texts[1]), encoded(1, texts[2]), b"{}"]
        await send(settings, Topics.of(settings).documents, values)
        registry.schemas[1] = {"schema": json.dumps(SCHEMA)}
        async with running(SignStage, settings, probe):
            await until(lambda: len(registry.got) > 3, "it asks again")
            idle = probe.last_idle
            await asyncio.sleep(0.7)  # longer than between two empty fetches, which count as progress otherwise
            role = probe.health.report()[1]["roles"]["sign"]
            assert "answers with status 500" in role["waits"] and probe.last_idle == idle
            frames = await records(settings, Topics.of(settings).signatures)
            assert not any(len(Frame.decode(record.value, settings).source) for record in frames)
            registry.crime = ""
            await until_signed(settings, 4)
        assert "waits" not in probe.health.report()[1]["roles"]["sign"]
    assert "waiting for it" in caplog.text
    assert b'stalls_total{reason="registry",role="sign"}' in probe.registry.exposition()[0]
    found = [Frame.decode(record.value, settings) for record in await records(settings, Topics.of(settings).signatures)]
    assert [id for frame in found for id in frame.source.ids] == [b'"0"', b"null", b'"2"', b"null"]
    reasons = [why.reason for frame in found for _, why in sorted(frame.source.rejected.items())]
    assert reasons == ["unknown_schema", "bad_encoding"]
