"""Temporary folders in memory, where the system has enough of it: RocksDB syncs files that nobody needs afterwards."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH = 2 << 30  # bytes


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    usable = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH
    with tempfile.TemporaryDirectory(dir=MEMORY if usable else None, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
