"""Files onto the documents topic, and outputs from their topics: as functions and as commands."""

import asyncio
import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard
from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.structs import TopicPartition
from click.testing import Result
from support import commands
from support.kafka.brokers import Make, settings_for
from support.kafka.stages import PATIENCE, make_topics, send, settled
from support.kafka.stages import records as partition_records
from support.long_form import rotating
from support.simulation.runner import simulated

from stream_lsh.embedded.report import Progress
from stream_lsh.errors import BrokerError, InputError, StoreError
from stream_lsh.kafka.client.connection import admin, client_options
from stream_lsh.kafka.consumer.position import commit_alone
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.partitioner import partition_of
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.position import Note
from stream_lsh.kafka.tools import delete, produce
from stream_lsh.kafka.tools.produce import Feeder, Reader, UnsentLines
from stream_lsh.kafka.tools.tail import tail


@pytest.fixture
async def settings(make: Make) -> KafkaSettings:
    return await make(partitions=3)


async def feed(settings: KafkaSettings, *names: Path, **options: Any) -> tuple[Progress, Feeder]:
    feeder = Feeder(settings, [str(name) for name in names], **options)
    return await feeder.run(), feeder


async def records(settings: KafkaSettings, count: int | None) -> list[Any]:
    """All records of the documents topic, by partition and offset."""
    topic = Topics.of(settings).documents
    found = [record for partition in range(3) for record in await partition_records(settings, topic, partition)]
    assert count is None or len(found) == count
    return found


def lines(first: int, count: int) -> list[bytes]:
    return [json.dumps({"id": f"d{n}", "text": f"text {n}"}).encode() for n in range(first, first + count)]


@simulated()
async def test_lines_become_records_with_their_ids_as_keys_in_order(settings: KafkaSettings, tmp_path: Path) -> None:
    plain, packed, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz", tmp_path / "c.jsonl.zst"
    plain.write_bytes(b"\n".join(lines(0, 1000)))
    packed.write_bytes(gzip.compress(b"\n".join(lines(1000, 1000)) + b"\n"))
    other.write_bytes(zstandard.compress(b"\n\n".join(lines(2000, 1000)) + b"\n"))
    reports: list[Progress] = []
    sent, feeder = await feed(settings, plain, packed, other, report=reports.append)
    assert (sent.documents, feeder.sent, feeder.excluded.count) == (3000, 3000, 0)
    assert sent.bytes_read == sent.bytes_total == sum(path.stat().st_size for path in (plain, packed, other))
    assert reports[-1].documents == 3000
    found = await records(settings, 3000)
    assert {record.value for record in found} == set(lines(0, 3000))
    numbers: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for record in found:
        assert record.key.decode() == json.loads(record.value)["id"]
        assert record.partition == partition_of("murmur2", record.key, 3)
        numbers[record.partition].append(int(record.key[1:]))
    assert all(placed == sorted(placed) and len(placed) > 900 for placed in numbers.values())


@simulated()
async def test_what_is_no_document_is_sent_without_a_key(settings: KafkaSettings, tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(b'{"id": 17, "text": "x"}\nnonsense\n[1]\n{"text": "y"}\n{"id": [1]}\n\xff\n{"id": "\\ud800"}')
    sent, _ = await feed(settings, source)
    assert sent.documents == 7
    keys = {record.value: record.key for record in await records(settings, 7)}
    assert keys.pop(b'{"id": 17, "text": "x"}') == b"17"
    assert keys.pop(b'{"id": "\\ud800"}') == b"\xed\xa0\x80"  # beside deletions of the id
    assert set(keys.values()) == {None}


def test_a_line_that_reading_raises_on_is_unsent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key_text(document: dict[str, str], field: str) -> bytes:
        return {name: name.encode() for name in ("d0", "d2")}[document[field]]

    monkeypatch.setattr(produce, "key_text", key_text)
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines(0, 3)))
    reader = Reader(KafkaSettings(), None, unsent := UnsentLines())
    found = reader.records(reader.open(str(tmp_path / "a.jsonl")))
    assert [record.key for records in found for record in records] == [b"d0", b"d2"]
    [message] = unsent.messages
    assert re.search(
        r"a\.jsonl, line 2: the engine raised KeyError in stream_lsh\.kafka\.tools\.produce, line", message
    )


def test_rows_of_a_table_are_sent_as_json(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n7,some words\nragged\n")
    reader = Reader(KafkaSettings(), None, unsent := UnsentLines())
    found = reader.records(reader.open(str(tmp_path / "a.csv")))
    assert [(record.key, record.value) for records in found for record in records] == [
        (b"7", b'{"id":"7","text":"some words"}')
    ]
    assert unsent.messages == [f"{tmp_path}/a.csv, line 2: the row has 1 cells, and the header 2"]


@simulated()
async def test_quota_is_said(
    settings: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    whole = AIOKafkaClient.send

    async def send(*given: Any, **options: Any) -> Any:
        response = await whole(*given, **options)
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = 1500
        return response

    monkeypatch.setattr(AIOKafkaClient, "send", send)
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines(0, 3)))
    await feed(settings, tmp_path / "a.jsonl")
    assert f"(client id {settings.topic_prefix}.produce) back by a quota, here for 1.5 s" in caplog.text


@simulated()
async def test_as_text_the_value_is_the_text(make: Make, tmp_path: Path) -> None:
    settings = await make(partitions=3, document_format="text", text_field=("title", "text"))
    source = tmp_path / "a.jsonl"
    source.write_text('{"id": "a", "title": "Über", "text": "x\\ny"}\n{"id": "b", "title": "t"}\nnonsense\n')
    sent, feeder = await feed(settings, source)
    assert sent.documents == 1
    assert [(record.key, record.value) for record in await records(settings, 1)] == [(b"a", "Über\nx\ny".encode())]
    assert feeder.excluded.count == 2
    assert feeder.excluded.messages[0] == f'{source}, line 2: there is no field "text"'
    assert feeder.excluded.messages[1].startswith(f"{source}, line 3: ")


@simulated()
async def test_large_documents_and_lines_that_are_too_large(make: Make, tmp_path: Path) -> None:
    settings = await make(partitions=3, max_document_bytes=3_000_000)
    source = tmp_path / "a.jsonl"
    large = json.dumps({"id": "large", "text": "x" * 2_900_000}).encode()
    source.write_bytes(b"\n".join([*lines(0, 3), large, b'{"id": "' + b"y" * 4_000_000 + b'"}', *lines(3, 3)]))
    sent, feeder = await feed(settings, source)
    assert (sent.documents, feeder.excluded.count) == (7, 1)
    assert "line 5: the line has 4000010 bytes, more than 3000000" in feeder.excluded.messages[0]
    assert large in {record.value for record in await records(settings, 7)}


@simulated()
async def test_lines_that_the_broker_refuses_are_named(broker: Any, prefix: str, tmp_path: Path) -> None:
    settings = settings_for(broker, prefix, tmp_path)
    await make_topics(settings, {"max.message.bytes": "2000"}, f"{prefix}.documents")
    source = tmp_path / "a.jsonl"
    source.write_bytes(b"\n".join([*lines(0, 2), b'{"id": "' + b"y" * 4000 + b'"}', *lines(3, 3), b""]))
    with pytest.raises(BrokerError, match=r"a.jsonl, line 3, was not accepted: a record is larger than"):
        await feed(settings, source)


@simulated()
async def test_batches_fit_a_topic_with_a_small_limit(make: Make, tmp_path: Path) -> None:
    """`topics create` sets the limit from max_document_bytes, 74 KB here."""
    settings = await make(partitions=1, max_document_bytes=10_000)
    source = tmp_path / "a.jsonl"
    sent = [json.dumps({"id": f"d{n}", "text": "x" * 9000}).encode() for n in range(100)]
    source.write_bytes(b"\n".join(sent))
    await feed(settings, source)
    found = await partition_records(settings, Topics.of(settings).documents, 0)
    assert [record.value for record in found] == sent


@simulated()
async def test_other_producers_and_ours_meet_in_one_partition(make: Make, tmp_path: Path) -> None:
    settings = await make(partitions=5, on_conflict="update", key_is_id="string")
    ids, topic = [f"d{n}" for n in range(60)], Topics.of(settings).documents
    source = tmp_path / "a.jsonl"
    source.write_bytes(b"\n".join(lines(0, 60)))
    await feed(settings, source)
    await feed(settings, lines=delete.lines(settings, ids))
    async with AIOKafkaProducer(**client_options(settings)) as producer:  # its own default partitioner
        for id in ids:
            await producer.send_and_wait(topic, b"{}", id.encode())
    found: dict[bytes, list[int]] = {}
    for partition in range(5):
        for record in await partition_records(settings, topic, partition):
            found.setdefault(record.key, []).append(partition)
    assert len(found) == 60
    assert all(len(places) == 3 and len(set(places)) == 1 for places in found.values())
    assert len({places[0] for places in found.values()}) == 5


@simulated()
async def test_another_partitioner_than_the_pipelines_is_refused(settings: KafkaSettings, tmp_path: Path) -> None:
    topics = Topics.of(settings)
    note = Note(settings.fingerprint, "json", "murmur2").metadata()
    async with admin(settings) as client:
        await commit_alone(client, topics.group("sign"), {TopicPartition(topics.documents, 0): (0, note)})
    source = tmp_path / "a.jsonl"
    source.write_bytes(b"\n".join(lines(0, 3)))
    with pytest.raises(StoreError, match="partitioner = murmur2, and here it is crc32"):
        await feed(settings.model_copy(update={"partitioner": "crc32"}), source)
    await feed(settings, source)
    await records(settings, 3)


@simulated()
async def test_without_the_topic_or_the_file_it_says_so(broker: Any, prefix: str, tmp_path: Path) -> None:
    settings = settings_for(broker, prefix, tmp_path)
    with pytest.raises(InputError, match=r"none\.jsonl"):
        await feed(settings, tmp_path / "none.jsonl")
    source = tmp_path / "a.jsonl"
    source.write_bytes(b"\n".join(lines(0, 3)))
    with pytest.raises(
        BrokerError, match=rf"does not have the topic {prefix}.documents. `stream-lsh kafka topics create`"
    ):
        await feed(settings, source)
    with pytest.raises(BrokerError, match=rf"does not have the topic {prefix}.pairs"):
        await collect(settings, "pairs")


async def collect(settings: KafkaSettings, output: str) -> list[bytes]:
    return [line async for line in tail(settings, output, from_beginning=True, follow=False)]


async def put(settings: KafkaSettings) -> None:
    """A committed and an aborted transaction on verdicts and unique, and dead letters; all to be seen."""
    topics = Topics.of(settings)
    async with AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, transactional_id=settings.topic_prefix
    ) as producer:
        async with producer.transaction():
            await producer.send(topics.verdicts, b'{"id":"a"}', key=b"a", partition=1)
            await producer.send(topics.verdicts, b'{"id":"b"}', key=b"b", partition=2)
            await producer.send(topics.unique, b"as it came", partition=0)
            gone = [("other", b"x"), ("id", b'"a"')]
            await producer.send(topics.unique, None, key=b"a", partition=0, headers=gone)
            place = [
                ("new-representative-topic", b"t"),
                ("new-representative-partition", b"3"),
                ("new-representative-offset", b"70"),
            ]
            await producer.send(
                topics.unique, None, key=b"a", partition=0, headers=[*gone, ("new-representative", b"17"), *place]
            )
        await producer.begin_transaction()
        await producer.send(topics.verdicts, b'{"id":"never"}', key=b"c", partition=1)
        await producer.send(topics.unique, b"never", partition=2)
        await producer.abort_transaction()
        async with producer.transaction():
            for value in (b"text", b"\xff\x00", None):
                headers = [("reason", b"not_json"), ("stream-lsh.offset", b"17")]
                await producer.send(topics.dead_letters, value, key=b"k", partition=0, headers=headers)
    await settled(settings.bootstrap_servers, topics.verdicts, topics.unique, topics.dead_letters)


@simulated()
async def test_outputs_show_what_was_committed(settings: KafkaSettings) -> None:
    assert await collect(settings, "verdicts") == []
    await put(settings)
    assert sorted(await collect(settings, "verdicts")) == [b'{"id":"a"}', b'{"id":"b"}']
    unique = await collect(settings, "unique")
    assert unique[0] == b"as it came"
    assert list(map(json.loads, unique[1:])) == [
        {"id": "a", "deleted": True, "new_representative": None, "at": None},
        {"id": "a", "deleted": True, "new_representative": 17, "at": {"topic": "t", "partition": 3, "offset": 70}},
    ]
    letters = [json.loads(line) for line in await collect(settings, "dead-letters")]
    assert [letter["offset"] for letter in letters] == [0, 1, 2]
    assert letters[0]["headers"] == {"reason": "not_json", "stream-lsh.offset": "17"}
    assert (letters[0]["key"], letters[0]["original"], letters[0]["partition"]) == ("k", "text", 0)
    assert letters[1]["original_base64"] == "/wA="
    assert letters[2]["original"] is None


@simulated()
async def test_without_from_beginning_only_new_records(settings: KafkaSettings) -> None:
    await put(settings)
    found, topic = tail(settings, "pairs"), Topics.of(settings).pairs
    waiting = asyncio.ensure_future(anext(found))
    async with asyncio.timeout(PATIENCE):
        while not waiting.done():  # until it listens
            await send(settings, topic, [b"17"])
    await found.aclose()
    assert waiting.result() == b"17"


def command(*arguments: str, settings: KafkaSettings, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {
        "STREAM_LSH_BOOTSTRAP_SERVERS": settings.bootstrap_servers, "STREAM_LSH_TOPIC_PREFIX": settings.topic_prefix,
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-m", "stream_lsh.cli", *arguments],
        input=stdin, capture_output=True, env=environment, timeout=120, check=False,
    )  # fmt: skip


@simulated()
def test_the_commands(broker: Any, prefix: str, tmp_path: Path) -> None:
    settings = settings_for(broker, prefix, tmp_path)

    def shown(*words: str, code: int = 0, input: bytes | None = None) -> Result:
        given = {"bootstrap_servers": settings.bootstrap_servers, "topic_prefix": settings.topic_prefix}
        return commands.run("kafka", *words, code=code, input=input, **given)

    assert shown("topics", "create", "--partitions", "3").stdout.count("created") == 10
    topics = [json.loads(line) for line in shown("topics", "show", "--json").stdout.splitlines()]
    assert topics[0]["differences"] == ["partitions: 3, not 4"]
    (tmp_path / "feed").write_bytes(b"\n".join(lines(0, 10)))
    sent = shown("produce", str(tmp_path / "feed"))
    assert "10 documents in" in sent.stderr and "3 partitions" in sent.stderr and sent.stdout == ""
    (tmp_path / "bad").write_bytes(b"x" * 100 + b"\n{}")
    excluded = shown("produce", "--max-document-bytes", "64", str(tmp_path / "bad"), "--quiet", code=4)
    assert "1 line left out" in excluded.stderr and "bad, line 1" in excluded.stderr
    asyncio.run(put(settings))
    verdicts = shown("tail", "verdicts", "--from-beginning", "--until-end")
    assert sorted(verdicts.stdout.splitlines()) == ['{"id":"a"}', '{"id":"b"}']
    assert shown("tail", "verdicts", "--from-beginning", "--limit", "1").stdout.count("\n") == 1
    for option, ids, last in (("--key-is-id=string", b"a\n", None), ("--deleted-field=gone", b"b\n", b'"gone":true}')):
        deleted = shown("delete", "-", option, input=ids)
        assert deleted.stdout == "" and "1 deletion sent to" in deleted.stderr
        found = [record for record in asyncio.run(records(settings, None)) if record.key == ids.strip()]
        assert found[-1].value is None if last is None else found[-1].value.endswith(last)
    shown("tail", "verdict", code=2)


@pytest.mark.parametrize(
    "arguments",
    [["kafka", "produce", "-"], *rotating([(["kafka", "topics", "create"],), (["kafka", "tail", "pairs"],)], 1)],
)
def test_without_a_broker_the_code_is_6(tmp_path: Path, arguments: list[str]) -> None:
    settings = KafkaSettings(bootstrap_servers="127.0.0.1:1", topic_prefix="x")
    done = command(*arguments, settings=settings, stdin=b"{}\n")
    assert done.returncode == 6
    assert done.stderr.decode().startswith("stream-lsh: no answer from Kafka at 127.0.0.1:1 (Connection refused)")
    assert done.stderr.count(b"\n") == 1, "no log of aiokafka"


def test_without_the_extra_it_says_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "aiokafka.py").write_text("raise ModuleNotFoundError('x', name='aiokafka')")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}"}
    done = subprocess.run(
        [sys.executable, "-m", "stream_lsh.cli", "kafka", "topics", "show"],
        capture_output=True, env=environment, timeout=60, check=False, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "pip install 'stream-lsh[kafka]'" in done.stderr
    assert "Traceback" not in done.stderr
