"""What tests with a broker share: a topic's records and partitions, what is committed, stages that run, processes."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from stream_lsh.embedded.warming import warm_up
from stream_lsh.kafka.client.connection import admin, client_options
from stream_lsh.kafka.consumer.position import committed
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.process import COMPILED
from stream_lsh.kafka.run.restarts import Stage, keep_running
from stream_lsh.kafka.sequence.order import Accepted
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.frames import Places

KEY = bytes(range(16))  # of an index
PATIENCE = 300  # seconds for what should take a few: the machine may be slow, or busy with other things


@cache
def warm() -> None:
    """Compile or load the kernels, once: before something is waited for, as that may take minutes on a busy machine."""
    warm_up(KafkaSettings())


def line(number: int, words: int = 6) -> bytes:
    text = " ".join(f"w{number * 31 + i}" for i in range(words))
    return b'{"id":"d%d","text":"%s"}' % (number, text.encode())


async def send(settings: KafkaSettings, topic: str, values: Sequence[bytes | None], **place: Any) -> None:
    """Records in their order, one after the other; place: their partition (0) and key."""
    async with AIOKafkaProducer(**client_options(settings), max_request_size=80 << 20) as producer:
        sent = [await producer.send(topic, value, **{"partition": 0, **place}) for value in values]
        await asyncio.gather(*sent)


async def produce(settings: KafkaSettings, values: Sequence[bytes], partitions: int, first: int = 0) -> None:
    """Documents, one after the other to each partition, beginning with that of `first`."""
    async with AIOKafkaProducer(**client_options(settings)) as producer:
        topic = Topics.of(settings).documents
        sent = [await producer.send(topic, value, partition=(first + i) % partitions) for i, value in enumerate(values)]
        await asyncio.gather(*sent)


async def transaction(settings: KafkaSettings, topic: str, partition: int, *values: bytes) -> None:
    """Records, and the mark of their transaction behind them."""
    name = f"{topic}-{partition}"
    async with AIOKafkaProducer(**client_options(settings), transactional_id=name) as producer, producer.transaction():
        for value in values:
            await producer.send(topic, value, partition=partition)
    await settled(settings.bootstrap_servers, topic)


async def delete_before(settings: KafkaSettings, topic: str, offset: int, partition: int = 0) -> None:
    """Delete the records before an offset, as retention does; -1: all."""
    async with admin(settings) as client:
        await client.delete_records({TopicPartition(topic, partition): RecordsToDelete(before_offset=offset)})


async def records(
    settings: KafkaSettings, topic: str, partition: int = 0, isolation: str = "read_uncommitted"
) -> list[ConsumerRecord]:
    """All records that are in a partition now; those of `read_committed` when no transaction hides any."""
    place = TopicPartition(topic, partition)
    return (await records_of(settings, [place], isolation))[place]


async def records_of(
    settings: KafkaSettings, places: Sequence[TopicPartition], isolation: str = "read_uncommitted"
) -> dict[TopicPartition, list[ConsumerRecord]]:
    """The same of several partitions, by one consumer."""
    if isolation == "read_committed":
        await settled(settings.bootstrap_servers, *dict.fromkeys(place.topic for place in places))
    async with AIOKafkaConsumer(
        **client_options(settings), max_partition_fetch_bytes=8 << 20, isolation_level=isolation
    ) as consumer:
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        ends = await consumer.end_offsets(places)
        found: dict[TopicPartition, list[ConsumerRecord]] = {place: [] for place in places}
        while waiting := [place for place in places if await consumer.position(place) < ends[place]]:
            for place, batch in (await consumer.getmany(*waiting, timeout_ms=1000)).items():
                found[place] += batch
        return found


async def partitions_of(client: AIOKafkaConsumer, topic: str) -> list[TopicPartition]:
    """The partitions of a topic; a client that has just started may not know it yet."""
    end = time.monotonic() + PATIENCE
    while True:
        client._client.add_topic(topic)
        await client._client.force_metadata_update()
        found = client.partitions_for_topic(topic)
        if found:
            return [TopicPartition(topic, partition) for partition in sorted(found)]
        assert time.monotonic() < end, f"there is no topic {topic}"
        await asyncio.sleep(0.1)


async def settled(bootstrap: str, *topics: str) -> None:
    """Wait until no transaction hides anything of these topics: what a killed process has left open, brokers end."""
    async with (
        AIOKafkaConsumer(bootstrap_servers=bootstrap) as everything,
        AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as visible,
    ):
        places = [place for topic in topics for place in await partitions_of(visible, topic)]

        async def seen() -> bool:
            return bool(await visible.end_offsets(places) == await everything.end_offsets(places))

        await until(seen, f"no transaction is open on {topics}")


async def make_topics(settings: KafkaSettings, config: dict[str, str], *names: str) -> None:
    """Topics of one partition with a configuration of their own; brokers learn of them a little later."""
    async with admin(settings) as client:
        await client.create_topics([NewTopic(name, 1, 1, topic_configs=config) for name in names])

        async def known() -> bool:
            return set(names) <= set(await client.list_topics())

        await until(known, f"{names} are known")


async def until_partitions(settings: KafkaSettings, topic: str, number: int) -> None:
    """Wait until a topic is known to have so many partitions: brokers learn of new ones a little later."""
    async with admin(settings) as client:

        async def known() -> bool:
            (found,) = await client.describe_topics([topic])
            return len(found["partitions"]) >= number

        await until(known, f"{topic} has {number} partitions")


async def grow(settings: KafkaSettings, topic: str, partitions: int) -> None:
    """Give a topic more partitions."""
    async with admin(settings) as client:
        await client.create_partitions({topic: NewPartitions(partitions)})
    await until_partitions(settings, topic, partitions)


async def commits(client: AIOKafkaAdminClient, group: str, topic: str) -> dict[int, tuple[int, str]]:
    """What a group has committed, with its metadata; a coordinator that is not ready is asked again."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return await committed(client, group, topic)
        except KafkaError as error:
            if not error.retriable or time.monotonic() > end:
                raise
            await asyncio.sleep(0.1)


async def positions(settings: KafkaSettings, role: str, topic: str) -> dict[int, int]:
    """What the group of a role has committed."""
    async with admin(settings) as client:
        found = await commits(client, Topics.of(settings).group(role), topic)
        return {partition: offset for partition, (offset, _) in found.items()}


async def members(settings: KafkaSettings, role: str) -> int:
    """How many there are in a role's group; -1 while it is being shared out."""
    try:
        async with admin(settings) as client:
            (found,) = await client.describe_consumer_groups([Topics.of(settings).group(role)])
    except KafkaError as error:
        if not error.retriable:  # as at the first group of a new broker
            raise
        return -1
    _, _, state, _, _, there, *_ = found.groups[0]
    return len(there) if state in ("Stable", "Empty", "Dead") else -1


async def commit(
    settings: KafkaSettings, role: str, topic: str, offset: int, metadata: str = "", partition: int = 0
) -> None:
    """Commit for a role whose members are not there."""
    group = Topics.of(settings).group(role)
    async with AIOKafkaConsumer(**client_options(settings), group_id=group, enable_auto_commit=False) as consumer:
        place = TopicPartition(topic, partition)
        consumer.assign([place])
        await consumer.commit({place: OffsetAndMetadata(offset, metadata)})


async def begun(settings: KafkaSettings) -> None:
    """Commit what the first start of a sequencer leaves: the key, without which nobody signs."""
    await commit(settings, "sequence", Topics.of(settings).signatures, 0, Accepted(KEY).metadata())


async def until(true: Callable[[], object], what: str, every: float = 0.05) -> None:
    """Wait for something that has to come; it may be awaited, too. every: seconds between two looks."""
    began = time.monotonic()
    while True:
        found = true()
        if await found if inspect.isawaitable(found) else found:
            return
        assert time.monotonic() - began < PATIENCE, f"waited in vain until {what}"
        await asyncio.sleep(every)


async def until_committed(
    settings: KafkaSettings, role: str, topic: str, enough: Callable[[dict[int, int]], object]
) -> None:
    """Wait until the positions that the group of a role has committed, by partition, are enough."""
    group = Topics.of(settings).group(role)
    async with admin(settings) as client:

        async def reached() -> object:
            found = await commits(client, group, topic)
            return enough({partition: offset for partition, (offset, _) in found.items()})

        await until(reached, f"{role} has come far enough in {topic}", every=0.2)  # each look is two requests


async def until_signed(settings: KafkaSettings, documents: int) -> None:
    """Wait until the signers have committed so many documents."""
    topic = Topics.of(settings).documents
    await until_committed(settings, "sign", topic, lambda found: sum(found.values()) >= documents)


async def until_sequenced(settings: KafkaSettings, offset: int) -> None:
    """Wait until the sequencer has committed an offset of the signatures."""
    topic = Topics.of(settings).signatures
    await until_committed(settings, "sequence", topic, lambda found: found.get(0, 0) >= offset)


def accepted_documents(settings: KafkaSettings, frames: Sequence[ConsumerRecord]) -> list[tuple[int, int]]:
    """Partition and offset of the documents that count, in their order."""
    accepted, found = Accepted(KEY), []
    for record in frames:
        frame = Places.of(record.value, settings)
        decision = accepted.accept(frame)
        accepted = decision.after
        rows = list(zip(frame.partitions.tolist(), frame.offsets.tolist(), strict=True))
        found += rows if decision.mask is None else [r for r, yes in zip(rows, decision.mask, strict=True) if yes]
    return found


@asynccontextmanager
async def running(
    stage: type[Stage], settings: KafkaSettings, probe: Probe | None = None
) -> AsyncIterator[asyncio.Task]:
    """A stage at work, run after run; at the end it is stopped, and what went wrong raised."""
    stop, probe = asyncio.Event(), probe or Probe(stage.role)
    if stage.role in COMPILED:
        warm()
    task = asyncio.create_task(keep_running(lambda: stage(settings, probe), stop, settings, probe))
    try:
        yield task
    finally:
        stop.set()
        await asyncio.wait_for(task, PATIENCE)


async def ended(stage: type[Stage], settings: KafkaSettings) -> None:
    """Wait until a stage ends by itself, and raise why."""
    async with asyncio.timeout(PATIENCE):
        async with running(stage, settings) as task:
            await task


COMPACTED = {
    "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "1000", "delete.retention.ms": "0",
}  # fmt: skip
"""A topic's configuration: compacted as soon as can be."""
