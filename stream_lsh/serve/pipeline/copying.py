"""The groups of a pipeline: a copy of their changelog in a temporary folder, which is read like an index."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from aiokafka import TopicPartition

from stream_lsh.embedded.group_store import FACT
from stream_lsh.embedded.temporary import temporary_folder
from stream_lsh.index.store.column_families import limit_cache
from stream_lsh.index.store.rocksdb import Store
from stream_lsh.kafka.client import private
from stream_lsh.kafka.client.clients import consuming
from stream_lsh.kafka.names import Topics, largest_record
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings

ROLE = "serve"
POLL_MS = 500


class GroupCopy:
    """The folder, deleted at the end.

    Every service builds it anew. A copy that was not updated for longer than the retention of tombstones could contain
    deleted groups.

    Attributes:
        begun: whether the folder has groups to read.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        limit_cache(settings.cache_bytes)
        self._folder = temporary_folder()
        self._store = Store(self.folder / "db", sync=False)
        self._place = TopicPartition(Topics.of(settings).group_changelog, 0)
        self._position = 0
        self.begun = False

    @property
    def folder(self) -> Path:
        return Path(self._folder.name)

    async def follow(self, up_to_date: Callable[[bool], None]) -> None:
        """Read until an error.

        Args:
            up_to_date: called once everything is read that was there.

        Raises:
            Failed, KafkaError, OSError: the next run may succeed.
            StreamLshError: the folder cannot be written.
        """
        place = self._place
        options = {"group_id": None, "isolation_level": "read_committed"}
        size = largest_record(self._settings)
        async with consuming(self._settings, ROLE, **options, max_partition_fetch_bytes=size) as consumer:
            await private.learn(consumer, place.topic)
            begin = (await consumer.beginning_offsets([place]))[place]
            end = (await consumer.end_offsets([place]))[place]
            if end < self._position:
                raise Failed(f"{place.topic} was created again; restart the service")
            self._position = max(begin, self._position)
            consumer.assign([place])
            consumer.seek(place, self._position)
            while True:
                if self._position >= end:
                    self.begun = self.begun or self._store.named(FACT) is not None
                    up_to_date(True)
                records = (await consumer.getmany(timeout_ms=POLL_MS)).get(place, [])
                ended, error = private.reader_ended(consumer)
                if ended:
                    raise Failed(f"aiokafka has stopped reading {place.topic}: {error!r}") from error
                if records:
                    changes = {record.key: record.value for record in records}
                    await asyncio.to_thread(self._store.write, changes)
                self._position = await consumer.position(place)

    def close(self) -> None:
        """Delete the folder."""
        self._store.close()
        self._folder.cleanup()
