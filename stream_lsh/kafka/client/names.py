"""A worker that has a name of its own in its groups (`instance`): what it was given it finds again after a restart, as
long as the group has not missed it; and how it notices another worker with that name.

To Kafka the one who came last is the one of that name, and aiokafka just joins again when it is told that it is not a
member any more: two would take everything from each other for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiokafka import AIOKafkaConsumer, errors
from aiokafka.admin import AIOKafkaAdminClient

from stream_lsh.errors import UsageError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.settings import KafkaSettings

log = logging.getLogger("stream_lsh.kafka.client.names")

LOOK = 2.0  # seconds between two looks
SEEN = 2  # so often another one must have been seen
_UNIQUE = 37  # what brokers put behind the name of a static member to make its id: a hyphen and a UUID


@asynccontextmanager
async def alone(consumer: AIOKafkaConsumer, settings: KafkaSettings, group: str | None) -> AsyncIterator[None]:
    """While this lasts, see whether somebody else takes our name in the group; the consumer raises UsageError then."""
    if settings.instance is None or group is None:
        yield
        return
    looking = asyncio.create_task(watch_name(consumer, settings, group, settings.instance))
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])


async def watch_name(consumer: AIOKafkaConsumer, settings: KafkaSettings, group: str, name: str) -> None:
    """Return when another worker with our name was seen, and the consumer has the error."""
    seen = 0
    while seen < SEEN:
        with suppress(errors.KafkaError, OSError, TimeoutError):  # the consumer sees for itself
            async with admin(settings) as client:
                while seen < SEEN:
                    await asyncio.sleep(LOOK)
                    seen += await _replaced(consumer, client, group, name)
        await asyncio.sleep(LOOK)
    error = UsageError(
        f"another worker is a member of the group {group} under the name of this one (instance = {name!r}): give each "
        "worker its own, which stays the same when it is started again"
    )
    log.error("%s", error)
    await consumer._coordinator._push_error_to_user(error)  # as it does with what no repetition helps against


async def _replaced(consumer: AIOKafkaConsumer, client: AIOKafkaAdminClient, group: str, name: str) -> bool:
    """Whether the group knows another member under our name than us, who believe to be one."""
    coordinator = consumer._coordinator
    ours = coordinator.member_id
    [response] = await client.describe_consumer_groups([group])
    if coordinator.generation <= 0 or coordinator.member_id != ours:
        return False
    ids = [str(member[0]) for found in response.groups for member in found[5]]
    return any(id != ours and id[:-_UNIQUE] == name for id in ids)
