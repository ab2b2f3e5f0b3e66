"""The groups of a pipeline: a copy of their changelog in a temporary folder, which is read like an index."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from stream_lsh.embedded.group_store import FACT
from stream_lsh.embedded.temporary import temporary_folder
from stream_lsh.index.store.column_families import limit_cache
from stream_lsh.index.store.rocksdb import Store
from stream_lsh.kafka.client import private
from stream_lsh.kafka.client.clients import consuming
from stream_lsh.kafka.names import Topics, largest_record
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.topics import tombstones_kept

ROLE = "serve"
POLL_MS = 500
ASK_SECONDS = 30.0  # between two questions for the end of the changelog


def clock() -> float:
    """Seconds, also those in which the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class GroupCopy:
    """The copy that is read, and the one that is being built.

    Every service builds it anew. A copy that was not up to date for longer than the retention of tombstones could
    contain deleted groups. So it is replaced if it was cut off for half as long: a new one is built, and takes its
    place once it is complete. The same holds for one that is being built, from when it was begun.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        limit_cache(settings.cache_bytes)
        self._place = TopicPartition(Topics.of(settings).group_changelog, 0)
        self._built = _Folder()
        self._read: _Folder | None = None  # once it is complete
        self._replaced: list[_Folder] = []  # a request may still read one

    @property
    def folder(self) -> Path | None:
        """The folder, deleted at the end; None if it has no groups to read."""
        return self._read.path if self._read is not None and self._read.begun else None

    async def follow(self, up_to_date: Callable[[bool], None]) -> None:
        """Read until an error.

        Args:
            up_to_date: called once everything is read that was there.

        Raises:
            Failed, KafkaError, OSError: the next run may succeed.
            StreamLshError: the folder cannot be written.
        """
        place = self._place
        kept = await tombstones_kept(self._settings, place.topic) / 1000
        options = {"group_id": None, "isolation_level": "read_committed"}
        size = largest_record(self._settings)
        async with consuming(self._settings, ROLE, **options, max_partition_fetch_bytes=size) as consumer:
            await private.learn(consumer, place.topic)
            begin = (await consumer.beginning_offsets([place]))[place]
            asked, end = await self._end(consumer)
            if 2 * (asked - self._built.whole_at) >= kept:
                if self._built is not self._read:
                    self._built.close()
                self._built = _Folder()
            copy = self._built
            if end < copy.position:
                raise Failed(f"{place.topic} was created again; restart the service")
            copy.position = max(begin, copy.position)
            consumer.assign([place])
            consumer.seek(place, copy.position)
            while True:
                if copy.position >= end:
                    if copy is not self._read or not copy.begun:
                        await asyncio.to_thread(self._take, copy)
                    copy.whole_at = asked
                    up_to_date(True)
                records = (await consumer.getmany(timeout_ms=POLL_MS)).get(place, [])
                ended, error = private.reader_ended(consumer)
                if ended:
                    raise Failed(f"aiokafka has stopped reading {place.topic}: {error!r}") from error
                if clock() >= asked + ASK_SECONDS:
                    asked, end = await self._end(consumer)
                    if copy is self._read and 2 * (asked - copy.whole_at) >= kept:
                        raise Failed(f"{place.topic} could not be read for longer than it keeps tombstones")
                if records:
                    await asyncio.to_thread(copy.write, records)
                copy.position = await consumer.position(place)

    async def _end(self, consumer: AIOKafkaConsumer) -> tuple[float, int]:
        """The time, and the end of the changelog at that time or later."""
        asked = clock()
        return asked, (await consumer.end_offsets([self._place]))[self._place]

    def _take(self, copy: _Folder) -> None:
        """A copy is up to date, and is read from now on."""
        if copy is not self._read:
            for replaced in self._replaced:
                replaced.close()
            self._replaced = [] if self._read is None else [self._read]
            self._read = copy
        copy.begun = copy.begun or copy.store.named(FACT) is not None

    def close(self) -> None:
        """Delete the folders."""
        for folder in {self._read or self._built, self._built, *self._replaced}:
            folder.close()


class _Folder:
    """A temporary folder with what was read of the changelog.

    Attributes:
        position: offset of the next record.
        whole_at: when it was last known to be up to date, at first when it was begun.
        begun: whether there are groups to read.
    """

    def __init__(self) -> None:
        self._temporary = temporary_folder()
        self.path = Path(self._temporary.name)
        self.store = Store(self.path / "db", sync=False)
        self.position = 0
        self.whole_at = clock()
        self.begun = False

    def write(self, records: list[ConsumerRecord]) -> None:
        self.store.write({record.key: record.value for record in records})

    def close(self) -> None:
        self.store.close()
        self._temporary.cleanup()
