"""What the operating system refuses an index, in plain words and with what to do. No file is damaged by it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stream_lsh.errors import StateError

_RIGHTS = "let this user read and write there"
_ROOM = "make room on the disk"
_REMEDIES = {
    errno.EMFILE: "raise the number of files that a process may open (ulimit -n, LimitNOFILE of systemd)",
    errno.ENFILE: "raise the number of files that the system may open (sysctl fs.file-max)",
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: "mount the disk for writing",
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.ENOMEM: "leave more memory free",
    errno.EIO: "look at the disk, it fails (see dmesg)",
}


def refusal(error: Exception) -> int | None:
    """The number of what the system has refused, or None. RocksDB tells it only in its text."""
    if isinstance(error, OSError):
        return error.errno if error.errno in _REMEDIES else None
    return next((number for number in _REMEDIES if os.strerror(number) in str(error)), None)


def remedy(error: Exception) -> str:
    """What to do about an error that is no damage."""
    return _REMEDIES.get(refusal(error) or 0, "remove the cause")


def refused(where: str | Path, error: Exception) -> StateError:
    """What a user reads who can do something about it; the files stay as they are."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
    return StateError(f"{where} cannot be used: {text}; {remedy(error)} and start again, nothing is damaged")


@contextmanager
def plainly(where: Path) -> Iterator[None]:
    """Raise what the system refuses inside as a StateError."""
    try:
        yield
    except BrokenPipeError:  # nobody reads what is written meanwhile, which is no fault of these files
        raise
    except OSError as error:
        raise refused(error.filename or where, error) from None
