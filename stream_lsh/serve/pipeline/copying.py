"""The groups of a pipeline: a copy of their changelog in a temporary folder, which is read like an index."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from stream_lsh.embedded.group_ranking import Ranking
from stream_lsh.embedded.group_store import FACT, group_of, member_removals_prefix
from stream_lsh.embedded.temporary import temporary_folder
from stream_lsh.index.store.column_families import limit_cache
from stream_lsh.index.store.rocksdb import MEMBERS, Store, name_key
from stream_lsh.kafka.client import private
from stream_lsh.kafka.client.clients import consuming
from stream_lsh.kafka.consumer.group_member import check_reading
from stream_lsh.kafka.names import Topics, largest_record
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.topics import tombstones_kept

ROLE = "serve"
FACT_KEY = name_key(FACT)
POLL_MS = 500
MOST_CHANGES = 65_536  # that wait for the end of their commit
ASK_SECONDS = 30.0  # between two questions for the end of the changelog


@dataclass(frozen=True, slots=True)
class _Commit:
    """What the changelog has of a commit of the role group. cut: the rest of one."""

    values: Mapping[bytes, bytes | None]
    fact: Mapping[str, Any]
    cut: bool


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
    def ranking(self) -> Ranking | None:
        """The groups in the orders of their table; None if there are none to read."""
        return self._read.ranking if self._read is not None else None

    @property
    def store(self) -> Store | None:
        """The store of the groups, deleted at the end; None if there are none to read."""
        return self._read.store if self._read is not None and self._read.ranking is not None else None

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
                    if copy is not self._read or copy.ranking is None:
                        await asyncio.to_thread(self._take, copy)
                    copy.whole_at = asked
                    up_to_date(True)
                records = (await consumer.getmany(timeout_ms=POLL_MS)).get(place, [])
                check_reading(consumer, place.topic)
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
        copy.rank()

    def close(self) -> None:
        """Delete the folders."""
        for folder in {self._read or self._built, self._built, *self._replaced}:
            folder.close()


class _Folder:
    """A temporary folder with what was read of the changelog.

    Attributes:
        position: offset of the next record.
        whole_at: when it was last known to be up to date, at first when it was begun.
        ranking: of the groups; None as long as there are none to read.
    """

    def __init__(self) -> None:
        self._temporary = temporary_folder()
        self.path = Path(self._temporary.name)
        self.store = Store(self.path / "db", sync=False)
        self.position = 0
        self.whole_at = clock()
        self.ranking: Ranking | None = None
        self._begun: dict[bytes, bytes | None] = {}  # of a commit whose last record, the fact, is not read yet
        self._fact: Mapping[str, Any] = {}
        self._cut = False  # a part of that commit is in the ranking already

    def rank(self) -> None:
        """Build the ranking, unless it is there or there are no groups."""
        if self.ranking is None and (fact := self.store.named(FACT)) is not None:
            self.ranking = Ranking(self.store)
            self._begun, self._fact, self._cut = {}, fact, True

    def write(self, records: list[ConsumerRecord]) -> None:
        if not records:
            return
        commits = [] if self.ranking is None else list(self._commits(records))
        self.store.write({record.key: record.value for record in records}, written=lambda: self._note(commits))

    def _commits(self, records: list[ConsumerRecord]) -> Iterator[_Commit]:
        """The commits that end with these records. Large ones are cut."""
        for record in records:
            if record.key == FACT_KEY:
                self._fact = orjson.loads(record.value)
                yield _Commit(self._begun, self._fact, self._cut)
                self._begun, self._cut = {}, False
            elif record.key[:1] != MEMBERS or self.store.value(record.key) is None:  # it may be read again
                self._begun[record.key] = record.value
                if len(self._begun) == MOST_CHANGES:
                    yield _Commit(self._begun, self._fact, self._cut)
                    self._begun, self._cut = {}, True

    def _note(self, commits: Sequence[_Commit]) -> None:
        for commit in commits:
            values = commit.values
            if commit.cut:  # its removals of members may be in the part before
                for group in {group_of(key) for key in commit.values if key[:1] == MEMBERS}:
                    values = {**dict(self.store.scan(member_removals_prefix(group))), **values}
            if self.ranking is not None:
                self.ranking.note(values, commit.fact)

    def close(self) -> None:
        if self.ranking is not None:
            self.ranking.close()
        self.store.close()
        self._temporary.cleanup()
