"""Creating and showing the topics of the pipeline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from aiokafka import errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.names import LIKE_DOCUMENTS, Topics, TopicSpec, wanted
from stream_lsh.kafka.settings import INSYNC, UNCLEAN, KafkaSettings
from stream_lsh.kafka.topics import TopicState, configs_from, states

_VISIBLE_SECONDS = 30


async def show(settings: KafkaSettings) -> list[TopicState]:
    """The state of all topics, with their required configuration. Raises KafkaError, OSError: see
    `connection.explained`."""
    async with admin(settings) as client:
        return await states(client, settings)


async def create(settings: KafkaSettings) -> list[TopicState]:
    """Create missing topics, and add partitions to outputs that have fewer than documents. Change nothing else.

    Safe to repeat, also concurrently.

    Raises:
        KafkaError, OSError: see `connection.explained`.
    """
    async with admin(settings) as client:
        # The documents topics are first: the outputs get as many partitions as the largest has.
        strong = safe_settings(settings.replication_factor, await _broker(client))
        made = await _create(client, settings, wanted(settings)[: len(settings.by_topic)], strong)
        specs = [state.wanted for state in await states(client, settings) if not state.partitions]
        made |= await _create(client, settings, specs, strong)
        found = await states(client, settings)
        by_name = {state.wanted.name: state for state in found}
        added = {}
        for name in LIKE_DOCUMENTS:
            state = by_name[getattr(Topics.of(settings), name)]
            missing = state.wanted.partitions - state.partitions
            if missing > 0:
                await _grow(client, state.wanted)
                added[state.wanted.name] = f"{missing} partition{'s' if missing > 1 else ''} added"
        if added:
            found = await states(client, settings)
        done = dict.fromkeys(made, "created") | added
        return [replace(state, done=done.get(state.wanted.name, "")) for state in found]


async def delete(settings: KafkaSettings) -> None:
    """Delete all topics of the pipeline, its documents with them. No worker may run. Kafka itself deletes the offsets
    of its consumer groups later (offsets.retention.minutes).

    Raises:
        KafkaError, OSError: see `connection.explained`.
    """
    async with admin(settings) as client:
        there = await client.list_topics()
        response: Any = await client.delete_topics([spec.name for spec in wanted(settings) if spec.name in there])
        for name, code, *_ in response.topic_error_codes:
            if code not in (0, errors.UnknownTopicOrPartitionError.errno):
                raise errors.for_code(code)(name)


async def _broker(client: AIOKafkaAdminClient) -> Mapping[str, str]:
    """The settings of a broker; empty without the permission to read them."""
    node = str((await client.describe_cluster())["brokers"][0]["node_id"])
    return (await configs_from(client, [ConfigResource(ConfigResourceType.BROKER, node)], logging.DEBUG)).get(node, {})


def safe_settings(replicas: int | None, broker: Mapping[str, str]) -> dict[str, str]:
    """The settings that new topics need so as not to be weak.

    Args:
        replicas: of each topic; None: as the broker has it.
        broker: its settings.
    """
    several = (replicas or int(broker.get("default.replication.factor", 1))) > 1
    return ({INSYNC: "2"} if several and int(broker.get(INSYNC, 1)) < 2 else {}) | (
        {UNCLEAN: "false"} if broker.get(UNCLEAN) == "true" else {}
    )


async def _create(
    client: AIOKafkaAdminClient, settings: KafkaSettings, specs: list[TopicSpec], strong: Mapping[str, str]
) -> set[str]:  # fmt: skip
    """Create topics. strong: further settings of each. Returns the names of those that did not exist."""
    if not specs:
        return set()
    replicas = settings.replication_factor or -1
    topics = [
        # aiokafka requires assignments if the broker chooses the replication factor.
        NewTopic(spec.name, spec.partitions, replicas, {} if replicas == -1 else None, {**spec.configs, **strong})
        for spec in specs
    ]
    response: Any = await client.create_topics(topics)
    made = set()
    for name, code, *message in response.topic_errors:
        if code == 0:
            made.add(name)
        elif code != errors.TopicAlreadyExistsError.errno:
            raise errors.for_code(code)(f"{name}: {message[0]}" if message and message[0] else name)
    await _until_visible(client, [spec.name for spec in specs])
    return made


async def _grow(client: AIOKafkaAdminClient, spec: TopicSpec) -> None:
    """Add partitions to a topic, and wait until the brokers list them."""
    with suppress(errors.InvalidPartitionsError):  # another process has just added them
        await client.create_partitions({spec.name: NewPartitions(spec.partitions)})
    for _ in range(_VISIBLE_SECONDS * 20):
        described = await client.describe_topics([spec.name])
        if described and len(described[0]["partitions"]) >= spec.partitions:
            return
        await asyncio.sleep(0.05)
    raise errors.KafkaTimeoutError(f"the partitions added to {spec.name} do not appear")


async def _until_visible(client: AIOKafkaAdminClient, names: list[str]) -> None:
    """Wait until the brokers list the new topics, slightly after the controller has created them."""
    for _ in range(_VISIBLE_SECONDS * 20):
        if set(names) <= set(await client.list_topics()):
            return
        await asyncio.sleep(0.05)
    raise errors.KafkaTimeoutError(f"the topics {', '.join(names)} were created, but do not appear")
