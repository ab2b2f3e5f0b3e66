"""The state of the pipeline's topics: comparing them with their configuration, and checking their replicas."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka import errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from stream_lsh.errors import BrokerError, StreamLshError
from stream_lsh.kafka.client.clients import MOST_BATCH_BYTES
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.client.reading import missing
from stream_lsh.kafka.names import LIKE_DOCUMENTS, NEEDS, SHARDED, SINGLE, TIMESTAMPS, Topics, TopicSpec, wanted
from stream_lsh.kafka.settings import INSYNC, KafkaSettings
from stream_lsh.kafka.weaknesses import Weakness, weaknesses

DAY_MS = 86_400_000

logger = logging.getLogger("stream_lsh.kafka.topics")

_WRITTEN = ("__consumer_offsets", "__transaction_state")
"""Kafka's own topics that the pipeline writes to."""
_TRIES = 3  # aiokafka asks any broker that it has listed; of three, two may be down
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as it is now.

    Attributes:
        partitions: 0 if the topic does not exist.
        differences: what differs from `wanted`, as text.
        weaknesses: by which Kafka may lose records of it, allowed ones included.
        done: what `create` did.
    """

    wanted: TopicSpec
    partitions: int
    replicas: int
    configs: Mapping[str, str]
    differences: tuple[str, ...]
    weaknesses: tuple[Weakness, ...] = ()
    done: str = ""


@dataclass(frozen=True, slots=True)
class _Found:
    partitions: int
    replicas: int
    configs: Mapping[str, str]


async def check(settings: KafkaSettings, roles: Iterable[str]) -> None:
    """Check that the topics of these roles exist and are configured as required. Weaknesses that are allowed are
    logged.

    Raises:
        BrokerError: a topic is missing, misconfigured or weak; the message names the remedy.
        KafkaError, OSError: the broker did not answer. This may be temporary.
    """
    topics = Topics.of(settings)
    needed = {getattr(topics, attribute) for role in roles for attribute in NEEDS[role]}
    if topics.documents in needed:
        needed |= {*topics.sources}
    async with admin(settings) as client:
        found = {state.wanted.name: state for state in await states(client, settings)}
    needed &= found.keys()
    if lacks := sorted(name for name in needed if not found[name].partitions):
        raise missing(settings, lacks)
    judged = found[topics.verdicts].partitions
    problems = []
    for name in sorted(needed):
        problems += _problems(settings, topics, found[name], judged)
        for weakness in found[name].weaknesses:
            if weakness.setting not in settings.allow_weak_topics:
                problems.append(str(weakness))
            else:
                logger.warning("%s has %s = %s, which is allowed", name, weakness.setting, weakness.value)
    if problems:
        raise BrokerError("; ".join(problems) + ".")


async def output_partitions(client: AIOKafkaAdminClient, settings: KafkaSettings) -> int:
    """The number of partitions that all outputs have. Documents of further partitions have no output partition."""
    names = [getattr(Topics.of(settings), attribute) for attribute in LIKE_DOCUMENTS]
    if not set(names) <= set(await client.list_topics()):  # describing a missing topic may create it
        return 0
    return min(len(topic["partitions"]) for topic in await client.describe_topics(names))


async def lacking(settings: KafkaSettings) -> str:
    """The partitions without a leader or with fewer in-sync replicas than required, as text. Empty if there are none,
    or if no broker answers."""
    try:
        async with asyncio.timeout(5.0):
            for _ in range(_TRIES):
                try:
                    return await _look(settings)
                except (errors.KafkaError, OSError) as error:
                    logger.debug("the replicas of the topics are not available: %r", error)
    except (TimeoutError, StreamLshError) as error:
        logger.debug("the replicas of the topics are not available: %r", error)
    return ""


async def _look(settings: KafkaSettings) -> str:
    async with admin(settings, timeout_ms=2000) as client:
        known = set(await client.list_topics())
        names = [name for name in (*(spec.name for spec in wanted(settings)), *_WRITTEN) if name in known]
        configs = await configs_of(client, names)
        found = [
            text
            for topic in await client.describe_topics(names)
            for text in _short(topic, int(configs.get(topic["topic"], {}).get(INSYNC, 1)))
        ]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


def _short(topic: dict[str, Any], least: int) -> list[str]:
    """The partitions of a topic that cannot be written, by the topic's metadata."""
    return [
        f"{topic['topic']}-{partition['partition']} has "
        + (f"{len(partition['isr'])} of {least} that it needs" if partition["leader"] >= 0 else "no leader")
        for partition in sorted(topic["partitions"], key=lambda partition: int(partition["partition"]))
        if partition["leader"] < 0 or len(partition["isr"]) < least
    ]


def _problems(settings: KafkaSettings, topics: Topics, state: TopicState, judged: int) -> list[str]:
    """Differences that make a topic unusable. The other differences from `wanted` are only shown.

    Args:
        judged: number of partitions of verdicts. The role sign skips documents in further partitions.
    """
    name, wants = state.wanted.name, state.wanted.partitions
    found = []
    if name in {getattr(topics, attribute) for attribute in SHARDED} and state.partitions != wants:
        found.append(
            f"the topic {name} has {state.partitions} partitions, but shards = {wants}. The number of shards cannot "
            f"be changed in place: set shards = {state.partitions}, or rebuild into a new topic_prefix"
        )
    elif name in {getattr(topics, attribute) for attribute in SINGLE} and state.partitions != 1:
        found.append(f"the topic {name} has {state.partitions} partitions, but it is one sequence and must have 1")
    elif name in {getattr(topics, attribute) for attribute in LIKE_DOCUMENTS}:
        said = f"the topic {name} has {state.partitions} partitions and"
        if state.partitions > wants:
            found.append(f"{said} {topics.listed} {wants}; add partitions to {topics.documents}")
        elif state.partitions < judged:
            found.append(
                f"{said} {topics.verdicts} {judged}; `stream-lsh kafka topics create` adds those that are missing"
            )
    limit = state.configs.get("max.message.bytes")
    if name not in topics.sources and limit is not None and int(limit) < state.wanted.max_message_bytes:
        least = state.wanted.max_message_bytes
        copied = name in (topics.unique, topics.dead_letters)
        why = f", so that it takes what {topics.listed} takes, with some headers more" if copied else ""
        found.append(_too_small(name, limit, least) + why)
    stamps = state.configs.get(TIMESTAMPS, "LogAppendTime")
    if name == topics.signatures and stamps != "LogAppendTime":
        found.append(
            f"the topic {name} has {TIMESTAMPS} = {stamps}, so that the clocks of signers would decide; set it to "
            "LogAppendTime"
        )
    return found


async def states(client: AIOKafkaAdminClient, settings: KafkaSettings) -> list[TopicState]:
    """The state of all topics, each with its required configuration."""
    names = [spec.name for spec in wanted(settings)]
    found = await _describe(client, names)
    topics, specs = Topics.of(settings), wanted(settings)
    sources = len(topics.sources)
    if documents := [found[name] for name in topics.sources if name in found]:
        sizes = [int(size) for topic in documents if (size := topic.configs.get("max.message.bytes"))]
        most = max(topic.partitions for topic in documents)
        specs = specs[:sources] + wanted(settings, most, max(sizes, default=None))[sources:]
    nothing = _Found(0, 0, {})
    result = []
    for spec in specs:
        topic = found.get(spec.name, nothing)
        weak = tuple(weaknesses(topics, spec, topic.replicas, topic.configs))
        differences = tuple(_differences(spec, topic, settings)) if topic.partitions else ()
        result.append(TopicState(spec, topic.partitions, topic.replicas, topic.configs, differences, weak))
    return result


def _differences(spec: TopicSpec, topic: _Found, settings: KafkaSettings) -> Iterable[str]:
    if topic.partitions != spec.partitions:
        yield f"partitions: {topic.partitions}, not {spec.partitions}"
    if settings.replication_factor is not None and topic.replicas != settings.replication_factor:
        yield f"replication factor: {topic.replicas}, not {settings.replication_factor}"
    for key, value in spec.configs.items():
        have = topic.configs.get(key)
        # A larger size limit is no difference. The cleanup policy of documents is its owner's choice.
        if have is None or have == value or (key == "max.message.bytes" and int(have) >= int(value)):
            continue
        if key == "cleanup.policy" and spec.name in settings.by_topic:
            continue
        yield f"{key}: {have}, not {value}"


async def _describe(client: AIOKafkaAdminClient, names: list[str]) -> dict[str, _Found]:
    """The topics that exist. Their configs are empty if the broker does not allow reading them."""
    found: dict[str, _Found] = {}
    # Describing a missing topic may create it (auto.create.topics.enable), so list all names first.
    known = set(await client.list_topics())
    there = [name for name in names if name in known]
    if not there:
        return found
    configs = await configs_of(client, there)
    for topic in await client.describe_topics(there):
        code = topic["error_code"]
        if code == errors.UnknownTopicOrPartitionError.errno:
            continue  # deleted just now
        if code and code != errors.LeaderNotAvailableError.errno:
            raise errors.for_code(code)(topic["topic"])
        partitions = topic["partitions"]
        replicas = min((len(partition["replicas"]) for partition in partitions), default=0)
        found[topic["topic"]] = _Found(len(partitions), replicas, configs.get(topic["topic"], {}))
    return found


async def limits_of(client: AIOKafkaAdminClient, settings: KafkaSettings, *topics: str) -> dict[str, int]:
    """The max.message.bytes of these topics. Without the permission to read it, a topic counts as made by `topics
    create`."""
    needed = {spec.name: spec.max_message_bytes for spec in wanted(settings)}
    found = await configs_of(client, list(topics), logging.DEBUG)
    return {topic: int(found.get(topic, {}).get("max.message.bytes", needed[topic])) for topic in topics}


def too_small(settings: KafkaSettings, limits: Mapping[str, int]) -> str | None:
    """What is wrong if an output takes less than a pipeline needs, by its max.message.bytes. A worker looks before it
    starts; this is for a limit that was lowered since."""
    least = {spec.name: spec.max_message_bytes for spec in wanted(settings)}
    return next((_too_small(topic, at, least[topic]) for topic, at in limits.items() if at < least[topic]), None)


def _too_small(topic: str, limit: int | str, least: int) -> str:
    return f"the topic {topic} has max.message.bytes = {limit}, which is too small; set it to {least}"


async def batch_limit(client: AIOKafkaAdminClient, settings: KafkaSettings, most: int = MOST_BATCH_BYTES) -> int:
    """The size limit of a batch for the documents topics, in bytes: their max.message.bytes, and at most `most`."""
    return min(most, *(await limits_of(client, settings, *settings.by_topic)).values())


async def configs_of(
    client: AIOKafkaAdminClient, names: list[str], level: int = logging.WARNING
) -> dict[str, dict[str, str]]:
    """The settings of topics, defaults included, see `configs_from`."""
    return await configs_from(client, [ConfigResource(ConfigResourceType.TOPIC, name) for name in names], level)


async def tombstones_kept(settings: KafkaSettings, topic: str) -> int:
    """For how many ms a topic keeps tombstones. If that may not be read, Kafka's default counts."""
    async with admin(settings) as client:
        found = (await configs_of(client, [topic])).get(topic, {})
    return int(found.get("delete.retention.ms", DAY_MS))


async def configs_from(
    client: AIOKafkaAdminClient, resources: list[ConfigResource], level: int
) -> dict[str, dict[str, str]]:
    """The settings of topics or brokers by name. Those that may not be read are left out, with a log line of this
    level."""
    result: dict[str, dict[str, str]] = {}
    for response in await client.describe_configs(resources):
        for code, message, _, name, entries, *_ in response.resources:
            if code == errors.UnknownTopicOrPartitionError.errno:
                continue  # created or deleted just now, and not yet known to this broker
            if code:
                logger.log(level, "the settings of %s cannot be read: %s", name, message or code)
                continue
            result[name] = {entry[0]: entry[1] for entry in entries if entry[1] is not None}
    return result
