"""The table store of the match role, a plug-in of Faust (entry point group faust.stores, URL frames:NAME).

A changelog record has the changes of one frame, not a key and its value. The store passes it to the replica of its
shard. So the table has no keys that Faust could read or write.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, cast

from faust.stores.base import Store
from faust.types import TP, EventT

from stream_lsh.errors import StoreError
from stream_lsh.kafka.match.held import Held, Phase
from stream_lsh.kafka.match.recovery import Host
from stream_lsh.kafka.run.restarts import Failed

log = logging.getLogger("stream_lsh.kafka.match")

WAITING_BYTES = 16 << 20  # of the changelog, fetched but not applied yet; above that no more is fetched
AGAIN = 1.0  # seconds between two attempts to seek back to a record
PATIENCE = 5.0  # seconds without a record of a changelog that has more


class FrameStore(Store[bytes, bytes]):
    """The shards of this member, active or standby."""

    app: Host

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.data = cast(Any, MappingProxyType({}))  # for Faust: read-only and without keys
        self.held: dict[int, Held] = {}
        self._closing: dict[int, asyncio.Task[None]] = {}  # closing in progress, by shard
        self._ended = False
        self._reading_again: dict[int, float] = {}  # time of the last attempt, by shard
        self._heard = time.monotonic()

    # -- membership -------------------------------------------------------------------------------------------------

    async def on_rebalance(
        self, assigned: set[TP], revoked: set[TP], newly_assigned: set[TP], generation_id: int = 0
    ) -> None:
        """Close the shards that were taken away, open the new ones and compare them with the changelog. Recovery
        follows.

        Raises:
            StoreError: a folder is unusable, or the changelog is not the one that the replica was built from.
        """
        if self._ended:  # a stopping member may be assigned shards until it has left the group
            return
        topic = self.app.names.changelog
        self._heard = time.monotonic()
        self._reading_again.clear()
        mine = sorted(tp.partition for tp in assigned if tp.topic == topic)
        self._give_up(set(self.held) - set(mine))
        if not mine:
            return
        places = [TP(topic, shard) for shard in mine]
        starts = await self.app.consumer.earliest_offsets(*places)
        await asyncio.gather(*[self._hold(place.partition, starts[place]) for place in places])
        standbys = {tp.partition for tp in self.app.assignor.assigned_standbys() if tp.topic == topic}
        # Shards that are missing here were closed meanwhile, because this run ends.
        reached = {place: self.held[place.partition].reached for place in places if place.partition in self.held}
        for place, bounds in (await self.app.consumer.bounds(reached)).items():
            if (held := self.held.get(place.partition)) is not None:
                held.check(*bounds, assigned=place.partition not in standbys)
        log.info(
            "member of generation %d with the shards %s%s", generation_id,
            ", ".join(str(shard) for shard in mine if shard not in standbys) or "none",
            f", standing by for {', '.join(map(str, sorted(standbys)))}" if standbys else "",
        )  # fmt: skip

    async def _hold(self, shard: int, start: int) -> None:
        if shard in self._closing:
            await asyncio.wait([self._closing[shard]])
        if self._ended:
            return
        if shard not in self.held:
            self.held[shard] = Held(self.app.settings, shard, self.app.foreign)
        await self.held[shard].open(start)

    def _give_up(self, shards: Iterable[int]) -> None:
        """Close shards in the background: a joining member sends no heartbeat until `on_rebalance` has returned."""
        for shard in shards:
            held = self.held.pop(shard)
            self.app.probe.revoked(shard)
            self._closing[shard] = asyncio.create_task(self._close(shard, held))

    async def _close(self, shard: int, held: Held) -> None:
        try:
            await held.close()
        except Exception as error:  # the changelog has what is missing on disk
            log.warning("shard %d was closed with an error: %s", shard, error)
        finally:
            del self._closing[shard]

    async def on_recovery_completed(self, active_tps: set[TP], standby_tps: set[TP]) -> None:
        """Open the active shards for matching. Faust waits for it, but ignores errors."""
        ends = self.app.tables.recovery.active_highwaters
        await self.activate({tp.partition: ends.get(tp, -1) for tp in active_tps})

    async def activate(self, ends: Mapping[int, int]) -> None:
        """See `Host.activate`."""
        mine = [(held, end) for shard, end in ends.items() if (held := self.held.get(shard)) is not None]
        await asyncio.gather(*[self._activate(held, end) for held, end in mine if held.phase is not Phase.ACTIVE])

    async def _activate(self, held: Held, end: int) -> None:
        try:
            if held.expected <= end:
                raise Failed(f"recovery of shard {held.shard} ended before the end of its changelog")
            await held.activate()
        except Exception as error:
            if self.held.get(held.shard) is held:  # else it was taken away meanwhile, and closed
                self.app.fail(error)

    @property
    def room(self) -> bool:
        """Whether more of the changelog may be fetched."""
        waiting = self.app.tables.changelog_queue.bytes + sum(held.backlog.waiting for held in self.held.values())
        return waiting < WAITING_BYTES

    @property
    def following(self) -> bool:
        """Whether records of the changelog are arriving."""
        return time.monotonic() - self._heard < PATIENCE

    async def on_stop(self) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all shards, for good. Returns only when all are closed, also if another call began it. Cancelling the
        caller does not cancel the closing."""
        self._ended = True
        self._give_up(list(self.held))
        if closing := list(self._closing.values()):
            await asyncio.wait(closing)

    # -- recovery and standbys --------------------------------------------------------------------------------------

    async def take(self, event: EventT[Any]) -> None:
        """Take a record of the changelog.

        Faust awaits this for each record; unlike `apply_changelog_batch` it may use another thread. Faust would only
        log an error, and wait for the record for ever.
        """
        message = event.message
        held = self.held.get(message.partition)
        if held is None:
            return
        self._heard = time.monotonic()
        try:
            more = not self.app.tables.changelog_queue.empty()
            if await held.take(message.offset, message.value or b"", more=more):
                self._reading_again.pop(message.partition, None)
            else:
                await self._read_again(held, message.tp)
        except Exception as error:
            self.app.fail(error)

    async def _read_again(self, held: Held, tp: TP) -> None:
        """Seek back to a missing record: Faust clears its queues, also the changelog's, when it resumes flow."""
        recovery = self.app.tables.recovery
        for offsets in (recovery.active_offsets, recovery.standby_offsets):
            if tp in offsets:  # by these Faust skips records, and decides whether recovery is complete
                offsets[tp] = held.expected - 1
        # Records fetched before the seek may arrive after it, and make Faust skip the next ones: try again.
        if time.monotonic() - self._reading_again.get(tp.partition, 0.0) < AGAIN:
            return
        self._reading_again[tp.partition] = time.monotonic()
        start = (await self.app.consumer.earliest_offsets(tp))[tp] or 0
        if start > held.expected:
            raise Failed(
                f"the changelog of shard {held.shard} was trimmed up to offset {start} while it was read at "
                f"{held.expected}"
            )
        log.info("shard %d: reading the changelog again from offset %d", held.shard, held.expected)
        await self.app.consumer.seek_wait({tp: held.expected})

    async def nudge(self) -> None:
        """Read again if the last records of a recovery were lost: no later record would show the gap."""
        if self.app.tables.recovery.in_recovery and time.monotonic() - self._heard > PATIENCE:
            self._heard = time.monotonic()
            for shard, remaining in self.app.tables.recovery.remaining().items():
                if remaining and shard in self.held:
                    self._reading_again.pop(shard, None)
                    await self._read_again(self.held[shard], TP(self.app.names.changelog, shard))

    def apply_changelog_batch(
        self, batch: Iterable[EventT[Any]], to_key: Callable[[Any], bytes], to_value: Callable[[Any], bytes]
    ) -> None:
        """Do nothing: `take` has had each record."""

    def persisted_offset(self, tp: TP) -> int | None:
        """The offset after which recovery continues. The replica stores it in the same write as the data up to there.

        Never None for a shard of this member: Faust would use the offsets of the records that it has seen, late ones
        too.
        """
        held = self.held.get(tp.partition)
        return None if held is None else held.expected - 1

    def set_persisted_offset(self, tp: TP, offset: int) -> None:
        """Do nothing: Faust would set the offset of any delivered record, also one of a fenced owner."""

    async def need_active_standby_for(self, tp: TP) -> bool:
        return True

    # -- unused methods of a table store ----------------------------------------------------------------------------

    def reset_state(self) -> None:
        raise StoreError(f"delete {self.app.settings.data_folder} to start from the changelog")

    async def backup_partition(self, tp: TP | int, flush: bool = True, purge: bool = False, keep: int = 1) -> None:
        raise NotImplementedError("the changelog is the backup of a shard")

    def restore_backup(self, tp: TP | int, latest: bool = True, backup_id: int = 0) -> None:
        raise NotImplementedError("the changelog is the backup of a shard")
