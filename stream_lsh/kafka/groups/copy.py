"""What the role group remembers: a store on this disk, a copy of the changelog, and thus of any use only as one.

The changelog, compacted, has every value of the store by its key; its records are in the transaction of the events and
the position that they belong to. What is committed is in the store a moment later. So whoever takes over compares the
store's position with the one that is committed: where they are the same, nothing is missing; else the changelog has
what came since, and is read to its end.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_lsh.errors import DamagedError
from stream_lsh.index.store.rocksdb import Store, name_key
from stream_lsh.kafka.consumer.position import REBUILD, Reading, bounds_of, facts_of

VERSION = 2
FOLDER = "groups"
POLL_MS = 500
PLACE = "place"
READING = Reading("changes", "restored", REBUILD)
log = logging.getLogger("stream_lsh.kafka.groups")


@dataclass(frozen=True, slots=True)
class Folded:
    """What the role commits beside its position. last: offset of the last frame that is folded, -1 before the first.
    state: of which pipeline's groups, so that nobody goes on with another's store."""

    last: int
    state: str

    @classmethod
    def nothing(cls) -> Folded:
        """Before the first frame."""
        return cls(-1, uuid.uuid4().hex)

    def metadata(self) -> str:
        """As text for an offset commit."""
        return orjson.dumps({"version": VERSION, "last": self.last, "state": self.state}).decode()

    @classmethod
    def of(cls, text: str, group: str) -> Folded:
        """What `metadata` has given.

        Raises:
            StoreError: somebody else has committed, or another version.
        """
        found = facts_of(text, group, VERSION, "state")
        return cls(found["last"], str(found["state"]))


class Copy:
    """The store in a folder, which may be lost.

    Attributes:
        store: what is in it. position: of the memberships that are folded into it. changelog: an offset up to which it
            has all changes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = self._opened()

    @classmethod
    def of(cls, folder: Path, state: str, position: int) -> Copy:
        """That of these groups, at this position of the memberships or before it; else an empty one.

        Raises:
            StoreError: another process has it, or the system refuses it.
        """
        copy = cls(folder)
        if copy._place.get("state", state) != state or copy.position > position:
            log.warning("%s has other groups: it is deleted, and read again from the changelog", folder)
            copy.wipe()
        if "state" not in copy._place:  # before anything is in it
            copy._place = {"state": state}
            copy.write({}, 0, None)
        return copy

    def _opened(self) -> Store:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            # Not synced: what a crash of the machine takes is read again.
            store = Store(self.folder / "db", sync=False)
            self._place: dict[str, Any] = store.named(PLACE) or {}
        except DamagedError as error:
            log.warning("%s is deleted, and read again from the changelog: %s", self.folder, error)
            shutil.rmtree(self.folder)
            return self._opened()
        return store

    def wipe(self) -> None:
        """Begin with nothing."""
        self.store.close()
        shutil.rmtree(self.folder)
        self.store = self._opened()

    @property
    def position(self) -> int:
        return int(self._place.get("position", 0))

    @property
    def changelog(self) -> int:
        return int(self._place.get("changelog", 0))

    def write(self, changes: Mapping[bytes, bytes | None], position: int, changelog: int | None) -> None:
        """Write what was committed with a position. changelog: offset of one of its records; None: there are none."""
        self._place |= {"position": position} | ({} if changelog is None else {"changelog": changelog})
        values = {key: value for key, value in changes.items() if value is not None}
        values[name_key(PLACE)] = orjson.dumps(self._place)
        self.store.write(values, deleted=changes.keys() - values.keys())

    async def lacks(self, consumer: AIOKafkaConsumer, changelog: TopicPartition, position: int) -> int:
        """How many records of the changelog are still to be read, so that this is the store of a position; 0: it is. A
        consumer, to which the changelog is assigned, stands before them.

        Raises:
            StoreError: the changelog was deleted, or has lost its end.
        """
        bounds = (await bounds_of(consumer, {changelog: self.changelog}))[changelog]
        READING.missing(changelog.topic, self.changelog, bounds)
        consumer.seek(changelog, self.changelog)
        return bounds[1] - self.changelog if self.position != position else 0

    async def read(self, consumer: AIOKafkaConsumer, changelog: TopicPartition, end: int, position: int) -> int:
        """Take some records; how many are left before the end, behind which it is the store of this position. Until
        then it is that of none, for its own is behind what is committed."""
        found = (await consumer.getmany(timeout_ms=POLL_MS)).get(changelog, [])
        at: int = min(await consumer.position(changelog), end)
        changes = {record.key: record.value for record in found}
        await asyncio.to_thread(self.write, changes, position if at == end else self.position, at)
        return end - at

    def close(self) -> None:
        self.store.close()
