"""A folder for an index that is not to stay."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from contextlib import suppress

from stream_lsh.errors import OutputError

MEMORY = "/dev/shm"  # writable also where all disks are read-only


class TemporaryFolder:
    """A folder that is deleted at the end by the process that has made it; a process that was forked leaves it alone.

    Attributes:
        name: its path.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._finalizer = weakref.finalize(self, _delete, name, os.getpid())

    def cleanup(self) -> None:
        """Delete it now."""
        self._finalizer()

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _delete(name: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(name, ignore_errors=True)


def temporary_folder() -> TemporaryFolder:
    """A new folder that is deleted at the end: in $TMPDIR or the system's place, in memory if neither can be written.

    Raises:
        OutputError: there is no place for it.
    """
    prefix = "stream-lsh-"
    try:
        return TemporaryFolder(tempfile.mkdtemp(prefix=prefix))
    except OSError as error:
        with suppress(OSError):
            return TemporaryFolder(tempfile.mkdtemp(prefix=prefix, dir=MEMORY))
        raise OutputError(
            f"no folder for temporary files can be written ({error.strerror or error}); "
            "set TMPDIR to one, or name a folder for the index by --index"
        ) from None
