"""What the tests of the signing and sequencing stages share: a topic's records, stages that run, processes to kill."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from stream_lsh.frames import Frame, Sequenced, places
from stream_lsh.kafka.connection import admin, client_options, committed
from stream_lsh.kafka.member import Job, command, dump
from stream_lsh.kafka.metrics import Watch
from stream_lsh.kafka.order import Accepted
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.stage import Stage, keep_running
from stream_lsh.kafka.topics import Topics

PATIENCE = 90  # seconds for what should take a few


def line(number: int, words: int = 6) -> bytes:
    text = " ".join(f"w{number * 31 + i}" for i in range(words))
    return b'{"id":"d%d","text":"%s"}' % (number, text.encode())


async def produce(settings: KafkaSettings, values: Sequence[bytes], partitions: int, first: int = 0) -> None:
    """Documents, one after the other to each partition, beginning with that of `first`."""
    producer = AIOKafkaProducer(**client_options(settings))
    await producer.start()
    try:
        topic = Topics.of(settings).documents
        sent = [await producer.send(topic, value, partition=(first + i) % partitions) for i, value in enumerate(values)]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


async def records(
    settings: KafkaSettings, topic: str, partition: int = 0, isolation: str = "read_uncommitted"
) -> list[ConsumerRecord]:
    """All records that are in a partition now."""
    place = TopicPartition(topic, partition)
    consumer = AIOKafkaConsumer(
        **client_options(settings), max_partition_fetch_bytes=8 << 20, isolation_level=isolation
    )
    await consumer.start()
    try:
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        end = (await consumer.end_offsets([place]))[place]
        found: list[ConsumerRecord] = []
        while await consumer.position(place) < end:
            found += (await consumer.getmany(timeout_ms=1000)).get(place, [])
        return found
    finally:
        await consumer.stop()


async def positions(settings: KafkaSettings, role: str, topic: str) -> dict[int, int]:
    """What the group of a role has committed."""
    async with admin(settings) as client:
        while True:
            try:
                found = await committed(client, Topics.of(settings).group(role), topic)
                return {partition: offset for partition, (offset, _) in found.items()}
            except KafkaError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.1)


async def commit(settings: KafkaSettings, role: str, topic: str, offset: int, metadata: str = "") -> None:
    """Commit for a role whose members are not there, partition 0."""
    consumer = AIOKafkaConsumer(
        **client_options(settings), group_id=Topics.of(settings).group(role), enable_auto_commit=False
    )
    await consumer.start()
    try:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        await consumer.commit({place: OffsetAndMetadata(offset, metadata)})
    finally:
        await consumer.stop()


async def until(true: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for something that has to come."""
    began = time.monotonic()
    while not await true():
        assert time.monotonic() - began < PATIENCE, f"waited in vain until {what}"
        await asyncio.sleep(0.1)


async def until_signed(settings: KafkaSettings, documents: int) -> None:
    """Wait until the signers have committed so many documents."""

    async def signed() -> bool:
        return sum((await positions(settings, "sign", Topics.of(settings).documents)).values()) >= documents

    await until(signed, f"{documents} documents are signed")


async def until_sequenced(settings: KafkaSettings, offset: int) -> None:
    """Wait until the sequencer has committed an offset of the signatures."""

    async def sequenced() -> bool:
        return (await positions(settings, "sequence", Topics.of(settings).signatures)).get(0, 0) >= offset

    await until(sequenced, f"offset {offset} is sequenced")


def accepted_documents(settings: KafkaSettings, frames: Sequence[ConsumerRecord]) -> list[tuple[int, int]]:
    """Partition and offset of the documents that count, in their order."""
    accepted, found = Accepted(), []
    for record in frames:
        segments, partitions, offsets = places(record.value, settings)
        decision = accepted.accept(segments, partitions, offsets)
        accepted = decision.after
        rows = list(zip(partitions.tolist(), offsets.tolist(), strict=True))
        found += rows if decision.mask is None else [r for r, yes in zip(rows, decision.mask, strict=True) if yes]
    return found


def chained(settings: KafkaSettings, copies: Sequence[ConsumerRecord]) -> list[tuple[Sequenced, Frame]]:
    """The frames that a shard applies: each the successor of the last one."""
    last, found = -1, []
    for record in copies:
        frame = Sequenced.decode(record.value, settings)
        if frame.predecessor == last and frame.offset > last:
            last = frame.offset
            found.append((frame, Frame.decode(frame.frame, settings)))
    return found


@asynccontextmanager
async def running(
    stage: type[Stage], settings: KafkaSettings, watch: Watch | None = None
) -> AsyncIterator[asyncio.Task]:
    """A stage at work, life after life; at the end it is stopped, and what went wrong raised."""
    stop, watch = asyncio.Event(), watch or Watch(stage.role)
    task = asyncio.create_task(keep_running(lambda: stage(settings, watch), stop, settings, watch))
    try:
        yield task
    finally:
        stop.set()
        await asyncio.wait_for(task, PATIENCE)


class Child:
    """A role in a process of its own, as a worker starts it."""

    def __init__(self, role: str, settings: KafkaSettings) -> None:
        job = Job((role,), log_level="warning")
        self.process: subprocess.Popen[Any] = subprocess.Popen(command(job), stdin=subprocess.PIPE)
        assert self.process.stdin is not None
        self.process.stdin.write(dump(job, settings))
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self._wait()

    def terminate(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.terminate()
        return self._wait()

    def _wait(self) -> int:
        code = self.process.wait(PATIENCE)
        assert self.process.stdin is not None
        self.process.stdin.close()
        return code
