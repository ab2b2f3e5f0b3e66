"""Header names that are not UTF-8 keep nobody from reading; they become text."""

from typing import Any

import pytest
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from support.kafka.header_play import Name

from stream_lsh.kafka.client import private


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
