"""A lock that gives a data folder to one worker at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stream_lsh.errors import StoreError, UsageError


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder inside the context, or until the process ends in any way. A missing folder is created.

    Raises:
        StoreError: another worker uses it.
        UsageError: it cannot be created, written or locked.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UsageError(f"data_folder {folder} cannot be used: {error.strerror}.") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"data_folder {folder} is in use by another worker; give each worker its own") from None
        except OSError as error:
            raise UsageError(
                f"data_folder {folder} cannot be locked: {error.strerror}. Use a file system with locks, best a local "
                "one."
            ) from None
        yield
    finally:
        os.close(descriptor)
