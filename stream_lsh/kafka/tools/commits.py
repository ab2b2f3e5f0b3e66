"""What consumer groups have committed, and commits for those that have no members at the moment, or never any."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping

from aiokafka import TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient

from stream_lsh.errors import StateError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.group.position import commit_alone, committed
from stream_lsh.kafka.settings import KafkaSettings

PATIENCE = 30.0  # seconds for a coordinator to be ready: a new broker makes the topic of the commits at the first one


async def committed_by(client: AIOKafkaAdminClient, group: str) -> dict[str, dict[int, tuple[int, str]]]:
    """As `position.committed`, with an end.

    Raises:
        KafkaError, OSError, TimeoutError: see `connection.explained`.
    """
    async with asyncio.timeout(PATIENCE):
        return await committed(client, group)


async def commit(settings: KafkaSettings, group: str, positions: Mapping[TopicPartition, tuple[int, str]]) -> None:
    """Commit positions with their metadata.

    Raises:
        StateError: the group has members. KafkaError, OSError, TimeoutError: see `connection.explained`.
    """
    topics: dict[str, dict[int, tuple[int, str]]] = defaultdict(dict)
    for place, position in positions.items():
        topics[place.topic][place.partition] = position
    try:
        async with asyncio.timeout(PATIENCE), admin(settings) as client:
            for topic, found in topics.items():
                await commit_alone(client, group, topic, found)
    except (errors.IllegalGenerationError, errors.UnknownMemberIdError):
        raise StateError(
            f"the consumer group {group} has members: stop the workers, and run the command again"
        ) from None
