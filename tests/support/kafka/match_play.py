"""What the tests of the match role share: frames, and the replies that they must get."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from stream_lsh.documents.builder import columns
from stream_lsh.documents.document import Document
from stream_lsh.families.family import signer_of
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.settings.model import Settings
from stream_lsh.wire.frames import Frame
from stream_lsh.wire.replies import head
from stream_lsh.wire.sequenced import Sequenced
from stream_lsh.wire.source import Source
from support.kafka.replica_play import fields_of, reply_of, undisturbed
from support.kafka.stages import KEY, until_committed

LIMIT = 300.0  # seconds that anything may take: the machine may be slow, or busy with other things


def frames(
    settings: Settings, given: Sequence[Document], size: int, first: int = 0, partition: int = 0
) -> list[bytes]:  # fmt: skip
    """Sequenced frames, from `first` on without gaps; with a window six seconds of stream time a document."""
    signer = signer_of(settings.signing, KEY)
    out = []
    for number, at in enumerate(range(0, len(given), size), start=first):
        part = columns(list(given[at : at + size]), fields_of(settings))
        n = len(part.ids)
        places = np.full(n, partition, np.int32), np.arange(at, at + n)
        source = Source(*places, part.ids, part.times, 1000, part.rejected, sources=part.sources)
        frame = Frame.of(signer, settings, part, np.array([[partition, at, at + n, 0]], np.int64), source)
        place = number, number - 1, number * size, KEY
        log = None if settings.window is None else 10**12 + 6000 * np.arange(at, at + n)
        out.append(Sequenced(*place, None, memoryview(frame.encode(settings)), log=log).encode(settings))
    return out


def expected(settings: KafkaSettings, log: Sequence[bytes], folder: Path) -> dict[int, list[bytes]]:
    """The replies of each shard, from replicas that nothing disturbs."""
    return {
        shard: [reply_of(found) for found in undisturbed(settings, log, folder / f"undisturbed-{shard}", shard)]
        for shard in range(settings.shards)
    }


async def produce(settings: KafkaSettings, log: Sequence[bytes], pause: float = 0.0) -> None:
    """A copy of each frame for each shard, as the sequencer does it."""
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, max_request_size=80 << 20, enable_idempotence=True,
        request_timeout_ms=300_000,
    )  # fmt: skip
    await producer.start()
    sent = []
    try:
        for data in log:
            for shard in range(settings.shards):
                sent.append(await producer.send(Topics.of(settings).frames, data, partition=shard))
            await asyncio.sleep(pause)
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


class Replies:
    """Reads the matches topic as the judge does: by the chain rule."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.found: dict[int, list[bytes]] = {shard: [] for shard in range(settings.shards)}
        self.times: list[float] = []
        self.repeated: list[int] = []  # offsets of frames
        self.position = 0
        self._last = dict.fromkeys(range(settings.shards), -1)

    async def read(self, n: int, look: Callable[[], object] = lambda: None) -> None:
        """Read until each shard has replied to `n` frames; fail if nothing comes for long."""
        topic = TopicPartition(Topics.of(self.settings).matches, 0)
        consumer = AIOKafkaConsumer(bootstrap_servers=self.settings.bootstrap_servers, fetch_max_wait_ms=50)
        await consumer.start()
        try:
            consumer.assign([topic])
            consumer.seek(topic, sum(map(len, self.found.values())) and self.position)
            deadline = time.monotonic() + LIMIT
            while min(map(len, self.found.values())) < n:
                look()
                assert time.monotonic() < deadline, f"replies: { {k: len(v) for k, v in self.found.items()} } of {n}"
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    deadline = time.monotonic() + LIMIT
                    for record in records:
                        self._take(record)
        finally:
            with suppress(asyncio.CancelledError):  # aiokafka awaits a task that it has cancelled before it ran
                await consumer.stop()

    def _take(self, record: Any) -> None:
        self.position = record.offset + 1
        shard, offset, predecessor = head(record.value, self.settings)
        if offset <= self._last[shard]:
            self.repeated.append(offset)
        elif predecessor == self._last[shard]:
            self._last[shard] = offset
            self.found[shard].append(record.value)
            self.times.append(time.monotonic())


async def all_committed(settings: KafkaSettings, n: int) -> None:
    """Wait until the group has committed the first n frames of every shard."""
    wanted = dict.fromkeys(range(settings.shards), n)
    await until_committed(settings, "match", Topics.of(settings).frames, lambda found: found == wanted)


async def log_ends(settings: KafkaSettings, topic: str, partitions: int) -> list[tuple[int, int]]:
    """First offset and end of each partition."""
    async with AIOKafkaConsumer(bootstrap_servers=settings.bootstrap_servers) as consumer:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        starts, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        return [(starts[place], ends[place]) for place in places]
