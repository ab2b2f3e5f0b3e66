"""Keys have the partitions that other clients of Kafka give them."""

import zlib

import pytest
from aiokafka.partitioner import DefaultPartitioner

from stream_lsh.kafka.partitioner import partition_of
from stream_lsh.kafka.settings import KafkaSettings, Partitioner
from stream_lsh.kafka.tools.produce import Line
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
