"""The state of the role group: a store on the local disk. It is rebuilt from the changelog if it is lost.

The compacted changelog has every value of the store by its key. Its records are in the same transaction as the events
and the position that they belong to; the store is written right after. A new member compares the store's position with
the committed one. If they differ, it reads the rest of the changelog. Kafka deletes the tombstones of a compacted topic
some time after their key: a store that is older than that would keep ended groups, so it is read again as a whole.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_lsh.errors import DamagedError
from stream_lsh.index.store.errors import plainly
from stream_lsh.index.store.rocksdb import Store, name_key
from stream_lsh.kafka.consumer.delivery import Placed
from stream_lsh.kafka.consumer.group_member import check_reading
from stream_lsh.kafka.consumer.position import REBUILD, Reading, bounds_of, facts_of
from stream_lsh.wording import duration

VERSION = 2
FOLDER = "groups"
POLL_MS = 500
PLACE = "place"
TIME = "time"  # no value is ever written under this name; a tombstone for it shows the broker's time
READING = Reading("changes", "restored", REBUILD)
log = logging.getLogger("stream_lsh.kafka.groups")


@dataclass(frozen=True, slots=True)
class Folded:
    """What the role commits with its position.

    Attributes:
        last: offset of the last folded frame, -1 before the first.
        state: id of these groups, so that no member uses the store of another pipeline.
    """

    last: int
    state: str

    @classmethod
    def nothing(cls) -> Folded:
        """The state before the first frame."""
        return cls(-1, uuid.uuid4().hex)

    def metadata(self) -> str:
        """The text for an offset commit."""
        return orjson.dumps({"version": VERSION, "last": self.last, "state": self.state}).decode()

    @classmethod
    def of(cls, text: str, group: str) -> Folded:
        """Parse a text of `metadata`.

        Raises:
            StoreError: another program or another version has committed.
        """
        found = facts_of(text, group, VERSION, "state")
        return cls(found["last"], str(found["state"]))


class LocalStore:
    """The store in a folder. It may be lost.

    Attributes:
        store: the contents.
        position: offset in memberships up to which they are folded into it.
        changelog: offset up to which it has all changes.
        time: when it had all changes that there were, in ms since 1970 by the broker's clock.
        restored: whether it has read changes from the changelog since it was opened.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.restored = False
        self._state: str | None
        self.position: int
        self.changelog: int
        self.time: int
        self.store = self._opened()

    @classmethod
    def of(cls, folder: Path, state: str, position: int) -> LocalStore:
        """The store of these groups, at or before this position in memberships. Another store is replaced by an empty
        one.

        Raises:
            StoreError: another process uses it, or the system refuses access.
        """
        local = cls(folder)
        if local._state != state or local.position > position:
            if local._state is not None:
                log.warning("%s has other groups: it is deleted, and read again from the changelog", folder)
            local._wipe(state)
        return local

    def catch_up(self, now: int, kept: int) -> None:
        """Prepare for reading the changelog on. A store that may miss tombstones is emptied.

        Args:
            now: ms since 1970 by the broker's clock.
            kept: ms for which the changelog keeps tombstones.
        """
        # A changelog that is read from its beginning has the tombstones of all values that this reader sees, for `kept`
        # from now on. Half of it is for the reading itself.
        left = now - self.time
        if self.changelog and 2 * left < kept:
            return
        if self.changelog:
            log.warning(
                "%s was left %s ago, and the changelog keeps tombstones for %s: it is deleted, and read again from the "
                "changelog", self.folder, duration(left / 1000), duration(kept / 1000),
            )  # fmt: skip
        self._wipe(self._state, now)

    def _opened(self) -> Store:
        with plainly(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        try:
            # Not synced: what is lost in a crash of the machine is read again.
            store = Store(self.folder / "db", sync=False)
            place = store.named(PLACE) or {}
        except DamagedError as error:
            log.warning("%s is deleted, and read again from the changelog: %s", self.folder, error)
            self._delete()
            return self._opened()
        self._state = place.get("state")
        self.position, self.changelog, self.time = (place.get(name, 0) for name in ("position", "changelog", "time"))
        return store

    def _delete(self) -> None:
        with plainly(self.folder):
            shutil.rmtree(self.folder)

    def _wipe(self, state: str | None, time: int = 0) -> None:
        """Make the store an empty one of these groups. time: when its reading of the changelog begins."""
        if self.store.named(PLACE) is not None:  # else it is empty
            self.store.close()
            self._delete()
            self.store = self._opened()
        self._state, self.time = state, time
        self.write({}, 0, None)

    def write(self, changes: Mapping[bytes, bytes | None], position: int, placed: Placed | None) -> None:
        """Write what was committed with a position. placed: one of its changelog records; None: there are none."""
        self.position = position
        if placed is not None:
            self.changelog, self.time = placed.offset, max(self.time, placed.time)
        values = {key: value for key, value in changes.items() if value is not None}
        values[name_key(PLACE)] = orjson.dumps(
            {"state": self._state, "time": self.time, "position": position, "changelog": self.changelog}
        )
        self.store.write(values, deleted=changes.keys() - values.keys())

    async def lacks(self, consumer: AIOKafkaConsumer, changelog: TopicPartition, position: int) -> int:
        """Seek the consumer to the changelog records that are not in the store. Returns how many must be read until the
        store is that of `position`; 0: it is already.

        Raises:
            StoreError: the changelog was deleted, or has lost its end.
        """
        bounds = (await bounds_of(consumer, {changelog: self.changelog}))[changelog]
        READING.missing(changelog, self.changelog, bounds)
        consumer.seek(changelog, self.changelog)
        return bounds[1] - self.changelog if self.position != position else 0

    async def read(self, consumer: AIOKafkaConsumer, changelog: TopicPartition, end: int, position: int) -> int:
        """Apply some changelog records, and return how many remain before `end`. At `end` the store is that of
        `position`. Until then its own position stays behind the committed one.

        Raises:
            Failed: aiokafka has stopped reading.
        """
        check_reading(consumer, changelog.topic)
        found = (await consumer.getmany(timeout_ms=POLL_MS)).get(changelog, [])
        at: int = min(await consumer.position(changelog), end)
        self.restored = self.restored or bool(found)
        changes = {record.key: record.value for record in found}
        placed = Placed(at, found[-1].timestamp if found else self.time)
        await asyncio.to_thread(self.write, changes, position if at == end else self.position, placed)
        return end - at

    def close(self) -> None:
        self.store.close()
