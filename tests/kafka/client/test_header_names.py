"""Header names that are not UTF-8 keep nobody from reading; they become text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from support.kafka.brokers import settings_for
from support.kafka.header_play import Name, send
from support.kafka.stages import begun, line, produce, records, running, until_signed

from stream_lsh.kafka.client import private
from stream_lsh.kafka.client.connection import client_options
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.sign.stage import SignStage
from stream_lsh.kafka.tools.topics import create
from stream_lsh.wire.frames import Frame


def batch(*headers: list[tuple[str, bytes | None]], codec: int = 0, base: int = 0) -> bytearray:
    """A batch with a record for each list of headers; its offsets begin at `base`."""
    builder = _DefaultRecordBatchBuilderPy(2, codec, 0, -1, -1, 0, 1 << 20)
    for number, found in enumerate(headers):
        builder.append(number, 1000 + number, b"key", b"value %d" % number * 20, found)
    data = builder.build()
    data[:8] = base.to_bytes(8, "big")
    return data


def read(data: bytes) -> list[Any]:
    private.read_any_header()
    found = fetcher.MemoryRecords(data)
    listed = []
    while found.has_next():
        each = found.next_batch()
        assert each.validate_crc()
        listed += list(each)
    return listed


@pytest.mark.parametrize("codec", [0, 1])
def test_names_become_text_and_nothing_else_changes(codec: int) -> None:
    bad: list[tuple[str, bytes | None]] = [(Name(b"\xff\xfe"), b"\xff"), (Name(b"a\xc3"), None), ("ü", b"")]
    one: list[tuple[str, bytes | None]] = [("traceparent", b"1")]
    data = batch(one, bad, one, bad, codec=codec) + batch(one, base=4) + batch(bad, base=5)
    found = read(bytes(data))
    assert [record.offset for record in found] == list(range(6))
    assert [record.timestamp for record in found] == [1000, 1001, 1002, 1003, 1000, 1000]
    assert [record.value[:7] for record in found] == [b"value %d" % i for i in (0, 1, 2, 3, 0, 0)]
    text = [("\\xff\\xfe", b"\xff"), ("a\\xc3", None), ("ü", b"")]
    assert [record.headers for record in found] == [one, text, one, text, one, text]
    assert all(type(name) is str for record in found for name, _ in record.headers)


def test_what_is_damaged_stays_an_error() -> None:
    data = batch([("a", b"1")], [("b", b"2")])
    del data[-3:]
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    private.read_any_header()
    [*found] = [fetcher.MemoryRecords(bytes(data)).next_batch()]
    assert not found[0].validate_crc()
    with pytest.raises(CorruptRecordException):
        list(found[0])


@pytest.mark.parametrize("transactional", [False, True])
async def test_such_documents_are_signed_like_others(
    broker: Any, prefix: str, tmp_path: Path, transactional: bool
) -> None:
    settings = settings_for(broker, prefix, tmp_path, partitions=1)
    topics = Topics.of(settings)
    headers = [(Name(b"\xff\xfe"), b"x"), ("traceparent", b"00-1")]
    options = {"transactional_id": f"{prefix}-feed"} if transactional else {}
    await create(settings)
    await begun(settings)
    await produce(settings, [line(0)], 1)
    async with AIOKafkaProducer(**client_options(settings), **options) as producer:
        if transactional:
            await producer.begin_transaction()
            await send(producer, topics.documents, [line(8), line(9)], headers)
            await producer.abort_transaction()
            await producer.begin_transaction()
        await send(producer, topics.documents, [line(1), line(2)], headers)
        if transactional:
            await producer.commit_transaction()
    await produce(settings, [line(3)], 1)
    async with running(SignStage, settings):
        await until_signed(settings, 8 if transactional else 4)
    found = [Frame.decode(record.value, settings) for record in await records(settings, topics.signatures)]
    assert [id for frame in found for id in frame.source.ids] == [b'"d0"', b'"d1"', b'"d2"', b'"d3"']
    assert [given for frame in found for given in frame.source.headers.values()] == [headers[1:]] * 2
