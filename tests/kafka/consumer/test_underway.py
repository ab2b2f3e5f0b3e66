"""What is under way at a time has a limit, whatever the number of partitions; the order of each stays."""

import asyncio
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import RecordTooLargeError

from stream_lsh.kafka.consumer.output import Underway


class Batch:
    """A batch that is as large as its value."""

    def __init__(self, value: bytes) -> None:
        self.value = value

    def size(self) -> int:
        return len(self.value)


class Producer:
    """Acknowledges when it is told to."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, bytes]] = []
        self.futures: list[asyncio.Future[Any]] = []

    async def send(self, topic: str, value: bytes, partition: int) -> asyncio.Future[Any]:
        assert topic == "frames"
        if value == b"refused":
            raise RecordTooLargeError()
        self.sent.append((partition, value))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    async def send_batch(self, batch: Batch, topic: str, partition: int) -> asyncio.Future[Any]:
        return await self.send(topic, batch.value, partition)

    async def acknowledge(self, number: int = 1) -> None:
        for _ in range(number):
            self.futures.pop(0).set_result(None)
        await settled()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def pair(most: int) -> tuple[Producer, Underway]:
    producer = Producer()
    return producer, Underway(cast(AIOKafkaProducer, producer), most)


async def test_small_records_are_pipelined_and_what_does_not_fit_waits() -> None:
    producer, underway = pair(100)
    for number in range(10):
        await underway.send("frames", number % 3, b"%010d" % number)
    assert underway.bytes == 100
    waiting = asyncio.create_task(underway.send("frames", 0, b"x" * 15))
    await settled()
    assert len(producer.sent) == 10
    await producer.acknowledge()
    assert len(producer.sent) == 10
    await producer.acknowledge()
    assert producer.sent[10:] == [(0, b"x" * 15)] and waiting.done()
    assert underway.bytes == 95
    await producer.acknowledge(9)
    assert underway.bytes == 0


async def test_a_large_record_goes_alone_and_those_behind_it_wait() -> None:
    producer, underway = pair(100)
    await underway.send("frames", 0, b"first")
    tasks = [asyncio.create_task(underway.send("frames", p, value)) for p, value in ((1, b"y" * 500), (2, b"last"))]
    await settled()
    assert producer.sent == [(0, b"first")]  # the small one would fit, but must not overtake for ever
    await producer.acknowledge()
    assert producer.sent[1:] == [(1, b"y" * 500)]
    await producer.acknowledge()
    assert producer.sent[2:] == [(2, b"last")]
    await asyncio.gather(*tasks)


async def test_what_fails_or_is_given_up_takes_no_room() -> None:
    producer, underway = pair(10)
    with pytest.raises(RecordTooLargeError):
        await underway.send("frames", 0, b"refused")
    assert underway.bytes == 0
    first = await underway.send("frames", 0, b"12345678")
    cancelled = asyncio.create_task(underway.send("frames", 0, b"given up"))
    await settled()
    cancelled.cancel()
    await settled()
    second = asyncio.create_task(underway.send("frames", 0, b"another"))
    await settled()
    first.set_exception(RecordTooLargeError())
    await second
    assert first.exception() is not None
    assert [value for _, value in producer.sent] == [b"12345678", b"another"]
    assert underway.bytes == 7


async def test_batches_wait_like_records() -> None:
    producer, underway = pair(100)
    await underway.send_batch("frames", 0, Batch(b"x" * 60))
    waiting = asyncio.create_task(underway.send_batch("frames", 1, Batch(b"y" * 60)))
    await settled()
    assert len(producer.sent) == 1 and underway.bytes == 60
    await producer.acknowledge()
    assert producer.sent[1] == (1, b"y" * 60) and waiting.done() and underway.bytes == 60
