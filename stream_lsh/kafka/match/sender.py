"""The producer of the match role: idempotent, pipelined, and closed for good by the first send that fails."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from mode import Service

from stream_lsh.kafka.client.clients import producing
from stream_lsh.kafka.group.output import Underway
from stream_lsh.kafka.settings import KafkaSettings


class Sender(Service):
    """A service of the Faust app. Faust's own producer is not idempotent, and of a send that fails it only logs a line.

    At its end what is not delivered is dropped: the frames that it came of are not acknowledged, and come again.
    """

    def __init__(self, settings: KafkaSettings, **kwargs: Any) -> None:
        self._settings = settings
        self._opened = AsyncExitStack()
        self._underway: Underway | None = None
        super().__init__(**kwargs)

    async def on_start(self) -> None:
        self._underway = Underway(await self._opened.enter_async_context(producing(self._settings, "match")))

    async def send(self, topic: str, partition: int, value: bytes) -> asyncio.Future[Any]:
        """Hand a record over, in order of the calls for a partition; the future has its metadata once all copies are
        there.

        Raises:
            ConnectionError: the sender is closed. KafkaError: the record cannot be sent.
        """
        if self._underway is None:
            raise ConnectionError("the producer of the match role is closed")
        return await self._underway.send(topic, partition, value)

    async def close(self) -> None:
        """End the producer."""
        self._underway = None
        await self._opened.aclose()

    async def on_stop(self) -> None:
        await self.close()
