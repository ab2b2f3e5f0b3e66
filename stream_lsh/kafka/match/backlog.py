"""Changelog records that were taken but not applied yet. A shard's thread applies them in batches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

APPLIED_RECORDS, APPLIED_BYTES = 256, 4 << 20  # limits of a batch
WAITING_BYTES = 2 * APPLIED_BYTES  # that may wait for the thread
MERGE_BYTES = 2 << 20  # that may wait for a merge of a standby that keeps up
Records = list[tuple[int, bytes]]


class Backlog:
    """Records to be applied, in order.

    Args:
        submit: lets the thread apply a batch of changelog offsets and values.
    """

    def __init__(self, submit: Callable[[Records], Future[None]]) -> None:
        self._submit = submit
        self._records: Records = []
        self._bytes = 0
        self._applying: deque[tuple[Future[None], int]] = deque()  # with the bytes of each

    def add(self, offset: int, value: bytes) -> None:
        """Add the next record."""
        self._records.append((offset, value))
        self._bytes += len(value)

    @property
    def full(self) -> bool:
        """Whether there are enough records for a batch."""
        return len(self._records) >= APPLIED_RECORDS or self._bytes >= APPLIED_BYTES

    @property
    def waiting(self) -> int:
        """Bytes that are not applied yet. The thread may ask, too."""
        return self._bytes + sum(size for applying, size in list(self._applying) if not applying.done())

    @property
    def behind(self) -> int:
        """Bytes that wait behind the batch that is being applied."""
        applying = [size for future, size in list(self._applying) if not future.done()]
        return self._bytes + sum(applying[1:])

    def flush(self) -> None:
        """Submit everything that was added."""
        records, size = self._records, self._bytes
        self._records, self._bytes = [], 0
        if records:
            self._applying.append((self._submit(records), size))

    async def wait(self, most: int = WAITING_BYTES) -> None:
        """Wait until at most this many bytes are not applied yet; -1: until all batches are applied.

        Raises:
            FormatError, StoreError, OutputError, Failed: from applying a batch.
        """
        while self._applying and (self._applying[0][0].done() or self.waiting > most):
            await asyncio.wrap_future(self._applying.popleft()[0])
