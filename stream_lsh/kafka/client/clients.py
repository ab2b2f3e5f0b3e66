"""Consumers and producers of the roles on plain aiokafka, with a time limit on every wait for a broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.structs import TopicPartition

from stream_lsh.embedded.often import Often
from stream_lsh.errors import UsageError
from stream_lsh.kafka.client import private
from stream_lsh.kafka.client.connection import admin, cause, client_options
from stream_lsh.kafka.names import ENVELOPE, Topics, largest_record
from stream_lsh.kafka.settings import KafkaSettings

logger = logging.getLogger("stream_lsh.kafka.client.clients")

ANSWER_MS = 30_000  # time limit of a request
FETCH_BYTES = 8 << 20  # limit of one fetch response, all partitions together
MOST_BATCH_BYTES = 1 << 20
METADATA_MS = 5_000  # within which added partitions are noticed
START_SECONDS = 2 * ANSWER_MS / 1000
CLOSE_SECONDS = 5.0
NEVER_MS = 2**31 - 1
NAME_SECONDS = 2.0  # between two checks whether another worker uses our name
NAME_SEEN = 2  # checks that must find one
_UNIQUE = 37  # length of the suffix that brokers add to the name of a static member: a hyphen and a UUID

T = TypeVar("T")


def heartbeat_ms(settings: KafkaSettings) -> int:
    """Milliseconds between two heartbeats of a group's member, which learns from the answer that another one has
    gone."""
    return max(100, min(500, settings.session_timeout_ms // 4))


_REMEDIES = {
    errors.TopicAuthorizationFailedError: "allow this client the operation Delete on the topic (ACL)",
    errors.ClusterAuthorizationFailedError: "allow this client the operation Delete on the topic (ACL)",
    errors.PolicyViolationError: "give the topic a cleanup.policy with delete",
}
"""What to do about a refused deletion."""
SAY_SECONDS = 600.0  # between two lines about refused deletions, or about quotas


class Stopped(Exception):
    """The result of a wait is not needed any more."""


async def unless(work: Coroutine[Any, Any, T], *ends: asyncio.Future[Any] | asyncio.Event) -> T:
    """The result of `work`. If one of `ends` is done or set first, `work` is cancelled and has ended when this returns.

    Raises:
        Stopped: one of `ends` was first.
    """
    task = asyncio.ensure_future(work)
    waits = [asyncio.ensure_future(end.wait()) for end in ends if isinstance(end, asyncio.Event)]
    futures = [*waits, *(end for end in ends if not isinstance(end, asyncio.Event))]
    try:
        await asyncio.wait([task, *futures], return_when=asyncio.FIRST_COMPLETED)
        ended = any(future.done() for future in futures)
    finally:
        for wait in waits:
            wait.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        seen(task)
    if task.cancelled() and ended:
        raise Stopped
    return task.result()


async def waited(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, at most this long. Returns whether it is set."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


def switch(event: asyncio.Event, on: bool) -> None:
    """Set or clear an event."""
    (event.set if on else event.clear)()


def seen(future: asyncio.Future[Any]) -> None:
    """Retrieve the error of a finished future, so that asyncio does not warn about it. If several tasks fail together,
    only the first error is awaited. Usable as a callback."""
    if not future.cancelled():
        future.exception()


@asynccontextmanager
async def consuming(settings: KafkaSettings, role: str, **options: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """A started consumer in the consumer group of a role, not yet subscribed. It leaves the group at the end, unless it
    is a static member.

    It commits nothing and resets no offset by itself. The time between two polls has no limit: some roles wait for
    others on purpose.

    Args:
        options: of AIOKafkaConsumer.

    Raises:
        KafkaError, OSError: as `connection.admin`.
    """
    given = {
        "group_id": Topics.of(settings).group(role),
        "fetch_max_bytes": FETCH_BYTES,
        "max_partition_fetch_bytes": FETCH_BYTES // 4,
        "auto_offset_reset": "none",  # otherwise a deletion would go unnoticed
        **options,
    }
    group = given["group_id"]
    consumer = AIOKafkaConsumer(
        **client_options(settings),
        client_id=f"{settings.topic_prefix}.{role}",
        group_instance_id=settings.instance if group else None,
        enable_auto_commit=False,
        session_timeout_ms=settings.session_timeout_ms,
        heartbeat_interval_ms=heartbeat_ms(settings),
        max_poll_interval_ms=NEVER_MS,
        metadata_max_age_ms=METADATA_MS,
        # The broker answers a join once all members have joined, or after a session timeout.
        request_timeout_ms=max(ANSWER_MS, settings.session_timeout_ms + 5000),
        **given,
    )
    private.watch_throttle(consumer, partial(throttled, settings, f"{settings.topic_prefix}.{role}"))
    looking: asyncio.Task[None] | None = None
    try:
        await _started(consumer.start, settings)
        if settings.instance is not None and group:
            looking = asyncio.create_task(watch_name(consumer, settings, group, settings.instance))
        yield consumer
    finally:
        if looking is not None:
            looking.cancel()
            await asyncio.wait([looking])
        await stop_consumer(consumer)


async def watch_name(consumer: AIOKafkaConsumer, settings: KafkaSettings, group: str, name: str) -> None:
    """Return when another worker with our name (`instance`) was seen. The consumer then has the error.

    A static member gets its partitions back after a restart, within the session timeout. Kafka gives the name to the
    member that joined last, and aiokafka rejoins when it loses the membership. Two workers with one name would
    therefore take the partitions from each other for ever.
    """
    times = 0
    while times < NAME_SEEN:
        with suppress(errors.KafkaError, OSError, TimeoutError):  # the consumer gets these errors itself
            async with admin(settings) as client:
                while times < NAME_SEEN:
                    await asyncio.sleep(NAME_SECONDS)
                    times += await _replaced(consumer, client, group, name)
        await asyncio.sleep(NAME_SECONDS)
    error = UsageError(
        f"another worker is a member of the group {group} under the name of this one (instance = {name!r}): give each "
        "worker its own, which stays the same when it is started again"
    )
    logger.error("%s", error)
    await private.end_reading(consumer, error)


async def _replaced(consumer: AIOKafkaConsumer, client: AIOKafkaAdminClient, group: str, name: str) -> bool:
    """Whether our name belongs to another member while this consumer considers itself a member."""
    ours = private.member_id(consumer)
    [response] = await client.describe_consumer_groups([group])
    if ours is None or private.member_id(consumer) != ours:
        return False
    ids = [str(member[0]) for found in response.groups for member in found[5]]
    return any(id != ours and id[:-_UNIQUE] == name for id in ids)


@asynccontextmanager
async def producing(settings: KafkaSettings, role: str, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    """A started idempotent producer with acks=all. At the end it drops what it has not delivered.

    Raises:
        KafkaError, OSError: as `connection.admin`.
    """
    given = {
        "client_id": f"{settings.topic_prefix}.{role}",
        "enable_idempotence": True,
        "acks": "all",
        "linger_ms": 0,
        # A partition has one batch in flight. Records that wait meanwhile form the next batch.
        "max_batch_size": MOST_BATCH_BYTES,
        "max_request_size": largest_record(settings) + ENVELOPE,
        "request_timeout_ms": ANSWER_MS,
        **options,
    }
    producer = AIOKafkaProducer(**client_options(settings), **given)
    private.watch_throttle(producer, partial(throttled, settings, given["client_id"]))
    private.require_brokers(producer)
    try:
        await _started(producer.start, settings)
        yield producer
    finally:
        await drop_producer(producer)


async def _started(start: Callable[[], Awaitable[None]], settings: KafkaSettings) -> None:
    try:
        async with asyncio.timeout(START_SECONDS) as limit:
            await start()
    except TimeoutError:
        if not limit.expired():  # a timeout of the network
            raise
        raise errors.KafkaTimeoutError(f"no connection was ready for work within {START_SECONDS:.0f} s") from None
    except errors.KafkaConnectionError as error:
        reason = await cause(error, settings)
        if reason is error:  # raised from itself, the chain of causes would be a circle
            raise
        raise reason from error


async def stop_consumer(consumer: AIOKafkaConsumer) -> None:
    """Leave the group and close, within about `CLOSE_SECONDS` even if the broker does not answer."""
    if await _ended(consumer.stop(), CLOSE_SECONDS):
        return
    logger.info("a consumer could not leave its group, which notices after the session timeout")
    await _close(private.parts_of_consumer(consumer))


async def drop_producer(producer: AIOKafkaProducer) -> None:
    """Close without sending what is not sent yet. `stop` would wait for it, for ever if the broker is down."""
    await _close(private.parts_of_producer(producer))


async def _close(parts: Sequence[private.Close]) -> None:
    for part in parts:
        await _ended(part(), CLOSE_SECONDS / 2)


async def _ended(work: Awaitable[Any], seconds: float) -> bool:
    """Whether `work` ended in time without an error.

    It runs in its own task: while the broker is down, aiokafka raises the cancellation of its own tasks, which is not
    the caller's.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=seconds)
        if task.done():
            return not task.cancelled() and task.exception() is None
    finally:
        task.cancel()
    await asyncio.wait([task], timeout=1)
    return False


_THROTTLED = Often(SAY_SECONDS)  # for each client: readers are short-lived, and many


def throttled(settings: KafkaSettings, name: str, seconds: float) -> None:
    """Say in the log, once in ten minutes, that the brokers hold a client back by a quota. name: its client id."""
    if _THROTTLED.due((settings.bootstrap_servers, name)):
        logger.warning(
            "Kafka at %s holds %s (client id %s) back by a quota, here for %.1f s: raise its producer_byte_rate, "
            "consumer_byte_rate or request_percentage", settings.bootstrap_servers,
            f"user {settings.sasl_username!r}" if settings.sasl_username else "this client", name, seconds,
        )  # fmt: skip


class Deletion:
    """Deletes records that are not needed any more. A refusal is logged, with its remedy, once in ten minutes."""

    def __init__(self) -> None:
        self._often = Often(SAY_SECONDS)  # for each topic

    async def before(self, client: AIOKafkaAdminClient, firsts: Mapping[TopicPartition, int]) -> bool:
        """Delete the records of partitions before these offsets. Returns whether that succeeded."""
        try:
            async with asyncio.timeout(ANSWER_MS / 1000):
                await client.delete_records({place: RecordsToDelete(first) for place, first in firsts.items()})
            return True
        except (errors.KafkaError, TimeoutError) as error:
            place, first = min(firsts.items())
            if not self._often.due(place.topic):
                return False
            logger.warning(
                "%s, partition %d: the records before offset %d are no longer needed and could not be deleted (%s): %s",
                place.topic, place.partition, first, " ".join(str(error).split()) or type(error).__name__,
                _REMEDIES.get(type(error), "this is tried again"),
            )  # fmt: skip
            return False
