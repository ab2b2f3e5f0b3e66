"""Several documents topics share a partition of verdicts: each document is forwarded once, also after a restart."""

import asyncio
from typing import Any

import orjson
from aiokafka import ConsumerRecord, TopicPartition

from stream_lsh.kafka.forward.partition import SourcePartition, read_verdict
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.settings import KafkaSettings

SETTINGS = KafkaSettings(documents={"news": {}, "wire": {}})
NEWS, WIRE, VERDICTS = (TopicPartition(topic, 0) for topic in ("news", "wire", "stream-lsh.verdicts"))


def record(topic: str, offset: int, value: Any) -> Any:
    return ConsumerRecord(topic, 0, offset, 7, 0, None, orjson.dumps(value), None, 0, 0, ())


def verdict(at: int, topic: str, offset: int) -> Any:
    source = {"topic": topic, "partition": 0, "offset": offset}
    return read_verdict(record(VERDICTS.topic, at, {"id": "a", "kind": "unique", "source": source}), "news", "wire")


class Forwarding:
    """A partition from positions on. forwarded: topic and value of what it has delivered; positions: the last ones."""

    def __init__(self, known: dict[TopicPartition, tuple[int, str]]) -> None:
        self.forwarded: list[tuple[bytes, bytes]] = []
        self.positions, self._known = known, known

    async def deliver(self, outputs: Any, positions: Any) -> None:
        self.positions = dict(positions)
        for rows in outputs.values():
            self.forwarded += [(dict(headers)["topic"], value) for _, value, headers, _ in rows]

    async def run(self, documents: list[Any], verdicts: list[Any], wanted: int) -> None:
        """Until so much is delivered; 0: nothing comes, for a while."""
        source = SourcePartition(
            0, [NEWS, WIRE], SETTINGS, self.deliver, Probe("forward"), 1 << 20, 0.0, lambda: None, 1 << 20
        )  # type: ignore[arg-type]
        begins = {NEWS: (0, ""), WIRE: (0, ""), VERDICTS: (0, "")} | self._known
        await source.start(begins, self._known)
        source.offer([record for record in documents if record.offset >= begins[TopicPartition(record.topic, 0)][0]],
                     [found for found in verdicts if found.at >= begins[VERDICTS][0]])  # fmt: skip
        for _ in range(20):
            await asyncio.sleep(0)
        while len(self.forwarded) < wanted:
            await asyncio.sleep(0)
        await source.close()


async def test_a_topic_that_is_ahead_is_not_forwarded_again() -> None:
    documents = [record("news", 0, "n0"), record("wire", 0, "w0"), record("wire", 1, "w1")]
    verdicts = [verdict(0, "news", 0), verdict(1, "wire", 0), verdict(3, "wire", 1)]
    first = Forwarding({})
    await first.run(documents[1:], verdicts, 2)  # the document of news has not been read yet
    assert first.forwarded == [(b"wire", b'"w0"'), (b"wire", b'"w1"')]
    assert first.positions == {NEWS: (0, "0"), WIRE: (2, "4"), VERDICTS: (0, "")}
    between = Forwarding(first.positions)
    await between.run([], [], 0)  # killed before anything is read
    assert between.positions == first.positions
    second = Forwarding(between.positions)
    await second.run(documents, verdicts, 1)
    assert second.forwarded == [(b"news", b'"n0"')]
    assert second.positions == {NEWS: (1, "1"), WIRE: (2, "4"), VERDICTS: (4, "")}
