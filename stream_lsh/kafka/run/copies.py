"""Which partitions of the pipeline have too few copies in step, so that brokers acknowledge nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiokafka import errors

from stream_lsh.errors import StreamLshError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.names import wanted
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.topics import configs_of

log = logging.getLogger("stream_lsh.kafka.run.copies")

INTERNAL = ("__consumer_offsets", "__transaction_state")
LEAST = "min.insync.replicas"
TRIES = 3  # aiokafka asks any broker that it knows of: of three, two may be away
SHOWN = 3


async def lacking(settings: KafkaSettings, seconds: float = 5.0) -> str:
    """Which partitions have fewer copies in step than they need, or no leader; empty if none, or if nobody answers."""
    try:
        async with asyncio.timeout(seconds):
            for _ in range(TRIES):
                try:
                    return await _look(settings)
                except (errors.KafkaError, OSError) as error:
                    log.debug("the copies of the topics cannot be asked for: %r", error)
    except (TimeoutError, StreamLshError) as error:
        log.debug("the copies of the topics cannot be asked for: %r", error)
    return ""


async def _look(settings: KafkaSettings) -> str:
    async with admin(settings, timeout_ms=2000) as client:
        known = set(await client.list_topics())
        names = [name for name in (*(spec.name for spec in wanted(settings)), *INTERNAL) if name in known]
        configs = await configs_of(client, names)
        found = [
            text
            for topic in await client.describe_topics(names)
            for text in _short(topic, int(configs.get(topic["topic"], {}).get(LEAST, 1)))
        ]
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more


def _short(topic: dict[str, Any], least: int) -> list[str]:
    """The partitions of a topic, as the metadata tell it, that cannot be written."""
    return [
        f"{topic['topic']}-{partition['partition']} has "
        + (f"{len(partition['isr'])} of {least} that it needs" if partition["leader"] >= 0 else "no leader")
        for partition in sorted(topic["partitions"], key=lambda partition: int(partition["partition"]))
        if partition["leader"] < 0 or len(partition["isr"]) < least
    ]
