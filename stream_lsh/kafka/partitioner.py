"""The partition of the documents topic for a key. All writers of that topic use this function."""

from __future__ import annotations

import zlib

from aiokafka.partitioner import murmur2

from stream_lsh.kafka.settings import Partitioner


def partition_of(partitioner: Partitioner, key: bytes, partitions: int) -> int:
    """The partition of a key among this many partitions.

    `murmur2` is the default of Kafka's Java client and of aiokafka (`BuiltInPartitioner.partitionForKey`), `crc32` is
    `consistent` of librdkafka.
    """
    found: int = murmur2(key) & 0x7FFFFFFF if partitioner == "murmur2" else zlib.crc32(key)
    return found % partitions
