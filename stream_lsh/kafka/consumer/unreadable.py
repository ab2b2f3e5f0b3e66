"""Records in the pipeline's own topics that cannot be read: which are passed over, and what is said about the others.

By the chain rule (docs/guarantees.md) a record that is passed over is never lost silently: what was to come after it is
ignored as long as it is missing. Bytes that no version of this program writes are nobody's record, and are passed
over by every reader alike. A record of another version, of other settings or damaged may be one that is needed: it
stops the role, until an operator has named it (`stream-lsh kafka skip`).
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress

import orjson
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupAuthorizationFailedError

from stream_lsh.errors import ForeignError, StoreError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.consumer.position import committed
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import FOREIGN, Probe
from stream_lsh.kafka.settings import KafkaSettings

SAY_SECONDS = 30.0  # between two warnings
GROUP = "skip"
"""The group that reads nothing: its commits are the offsets that an operator has named, JSON in their metadata."""
SKIPPABLE = {"signatures": "sequence", "frames": "match", "matches": "judge", "verdicts": "forward"}
"""The topics, as attributes of `Topics`, and who reads them. (In the changelog all builds on what is before it.)"""


async def named(client: AIOKafkaAdminClient, settings: KafkaSettings, topic: str, partition: int) -> list[int]:
    """The offsets that an operator has named, ascending.

    Raises:
        KafkaError: as `position.all_committed`.
    """
    found = (await committed(client, Topics.of(settings).group(GROUP), topic)).get(partition)
    offsets: list[int] = [] if found is None else orjson.loads(found[1])
    return offsets


class Unreadable:
    """What a role does about them."""

    def __init__(self, settings: KafkaSettings, watch: Probe) -> None:
        self._settings = settings
        self._watch = watch
        self._log = logging.getLogger(f"stream_lsh.kafka.{watch.role}")
        self._said = -SAY_SECONDS
        self._passed = 0

    async def pass_over(self, topic: str, partition: int, offset: int, error: StoreError) -> None:
        """Return if a record may be passed over, counted and with a warning.

        Args:
            error: why it cannot be read.

        Raises:
            StoreError: it may not; `error` with its place and the remedy.
        """
        where = f"{topic}, partition {partition}, offset {offset}"
        if isinstance(error, ForeignError):
            self.passed(where, FOREIGN, error)
        elif await self._is_named(topic, partition, offset):
            self.passed(where, "skipped", error)
        else:
            topics = Topics.of(self._settings)
            name = next((name for name in SKIPPABLE if getattr(topics, name) == topic), None)
            skip = f". Or have this one passed over: stream-lsh kafka skip {name} {partition} {offset}" if name else ""
            raise type(error)(f"{where}: {error}{skip}") from None

    def passed(self, where: str, reason: str, error: StoreError) -> None:
        """A record was passed over."""
        self._watch.ignored(reason)
        self._passed += 1
        if time.monotonic() - self._said >= SAY_SECONDS:
            self._said = time.monotonic()
            more = f" ({self._passed} since the last such line)" if self._passed > 1 else ""
            self._log.warning("%s is passed over%s: %s", where, more, error)
            self._passed = 0

    async def _is_named(self, topic: str, partition: int, offset: int) -> bool:
        with suppress(GroupAuthorizationFailedError):
            async with admin(self._settings) as client:
                return offset in await named(client, self._settings, topic, partition)
        return False
