"""Topics in memory: their records, and a consumer that reads them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from aiokafka import ConsumerRecord

from stream_lsh.kafka.consumer.delivery import Row
from stream_lsh.kafka.names import TIMESTAMPS, wanted
from stream_lsh.kafka.registry.encoding import HEAD, IN_MEMORY, Decoder, avro_schema
from stream_lsh.kafka.settings import KafkaSettings

_OUTPUTS = {id.to_bytes(HEAD): output for output, id in IN_MEMORY.items()}
_CREATED, _APPENDED = 0, 1  # types of timestamps, as Kafka numbers them


class Record(ConsumerRecord[bytes, bytes]):  # type: ignore[misc]
    """A record of a topic, with the attributes of aiokafka's `ConsumerRecord`. Equal records have equal attributes.

    Attributes:
        topic, partition, offset: where it is. Offsets have no gaps here. On Kafka, transactions leave some in outputs.
        key, value: bytes, or None.
        headers: tuples of a name and bytes.
        timestamp: in ms since 1970.
    """

    def json(self) -> Any:
        """The value as JSON, also of an output in Avro; None if there is no value (a tombstone).

        Raises:
            ValueError: the value is neither.
        """
        return None if self.value is None else json.loads(in_json(self.value))


def in_json(value: bytes) -> bytes:
    """A value with an Avro schema of a pipeline in memory, as JSON; any other one as it is."""
    output = _OUTPUTS.get(value[:HEAD])
    return value if output is None else _decoder(output)(value)


@cache
def _decoder(output: str) -> Decoder:
    return Decoder(json.dumps(avro_schema(output)))


class Log:
    """All topics of a pipeline.

    Attributes:
        records: of all topics, in the order in which they were written.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self.records: list[Record] = []
        self._by_topic: dict[str, list[Record]] = defaultdict(list)
        self._ends: Counter[tuple[str, int]] = Counter()
        self._arrival = {topic.name for topic in wanted(settings) if topic.further.get(TIMESTAMPS) == "LogAppendTime"}

    def append(self, topic: str, partition: int, row: Row, now: int) -> Record:
        """Write a record. now: ms since 1970."""
        key, value, headers, time = row
        arrival = topic in self._arrival
        record = Record(
            topic, partition, self._ends[topic, partition], now if arrival or time is None else time,
            _APPENDED if arrival else _CREATED, key, value, None, -1 if key is None else len(key),
            -1 if value is None else len(value), tuple(headers),
        )  # fmt: skip
        self._ends[topic, partition] += 1
        self._by_topic[topic].append(record)
        self.records.append(record)
        return record

    def of(self, topic: str) -> list[Record]:
        """The records of a topic, in the order in which they were written."""
        return list(self._by_topic[topic])

    def last(self, topic: str) -> Record:
        """The record of a topic that was written last."""
        return self._by_topic[topic][-1]


class Consumer:
    """Reads topics from their beginning. Each iteration gives the records that were written since the last one, and
    ends without waiting for more."""

    def __init__(self, records: Sequence[Record], topics: frozenset[str]) -> None:
        self._records = records
        self._topics = topics
        self._position = 0

    def __iter__(self) -> Iterator[Record]:
        while self._position < len(self._records):
            record = self._records[self._position]
            self._position += 1
            if record.topic in self._topics:
                yield record
