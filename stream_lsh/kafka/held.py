"""A shard that this worker holds: its replica, and the one thread in which everything that touches it happens."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from stream_lsh.errors import DamagedError, FormatError, StateError, StreamLshError
from stream_lsh.frames import Sequenced, places
from stream_lsh.index.index import disk_bytes
from stream_lsh.index.replica import Answer, Replica
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.stage import Failed

log = logging.getLogger("stream_lsh.kafka.match")

Result = TypeVar("Result")
APPLIED_RECORDS, APPLIED_BYTES = 256, 4 << 20  # changelog records handed to the replica at a time
WAITING = 2  # such batches that may wait for the thread


@dataclass(frozen=True, slots=True)
class Matched:
    """What came of a frame. documents: how many it has; seconds: what it took."""

    answer: Answer | None
    documents: int
    seconds: float


class Held:
    """A replica in `data_folder/shard-N`. All methods but the coroutines return at once.

    Attributes:
        read: offset of the last changelog record that was taken, or None; what is taken is applied soon, in order.
        start: first offset that the changelog has.
    """

    def __init__(self, settings: KafkaSettings, shard: int) -> None:
        self.settings = settings
        self.shard = shard
        self.folder = settings.data_folder / f"shard-{shard}"
        self.read: int | None = None
        self.start = 0
        self._found = False  # whether the folder had something in it that did not come from the changelog just now
        self._adopt = False
        self._broken = False
        self._gaps = 0  # frames in a row whose predecessor was missing
        self._replica: Replica | None = None
        self._taken: list[tuple[int, bytes]] = []
        self._taken_bytes = 0
        self._applying: deque[Future[None]] = deque()
        self._thread = ThreadPoolExecutor(1, f"shard-{shard}")

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # -- opening and closing ----------------------------------------------------------------------------------------

    async def open(self, start: int, end: int) -> None:
        """Open the replica and compare it with the changelog, which has the offsets from `start` to before `end`.

        Raises:
            StateError: the folder cannot be used, or knows more than the changelog has.
        """
        self.start = start
        self._replica = await self._run(lambda: self._open(start))
        await self.check(start, end)
        replica = self._opened()
        self._found = replica.last >= 0
        # Nothing is left of a changelog that once began: no record can say where the chain goes on.
        self._adopt = replica.last < 0 and start == end and start > 0

    def _open(self, start: int) -> Replica:
        try:
            return self._new()
        except DamagedError as error:  # not one in use, of other settings, or without room on its disk
            if start > 0:
                raise StateError(
                    f"{error}. The changelog of shard {self.shard} does not begin at its beginning any more (offset "
                    f"{start}); delete {self.folder} to rebuild it from what is left"
                ) from None
            log.warning("shard %d: %s; deleting %s to rebuild it from the changelog", self.shard, error, self.folder)
            shutil.rmtree(self.folder)
            return self._new()

    def _new(self) -> Replica:
        # The sequencer lets no more frames be under way than this; a replay of any of them must find its answer.
        answers = max(2048, 2 * self.settings.frames_in_flight)
        return Replica(self.settings, self.shard, self.folder, answers=answers)

    async def check(self, start: int, end: int) -> None:
        """Compare what was taken with the changelog as it is now. Raises StateError."""
        self.start = start
        offset = self._opened().changelog_offset
        if offset is not None and (self.read is None or offset > self.read):
            self.read = offset
        if self.read is None:
            return
        if self.read >= end:
            raise StateError(
                f"{self.folder} holds shard {self.shard} up to offset {self.read} of its changelog, which ends at "
                f"{end}: the topic was deleted or has lost records. If that was meant, delete {self.folder}; the shard "
                "is rebuilt from what the changelog has"
            )
        if self.read + 1 < start:
            log.warning(
                "shard %d: %s ends at offset %d of the changelog, which begins at %d now; deleting it to read all that "
                "is left", self.shard, self.folder, self.read, start,
            )  # fmt: skip
            await self._run(self._wipe)
            self._replica = await self._run(self._new)
            self.read = None

    def _wipe(self) -> None:
        replica, self._replica = self._replica, None
        if replica is not None:
            with suppress(StreamLshError):
                replica.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def close(self) -> None:
        """Apply what was taken, close the replica, end the thread. Of no effect the second time."""
        self.flush()
        replica, self._replica = self._replica, None
        try:
            if replica is not None:
                await self._run(replica.close)
        finally:
            self._thread.shutdown(wait=False)

    def _opened(self) -> Replica:
        if self._replica is None:
            raise RuntimeError(f"shard {self.shard} is not open")
        return self._replica

    # -- following the changelog ------------------------------------------------------------------------------------

    @property
    def expected(self) -> int:
        """Offset of the changelog record to be taken next."""
        return self.start if self.read is None else self.read + 1

    async def take(self, offset: int, value: bytes, *, more: bool) -> bool:
        """Take the next record of the changelog; `more` if another is at hand, so that several are applied at once.

        Returns whether it was the next one: one that is known is passed over, one beyond a hole is not taken.

        Raises:
            FormatError, StateError, OutputError: what applying an earlier one has raised.
        """
        if offset > self.expected:
            return False
        if offset == self.expected:
            self._taken.append((offset, value))
            self._taken_bytes += len(value)
            self.read = offset
        if not more or len(self._taken) >= APPLIED_RECORDS or self._taken_bytes >= APPLIED_BYTES:
            self.flush()
            while self._applying and (self._applying[0].done() or len(self._applying) > WAITING):
                await asyncio.wrap_future(self._applying.popleft())
        return True

    def flush(self) -> None:
        """Have everything applied that was taken."""
        records, self._taken, self._taken_bytes = self._taken, [], 0
        if records:
            self._applying.append(self._thread.submit(self._apply, records))

    def _apply(self, records: list[tuple[int, bytes]]) -> None:
        replica = self._opened()
        if self._broken:
            raise Failed(f"changes of shard {self.shard} could not be applied")
        replica.deactivate()  # what follows the changelog must not have the shard open
        try:
            replica.apply(records, trimmed=self.start > 0)
        except BaseException:
            # The next batch would leave a hole.
            self._broken = True
            raise

    # -- matching ---------------------------------------------------------------------------------------------------

    async def activate(self) -> None:
        """Apply what was taken and open the shard, to match.

        Raises:
            Failed: the local state did not fit the changelog, or was damaged, and is deleted: begin again.
            StateError: it is damaged although it was just built.
        """
        self.flush()
        while self._applying:
            await asyncio.wrap_future(self._applying.popleft())
        replica = self._opened()
        if self._found and replica.gap:
            # It was not there that this state left the changelog: the topic was made anew, or the disk has lost writes.
            await self._run(self._wipe)
            raise Failed(
                f"what {self.folder} held does not fit the changelog of shard {self.shard}; it is deleted and rebuilt"
            )
        try:
            await self._run(replica.activate)
        except FormatError:
            raise
        except StateError as error:
            if not self._found or self.start > 0:
                raise
            await self._run(self._wipe)
            raise Failed(f"{error}; {self.folder} is deleted, to be rebuilt from the changelog") from error

    async def match(self, values: Sequence[bytes], confirmed: Sequence[int]) -> list[Matched]:
        """Match frames, one after the other; all they store is stored when this returns.

        Args:
            confirmed: offsets at which the changelog has got changes of ours since the last call.

        Raises:
            FormatError, StateError, OutputError: see `Replica.match`.
        """
        return await self._run(lambda: self._match(values, confirmed))

    def _match(self, values: Sequence[bytes], confirmed: Sequence[int]) -> list[Matched]:
        replica = self._opened()
        for offset in confirmed:
            replica.confirmed(offset)
        found = []
        for value in values:
            if self._adopt:
                self._begin_at(replica, value)
            began = time.perf_counter()
            answer = replica.match(value)
            seconds = time.perf_counter() - began
            self._gaps = 0 if answer is not None else self._gaps + 1
            if self._gaps > self.settings.frames_in_flight:
                # A sequencer that failed has sent the missing frame again long ago.
                raise StateError(
                    f"{self.folder} ends at frame {replica.last} of signatures, and of the frames topic the next one "
                    f"does not come; if the topics are whole, delete {self.folder}: it is rebuilt from the changelog"
                )
            frame = Sequenced.decode(value, self.settings).frame
            found.append(Matched(answer, len(places(frame, self.settings)[2]), seconds))
        return found

    def _begin_at(self, replica: Replica, value: bytes) -> None:
        """Go on with the chain at the first frame that comes, where the changelog was emptied."""
        self._adopt = False
        sequenced = Sequenced.decode(value, self.settings)
        if sequenced.predecessor > replica.last:
            log.warning(
                "shard %d: its changelog was emptied up to offset %d; it begins empty, with the frame at %d of "
                "signatures", self.shard, self.start, sequenced.offset,
            )  # fmt: skip
            replica.last = sequenced.predecessor
            replica.changelog_offset = self.start - 1

    @property
    def has_state(self) -> bool:
        """Whether a frame was ever stored, or the changelog once had one."""
        return self._adopt or (self._replica is not None and self._replica.last >= 0)

    def size(self) -> tuple[int, int]:
        """Documents of the shard, and bytes of its folder."""
        replica = self._replica
        return 0 if replica is None else replica.count, disk_bytes(self.folder)
