"""Outputs: items are done in order however their records are confirmed, and what is under way has a limit."""

import asyncio
from itertools import permutations
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import RecordTooLargeError

from stream_lsh.kafka.consumer.output import InOrder, Underway
from stream_lsh.kafka.run.restarts import Failed


class Play:
    """What was sent, to be confirmed by hand; what was done."""

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[Any]] = []
        self.done: list[Any] = []
        self.placed: list[list[Any]] = []
        self.failures: list[BaseException] = []
        self.order: InOrder[Any] = InOrder(self._send, self._done, self.failures.append)

    async def _send(self, topic: str, partition: int, value: bytes) -> asyncio.Future[Any]:
        if value == b"hangs":
            await asyncio.Event().wait()
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    def _done(self, item: Any, placed: list[Any]) -> None:
        self.done.append(item)
        self.placed.append(placed)

    async def send(self, item: Any, *values: bytes) -> None:
        await self.order.send(item, [("topic", 0, value) for value in values])

    async def confirm(self, number: int, place: Any = None) -> None:
        self.futures[number].set_result(place)
        await settled()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def play() -> Play:
    return Play()


@pytest.mark.parametrize("order", list(permutations(range(5))))
async def test_every_order_of_confirmation_is_done_in_order(play: Play, order: tuple[int, ...]) -> None:
    for number in range(5):
        await play.send(number, b"x")
    for step, number in enumerate(order):
        await play.confirm(number)
        confirmed = set(order[: step + 1])
        assert play.done == [j for j in range(5) if set(range(j + 1)) <= confirmed]
        assert len(play.order) == play.order.bytes == 5 - len(play.done)


async def test_an_item_is_done_with_its_last_record_and_one_without_records_in_its_turn(play: Play) -> None:
    await play.send("none before")
    assert play.done == ["none before"]
    await play.send("two", b"a", b"b")
    await play.send("none")
    await play.confirm(1, "second")
    assert play.done == ["none before"]
    await play.confirm(0, "first")
    assert play.done == ["none before", "two", "none"]

    assert play.placed == [[], ["first", "second"], []]


async def test_nothing_is_done_after_close(play: Play) -> None:
    for number in range(3):
        await play.send(number, b"x")
    await play.confirm(0)
    play.order.close()
    await play.confirm(1)
    await play.send(7, b"x")
    assert play.done == [0] and len(play.futures) == 3
    assert len(play.order) == play.order.bytes == 0


async def test_what_closes_when_it_is_done_is_the_last(play: Play) -> None:
    def done(item: Any, _: list[Any]) -> None:
        play.done.append(item)
        play.order.close()

    play.order = InOrder(play._send, done, play.failures.append)
    await play.send(1, b"x")
    await play.send(2, b"x")
    await play.confirm(1)
    await play.confirm(0)
    assert play.done == [1]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_record_that_fails_ends_it(play: Play, cancelled: bool) -> None:
    for number in range(3):
        await play.send(number, b"x")
    await play.confirm(0)
    await play.confirm(2)
    play.futures[1].cancel() if cancelled else play.futures[1].set_exception(ConnectionError("gone"))
    await settled()
    await play.order.drained()

    assert play.done == [0] and isinstance(play.failures.pop(), Failed if cancelled else ConnectionError)
    assert not play.failures


async def test_what_was_not_all_handed_over_is_never_done_and_holds_up_nothing(play: Play) -> None:
    """As where a stop comes while one waits for room."""
    await play.send("whole", b"x")
    task = asyncio.create_task(play.send("half", b"x", b"hangs"))
    await settled()
    task.cancel()
    await asyncio.wait([task])
    await play.confirm(1)
    assert play.done == []
    await play.confirm(0)
    await play.order.drained()
    assert play.done == ["whole"] and play.order.bytes == 0


async def test_drained_waits_for_the_last(play: Play) -> None:
    await play.order.drained()
    await play.send(0, b"x")
    await play.send(1, b"x")
    waiting = asyncio.create_task(play.order.drained())
    await play.confirm(1)
    assert not waiting.done()
    await play.confirm(0)
    await waiting


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
