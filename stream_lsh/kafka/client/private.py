"""What is used of aiokafka beyond what it promises: to be looked through when another version of it comes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterator
from itertools import islice
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.consumer import fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import CorruptRecordException
from aiokafka.producer import sender
from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy

Close = Callable[[], Awaitable[Any]]

RETRY_MS = 5
# Each transaction begins by meeting the end of the one before it, and waits for this long. With aiokafka's 20 ms a
# transaction took 25 ms, with 5 ms it takes 2 to 9 ms (measured, Kafka 4.1).
sender.BACKOFF_OVERRIDE = RETRY_MS / 1000


def is_member(consumer: AIOKafkaConsumer) -> bool:
    """Whether a consumer belongs to its group, as far as it knows."""
    return bool(consumer._coordinator.generation >= 0)


def member_id(consumer: AIOKafkaConsumer) -> str | None:
    """What its group calls a consumer; None while it does not belong to it."""
    coordinator = consumer._coordinator
    return coordinator.member_id if coordinator.generation > 0 else None


async def end_reading(consumer: AIOKafkaConsumer, error: Exception) -> None:
    """Have whoever reads next get this error, as aiokafka does with what no repetition helps against."""
    await consumer._coordinator._push_error_to_user(error)


def check_group(consumer: AIOKafkaConsumer) -> None:
    """Raise the error of its group that aiokafka leaves for the next `getmany`."""
    if consumer._coordinator is not None:
        consumer._coordinator.check_errors()


def reader_ended(consumer: AIOKafkaConsumer) -> tuple[bool, BaseException | None]:
    """Whether aiokafka's task that reads has ended, and the error: any that it does not know ends it, silently."""
    reading = consumer._fetcher.error_future
    if not reading.done():
        return False, None
    error = None if reading.cancelled() else reading.exception()
    return True, error and (error.__cause__ or error)


def reads_at(consumer: AIOKafkaConsumer, place: TopicPartition) -> int | None:
    """The offset of the next record that a consumer hands on; None while it does not know. From any thread."""
    subscription = consumer._subscription.subscription
    assignment = None if subscription is None else subscription.assignment
    if assignment is None or place not in assignment.tps:
        return None
    found: int | None = assignment.state_value(place)._position
    return found


def reassigning(consumer: AIOKafkaConsumer) -> bool:
    """Whether its group is sharing out the work. From any thread."""
    return bool(consumer._subscription.reassignment_in_progress)


def holding(consumer: AIOKafkaConsumer) -> Container[TopicPartition]:
    """The partitions of which there are records, or errors, that were not taken; aiokafka asks for no more of these."""
    found: Container[TopicPartition] = consumer._fetcher._records
    return found


def pace(consumer: AIOKafkaConsumer, least_bytes: int, wait_ms: int) -> None:
    """From the next request on let the broker wait for so many bytes, so long."""
    consumer._fetcher._fetch_min_bytes = least_bytes
    consumer._fetcher._fetch_max_wait_ms = wait_ms


async def learn(consumer: AIOKafkaConsumer, topic: str) -> None:
    """Wait until a consumer knows a topic that it was not subscribed to."""
    await consumer._client._wait_on_metadata(topic)


def knows_brokers(client: AIOKafkaAdminClient) -> bool:
    """Whether a client that is connected was told of any brokers."""
    return bool(client._client.cluster.brokers())


async def ask(client: AIOKafkaAdminClient, request: Any, node: int) -> Any:
    """The answer of a broker to a request."""
    return await client._send_request(request, node)


def parts_of_consumer(consumer: AIOKafkaConsumer) -> list[Close]:
    """What is to be closed, one after the other, where `stop` hangs."""
    coordinator, reader = consumer._coordinator, consumer._fetcher
    parts: list[Close] = []
    if isinstance(coordinator, GroupCoordinator):
        parts += [coordinator._stop_heartbeat_task, coordinator._stop_commit_offsets_refresh_task]
    elif coordinator is not None:  # there is no group, and nobody to be told
        parts.append(coordinator.close)
    if reader is not None:
        parts.append(reader.close)
    return [*parts, consumer._client.close]


def parts_of_producer(producer: AIOKafkaProducer) -> list[Close]:
    """The same of a producer, from now on stopped; what is not sent yet is dropped."""
    producer._closed = True
    # The sender first: its requests end while there is still a client to tell them so.
    return [*([producer._sender.close] if producer._sender is not None else []), producer.client.close]


# -- header names that are not UTF-8: Kafka takes them, and aiokafka does not get past a record that has one ----------


def read_any_header() -> None:
    """Let all consumers of this process read such records: of a byte 0xff in a name they make the text \\xff.

    So these names are not passed on as they were: aiokafka can send no name that is not UTF-8.
    """
    fetcher.MemoryRecords = _Records


class _Records(_MemoryRecordsPy):  # type: ignore[misc]  # aiokafka has no types
    """What a broker has sent of a partition, batch by batch."""

    def next_batch(self, *sizes: int) -> Any:
        data = self._next_slice
        batch = super().next_batch(*sizes)
        # Older formats have no headers, and of control batches only single records are asked for.
        return _Batch(batch, data) if isinstance(batch, DefaultRecordBatch) and not batch.is_control_batch else batch


class _Batch:
    """A batch like aiokafka's. It is read a second time, slowly, if it cannot be read as aiokafka does it."""

    def __init__(self, strict: Any, data: memoryview) -> None:
        self._strict = strict
        self._data = data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strict, name)

    def __iter__(self) -> Iterator[Any]:
        read = 0
        try:
            for record in self._strict:
                yield record
                read += 1
            return
        except (UnicodeDecodeError, CorruptRecordException):  # the latter where aiokafka has not been compiled
            lenient = iter(_DefaultRecordBatchPy(self._data))  # unpacks it
        lenient._buffer = _Bytes(lenient._buffer)
        yield from islice(lenient, read, None)


class _Bytes(bytearray):
    """Any part of it is text."""

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return _Bytes(found) if isinstance(key, slice) else found

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return super().decode(encoding, "backslashreplace")
