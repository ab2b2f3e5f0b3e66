"""Documents at which signers end cost themselves; tombstones of changes, and a Schema Registry that is absent."""

import asyncio
import json
import shutil
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.structs import ConsumerRecord
from support.kafka.brokers import Make
from support.kafka.forward_play import OPTIONS
from support.kafka.stages import PATIENCE, begun, positions, records, running, send, until, until_signed
from support.poison import WORDS, CrashError, poison
from support.schema_registry import encoded, schema_registry
from support.simulation.runner import simulated

from stream_lsh.errors import UsageError
from stream_lsh.families.family import signer_of
from stream_lsh.kafka.forward.stage import ForwardStage
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign import stage as stage_module
from stream_lsh.kafka.sign.attempts import Attempts
from stream_lsh.kafka.sign.framing import Chunk, Framer, Signed, split
from stream_lsh.kafka.sign.stage import SignStage
from stream_lsh.wire.frames import STARTS, Frame

SETTINGS = KafkaSettings(frame_documents=16, id_field="id")
Rows = dict[tuple[int, int], tuple[int, bytes]]


def chunks(bad: Mapping[int, set[int]]) -> list[Chunk]:
    """Documents of two partitions, by turns. bad: offsets of those at which a signer ends."""

    def record(partition: int, offset: int) -> Any:
        text = WORDS if offset in bad.get(partition, ()) else f"document {offset} of partition {partition}"
        value = b'{"id":"%d-%d","text":"%s"}' % (partition, offset, text.encode())
        return ConsumerRecord("docs", partition, offset, 1000, 0, None, value, None, -1, len(value), ())

    return [
        Chunk(p, [record(p, i) for i in range(begin, begin + 5)], begin, begin + 5, STARTS if begin == 0 else 0)
        for begin in range(0, 30, 5)
        for p in (0, 1)
    ]


def signed(folder: Path, left: list[Chunk]) -> tuple[list[Signed], int]:
    """The frames of signers that begin again where the last one has ended, and how many have ended."""
    frames, ends = list[Signed](), 0
    framer = Framer(SETTINGS, signer_of(SETTINGS.signing), 2**26)
    while left:
        attempts = Attempts(folder, "docs", SETTINGS.frame_documents)
        with suppress(CrashError):
            while left:
                batch, later = split(left, SETTINGS.frame_documents)
                for part in attempts.parts(batch):
                    frames += attempts.sign(framer, part, 1)
                    left = split(left, sum(len(chunk.records) for chunk in part))[1]
                    attempts.passed(frames[-1].positions)
                assert left == later
            break
        ends += 1
    return frames, ends


def rows(frames: list[Signed]) -> tuple[Rows, dict[tuple[int, int], str]]:
    """What is signed, and why documents are rejected, by place."""
    found, why = Rows(), dict[tuple[int, int], str]()
    for frame in [Frame.decode(frame.data, SETTINGS) for frame in frames]:
        for i, place in enumerate(zip(frame.source.partitions.tolist(), frame.source.offsets.tolist(), strict=True)):
            if i in frame.source.rejected:
                why[place] = "{0.reason}: {0.detail}".format(frame.source.rejected[i])
            else:
                found[place] = int(frame.sizes[i]), frame.signatures[i].tobytes()
    return found, why


def test_documents_at_which_signers_end_cost_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, _ = rows(signed(tmp_path, chunks({}))[0])
    poison(monkeypatch, CrashError())
    bad = {0: {7, 8}, 1: {0, 29}}
    frames, ends = signed(tmp_path, chunks(bad))
    found, why = rows(frames)
    places = {(p, offset) for p, offsets in bad.items() for offset in offsets}
    assert found == {place: row for place, row in good.items() if place not in places}
    assert why == dict.fromkeys(places, "engine_error: the worker has ended 3 times while it signed this document")
    assert ends <= 3 * len(places)
    assert b'"ends":[]' in (tmp_path / "sign" / "attempts.json").read_bytes()


def test_another_topic_and_errors_of_the_machine_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch, CrashError())
    framer, [chunk, *_] = Framer(SETTINGS, signer_of(SETTINGS.signing), 2**26), chunks({0: {0}})
    for number in range(6):
        attempts = Attempts(tmp_path, f"docs-{number % 2}", 16)
        assert not attempts.found
        with pytest.raises(CrashError):
            attempts.sign(framer, [chunk], 1)
    poison(monkeypatch, MemoryError())
    attempts = Attempts(tmp_path, "docs", 16)
    with pytest.raises(MemoryError):
        attempts.sign(framer, [chunk], 1)
    assert not Attempts(tmp_path, "docs", 16).found


def test_a_data_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "sign").write_bytes(b"")
    with pytest.raises(UsageError, match=f"data_folder {tmp_path} cannot be used: File exists"):
        Attempts(tmp_path, "docs", 16)


@pytest.mark.parametrize("stopped", [True, False])
async def test_a_hang_is_not_idle_and_counts_once_the_worker_ends(
    stopped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends because of Kafka does not count, although what it was signing goes on in its thread."""
    began, free, done = threading.Event(), threading.Event(), threading.Event()
    settings, probe, stop = KafkaSettings(data_folder=tmp_path), Probe("sign"), asyncio.Event()
    stage: Any = SignStage(settings, probe)

    def hang(*_: Any) -> list[Signed]:
        began.set()
        free.wait(PATIENCE)
        done.set()
        return []

    async def run(*parts: Any, **_: Any) -> None:
        working = asyncio.create_task(parts[2]())
        assert await asyncio.to_thread(began.wait, PATIENCE)
        stage._relay.idle()
        if stopped:
            stop.set()
        working.cancel()
        await asyncio.wait([working])

    monkeypatch.setattr(stage_module, "LAST_SECONDS", 0.0)
    stage._framer = SimpleNamespace(frames=hang)
    stage._relay._order, stage._relay._underway, stage._relay.run = (), SimpleNamespace(bytes=0), run
    stage._pending.add(chunks({})[0])
    stage._wake()
    await stage.run(stop)
    assert probe.last_idle is None
    copied = shutil.copytree(tmp_path / "sign", tmp_path / "next" / "sign").parent
    free.set()
    assert await asyncio.to_thread(done.wait, PATIENCE)
    assert Attempts(copied, stage.topics.documents, settings.frame_documents).found == ([(0, 0, 5)] if stopped else [])


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
