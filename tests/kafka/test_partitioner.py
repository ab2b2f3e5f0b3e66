"""Keys of lines are those of their documents, and have the partitions that other clients of Kafka give them."""

import json
import zlib
from typing import Any

import orjson
import pytest
from aiokafka.partitioner import DefaultPartitioner

from stream_lsh.documents.fields import LINE_ID, Fields, id_text
from stream_lsh.errors import UsageError
from stream_lsh.kafka.partitioner import partition_of
from stream_lsh.kafka.settings import KafkaSettings, Partitioner
from stream_lsh.kafka.tools.delete import lines
from stream_lsh.kafka.tools.produce import Line, Reader, UnsentLines
from stream_lsh.serve.pipeline.sending import Sending

# From the tests of Kafka's own clients: `UtilsTest.testMurmur2`.
JAVA = {
    b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829, b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}  # fmt: skip


@pytest.mark.parametrize(("key", "hashed"), JAVA.items())
@pytest.mark.parametrize("partitions", [1, 3, 12, 1000])
def test_murmur2_is_that_of_java(key: bytes, hashed: int, partitions: int) -> None:
    assert partition_of("murmur2", key, partitions) == (hashed & 0x7FFFFFFF) % partitions


def test_each_partitioner_is_that_of_its_client() -> None:
    for key in (b"", b"a", b"\xff\x00\x80", "Zürich".encode()):
        assert partition_of("murmur2", key, 7) == DefaultPartitioner()(key, list(range(7)), [])
        assert partition_of("crc32", key, 7) == zlib.crc32(key) % 7


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_the_service_uses_the_partitioner(partitioner: Partitioner) -> None:
    sending = Sending(KafkaSettings(partitioner=partitioner))
    for key in JAVA:
        assert sending._partition(Line(key, b"{}", "request", 1), 12) == partition_of(partitioner, key, 12)
    without = [sending._partition(Line(None, b"{}", "request", 1), 3) for _ in range(6)]
    assert sorted(without) == [0, 0, 1, 1, 2, 2]


def key(line: bytes, field: str | None = None, **given: Any) -> bytes | None:
    return Reader(KafkaSettings(**given), field, UnsentLines())._key(line)


@pytest.mark.parametrize(
    ("id", "expected"),
    [
        (b'"a"', b"a"),
        (b'"\\u00e4"', "\u00e4".encode()),
        (b'"\\ud800"', b"\xed\xa0\x80"),
        (b"17", b"17"),
        (b"-0", b"0"),
        (b"18446744073709551615", b"18446744073709551615"),
        (b"18446744073709551616", b"18446744073709551616"),
        (b"-9223372036854775809", b"-9223372036854775809"),
        (b"1" * 40, b"1" * 40),
        (b"1.0", None),
        (b"true", None),
        (b"[1]", None),
        (b"nonsense", None),
    ],
)
@pytest.mark.parametrize("text", [b'"x"', b'"\\ud800"', b"1e999", b"123456789012345678901234567890"])
def test_anything_else_in_the_line(id: bytes, expected: bytes | None, text: bytes) -> None:
    line = b'{"id": ' + id + b', "text": ' + text + b"}"
    assert key(line) == expected
    # As a tombstone's key is read: a text has its quotes, a number is the same.
    as_json = key(line, on_conflict="update", key_is_id="json")
    if expected is None:
        assert as_json is None
    else:
        assert as_json == (id_text(json.loads(id)) if id.startswith(b'"') else expected)


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[1]", b"17", b'{"text": "x"}', b'{"id": "a", "id": "b", "t": 1e999}', b"\xff", b"[" * 2000]
)
def test_lines_without_a_key(line: bytes) -> None:
    assert key(line) is None


def test_other_fields() -> None:
    assert key(b'{"id": "a", "page": {"url": "u"}, "n": 1e999}', "page.url") == b"u"
    assert key(b'{"id": "a"}', LINE_ID) is None


def test_a_deletion_has_the_key_of_the_documents() -> None:
    def sent(*ids: str | int, **given: Any) -> list[tuple[bytes | None, bytes | None]]:
        settings = KafkaSettings(on_conflict="update", **given)
        return [(line.key, line.value) for some in lines(settings, ids) for line in some]

    assert sent("a", "ä", "17", key_is_id="string") == [(b"a", None), ("ä".encode(), None), (b"17", None)]
    assert sent("a", 17, "17", key_is_id="json") == [(b'"a"', None), (b"17", None), (b'"17"', None)]
    gone = sent("a", 17, deleted_field="x.gone", id_field="meta.id")
    assert gone == [(b"a", b'{"meta.id":"a","x.gone":true}'), (b"17", b'{"meta.id":17,"x.gone":true}')]
    document = orjson.loads(gone[0][1] or b"")
    assert Fields("meta.id", deleted_field="x.gone").extract(document).deleted
    assert len(sent(*map(str, range(2500)), key_is_id="json")) == 2500
    with pytest.raises(UsageError, match="17 is a number, and with key_is_id = string ids are text: give it as text"):
        sent(17, key_is_id="string")
    for id in ("\ud800", "x" * 5000):
        with pytest.raises(UsageError):
            sent(id, key_is_id="string")
