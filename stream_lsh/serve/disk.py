"""The disk of an index: its free space, and when writes are refused so that some of it stays free."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

from stream_lsh.index.store.errors import refusal
from stream_lsh.serve.problems import Problem

CHECK_SECONDS = 1.0  # age of a measurement
RETRY_SECONDS = 60.0  # after a failed write, before the next one
FREE, RESERVE = "disk_free_bytes", "disk_reserve_bytes"  # metrics


def is_full(error: BaseException) -> bool:
    """Whether the system refused a write because the disk, or a quota, is full."""
    return isinstance(error, Exception) and refusal(error) in (errno.ENOSPC, errno.EDQUOT)


class Disk:
    """The disk of a folder. May be used by several threads.

    Args:
        folder: exists when it is measured.
        reserve: bytes that are left free. Below that, writes are refused.
    """

    def __init__(self, folder: Path, reserve: int) -> None:
        self.reserve = reserve
        self._folder = folder
        self._measured = (float("-inf"), 0)  # when, and free bytes
        self._refused_until = float("-inf")

    @property
    def free(self) -> int:
        """Bytes that this user can still write, at most `CHECK_SECONDS` old."""
        now, (at, free) = time.monotonic(), self._measured
        if now - at > CHECK_SECONDS:
            found = os.statvfs(self._folder)
            free = found.f_bavail * found.f_frsize
            self._measured = now, free
        return free

    @property
    def full(self) -> bool:
        """Whether writes are refused."""
        return self.free < self.reserve or time.monotonic() < self._refused_until

    def failed(self) -> None:
        """A write failed although there was room: a merge needs more, or a quota is full. Refuse writes for a while."""
        self._refused_until = time.monotonic() + RETRY_SECONDS

    def problem(self) -> Problem:
        """The problem for a refused write."""
        self._measured = (float("-inf"), 0)
        return Problem(
            507, f"the disk of the index is full: {self.free:,} bytes are free, and {self.reserve:,} have to stay free "
            "(--min-free-bytes); make room, and send it again. Reading goes on, and what was answered is stored",
            after=10,
        )  # fmt: skip

    @property
    def facts(self) -> dict[str, Any]:
        """For `/v1/stats`."""
        return {"free_bytes": self.free, "reserve_bytes": self.reserve, "full": self.full}
