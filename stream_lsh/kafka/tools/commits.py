"""Commits for consumer groups that have no members at the moment, or never."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from aiokafka import TopicPartition, errors

from stream_lsh.errors import StoreError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.consumer.position import commit_alone
from stream_lsh.kafka.settings import KafkaSettings


async def commit(settings: KafkaSettings, group: str, positions: Mapping[TopicPartition, tuple[int, str]]) -> None:
    """Commit positions with their metadata.

    Raises:
        StoreError: the group has members.
        KafkaError, OSError: see `connection.explained`.
    """
    topics: dict[str, dict[int, tuple[int, str]]] = defaultdict(dict)
    for place, position in positions.items():
        topics[place.topic][place.partition] = position
    try:
        async with admin(settings) as client:
            for topic, found in topics.items():
                await commit_alone(client, group, topic, found)
    except (errors.IllegalGenerationError, errors.UnknownMemberIdError):
        raise StoreError(
            f"the consumer group {group} has members: stop the workers, and run the command again"
        ) from None
