"""A shard of this worker: its replica, and the single thread that uses it."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeVar

from aiokafka import TopicPartition

from stream_lsh.errors import DamagedError, ForeignError, StoreError, StreamLshError
from stream_lsh.index.store.errors import plainly
from stream_lsh.index.store.files import disk_bytes
from stream_lsh.kafka.consumer.position import place_of
from stream_lsh.kafka.match.backlog import MERGE_BYTES, Backlog
from stream_lsh.kafka.match.copy import OtherOwner, Rebuild, begins_with_snapshot
from stream_lsh.kafka.match.replica import Answer, Replica
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.bases import Mark
from stream_lsh.wire.sequenced import Sequenced

log = logging.getLogger("stream_lsh.kafka.match")

Result = TypeVar("Result")
Confirmed = tuple[int | Mark, int, int]
"""The frame of our change, or our snapshot record; its offset in the changelog; and how many records it is there."""


class Phase(Enum):
    """What a shard does here. Each rebalance begins one of the first two."""

    STANDBY = "follows the changelog, and another worker matches"
    RECOVERING = "follows the changelog, and is to match then"
    ACTIVE = "matches frames"
    CLOSED = "applies what was taken, and ends"


GAP_SECONDS = 60.0  # how long the next frame may be missing while later ones have arrived


@dataclass(frozen=True, slots=True)
class Matched:
    """The result of a frame, and the seconds that it took."""

    answer: Answer | None
    seconds: float


class Held:
    """A replica in `data_folder/shard-N`. All methods except the coroutines return at once.

    Args:
        foreign: gets shard and offset of each changelog record that no version of this program writes. Called by the
            shard's thread.

    Attributes:
        read: offset of the last changelog record that was taken, or None. It is applied soon, in order.
        start: first offset of the changelog.
        deleted: the offset up to which this worker has deleted records of the changelog since then.
        phase: see `Phase`.
        erases: whether `clean` may have work.
        judged: the last frame that the judge had completed when this member began to answer; -1: unknown.
        backlog: records that were taken but not applied yet.
        confirmed: our changes and snapshot records that were acknowledged, for the shard's thread.
    """

    def __init__(
        self, settings: KafkaSettings, shard: int,
        foreign: Callable[[int, int, ForeignError], object] = lambda shard, offset, error: None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self._foreign = partial(foreign, shard)
        self.shard = shard
        self.folder = settings.data_folder / f"shard-{shard}"
        self._deleted = settings.data_folder / f"shard-{shard}.deleted"  # the folder while it is being deleted
        self.read: int | None = None
        self.start = self.deleted = 0
        self.erases = settings.erase_hours is not None or settings.cleans
        self.judged = -1
        self.confirmed: deque[Confirmed] = deque()
        self._found = False  # whether the folder had contents that did not come from the changelog just now
        self.phase = Phase.STANDBY
        self._gap_since: float | None = None
        self._matched = time.monotonic()  # when a frame was last matched or applied, or this was opened
        self._replica: Replica | None = None
        self._opening: asyncio.Future[None] | None = None
        self._thread = ThreadPoolExecutor(1, f"shard-{shard}")
        self.backlog = Backlog(lambda records: self._thread.submit(self._plainly, lambda: self._apply(records)))

    def _enter(self, phase: Phase) -> None:
        if self.phase is not Phase.CLOSED:
            self.phase = phase

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._plainly, work)

    def _plainly(self, work: Callable[[], Result]) -> Result:
        """Do work in the shard's thread. An error of the system, as a full disk, names the folder and the remedy."""
        with plainly(self.folder):
            return work()

    # -- opening and closing ----------------------------------------------------------------------------------------

    async def open(self, start: int) -> None:
        """Open the replica, or wait for an opening that a cancelled call has begun. `check` must follow.

        Args:
            start: the first offset of the changelog.

        Raises:
            StoreError: the folder is unusable.
        """
        if self._opening is None:
            self.start = start
            self._opening = asyncio.get_running_loop().run_in_executor(self._thread, self._plainly, self._open)
        await asyncio.shield(self._opening)

    def _open(self) -> None:
        self._sweep()
        try:
            self._replica = self._new()
        except DamagedError as error:
            self._delete(_what(error), whole=self._whole)
            self._replica = self._new()
        self._found = self._replica.last >= 0

    def _new(self) -> Replica:
        hours = self.settings.erase_hours
        after = None if hours is None else round(3600 * hours)
        limit = self.settings.min_cleanable_bytes if self.settings.cleans else None
        return Replica(self.settings, self.shard, self.folder, erase_after=after, limit=limit, foreign=self._foreign)

    @property
    def _whole(self) -> bool:
        """Whether the changelog has all that is needed, although it begins after 0. With a window `_activate` counts
        what is missing."""
        shortened = self.settings.window is not None or self.settings.erase_hours is not None
        return shortened or begins_with_snapshot(self.folder, self.start)

    def check(self, start: int, end: int, *, assigned: bool = False) -> None:
        """Compare the replica with the changelog, which has the offsets from `start` to before `end`, and follow it
        from here on. assigned: whether this worker is to match the frames, so that nothing may hold up the recovery.

        Raises:
            StoreError: the replica is ahead of the changelog.
        """
        self.start = start
        self._enter(Phase.RECOVERING if assigned else Phase.STANDBY)
        if reached := self.reached:
            self.read = reached - 1
        if self.read is not None and self.read >= end:
            raise StoreError(
                f"{self.folder} holds shard {self.shard} up to offset {self.read} of its changelog, which ends at "
                f"{end}: the topic was deleted or has lost records. If that was meant, delete {self.folder}; the shard "
                "is rebuilt from what the changelog has"
            )
        if self.read is not None and self.read + 1 < start:
            # It may have all of them nevertheless: after another owner's records it does not count its own.
            log.warning(
                "shard %d: %s ends at offset %d of the changelog, which now begins at %d; the next "
                "record shows whether any are missing in between", self.shard, self.folder, self.read, start,
            )  # fmt: skip
            self.read = start - 1

    def _delete(self, reason: str, *, whole: bool = False) -> None:
        """Delete the folder, so that the shard is rebuilt from the changelog. whole: the changelog has all that is
        needed.

        Raises:
            StoreError: the changelog has lost its start, so that the folder may be the only copy.
        """
        place = place_of(TopicPartition(Topics.of(self.settings).changelog, self.shard), self.start)
        if self.start > 0 and not whole and place not in self.settings.accept_trimmed_changelog:
            raise StoreError(
                f"{reason}. The changelog of shard {self.shard} was trimmed, it begins at offset {self.start}. If the "
                "disk of another worker has the whole shard, start that one. Else start this one with "
                f"--accept-trimmed-changelog {place}: {self.folder} is deleted, and the shard is rebuilt from the rest "
                "of the changelog"
            )
        log.warning("shard %d: %s; deleting %s to rebuild it from the changelog", self.shard, reason, self.folder)
        with suppress(StreamLshError):
            self._shut()
        # Renamed first: half a folder would be damage, which does not say that the changelog is whole.
        self._sweep()
        with plainly(self.folder):
            self.folder.rename(self._deleted)
        self._sweep()

    def _sweep(self) -> None:
        """Delete what is left of a folder that was given up."""
        with plainly(self._deleted):
            if self._deleted.exists():
                shutil.rmtree(self._deleted)

    def _anew(self, reason: str, *, whole: bool = False) -> Failed:
        """Delete the folder, see `_delete`. Returns the error for this run; the next run begins with the changelog."""
        self._delete(reason, whole=whole)
        return Failed(f"shard {self.shard} begins again from its changelog")

    async def close(self) -> None:
        """Apply what was taken, close the replica and end the thread, after its current work. A second call has no
        effect."""
        if self.phase is Phase.CLOSED:
            return
        self.phase = Phase.CLOSED
        self.backlog.flush()
        try:
            await self._run(self._shut)
        finally:
            self._thread.shutdown(wait=False)

    def _shut(self) -> None:
        replica, self._replica = self._replica, None
        if replica is not None:
            replica.close()

    def _opened(self) -> Replica:
        """The replica. Raises Failed if its folder was deleted meanwhile: the batch that did so is not awaited yet."""
        if self._replica is None:
            raise Failed(f"shard {self.shard} is not open")
        return self._replica

    # -- following the changelog ------------------------------------------------------------------------------------

    @property
    def reached(self) -> int:
        """The offset after the last changelog record that the replica has."""
        known = self.read, self._opened().changelog_offset
        return 1 + max(-1 if offset is None else offset for offset in known)

    @property
    def expected(self) -> int:
        """Offset of the next changelog record to be taken."""
        return self.start if self.read is None else self.read + 1

    @property
    def settled(self) -> int:
        """Offset of the first changelog record that does not count yet: `expected`, or earlier that of the first part
        of a record whose other parts may follow."""
        begin = self._opened().begin
        return self.expected if begin is None else min(begin, self.expected)

    async def take(self, offset: int, value: bytes, *, more: bool) -> bool:
        """Take the next record of the changelog.

        Args:
            more: whether another one is available, so that several are applied together.

        Returns:
            False for a record after a gap, which is not taken. Known records are skipped. So are records that arrive
            after the shard became active: `check` returns to them.

        Raises:
            FormatError, StoreError, OutputError: from applying an earlier record, see `Replica.apply`.
        """
        if self.phase is Phase.ACTIVE:
            return True
        if offset > self.expected:
            return False
        if offset == self.expected:
            self.backlog.add(offset, value)
            self.read = offset
        if not more or self.backlog.full:
            self.backlog.flush()
            await self.backlog.wait()
        return True

    def _apply(self, records: list[tuple[int, bytes]]) -> None:
        replica = self._replica
        if replica is None or replica.torn:  # the next batch would leave a gap
            raise Failed(f"changes of shard {self.shard} could not be applied")
        replica.deactivate()  # a shard that follows the changelog must not be open
        try:
            replica.apply(records, start=self.start)
        except DamagedError as error:
            raise self._for_us(error) from error
        except Rebuild as error:
            raise self._anew(str(error), whole=error.whole or self._whole) from None
        self._matched = time.monotonic()
        self._intact(lambda: replica.flush(self._in_haste))

    def _in_haste(self) -> bool:
        """Whether to leave merges for later. A merge would hold up the changelog of all shards of this worker. It does
        where an owner would pause for merges, too: without a bound, a changelog that never ends would put them off for
        ever."""
        if self.phase is not Phase.STANDBY:
            return True
        return self.backlog.behind > MERGE_BYTES and not self._opened().pause

    # -- matching ---------------------------------------------------------------------------------------------------

    async def activate(self) -> None:
        """Apply what was taken and open the shard for matching.

        Raises:
            Failed: the local state did not fit the changelog, or was damaged, and is deleted. Begin again.
            StoreError: as `_delete`; or a newly built state is damaged, or cannot be opened.
        """
        self._enter(Phase.ACTIVE)
        self.backlog.flush()
        await self.backlog.wait(-1)
        await self._run(self._activate)

    def _activate(self) -> None:
        replica = self._opened()
        if self._found and replica.gap:
            # The gap is from before this run: the topic was created again or trimmed, or the disk has lost writes.
            raise self._anew(
                f"what {self.folder} holds does not fit the changelog: the change after frame {replica.last} of "
                "signatures is in neither"
            )
        if replica.cycle.taking is not None:
            raise StoreError(
                f"the changelog of shard {self.shard} begins at offset {self.start} with a snapshot that has no "
                "end, so what was stored before is missing. If the disk of another worker has the whole shard, start "
                "that one; else rebuild under another topic_prefix (stream-lsh kafka reindex)"
            )
        if self.start > 0 and not self._found and self.settings.window is None and replica.cycle.cleaned is None:
            log.warning(
                "shard %d: its changelog begins at offset %d; the shard lacks the %d records before, which "
                "are missing", self.shard, self.start, self.start,
            )  # fmt: skip
        if self.settings.cleans and replica.store.joint:
            log.info("shard %d: %s has ids and texts together: no cleaning by size begins", self.shard, self.folder)
        replica.go_on()
        self._intact(replica.activate)
        if replica.missing and self.settings.window is not None:
            log.warning(
                "shard %d: its changelog begins at offset %d; %d earlier documents are missing, which are within the "
                "window", self.shard, self.start, replica.missing,
            )  # fmt: skip

    def _intact(self, work: Callable[[], None]) -> None:
        """Do what opens the shard.

        Raises:
            Failed, StoreError: see `activate`.
        """
        try:
            work()
        except DamagedError as error:
            if not self._found:
                raise self._for_us(error) from error
            raise self._anew(_what(error), whole=self._whole) from error

    def _for_us(self, error: DamagedError) -> StoreError:
        """An error of the index, with the remedy for Kafka."""
        left = f" from offset {self.start} on, which is all that is left of it" if self.start else ""
        return StoreError(f"{_what(error)}; delete {self.folder}: it is rebuilt from the changelog{left}")

    async def match(self, values: Sequence[bytes]) -> list[Matched]:
        """Match frames in order. When this returns, everything is stored, and the shard has all of `confirmed`.

        Raises:
            FormatError, StoreError, OutputError: see `Replica.match`.
            Failed: see `Replica.confirmed`.
        """
        return await self._run(lambda: self._match(values))

    def _own(self) -> Replica:
        """The replica, with what was confirmed."""
        replica = self._opened()
        try:
            while self.confirmed:
                if replica.confirmed(*self.confirmed.popleft()):
                    log.info(
                        "shard %d: everything due is erased; the changelog is needed from offset %d on", self.shard,
                        replica.cycle.cleaned or 0,
                    )  # fmt: skip
        except OtherOwner as error:  # the other owner's records must be read first
            raise Failed(str(error)) from None
        return replica

    async def agrees(self, records: Sequence[tuple[int, bytes]], *, whole: bool) -> bool:
        """See `Copy.agrees`."""
        return await self._run(lambda: self._opened().agrees(records, whole=whole))

    async def clean(self) -> tuple[Mark, bytes] | None:
        """Do one cleaning step. Returns the snapshot record to be sent next, after all that was matched.

        Raises:
            StoreError, OutputError: the shard is damaged, or cannot be written.
            Failed: see `Replica.confirmed`.
        """
        return await self._run(self._clean)

    def _clean(self) -> tuple[Mark, bytes] | None:
        replica = self._own()
        replica.answered = max(replica.answered, self.judged)
        try:
            deletes = self.needed <= max(self.start, self.deleted)
            return replica.clean(time.monotonic() - self._matched, deletes=deletes)
        except DamagedError as error:
            raise self._for_us(error) from error

    def _match(self, values: Sequence[bytes]) -> list[Matched]:
        replica, found = self._own(), []
        for value in values:
            if (-1 if replica.changelog_offset is None else replica.changelog_offset) + 1 < self.start:
                self._begin(replica, value)
            began, last = time.perf_counter(), replica.last
            try:
                answer = replica.match(value)
            except DamagedError as error:
                raise self._for_us(error) from error
            found.append(Matched(answer, time.perf_counter() - began))
            if answer is not None and answer.documents and replica.pause:  # lets merges keep up
                time.sleep(replica.pause * answer.documents / 1000)
            if replica.last > last:
                self._gap_since, self._matched = None, time.monotonic()
            elif answer is None and self._gap_since is None:
                self._gap_since = time.monotonic()
                log.warning(
                    "shard %d: the frame after the one at %d of signatures is missing; later ones are ignored until it "
                    "arrives", self.shard, last,
                )  # fmt: skip
        return found

    def _begin(self, replica: Replica, value: bytes) -> None:
        """Continue the chain at the first new frame. Nothing is left of the changelog, which once had records that the
        replica does not have: so no record shows whether its state is the end of the chain.

        Raises:
            StoreError, Failed: the state is of an earlier frame; see `_delete`.
        """
        sequenced = Sequenced.decode(value, self.settings)
        if sequenced.offset <= replica.last:
            return
        if sequenced.predecessor > replica.last:
            if replica.last >= 0:
                raise self._anew(
                    f"{self.folder} ends at frame {replica.last} of signatures, but the next one comes after frame "
                    f"{sequenced.predecessor}, and what is in between is missing in the changelog"
                )
            log.info("shard %d begins empty with the frame at %d of signatures", self.shard, sequenced.offset)
            replica.last = sequenced.predecessor
        replica.changelog_offset = self.start - 1

    @property
    def owes(self) -> bool:
        """Whether the next frame has to wait for further steps of `clean`."""
        return self._replica is not None and self._replica.owes

    def look(self) -> None:
        """Check how long the next frame has been missing. No further frame may arrive to show it.

        Raises:
            StoreError: it is missing for too long.
        """
        since, replica = self._gap_since, self._replica
        # By then a restarted or new sequencer would have sent the missing frame again.
        seconds = max(GAP_SECONDS, 3 * self.settings.session_timeout_ms / 1000)
        if since is not None and replica is not None and time.monotonic() > since + seconds:
            rebuilt = f", and if the topics are whole, delete {self.folder}: it is rebuilt from the changelog"
            raise StoreError(
                f"shard {self.shard}: {self.folder} ends at frame {replica.last} of signatures, and in partition "
                f"{self.shard} of the frames topic the next one has not come for {seconds:.0f} s, while later ones "
                f"have; look at sequence{'' if self.start else rebuilt}"
            )

    @property
    def needed(self) -> int:
        """The first changelog offset that is needed. Earlier records have left the window or are in a snapshot."""
        replica = self._replica
        forgetting, cleaned = (None, None) if replica is None else (replica.forgetting, replica.cycle.cleaned)
        return max(self.start, (forgetting and forgetting.needed) or 0, cleaned or 0)

    @property
    def oldest(self) -> int | None:
        """With a window: stream time (ms) of the first document of the oldest segment, if there is one."""
        forgetting = None if self._replica is None else self._replica.forgetting
        return next((span.first for span in forgetting.window.spans[:1]), None) if forgetting is not None else None

    def size(self) -> tuple[int, int]:
        """Number of documents in the shard, and bytes of its folder."""
        replica = self._replica
        return 0 if replica is None else replica.count, disk_bytes(self.folder)


def _what(error: DamagedError) -> str:
    """The problem without the remedy. The index puts a remedy that needs no changelog after the last semicolon."""
    return str(error).rpartition("; ")[0] or str(error)
