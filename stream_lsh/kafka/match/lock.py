"""One worker at a time has a data folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from stream_lsh.errors import StateError, UsageError


class FolderLock:
    """Held until `release`, or until the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def take(self) -> None:
        """Make the folder if it is missing, and take it.

        Raises:
            StateError: another worker has it. UsageError: it cannot be made, written or
            locked.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UsageError(f"data_folder {self._folder} cannot be used: {error.strerror}.") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise StateError(
                    f"data_folder {self._folder} is in use by another worker; give each worker its own"
                ) from None
            raise UsageError(
                f"data_folder {self._folder} cannot be locked: {error.strerror}. Use a file system with locks, "
                "best a local one."
            ) from None
        self._descriptor = descriptor

    def release(self) -> None:
        """Give it back. Of no effect if it was not taken."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
