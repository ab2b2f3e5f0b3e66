"""A folder for an index that is not to stay."""

from __future__ import annotations

import tempfile
from contextlib import suppress

from stream_lsh.errors import OutputError

MEMORY = "/dev/shm"  # writable also where all disks are read-only


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A new folder that is deleted at the end: in $TMPDIR or the system's place, in memory if neither can be written.

    Raises:
        OutputError: there is no place for it.
    """
    try:
        return tempfile.TemporaryDirectory(prefix="stream-lsh-")
    except OSError as error:
        with suppress(OSError):
            return tempfile.TemporaryDirectory(prefix="stream-lsh-", dir=MEMORY)
        raise OutputError(
            f"no folder for temporary files can be written ({error.strerror or error}); "
            "set TMPDIR to one, or name a folder for the index by --index"
        ) from None
