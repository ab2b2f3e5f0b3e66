"""The private parts of aiokafka that the pipeline uses. Review this module with each new version of aiokafka."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterator
from itertools import islice
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition, conn
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.consumer import consumer as consumers
from aiokafka.consumer import fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import CorruptRecordException, KafkaConnectionError, NotCoordinatorForGroupError, for_code
from aiokafka.producer import sender
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy

Close = Callable[[], Awaitable[Any]]

RETRY_MS = 5
# A transaction begins while the previous one is still ending, and waits this long before it retries. With aiokafka's
# 20 ms a transaction took 25 ms; with 5 ms it takes 2 to 9 ms (measured, Kafka 4.1).
sender.BACKOFF_OVERRIDE = RETRY_MS / 1000


def is_member(consumer: AIOKafkaConsumer) -> bool:
    """Whether a consumer considers itself a member of its group."""
    return bool(consumer._coordinator.generation >= 0)


def member_id(consumer: AIOKafkaConsumer) -> str | None:
    """The member id of a consumer; None while it is no member."""
    coordinator = consumer._coordinator
    return coordinator.member_id if coordinator.generation > 0 else None


async def end_reading(consumer: AIOKafkaConsumer, error: Exception) -> None:
    """Make the next read raise this error, as aiokafka does with errors that a retry cannot solve."""
    await consumer._coordinator._push_error_to_user(error)


def watch_throttle(client: AIOKafkaConsumer | AIOKafkaProducer, say: Callable[[float], object]) -> None:
    """Call `say` with the seconds for which a broker holds a client back. aiokafka ignores them."""
    inner = client._client if isinstance(client, AIOKafkaConsumer) else client.client
    send = inner.send

    async def watched(*args: Any, **kwargs: Any) -> Any:
        response = await send(*args, **kwargs)
        if held_back := getattr(response, "throttle_time_ms", 0):
            say(held_back / 1000)
        return response

    inner.send = watched


def require_brokers(producer: AIOKafkaProducer) -> None:
    """Make a producer's start raise KafkaConnectionError if the broker lists no brokers yet. aiokafka would raise
    AssertionError when it looks for the coordinator of a transaction or for a producer id."""
    inner = producer.client
    bootstrap = inner.bootstrap

    async def checked() -> None:
        await bootstrap()
        if not inner.cluster.brokers():
            raise KafkaConnectionError("it has only just started, and lists no brokers yet")

    inner.bootstrap = checked


def check_group(consumer: AIOKafkaConsumer) -> None:
    """Raise the group's error that aiokafka keeps for the next `getmany`."""
    if consumer._coordinator is not None:
        consumer._coordinator.check_errors()


def reader_ended(consumer: AIOKafkaConsumer) -> tuple[bool, BaseException | None]:
    """Whether aiokafka's fetch task has ended, and its error. An error that aiokafka does not expect ends it
    silently."""
    reading = consumer._fetcher.error_future
    if not reading.done():
        return False, None
    error = None if reading.cancelled() else reading.exception()
    return True, error and (error.__cause__ or error)


def reads_at(consumer: AIOKafkaConsumer, place: TopicPartition) -> int | None:
    """The offset of the next record that a consumer returns; None if it is unknown. Thread-safe."""
    subscription = consumer._subscription.subscription
    assignment = None if subscription is None else subscription.assignment
    if assignment is None or place not in assignment.tps:
        return None
    found: int | None = assignment.state_value(place)._position
    return found


def reassigning(consumer: AIOKafkaConsumer) -> bool:
    """Whether the consumer's group is rebalancing. Thread-safe."""
    return bool(consumer._subscription.reassignment_in_progress)


def holding(consumer: AIOKafkaConsumer) -> Container[TopicPartition]:
    """The partitions with fetched records or errors that were not polled. aiokafka fetches no more of these."""
    found: Container[TopicPartition] = consumer._fetcher._records
    return found


def pace(consumer: AIOKafkaConsumer, least_bytes: int, wait_ms: int) -> None:
    """Set the minimum bytes and the maximum wait of all further fetch requests."""
    consumer._fetcher._fetch_min_bytes = least_bytes
    consumer._fetcher._fetch_max_wait_ms = wait_ms


def wait_longer_when_idle(consumer: AIOKafkaConsumer, wait_ms: int) -> None:
    """Set another maximum wait of the fetch requests of a started consumer that holds no records: these leave out no
    partition whose records are polled meanwhile."""
    reader = consumer._fetcher
    actions, busy_ms = reader._get_actions_per_node, reader._fetch_max_wait_ms

    def chosen(assignment: Any) -> Any:
        reader._fetch_max_wait_ms = busy_ms if reader._records else wait_ms
        return actions(assignment)

    reader._get_actions_per_node = chosen


async def learn(consumer: AIOKafkaConsumer, topic: str) -> None:
    """Wait until a consumer has the metadata of a topic to which it is not subscribed."""
    await consumer._client._wait_on_metadata(topic)


def names_brokers(client: AIOKafkaAdminClient) -> bool:
    """Whether a connected client has the addresses of any brokers."""
    return bool(client._client.cluster.brokers())


async def ask(client: AIOKafkaAdminClient, request: Any, node: int) -> Any:
    """The response of a broker to a request."""
    return await client._send_request(request, node)


def parts_of_consumer(consumer: AIOKafkaConsumer) -> list[Close]:
    """The steps that close a consumer, in order, for a consumer whose `stop` hangs."""
    coordinator, reader = consumer._coordinator, consumer._fetcher
    parts: list[Close] = []
    if isinstance(coordinator, GroupCoordinator):
        parts += [coordinator._stop_heartbeat_task, coordinator._stop_commit_offsets_refresh_task]
    elif coordinator is not None:  # without a group there is nothing to leave
        parts.append(coordinator.close)
    if reader is not None:
        parts.append(reader.close)
    return [*parts, consumer._client.close]


def parts_of_producer(producer: AIOKafkaProducer) -> list[Close]:
    """The steps that close a producer. It accepts nothing from now on, and drops what it has not sent."""
    producer._closed = True
    # The sender is first: its requests need the client to end properly.
    return [*([producer._sender.close] if producer._sender is not None else []), producer.client.close]


def mend_clients() -> None:
    """Make all clients of this process

    - raise KafkaConnectionError where uvloop raises RuntimeError,
    - know the topics of their group before they join it (`_Coordinator`), or raise UnknownTopicOrPartitionError after
      the time limit of a request,
    - read records with header names that are not UTF-8, which Kafka accepts. A byte 0xff becomes the text \\xff. These
      names are not forwarded unchanged: aiokafka cannot send them.
    """
    conn.AIOKafkaConnection, consumers.GroupCoordinator, fetcher.MemoryRecords = _Connection, _Coordinator, _Records


class _Connection(AIOKafkaConnection):  # type: ignore[misc]  # aiokafka has no types
    """A connection to a broker that may end at any time."""

    def send(self, request: Any, expect_response: bool = True) -> Any:
        try:
            return super().send(request, expect_response)
        except RuntimeError as error:  # of uvloop: it has closed the socket, and aiokafka does not know it yet
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            raise KafkaConnectionError(f"connection at {self.host}:{self.port} is closed: {error}") from error


class _Coordinator(GroupCoordinator):  # type: ignore[misc]  # aiokafka has no types
    """A group member that knows the partitions of its topics before it joins, and does not take an error for "nothing
    is committed"."""

    async def _do_rejoin_group(self, subscription: Any) -> bool:
        # If the request for metadata is lost, aiokafka joins all the same. As the leader it would assign nothing to any
        # member, until it asks again five minutes later.
        for topic in subscription.topics:
            await self._client._wait_on_metadata(topic)
        return bool(await super()._do_rejoin_group(subscription))

    async def _send_req(self, request: Any) -> Any:
        # While a coordinator loads or moves, the error is at the top level of the response, which aiokafka ignores. It
        # would read from auto_offset_reset on. It asks again after a retriable error.
        response = await super()._send_req(request)
        if isinstance(request, OffsetFetchRequest) and response.error_code:
            error = for_code(response.error_code)
            if error is NotCoordinatorForGroupError:
                self.coordinator_dead()
            raise error(f"committed offsets of the group {self.group_id}")
        return response


class _Records(_MemoryRecordsPy):  # type: ignore[misc]  # aiokafka has no types
    """What a broker returned for a partition, batch by batch."""

    def next_batch(self, *sizes: int) -> Any:
        data = self._next_slice
        batch = super().next_batch(*sizes)
        # Older formats have no headers. Control batches are read record by record.
        return _Batch(batch, data) if isinstance(batch, DefaultRecordBatch) and not batch.is_control_batch else batch


class _Batch:
    """A record batch. If aiokafka's parser fails, the batch is parsed again by a slower, lenient one."""

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
        except (UnicodeDecodeError, CorruptRecordException):  # the latter from aiokafka's uncompiled parser
            lenient = iter(_DefaultRecordBatchPy(self._data))  # decompresses the batch
        lenient._buffer = _Bytes(lenient._buffer)
        yield from islice(lenient, read, None)


class _Bytes(bytearray):
    """Bytes of which any part decodes as text."""

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return _Bytes(found) if isinstance(key, slice) else found

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return super().decode(encoding, "backslashreplace")
