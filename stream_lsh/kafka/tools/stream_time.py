"""Setting stream time back, after wrong event times or a wrong clock of a broker: an order in the topic signatures, so
that its place in the log decides where it takes effect."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from stream_lsh.errors import UsageError
from stream_lsh.index.segments.stream_time import set_back_from, shown
from stream_lsh.kafka.client.clients import producing
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.sequence.order import sequenced
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.set_back import SetBack

LOOK = 0.5  # seconds between two checks


@dataclass(frozen=True, slots=True)
class Change:
    """Stream time before, and the time that it is set to, ms since 1970. offset: of the order; None: not sent."""

    before: int
    time: int
    offset: int | None = None


async def look(settings: KafkaSettings, to: int) -> Change:
    """What would change.

    Args:
        to: ms since 1970.

    Raises:
        UsageError: stream time is not later or has not begun, or there is no window and no groups.
        KafkaError, OSError: see `connection.explained`.
    """
    if not settings.keeps_time:
        raise UsageError("stream time has effects only with a window or groups, and these settings have neither")
    async with admin(settings) as client:
        _, accepted = await sequenced(client, Topics.of(settings)) or (0, None)
    before = shown(None if accepted is None else accepted.log)
    set_back_from(before, to)
    return Change(before, to)


async def set_back(settings: KafkaSettings, to: int, seconds: float) -> tuple[Change, bool]:
    """Write the order, and wait until the sequencer has read it.

    Args:
        seconds: to wait at most.

    Returns:
        The change, and whether the sequencer has read it.

    Raises:
        As `look`.
    """
    change, topics = await look(settings, to), Topics.of(settings)
    async with producing(settings, "set-stream-time") as producer:
        order = await producer.send_and_wait(topics.signatures, SetBack(to).encode(), partition=0)
    end = time.monotonic() + seconds
    while True:
        async with admin(settings) as client:
            position, _ = await sequenced(client, topics) or (0, None)
        if position > order.offset or time.monotonic() >= end:
            return Change(change.before, to, order.offset), position > order.offset
        await asyncio.sleep(LOOK)
