"""Erases the ids of removed members from the store of the groups, and with that from its changelog.

A removed version waits in the erase queue of the store, which is in the changelog like all else. A pass takes what is
due. It replaces the ids, which is committed as any other change, rewrites the files of the store, and then deletes the
entries of the queue. A member that takes over repeats a pass that has not ended.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import orjson

from stream_lsh.embedded.group_erasing import without_ids
from stream_lsh.index.erasure.eraser import ALL_GROUPS
from stream_lsh.index.erasure.queue import PASS_ENTRIES, places
from stream_lsh.index.store.rocksdb import QUEUE_NAMES, Store, name_key
from stream_lsh.judging.verdicts import Judgement
from stream_lsh.kafka.groups.store import TIME

STEP = 1000  # versions whose ids one commit erases; the last entry of the queue may exceed that
PASS_SECONDS = 1.0  # between the starts of two passes, at least


class Erasing:
    """The erasing of a member that folds.

    Args:
        after: seconds from the removal of a version until its id is due.
        lag: seconds after which Kafka compacts a record.
        now: seconds since 1970.
        stale: whether the store was filled by others, so that its files may have ids which are erased.
    """

    def __init__(self, store: Store, after: int, lag: float, now: float, *, stale: bool) -> None:
        self._store = store
        self._after = after
        self._lag = lag
        self._stale = stale
        self._entered: dict[bytes, bytes | None] = {}
        self._began: float | None = None  # when the last pass began, in seconds since 1970
        self._done: list[str] | None = None  # entries of the pass that were taken; None: there is no pass
        self._more = False  # whether the last pass has left entries that were due
        self._sweeping: Future[None] | None = None
        # When the last pass ended, or this began. None: the record that ends the segment of that pass was sent.
        self._last: float | None = now
        self._pool = ThreadPoolExecutor(1, "erase-groups")

    def enter(self, judgement: Judgement, now: float) -> None:
        """Add the versions that a frame has removed to the queue. now: seconds since 1970."""
        at = np.flatnonzero(judgement.replaces >= 0)
        if len(at):
            name = f"{QUEUE_NAMES}{int(now) + self._after:012d}/0/{judgement.seqs[at[0]]}/0"
            versions = np.stack((judgement.left[at], judgement.replaces[at]))
            self._entered[name_key(name)] = orjson.dumps([int(now), *versions.tolist()])

    def take(self) -> dict[bytes, bytes | None]:
        """The changes of the store by what was entered since the last call."""
        entered, self._entered = self._entered, {}
        return entered

    def step(self, now: float) -> dict[bytes, bytes | None]:
        """The changes to be committed next, none if there is nothing to do. The changes before are committed.

        Args:
            now: seconds since 1970.

        Raises:
            StoreError: the store cannot be read, or not be rewritten.
        """
        if self._sweeping is not None:
            return self._swept(now)
        if self._done is None:
            if not self._due(now):
                return self._rolled(now)
            self._done, self._began, self._more, self._stale = [], now, False, False
        assert self._began is not None
        versions: list[tuple[int, int]] = []
        for place in places(self._store, f"{self._done[-1]}\0" if self._done else ""):
            self._more = len(self._done) == PASS_ENTRIES
            if self._more or len(versions) >= STEP or place.waits(self._began, self._after):
                break
            _, groups, seqs = self._store.named(place.name)
            versions += zip(groups, seqs, strict=True)
            self._done.append(place.name)
        if not versions:
            self._sweeping = self._pool.submit(self._store.sweep, ALL_GROUPS)
        return {**without_ids(self._store, versions)[0]}  # together: members of a group share values

    def _due(self, now: float) -> bool:
        """Whether a pass begins."""
        early = self._began is not None and abs(now - self._began) < max(self._after, PASS_SECONDS)
        if early and not self._more:
            return False
        first = next(places(self._store), None)
        return self._stale or (first is not None and not first.waits(now, self._after))

    def _swept(self, now: float) -> dict[bytes, bytes | None]:
        """Delete entries of a pass whose ids have left the disk."""
        if self._sweeping is None or self._done is None or not self._sweeping.done():
            return {}
        self._sweeping.result()
        done, self._done = self._done[:STEP], self._done[STEP:]
        if not self._done:
            self._done = self._sweeping = None
            self._last = now
        return dict.fromkeys(map(name_key, done))

    def _rolled(self, now: float) -> dict[bytes, bytes | None]:
        """A tombstone for a key that is not there, once the pass is old enough: Kafka compacts no segment before a
        record begins the next one."""
        if self._last is None or now < self._last + self._lag:
            return {}
        self._last = None
        return {name_key(TIME): None}

    def close(self) -> None:
        """Wait until the store is not used any more."""
        self._pool.shutdown()
