"""What consumer groups have committed, and commits for those that have no members at the moment, or never any."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from stream_lsh.errors import StateError
from stream_lsh.kafka.client.connection import all_committed, client_options
from stream_lsh.kafka.settings import KafkaSettings

PATIENCE = 30.0  # seconds for a coordinator to be ready: a new broker makes the topic of the commits at the first one


async def committed_by(client: AIOKafkaAdminClient, group: str) -> dict[str, dict[int, tuple[int, str]]]:
    """As `connection.all_committed`, but a coordinator that is not ready is waited for.

    Raises:
        KafkaError, OSError: see `connection.explained`.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return await all_committed(client, group)
        except errors.KafkaError as error:
            if not error.retriable or time.monotonic() > end:
                raise
            await asyncio.sleep(0.2)


async def commit(settings: KafkaSettings, group: str, positions: Mapping[TopicPartition, tuple[int, str]]) -> None:
    """Commit positions with their metadata.

    Raises:
        StateError: the group has members. KafkaError, OSError: see `connection.explained`.
    """
    consumer = AIOKafkaConsumer(**client_options(settings), group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        await asyncio.sleep(0)  # see `reading`
        consumer.assign(list(positions))
        await consumer.commit({place: OffsetAndMetadata(*position) for place, position in positions.items()})
    except (errors.CommitFailedError, errors.IllegalGenerationError, errors.UnknownMemberIdError):
        raise StateError(
            f"the consumer group {group} has members: stop the workers, and run the command again"
        ) from None
    finally:
        await consumer.stop()
