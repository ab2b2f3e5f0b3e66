"""The whole pipeline on a compacted documents topic, whoever is behind while records are replaced."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import NewTopic
from support.kafka.feeding import Record
from support.kafka.harness import Pipeline, until
from support.kafka.oracle import json_of

from stream_lsh.kafka.client.connection import admin

pytestmark = pytest.mark.long

KEYS, NUMBER = 50, 300
COMPACTED = {
    "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "1000", "delete.retention.ms": "0",
}  # fmt: skip


class Feed:
    """Documents that replace one another, although their texts have nothing in common."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._number = 0
        self._now = int(time.time() * 1000)

    def batch(self) -> None:
        """Produce documents."""
        self._pipeline.produce([self._record(b"k%d" % (i % KEYS)) for i in range(NUMBER)])

    def _record(self, key: bytes) -> Record:
        self._number += 1
        chance = random.Random(self._number)
        words = " ".join(f"{chance.randrange(16**8):x}" for _ in range(20))
        value = b'{"id": %d, "title": "t", "text": "%b"}' % (self._number, words.encode())
        return Record(0, key, value, (), self._now)

    def compacted(self, left: int) -> list[Record]:
        """Close the segment by a document of a later time; what the topic still has when Kafka has done its work."""
        self._now += 10_000
        self._pipeline.produce([self._record(b"last %d" % self._number)])
        until(lambda: len(self._pipeline.read("documents")["documents"]) == left, why="nothing is compacted")
        return self._pipeline.read("documents")["documents"]


def test_what_is_replaced_is_no_loss(broker: Any, prefix: str, tmp_path: Path) -> None:
    pipeline = Pipeline(broker.bootstrap, prefix, tmp_path, partitions=1)

    async def make() -> None:
        async with admin(pipeline.settings) as client:
            topic = pipeline.topics.documents
            await client.create_topics([NewTopic(topic, 1, 1, topic_configs=COMPACTED)])
            while topic not in await client.list_topics():
                await asyncio.sleep(0.05)

    pipeline.run(make())
    with pipeline:
        feed = Feed(pipeline)
        pipeline.worker(("sequence", "match", "judge"))
        sign, forward = pipeline.worker(("sign",)), pipeline.worker(("forward",), start=False)
        feed.batch()
        pipeline.wait_for(NUMBER)
        first = feed.compacted(KEYS + 1)  # judged, and not forwarded yet
        pipeline.wait_for(NUMBER + 1)
        forward.start()
        pipeline.wait_for(len(first), "unique")
        sign.terminate()
        assert sign.wait() == 0, sign.said()
        feed.batch()
        time.sleep(3)  # forward reads ahead what it can
        second = [record for record in feed.compacted(KEYS + 2) if record.offset > first[-1].offset]
        sign.start()
        pipeline.wait_for(len(first) + len(second), "unique")
        pipeline.alive()
        found = pipeline.read("unique", "verdicts")
    assert [r.original for r in found["unique"]] == [r.original for r in first + second]
    judged = [json_of(r.value)["source"]["offset"] for r in found["verdicts"]]
    assert judged == [*range(NUMBER + 1), *(r.offset for r in second)]
